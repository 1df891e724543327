"""Answers and questions that are generated for new training data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, FRACTION, POSITIVE, SHARE, Section, key
from rl_qg.text.languages import code_fault


@dataclass
class AnswersSettings(Section):
    """Candidate answers of passages without questions (`rl_qg.generation.answers.stage`)."""

    input: Any = key("", "file(s): .txt, or .jsonl, .json, .parquet with a context")
    output: str = key("", "the file to write, such as answers.jsonl")
    method: str = key(
        "rules",
        "rules (no model), spacy (a pipeline of that library), extractor (trained by train-answers) or generator "
        "(trained with model.task=answers or multitask)",
        choices=("rules", "spacy", "extractor", "generator"),
    )
    max_per_context: int | None = key(10, "the best so many of a passage; null: all", limits=COUNT)
    passages: str = key(
        "line",
        "in text files: line (each is a passage) or paragraph (blank lines separate them)",
        choices=("line", "paragraph"),
    )
    exclude: Any = key(None, "file(s) whose passages are left out, such as the validation data")
    language: str = key(
        "auto",
        "of the passages, for the rules: a code such as ko; auto (found in each passage) or other (rules for any "
        "language alone)",
    )
    spacy_model: str = key("en_core_web_sm", "an installed pipeline, or its folder")
    extractor: str = key("", "the output folder of train-answers")
    generator: str = key("", "a generator trained with model.task=answers or multitask, such as RUN/ce")
    min_probability: float = key(
        0.1, "smallest probability, by the extractor, that an answer begins at a word", limits=FRACTION
    )
    batch_size: int = key(32, "passages", limits=COUNT)

    def faults(self) -> Iterator[str]:
        """Choices and limits."""
        yield from super().faults()
        if fault := code_fault(self.language):
            yield f"language={fault}"


@dataclass
class GenerateSettings(Section):
    """Candidate questions: the outputs of one beam search, or nucleus samples, best first."""

    output: str = key("", "the file to write, such as questions.jsonl")
    engine: str = key(
        "own",
        "own (beams share the encoded passage) or library (the model's generate() of transformers)",
        choices=("own", "library"),
    )
    num_beams: int = key(8, "every output of the beam search is kept", limits=COUNT)
    do_sample: bool = key(False, "nucleus samples instead of beams")
    num_samples: int = key(8, "samples per answer, with do_sample", limits=COUNT)
    top_p: float = key(0.9, "sample from the most likely tokens of this total probability", limits=SHARE)
    temperature: float = key(1.0, "of sampling", limits=POSITIVE)
    max_new_tokens: int = key(64, "longest question", limits=COUNT)
    rerank: Any = key(
        None, "the metric, as an entry of metrics=[…], that orders the candidates of an answer; null: probability"
    )
    keep: int | None = key(None, "write the best so many candidates of each answer; null: all")
    max_answers: int | None = key(None, "ask about so many answers, a seeded sample; null: all", limits=COUNT)
    batch_size: int = key(16, "answers per device", limits=COUNT)
    precision: str = key(
        "no",
        "no (float32) or bf16: half the memory for weights, but other questions are possible",
        choices=("no", "bf16"),
    )

    @property
    def candidates(self) -> int:
        """Questions that are decoded for each answer."""
        return self.num_samples if self.do_sample else self.num_beams

    def faults(self) -> Iterator[str]:
        """Choices and limits."""
        yield from super().faults()
        if self.keep is not None and not 1 <= self.keep <= self.candidates:
            name = "num_samples" if self.do_sample else "num_beams"
            yield f"keep={self.keep} must be from 1 to {name}={self.candidates}, or null for all"
