"""How generated questions are filtered and sampled."""

from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import FRACTION, NOT_NEGATIVE, SEED, Section, key


@dataclass
class AugmentSettings(Section):
    """Filters of candidate questions, then a sample of those kept (`rl_qg.augmentation`)."""

    questions: str = key("", "the file of generate, such as questions.jsonl")
    gold: Any = key("", "file(s) of human questions; none for text without questions")
    output: str = key("", "the file to write: .json (SQuAD), .parquet or .jsonl (flat rows)")
    num_samples: int = key(90_000, "synthetic questions added, or as many as are kept", limits=NOT_NEGATIVE)
    filters: dict[str, Any] = key({}, "name and options of each, in order (group filters); null switches one off")
    sampling: str = key(
        "uniform",
        "of those kept: uniform (the paper), reward (the best) or diverse (good ones that differ)",
        choices=("uniform", "reward", "diverse"),
    )
    sample_by: str = key(
        "logprob", "what reward and diverse rank by: a filter with a measure, or a number in the questions file"
    )
    sample_relevance: float = key(
        0.5, "diverse: weight of the rank; the rest is the weight of being different", limits=FRACTION
    )
    seed: int = key(0, "of the sample", limits=SEED)
    hub_dataset: str | None = key(
        None, "Hub data set for the rows and their card, such as me/squad-augmented; null: not published"
    )
