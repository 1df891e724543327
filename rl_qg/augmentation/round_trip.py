"""Round-trip consistency: a reader answers the question with the answer for which it was generated.

Source: Alberti, Andor, Pitler, Devlin and Collins, "Synthetic QA corpora generation with roundtrip consistency"
(2019). They keep a question if the reader's answer is the same; this filter uses its SQuAD F1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from rl_qg.augmentation.candidates import MEASURES
from rl_qg.augmentation.funnel import FilterResources, Record, RowFilter, Rule
from rl_qg.augmentation.measures import CandidateMeasure, MeasureFunction, model_identity
from rl_qg.readers.answering import AnswerReader
from rl_qg.readers.squad_scores import f1

BATCHES_AT_ONCE = 16
"""Batches that are measured together, so that windows of similar length share a forward pass."""


@dataclass
class RoundTrip(RowFilter):
    """Keeps questions that a reader answers with the candidate's answer.

    Args:
        reader: a folder of `rl-qg qa`, or folder or Hub name of any extractive reader. A reader that was trained on
            the evaluation passages would leak them.
        min_f1: lowest SQuAD F1 between the reader's answer and the candidate's; 1.0 requires the same words.
        max_length, doc_stride, max_answer_length: in tokens, as in the settings of `rl-qg qa`; so is `n_best`.
        batch_size: windows per forward pass.
    """

    reader: str = ""
    min_f1: float = 0.5
    max_length: int = 384
    doc_stride: int = 128
    max_answer_length: int = 30
    n_best: int = 20
    batch_size: int = 32

    def option_errors(self) -> list[tuple[bool, str]]:
        """No reader; numbers out of their range."""
        return [
            (not self.reader, "needs a reader: reader=FOLDER of rl-qg qa, or a Hub name"),
            (not 0 <= self.min_f1 <= 1, f"min_f1={self.min_f1} is not in [0, 1]"),
            (
                not 0 <= self.doc_stride < self.max_length,
                f"doc_stride={self.doc_stride} must be below max_length={self.max_length}, and not negative",
            ),
            (
                min(self.max_answer_length, self.n_best, self.batch_size) < 1,
                "max_answer_length, n_best and batch_size must be at least 1",
            ),
        ]

    def measure(self, resources: FilterResources) -> CandidateMeasure:
        """F1 of the reader's answer; it does not depend on the threshold."""
        options = {key: value for key, value in asdict(self).items() if key not in ("min_f1", "batch_size")}

        def load() -> tuple[MeasureFunction, Mapping[str, Any]]:
            return _RoundTripReader(self, resources.device), {"reader": self.reader}

        batch_size = BATCHES_AT_ONCE * self.batch_size
        return CandidateMeasure("round_trip", {"round_trip": model_identity(options)}, load, batch_size)

    def rules(self) -> list[Rule]:
        """One rule."""
        return [Rule("answer not given back", self._is_inconsistent)]

    def _is_inconsistent(self, record: Record) -> bool:
        return not record[MEASURES][self.name] >= self.min_f1  # NaN is inconsistent too


class _RoundTripReader:
    """Measures candidates: the F1 of the reader's answer, and that answer."""

    def __init__(self, options: RoundTrip, device: torch.device) -> None:
        self.reader = AnswerReader(
            options.reader,
            device=device,
            max_length=options.max_length,
            doc_stride=options.doc_stride,
            max_answer_length=options.max_answer_length,
            n_best=options.n_best,
            batch_size=options.batch_size,
            title=options.name,
            at=f"augment.filters.{options.name}.",
        )

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each candidate, the F1 of the reader's answer and that answer."""
        answers = self.reader([record["question"] for record in records], [record["context"] for record in records])
        return [
            {"value": f1(answer, record["answer"]), "answer": answer}
            for answer, record in zip(answers, records, strict=True)
        ]
