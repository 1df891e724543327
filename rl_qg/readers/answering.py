"""A trained reader that answers questions about passages, in batches of windows of similar length."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rewards.relevance.reading import span_scores
from rl_qg.data.examples import QAExample
from rl_qg.readers.features import WindowCollator, Windows, best_answers, encode
from rl_qg.readers.model import load_model, load_tokenizer
from rl_qg.readers.token_classifier import longest_window
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry

LONGEST_WINDOW = 384  # tokens, as in the settings of `rl-qg qa`


class AnswerReader:
    """Answers questions with spans of their passages.

    Args:
        path: a folder of `rl-qg qa`, or folder or Hub name of any extractive reader.
        device: where it runs.
        max_length: of a window, in tokens; None: what the reader can read, at most `LONGEST_WINDOW`.
        doc_stride: tokens that neighbouring windows share; None: a third of a window.
        max_answer_length: in tokens.
        n_best: starts and ends that are combined to spans.
        batch_size: windows per forward pass.
        title: of the log line when memory runs out.
        at: what precedes the keys of the settings in error messages, such as `augment.filters.round_trip.`.

    Raises:
        InputError: there is no such reader, it cannot read windows of this length, or its span head is untrained.
    """

    def __init__(
        self,
        path: str,
        *,
        device: torch.device,
        max_length: int | None = None,
        doc_stride: int | None = None,
        max_answer_length: int = 30,
        n_best: int = 20,
        batch_size: int = 32,
        title: str = "reader",
        at: str = "",
    ) -> None:
        key = f"{at}reader"
        self.tokenizer, self.token_types = load_tokenizer(
            path, max_length=max_length or 1, key=key, length_key=f"{at}max_length"
        )
        self.model: Any = load_model(path, self.tokenizer, key=key).to(device).eval()
        if not any("QuestionAnswering" in name for name in self.model.config.architectures or ()):
            raise InputError(
                f"{key}={path}: has no trained span head; train one with rl-qg qa data.train=… output_dir=READER and "
                "give that folder"
            )
        self.max_length = max_length or min(LONGEST_WINDOW, longest_window(path, self.tokenizer))
        self.doc_stride = self.max_length // 3 if doc_stride is None else doc_stride
        self.max_answer_length, self.n_best, self.batch_size = max_answer_length, n_best, batch_size
        self.device, self.at = device, at
        self.collate = WindowCollator(self.tokenizer.pad_token_id)
        self.retry = OutOfMemoryRetry(title, f"lower {at}batch_size")

    def __call__(self, questions: Sequence[str], contexts: Sequence[str]) -> list[str]:
        """The answer to each question about its context; "" where no span is valid."""
        if not questions:
            return []
        examples = [
            QAExample(str(number), "", context, question, ())
            for number, (question, context) in enumerate(zip(questions, contexts, strict=True))
        ]
        with _keys_begin_with(self.at):
            windows = encode(
                examples,
                self.tokenizer,
                max_length=self.max_length,
                doc_stride=self.doc_stride,
                token_types=self.token_types,
            )
        texts = best_answers(
            windows, examples, *self._logits(windows), n_best=self.n_best, max_answer_length=self.max_answer_length
        )
        return [texts[example.id] for example in examples]

    @torch.inference_mode()
    def _logits(self, windows: Windows) -> Any:
        """Start and end logits of all W windows, (2, W, longest window); -inf at padding."""
        logits = np.full((2, len(windows), int(windows.lengths.max())), -np.inf, dtype=np.float32)
        order = np.argsort(-windows.lengths, kind="stable")
        for first in range(0, len(order), self.batch_size):
            batch: list[int] = order[first : first + self.batch_size].tolist()
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


@contextmanager
def _keys_begin_with(at: str) -> Iterator[None]:
    """Replace the keys of `rl-qg qa` in error messages about lengths."""
    try:
        yield
    except InputError as error:
        raise InputError(str(error).replace("qa.", at)) from None
