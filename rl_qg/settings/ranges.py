"""Which settings of answers, generation and augmentation can be: late stages, whose faults are to be seen first."""

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rl_qg.settings import Settings

Fault = tuple[bool, str]
AT_LEAST_1 = (
    *("answers.batch_size", "train_answers.batch_size", "train_answers.save_steps", "generate.num_beams"),
    *("generate.num_samples", "generate.max_new_tokens", "generate.batch_size"),
)


def faults_of_augmentation(settings: "Settings") -> list[Fault]:
    """Pairs of whether a setting cannot be, and what is wrong with it."""
    answers, extractor, generate = settings.answers, settings.train_answers, settings.generate
    augment = settings.augment
    return [
        *(_below_1(settings, key) for key in AT_LEAST_1),
        _not_one_of("answers.method", answers.method, ("rules", "spacy", "extractor")),
        _not_one_of("answers.passages", answers.passages, ("line", "paragraph")),
        (
            answers.max_per_context is not None and answers.max_per_context < 1,
            f"answers.max_per_context={answers.max_per_context} must be at least 1, or null for all",
        ),
        _no_share("answers.min_probability", answers.min_probability),
        (
            not 0 <= extractor.doc_stride < extractor.max_length,
            f"train_answers.doc_stride={extractor.doc_stride} must be below "
            f"train_answers.max_length={extractor.max_length}",
        ),
        (not 0 < generate.top_p <= 1, f"generate.top_p={generate.top_p} is not in (0, 1]"),
        (not 0 < generate.temperature < inf, f"generate.temperature={generate.temperature} must be above 0"),
        _not_one_of("generate.precision", generate.precision, ("no", "bf16")),
        (augment.num_samples < 0, f"augment.num_samples={augment.num_samples} must not be negative"),
        _not_one_of("augment.sampling", augment.sampling, ("uniform", "reward", "diverse")),
        _no_share("augment.sample_relevance", augment.sample_relevance),
    ]


def _below_1(settings: "Settings", key: str) -> Fault:
    section, name = key.split(".")
    value = getattr(getattr(settings, section), name)
    return value < 1, f"{key}={value} must be at least 1"


def _no_share(key: str, value: float) -> Fault:
    return not 0 <= value <= 1, f"{key}={value} is not in [0, 1]"


def _not_one_of(key: str, value: str, known: tuple[str, ...]) -> Fault:
    return value not in known, f"{key}={value} is not one of {', '.join(known)}"
