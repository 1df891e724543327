"""What the extractive reader reads and what it answers: windows of question and passage, and answer texts from logits.

Source: Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers" (2019), section 4.2: the answer is the
span with the highest sum of start and end logits. Passages that are too long are read in overlapping windows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from rl_qg.data.examples import QAExample
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError

EXAMPLES_AT_ONCE = 1000
WINDOWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Windows:
    """A data set of W windows with T tokens in all; window w is `bounds[w]:bounds[w + 1]` of the arrays over tokens.

    ids (T,), token_types (T,) or None: model input, without padding.
    offsets (T, 2): first and one past last character of a token, in its own text (question or passage).
    bounds (W + 1,), examples (W,): where each window begins, and the index of its example.
    contexts (W, 2): first and one past last position of the passage within the window.
    labels (W, 2): positions of the first and last token of the first answer; both are the class token's where the
        window does not hold the whole answer.
    questions_cut: how many questions were too long and lost their end.
    """

    ids: NDArray[np.int32]
    token_types: NDArray[np.int8] | None
    offsets: NDArray[np.int32]
    bounds: NDArray[np.int64]
    examples: NDArray[np.int32]
    contexts: NDArray[np.int32]
    labels: NDArray[np.int32]
    questions_cut: int

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> dict[str, Any]:
        tokens = slice(self.bounds[index], self.bounds[index + 1])
        item = {"input_ids": self.ids[tokens], "labels": self.labels[index]}
        return item if self.token_types is None else {**item, "token_type_ids": self.token_types[tokens]}

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each window, (W,)."""
        return np.diff(self.bounds)

    def counts(self) -> dict[str, int]:
        """Numbers of examples, of windows, of cut questions, and of examples whose answer no window holds whole, those
        without an answer included.
        """
        has_answer = (self.contexts[:, 0] <= self.labels[:, 0]) & (self.labels[:, 0] < self.contexts[:, 1])
        examples = len(np.unique(self.examples))
        return {
            "examples": examples,
            "windows": len(self),
            "questions_cut": self.questions_cut,
            "answers_in_no_window": examples - len(np.unique(self.examples[has_answer])),
        }


