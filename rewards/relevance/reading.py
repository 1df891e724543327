"""What an extractive reader reads, and the probabilities of spans that follow from its logits.

Passages that are too long are read in overlapping windows. One softmax runs over all windows of a passage, so that the
windows compete with each other: the shared normalisation of Clark and Gardner, "Simple and Effective Multi-Paragraph
Reading Comprehension", ACL 2018.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel

SPAN_HEAD = "span_head"  # key of a configuration: `softmax` (also where it is missing) or `sigmoid`, of training


def span_scores(logits: Tensor, config: object) -> Tensor:
    """Return each position's score, of which two rank a span: the logit, or log s(x) under a sigmoid head."""
    is_sigmoid = getattr(config, SPAN_HEAD, "softmax") == "sigmoid"
    return torch.nn.functional.logsigmoid(logits) if is_sigmoid else logits


def letter_end(text: str, end: int) -> int:
    """Return the end of a span past its combining marks, for which tokenizers that drop accents have no token."""
    while end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


@dataclass(frozen=True, eq=False)
class TokenizedPassage:
    """A passage of T tokens; ``begins`` and ``ends`` [T] are the first and one past the last character of each."""

    text: str
    ids: list[int]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    def places(self, answer: str) -> list[tuple[int, int]]:
        """Return first and last token of every place where the answer stands: those that share a character."""
        found, size = [], len(answer := answer.strip())
        at = self.text.find(answer) if answer else -1
        while at >= 0:
            touching = np.flatnonzero((self.ends > at) & (self.begins < at + size))
            if touching.size:
                found.append((int(touching[0]), int(touching[-1])))
            at = self.text.find(answer, at + 1)
        return found

    def span(self, first: int, last: int) -> str:
        return self.text[self.begins[first] : letter_end(self.text, self.ends[last])]


