"""Answers and questions that are generated for new training data."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any

from rl_qg.settings.keys import Section, key


@dataclass
class AnswersSettings(Section):
    """Candidate answers of passages without questions (`rl_qg.generation.answers.stage`)."""

    input: Any = key("", "file(s): .txt, or .jsonl, .json, .parquet with a context")
    output: str = key("", "the file to write, such as answers.jsonl")
    method: str = key(
        "rules",
        "rules (no model), spacy (a pipeline of that library) or extractor (trained by train-answers)",
        choices=("rules", "spacy", "extractor"),
    )
    max_per_context: int | None = key(10, "the best so many of a passage; null: all")
    passages: str = key(
        "line",
        "in text files: line (each is a passage) or paragraph (blank lines separate them)",
        choices=("line", "paragraph"),
    )
    exclude: Any = key(None, "file(s) whose passages are left out, such as the validation data")
    spacy_model: str = key("en_core_web_sm", "an installed pipeline, or its folder")
    extractor: str = key("", "the output folder of train-answers")
    min_probability: float = key(0.1, "smallest probability, by the extractor, that an answer begins at a word")
    batch_size: int = key(32, "passages")

    def faults(self) -> Iterator[str]:
        """Choices and limits."""
        yield from super().faults()
        yield from self.below(1, "batch_size")
        if self.max_per_context is not None and self.max_per_context < 1:
            yield f"max_per_context={self.max_per_context} must be at least 1, or null for all"
        yield from self.outside("min_probability")


@dataclass
class GenerateSettings(Section):
    """Candidate questions: the outputs of one beam search, or nucleus samples, best first."""

    output: str = key("", "the file to write, such as questions.jsonl")
    engine: str = key(
        "own",
        "own (beams share the encoded passage) or library (the model's generate() of transformers)",
        choices=("own", "library"),
    )
    num_beams: int = key(8, "every output of the beam search is kept")
    do_sample: bool = key(False, "nucleus samples instead of beams")
    num_samples: int = key(8, "samples per answer, with do_sample")
    top_p: float = key(0.9, "sample from the most likely tokens of this total probability")
    temperature: float = key(1.0, "of sampling")
    max_new_tokens: int = key(64, "longest question")
    rerank: Any = key(
        None, "the metric, as an entry of metrics=[…], that orders the candidates of an answer; null: probability"
    )
    keep: int | None = key(None, "write the best so many candidates of each answer; null: all")
    max_answers: int | None = key(None, "ask about so many answers, a seeded sample; null: all")
    batch_size: int = key(16, "answers per device")
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
        yield from self.below(1, "num_beams", "num_samples", "max_new_tokens", "batch_size")
        yield from self.outside("top_p", zero=False)
        if self.keep is not None and not 1 <= self.keep <= self.candidates:
            name = "num_samples" if self.do_sample else "num_beams"
            yield f"keep={self.keep} must be from 1 to {name}={self.candidates}, or null for all"
        if self.max_answers is not None and self.max_answers < 1:
            yield f"max_answers={self.max_answers} must be at least 1, or null for all"
        if not 0 < self.temperature < inf:
            yield f"temperature={self.temperature} must be above 0"
