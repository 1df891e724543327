"""Round-trip consistency: a reader answers the question with the answer for which it was generated.

Source: Alberti, Andor, Pitler, Devlin and Collins, "Synthetic QA corpora generation with roundtrip consistency"
(2019). They keep a question if the reader's answer is the same; this filter uses its SQuAD F1.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from rewards.relevance.reading import span_scores
from rl_qg.augmentation.candidates import MEASURES
from rl_qg.augmentation.funnel import FilterResources, Record, RowFilter, Rule
from rl_qg.augmentation.measures import CandidateMeasure, MeasureFunction, model_identity
from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.features import WindowCollator, Windows, best_answers, encode
from rl_qg.readers.model import load_model, load_tokenizer
from rl_qg.readers.squad_scores import f1
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry

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
                f"doc_stride={self.doc_stride} must be below max_length={self.max_length}",
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


@contextmanager
def _with_filter_keys(at: str) -> Iterator[None]:
    """Replace the reader's settings keys by the filter's in error messages about lengths."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("qa.", at)) from None


class _RoundTripReader:
    """Answers questions, in batches of windows of similar length."""

    def __init__(self, options: RoundTrip, device: torch.device) -> None:
        self.options, self.device = options, device
        at = f"augment.filters.{options.name}."
        key = f"{at}reader"
        self.tokenizer, self.token_types = load_tokenizer(
            options.reader, max_length=options.max_length, key=key, length_key=f"{at}max_length"
        )
        self.model: Any = load_model(options.reader, self.tokenizer, key=key).to(device).eval()
        if not any("QuestionAnswering" in name for name in self.model.config.architectures or ()):
            raise InputError(
                f"{at}reader={options.reader}: has no trained span head; train one with rl-qg qa data.train=… "
                "output_dir=READER and give that folder"
            )
        self.collate = WindowCollator(self.tokenizer.pad_token_id)
        self.retry = OutOfMemoryRetry(options.name, f"lower {at}batch_size")

    def __call__(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """For each candidate, the F1 of the reader's answer and that answer."""
        examples = [
            QAExample(str(n), "", r["context"], r["question"], (Answer(r["answer"], r["answer_start"]),))
            for n, r in enumerate(records)
        ]
        options = self.options
        with _with_filter_keys(f"augment.filters.{options.name}."):
            windows = encode(
                examples,
                self.tokenizer,
                max_length=options.max_length,
                doc_stride=options.doc_stride,
                token_types=self.token_types,
            )
        texts = best_answers(
            windows,
            examples,
            *self._logits(windows),
            n_best=options.n_best,
            max_answer_length=options.max_answer_length,
        )
        answers = [texts[example.id] for example in examples]
        return [
            {"value": f1(answer, record["answer"]), "answer": answer}
            for answer, record in zip(answers, records, strict=True)
        ]

    @torch.inference_mode()
    def _logits(self, windows: Windows) -> Any:
        """Start and end logits of all W windows, (2, W, longest window); -inf at padding."""
        logits = np.full((2, len(windows), int(windows.lengths.max())), -np.inf, dtype=np.float32)
        order = np.argsort(-windows.lengths, kind="stable")
        for first in range(0, len(order), self.options.batch_size):
            batch: list[int] = order[first : first + self.options.batch_size].tolist()
            for rows, start, end in self.retry(lambda part: (part, *self._forward(windows, part)), batch):
                logits[0, rows, : start.shape[1]] = start
                logits[1, rows, : end.shape[1]] = end
        return logits

    def _forward(self, windows: Windows, rows: Sequence[int]) -> Any:
        batch = self.collate([windows[row] for row in rows])
        inputs = {name: value.to(self.device) for name, value in batch.items() if name != "labels"}
        output = self.model(**inputs)
        logits = (output.start_logits, output.end_logits)
        return tuple(span_scores(part.float(), self.model.config).cpu().numpy() for part in logits)