@dataclass(frozen=True)
class WindowCollator:
    """Pads windows on the right to the longest of the batch, whatever side the tokenizer prefers: (batch, longest)."""

    pad_id: int

    def __call__(self, items: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Return `input_ids`, `attention_mask`, `labels` (batch, 2) and, where items have them, `token_type_ids`."""
        lengths = torch.tensor([len(item["input_ids"]) for item in items])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        batch = {
            "input_ids": _padded([item["input_ids"] for item in items], self.pad_id),
            "attention_mask": mask.long(),
            "labels": torch.from_numpy(np.stack([item["labels"] for item in items])).long(),
        }
        if "token_type_ids" in items[0]:
            batch["token_type_ids"] = _padded([item["token_type_ids"] for item in items], 0)
        return batch


def _padded(rows: Sequence[NDArray[Any]], value: int) -> Tensor:
    tensors = [torch.from_numpy(row).long() for row in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=value)


# --- Examples to windows ---


def encode(
    examples: Sequence[QAExample],
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    doc_stride: int,
    token_types: bool,
    progress: bool = False,
) -> Windows:
    """Tokenise each example into one or several windows of at most `max_length` tokens, special tokens included.

    Neighbouring windows of a passage share `doc_stride` tokens. A question may fill half a window, or less where the
    shared tokens need the space: the end of a longer one is cut and counted. `tokenizer` is a fast one; `token_types`
    marks question (0) and passage (1) for models that were pretrained with token types.
    Raises `InputError` when `max_length` leaves no room for a question besides `doc_stride`.
    """
    limit = _question_limit(tokenizer, max_length, doc_stride)
    rows: list[_Window] = []
    questions_cut = 0
    begins = range(0, len(examples), EXAMPLES_AT_ONCE)
    for begin in ProgressBar(begins, desc="windows", unit="k examples", disable=not progress):
        batch = examples[begin : begin + EXAMPLES_AT_ONCE]
        questions = _fitting_questions([example.question for example in batch], tokenizer, limit)
        questions_cut += sum(new != old.question for new, old in zip(questions, batch, strict=True))
        encoded = tokenizer(
            questions,
            [example.context for example in batch],
            truncation="only_second",
            max_length=max_length,
            stride=doc_stride,
            return_overflowing_tokens=True,
            return_token_type_ids=token_types,
            verbose=False,
        )
        numbers = encoded["overflow_to_sample_mapping"]
        for encoding, number in zip(encoded.encodings or (), numbers, strict=True):
            rows.append(_row(encoding, begin + number, batch[number], tokenizer.cls_token_id))
    return Windows(
        ids=np.concatenate([row.ids for row in rows]),
        token_types=np.concatenate([row.token_types for row in rows]) if token_types else None,
        offsets=np.concatenate([row.offsets for row in rows]),
        bounds=np.cumsum([0] + [len(row.ids) for row in rows]),
        examples=np.array([row.example for row in rows], dtype=np.int32),
        contexts=np.array([row.context for row in rows], dtype=np.int32),
        labels=np.array([row.label for row in rows], dtype=np.int32),
        questions_cut=questions_cut,
    )


@dataclass(frozen=True)
class _Window:
    """One window before it joins the flat arrays; fields as in `Windows`."""

    ids: NDArray[np.int32]
    token_types: NDArray[np.int8]
    offsets: NDArray[np.int32]
    example: int
    context: tuple[int, int]
    label: tuple[int, int]


def _row(encoding: Any, number: int, example: QAExample, cls_id: int | None) -> _Window:
    parts = encoding.sequence_ids  # None for a special token, 0 for the question, 1 for the passage
    first = parts.index(1) if 1 in parts else 0
    last = len(parts) - parts[::-1].index(1) if 1 in parts else 0
    offsets = np.array(encoding.offsets, dtype=np.int32)
    no_answer = encoding.ids.index(cls_id) if cls_id in encoding.ids else 0
    answer = _answer_tokens(offsets[first:last], example)
    return _Window(
        ids=np.array(encoding.ids, dtype=np.int32),
        token_types=np.array(encoding.type_ids, dtype=np.int8),
        offsets=offsets,
        example=number,
        context=(first, last),
        label=(no_answer, no_answer) if answer is None else (first + answer[0], first + answer[1]),
    )


def _answer_tokens(offsets: NDArray[np.int32], example: QAExample) -> tuple[int, int] | None:
    """First and last token that share a character with the first answer; None unless these hold all of it."""
    if not example.answers:
        return None
    text, begin = example.answers[0].text, example.answers[0].start
    # White space around an answer belongs to no token.
    start, end = begin + len(text) - len(text.lstrip()), begin + len(text.rstrip())
    touching = np.flatnonzero((offsets[:, 1] > start) & (offsets[:, 0] < end))
    if not touching.size or offsets[0, 0] > start or offsets[-1, 1] < end:
        return None
    return int(touching[0]), int(touching[-1])


def _question_limit(tokenizer: PreTrainedTokenizerBase, max_length: int, doc_stride: int) -> int:
    room = max_length - tokenizer.num_special_tokens_to_add(pair=True)
    limit = min(room // 2, room - doc_stride - 1)  # every window has to bring at least one new token
    if limit < 1:
        raise InputError(
            f"qa.max_length={max_length} leaves no room for a question beside qa.doc_stride={doc_stride}: "
            "raise the first or lower the second"
        )
    return limit


def _fitting_questions(questions: Sequence[str], tokenizer: PreTrainedTokenizerBase, limit: int) -> list[str]:
    encoded = tokenizer(list(questions), add_special_tokens=False, verbose=False)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    return [
        question if length <= limit else _cut(question, tokenizer, limit)
        for question, length in zip(questions, lengths, strict=True)
    ]


def _cut(question: str, tokenizer: PreTrainedTokenizerBase, limit: int) -> str:
    """Cut from the right until `limit` tokens are left; more than one round where one character is several tokens."""
    while True:
        encoded = tokenizer(question, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        if len(encoded["input_ids"]) <= limit:
            return question
        question = question[: min(encoded["offset_mapping"][limit - 1][1], len(question) - 1)]


# --- Logits to answers ---


def best_answers(
    windows: Windows,
    examples: Sequence[QAExample],
    start_logits: NDArray[np.floating],
    end_logits: NDArray[np.floating],
    *,
    n_best: int,
    max_answer_length: int,
) -> dict[str, str]:
    """Return one text for each example, by id: its best span over all of its windows, or "" when no span is valid.

    A span begins at one of the `n_best` highest start logits of a window's passage, ends at one of the `n_best`
    highest end logits, and is at most `max_answer_length` tokens long. Logits are (W, longest or more). Equal scores
    go to the earlier window, then to the higher start logit; equal logits rank by position.
    """
    if not len(windows) == len(start_logits) == len(end_logits):
        raise ValueError(f"{len(windows)} windows, but {len(start_logits)} start and {len(end_logits)} end logits")
    answers = {example.id: "" for example in examples}
    best = np.full(len(examples), -np.inf)
    for begin in range(0, len(windows), WINDOWS_AT_ONCE):
        chunk = slice(begin, begin + WINDOWS_AT_ONCE)
        spans = _best_spans(
            start_logits[chunk],
            end_logits[chunk],
            windows.contexts[chunk],
            n_best=n_best,
            max_answer_length=max_answer_length,
        )
        for window, (score, first, last) in enumerate(zip(*spans, strict=True), begin):
            number = windows.examples[window]
            if score > best[number]:
                best[number] = score
                base = windows.bounds[window]
                start, end = windows.offsets[base + first, 0], windows.offsets[base + last, 1]
                answers[examples[number].id] = examples[number].context[start:end]
    return answers


def _best_spans(
    start_logits: NDArray[np.floating],
    end_logits: NDArray[np.floating],
    contexts: NDArray[np.int32],
    *,
    n_best: int,
    max_answer_length: int,
) -> tuple[NDArray[np.floating], NDArray[np.int64], NDArray[np.int64]]:
    """Score, first and last token of each window's best span, each (W,); the score is -inf where no span is valid."""
    positions = np.arange(start_logits.shape[1])
    inside = (positions >= contexts[:, :1]) & (positions < contexts[:, 1:])
    starts, start_scores = _highest(np.where(inside, start_logits, -np.inf), n_best)
    ends, end_scores = _highest(np.where(inside, end_logits, -np.inf), n_best)
    length = ends[:, None, :] - starts[:, :, None] + 1  # (W, starts, ends)
    scores = start_scores[:, :, None] + end_scores[:, None, :]
    scores = np.where((length >= 1) & (length <= max_answer_length) & np.isfinite(scores), scores, -np.inf)
    flat = scores.reshape(len(scores), -1)
    choice = flat.argmax(axis=1)
    rows = np.arange(len(flat))
    return flat[rows, choice], starts[rows, choice // ends.shape[1]], ends[rows, choice % ends.shape[1]]


def _highest(logits: NDArray[np.floating], count: int) -> tuple[NDArray[np.int64], NDArray[np.floating]]:
    """Positions and values of the `count` highest logits of each row, highest first."""
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :count]
    return chosen, np.take_along_axis(logits, chosen, axis=1)