def tokenized_passages(model: FrozenModel, texts: Sequence[str]) -> list[TokenizedPassage]:
    """Return the tokens of each text; equal texts are one object."""
    if not texts:
        return []
    distinct = list(dict.fromkeys(texts))
    options = {"add_special_tokens": False, "return_attention_mask": False, "return_token_type_ids": False}
    encoded = model.tokenizer(distinct, **options, return_offsets_mapping=True, verbose=False)
    passages = {}
    for text, ids, offsets in zip(distinct, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        characters = np.array(offsets, dtype=np.int64).reshape(-1, 2)
        passages[text] = TokenizedPassage(text, ids, characters[:, 0], characters[:, 1])
    return [passages[text] for text in texts]


@dataclass(frozen=True)
class PairFormat:
    """The special tokens that a tokenizer puts before, between and after a question and a passage."""

    before: list[int]
    between: list[int]
    after: list[int]
    # Of the tokens before, in the question, between, in the passage and after; None where the model has none.
    token_types: tuple[list[int], int, list[int], int, list[int]] | None
    class_position: int | None  # of the class token, which stands for "no answer"; None where there is none in front

    @classmethod
    def of(cls, model: FrozenModel) -> "PairFormat":
        tokenizer = model.tokenizer
        if not tokenizer.is_fast:
            raise MetricInputError(
                f"the tokenizer of {model.name!r} gives no character offsets; use a model with a tokenizer.json"
            )
        encoding = tokenizer("a", "b").encodings[0]
        parts, ids, types = encoding.sequence_ids, encoding.ids, encoding.type_ids
        question, passage = parts.index(0), parts.index(1)
        stop, end = len(parts) - parts[::-1].index(0), len(parts) - parts[::-1].index(1)
        if question > passage:
            raise MetricInputError(f"the tokenizer of {model.name!r} puts the passage before the question")
        type_count = getattr(model.model.config, "type_vocab_size", 0) or 0  # 1: types tell nothing apart
        known = "token_type_ids" in tokenizer.model_input_names and type_count > 1
        before = ids[:question]
        return cls(
            before,
            ids[stop:passage],
            ids[end:],
            (types[:question], types[question], types[stop:passage], types[passage], types[end:]) if known else None,
            before.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in before else None,
        )

    @property
    def size(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)

    def ids(self, question: Sequence[int], passage: Sequence[int]) -> list[int]:
        return [*self.before, *question, *self.between, *passage, *self.after]

    def types(self, question: int, passage: int) -> list[int]:
        """Return the token types of a question and a piece of a passage with so many tokens each."""
        assert self.token_types is not None
        before, of_question, between, of_passage, after = self.token_types
        return [*before, *[of_question] * question, *between, *[of_passage] * passage, *after]


@dataclass(frozen=True)
class SpanLogprobs:
    """Log-probabilities (natural, float64) of each token of each passage to begin or to end the answer.

    The N tokens of all R rows follow each other.
    """

    start: Tensor  # [N]
    end: Tensor  # [N]
    rows: Tensor  # the row of each token, ascending, [N]
    no_answer: Tensor  # log-probability of "no answer", [R]; -inf where the reader cannot abstain

    def best(self, max_length: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the log-probability, the first and the last token of each row's most probable span, [R] each.

        A span has at most ``max_length`` tokens. Equal ones: the first, then the shorter. A row without tokens has
        -inf and -1.
        """
        best = torch.full_like(self.start, -torch.inf)
        last = torch.arange(len(best))
        for more in range(min(max_length, len(best))):
            here = slice(0, len(best) - more)
            total = (self.start[here] + self.end[more:]).masked_fill(self.rows[here] != self.rows[more:], -torch.inf)
            better = total > best[here]
            best[here] = torch.where(better, total, best[here])
            last[here] = torch.where(better, torch.arange(more, len(best)), last[here])
        first = first_highest(best, self.rows, len(self.no_answer))
        some = first >= 0
        values = torch.full_like(self.no_answer, -torch.inf)
        ends = torch.full_like(first, -1)
        values[some], ends[some] = best[first[some]], last[first[some]]
        return values, first, ends

    def at(self, first: Tensor, last: Tensor, rows: Tensor) -> Tensor:
        """Return, for each row, the largest log-probability among given spans, [R]; -inf where there is none.

        The spans' ``first`` and ``last`` tokens are indices into the N tokens, [spans]; ``rows`` are their rows.
        """
        none = torch.full_like(self.no_answer, -torch.inf)
        return none.scatter_reduce(0, rows, self.start[first] + self.end[last], "amax")


@dataclass(frozen=True)
class WindowLogits:
    """Logits of windows: those of K passage tokens, and of W class tokens; [2, K] and [2, W] (start and end)."""

    values: Tensor
    tokens: Tensor  # which of the N tokens each one is, [K]; one is read in one window or in several
    class_values: Tensor | None  # none where the reader must not abstain
    windows: Tensor  # the row of each window, [W]

    def spans(self, rows: Tensor, count: int) -> SpanLogprobs:
        """Return the probabilities of spans, given the row of each of the N tokens and the number of rows, R.

        One softmax for starts and one for ends over all windows of a row. A token that was read in several windows has
        the sum of their probabilities, so that where windows overlap does not matter. Where the reader may abstain,
        the class token of the window that abstains least counts, once: a window without the answer abstains.
        """
        tokens = [segment_logsumexp(values, self.tokens, len(rows)) for values in self.values]
        totals = [segment_logsumexp(values, rows, count) for values in tokens]
        no_answer = torch.full((count,), -torch.inf, dtype=torch.float64)
        if self.class_values is not None:
            least = first_highest(-self.class_values.sum(0), self.windows, count)
            some = least >= 0
            chosen = torch.full((2, count), -torch.inf, dtype=torch.float64)
            chosen[:, some] = self.class_values[:, least[some]]
            totals = [torch.logaddexp(total, one) for total, one in zip(totals, chosen, strict=True)]
            no_answer[some] = (chosen - torch.stack(totals)).sum(0)[some]
        start, end = (values - total[rows] for values, total in zip(tokens, totals, strict=True))
        return SpanLogprobs(start, end, rows, no_answer)


def segment_logsumexp(values: Tensor, segments: Tensor, count: int) -> Tensor:
    """Return log sum exp of the values [n] of each segment, [count]; -inf for one without values."""
    peak = torch.full((count,), -torch.inf, dtype=values.dtype).scatter_reduce(0, segments, values, "amax")
    total = torch.zeros(count, dtype=values.dtype).index_add(0, segments, (values - peak[segments]).exp())
    return peak + total.log()


def first_highest(values: Tensor, segments: Tensor, count: int) -> Tensor:
    """Return the index of the first of the highest values [n] of each segment, [count]; -1 for one without values."""
    peak = torch.full((count,), -torch.inf, dtype=values.dtype).scatter_reduce(0, segments, values, "amax")
    highest = torch.nonzero(values == peak[segments])[:, 0]
    first = torch.full((count,), len(values)).scatter_reduce(0, segments[highest], highest, "amin")
    return first.masked_fill(first == len(values), -1)


@lru_cache(1 << 10)
def window_starts(tokens: int, room: int, stride: int) -> tuple[int, ...]:
    """Return where windows with ``room`` tokens of a passage begin; neighbours share ``stride`` tokens."""
    return tuple(range(0, max(tokens - stride, 1), room - stride))
