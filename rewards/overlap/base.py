"""What metrics of overlap with references share: words, and counts that add up over a corpus.

All scores are fractions from 0 to 1, also where a library prints percent (sacreBLEU: divide by 100). A row may have
several references; each metric's docstring says how they are used. A limit of all of them: a correct question in other
words than the reference scores low, and a copy of the reference with one decisive word changed scores high.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rewards.base import ROWS_AT_ONCE, Inputs, Metric, MetricResult
from rewards.words import tokenizer

Tokens = Sequence[Hashable]
Counts = NDArray[np.int64]
Floats = NDArray[np.float64]

LARGEST = 1 << 62  # bound on the numbers of n-grams
CACHED_MASKS = 1 << 13  # references that `lcs_length` caches
# Words of the longest such reference: its table has an integer of one bit per word for each distinct word.
CACHED_WORDS = 256


@dataclass(frozen=True)
class Overlap:
    """What rows share with their references, for n = 1 .. order."""

    matches: Counts  # of the candidate in a reference, [rows, order], each as often as in the one with most
    candidate: Counts  # N-grams of the candidate, [rows, order]
    lengths: Counts  # tokens of the candidate, [rows]
    closest: Counts  # tokens of the reference of the closest length, [rows]; of two as close, the shorter


def ngram_overlap(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]], order: int) -> Overlap:
    """Count the n-grams, up to ``order``, that each candidate (tuple or string) shares with its references.

    N-grams get numbers, so that a few sorts of integer arrays count a block of rows. Each distinct text counts once.
    """
    number: dict[Tokens, int] = {}
    candidate_ids = np.array([number.setdefault(text, len(number)) for text in candidates], dtype=np.int64)
    reference_ids = np.array(
        [number.setdefault(text, len(number)) for group in references for text in group], dtype=np.int64
    )
    sizes = [len(group) for group in references]
    rows = np.arange(len(candidate_ids))
    row_of_reference = np.repeat(rows, sizes)
    lengths = np.array([len(text) for text in number], dtype=np.int64)
    matches = np.zeros((len(candidate_ids), order), dtype=np.int64)
    for n, table in enumerate(_tables(list(number), lengths, order, len(candidate_ids))):
        keys, most = _largest(*table.of(reference_ids, row_of_reference))
        wanted, counts = table.of(candidate_ids, rows)
        index = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if len(keys):
            shared = np.where(keys[index] == wanted, np.minimum(most[index], counts), 0)
            matches[:, n] = np.bincount(wanted // table.ngrams, weights=shared, minlength=len(candidate_ids))
    own, others = lengths[candidate_ids], lengths[reference_ids]
    by_distance = np.lexsort((others, np.abs(others - own[row_of_reference]), row_of_reference))
    closest = others[by_distance][np.flatnonzero(np.diff(row_of_reference[by_distance], prepend=-1))]
    return Overlap(matches, np.maximum(own[:, None] - np.arange(order), 0), own, closest)


@dataclass(frozen=True)
class _Table:
    """The n-grams of one length, text by text: those of text i are ``numbers[starts[i]:starts[i + 1]]``."""

    starts: Counts
    numbers: Counts
    counts: Counts
    ngrams: int  # how many distinct ones there are

    def of(self, texts: Counts, rows: Counts) -> tuple[Counts, Counts]:
        """Return ``row * ngrams + n-gram`` and the count, of each n-gram of each (text, row)."""
        sizes = self.starts[texts + 1] - self.starts[texts]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = np.repeat(self.starts[texts], sizes) + within
        return np.repeat(rows, sizes) * self.ngrams + self.numbers[at], self.counts[at]


def _tables(texts: Sequence[Tokens], lengths: Counts, order: int, rows: int) -> list[_Table]:
    """Return the table of each n = 1 .. order.

    An n-gram's number is computed from those of its first n-1 tokens and of its last one. Before such numbers, times
    the number of texts or rows, exceed an integer, they are renumbered.
    """
    room = LARGEST // max(len(texts), rows, 1)
    if all(isinstance(text, str) for text in texts):  # characters: no loop over them is needed
        codes = np.frombuffer("".join(map(str, texts)).encode("utf-32-le"), dtype=np.uint32)
        distinct, tokens = np.unique(codes, return_inverse=True)
        tokens, words = tokens.astype(np.int64), max(len(distinct), 1)
    else:
        word: dict[Hashable, int] = {}
        ids = [word.setdefault(token, len(word)) for token in chain.from_iterable(texts)]
        tokens, words = np.array(ids, dtype=np.int64), max(len(word), 1)
    text = np.repeat(np.arange(len(texts)), lengths)
    last = np.repeat(np.cumsum(lengths), lengths)  # one past the last token of the text
    position = np.arange(len(tokens))
    ngram, distinct_ngrams, tables = tokens, words, []
    for n in range(1, order + 1):
        if n > 1:
            whole = position + n <= last
            position, ngram, last, text = position[whole], ngram[whole], last[whole], text[whole]
            if distinct_ngrams * words > room:
                distinct, ngram = np.unique(ngram, return_inverse=True)
                distinct_ngrams = max(len(distinct), 1)
            ngram, distinct_ngrams = ngram * words + tokens[position + n - 1], distinct_ngrams * words
        keys, counts = np.unique(text * distinct_ngrams + ngram, return_counts=True)
        starts = np.searchsorted(keys, np.arange(len(texts) + 1) * distinct_ngrams)
        tables.append(_Table(starts, keys % distinct_ngrams, counts, distinct_ngrams))
    return tables


def _largest(keys: Counts, counts: Counts) -> tuple[Counts, Counts]:
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.maximum.reduceat(counts, first) if len(first) else counts


def lcs_length(first: Tokens, second: Tokens) -> int:
    """Return the length of the longest common subsequence, by bit-parallel dynamic programming (Source: Hyyrö,
    "Bit-parallel LCS-length computation revisited", 2004): one addition and a few logical operations on integers of
    ``len(first)`` bits for each token of ``second``. The table of ``first`` is cached unless it is long.
    """
    if len(first) > CACHED_WORDS and len(second) < len(first):
        first, second = second, first
    positions = (_positions if len(first) <= CACHED_WORDS else _positions.__wrapped__)(first)
    every_bit = (1 << len(first)) - 1
    free = every_bit  # a 1 at i: extending the prefix of length i by its last token gains nothing
    for token in second:
        if token in positions:
            met = free & positions[token]
            free = ((free + met) | (free - met)) & every_bit
    return len(first) - free.bit_count()


@lru_cache(CACHED_MASKS)
def _positions(text: Tokens) -> dict[Hashable, int]:
    positions: dict[Hashable, int] = {}
    for at, token in enumerate(text):
        positions[token] = positions.get(token, 0) | 1 << at
    return positions


class OverlapMetric(Metric):
    """A metric of words compared with references. ``tokenize`` (not of chrF) is any of `rewards.words.tokenizer`."""

    needs = frozenset({"references"})
    bounds = (0.0, 1.0)
    tokenize: str

    def _rows(self, inputs: Inputs) -> tuple[list[Sequence[str]], list[list[Sequence[str]]]]:
        return (
            [self._words(text) for text in inputs.questions],
            [[self._words(text) for text in group] for group in inputs.references],
        )

    def _words(self, text: str) -> Sequence[str]:
        return tokenizer(self.tokenize)(text)


class CorpusMetric(OverlapMetric):
    """A metric whose score is computed from counts that add up over questions.

    The corpus score is that of the summed counts; it is not the mean of the questions' scores.
    """

    def statistics(self, questions: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        """Return the counts of each question, [rows, k]; sums of rows are the counts of a corpus."""
        rows = self._check(questions, {"contexts": None, "answers": None, "references": references})
        if not rows:
            return self._counts(Inputs([""], [""], [""], [("",)], [0]))[:0]
        blank = [""] * len(rows)
        inputs = Inputs([row[0] for row in rows], blank, blank, [row[3] for row in rows], list(range(len(rows))))
        starts = range(0, len(rows), ROWS_AT_ONCE)
        return np.concatenate([self._counts(inputs.rows_from(at, at + ROWS_AT_ONCE)) for at in starts])

    def corpus(self, total: Floats) -> Floats:
        """Return the score of summed counts, [..., k] -> [...]."""
        return self._formula(np.asarray(total, dtype=float), corpus=True)

    def sentence(self, counts: Floats) -> Floats:
        return self._formula(np.asarray(counts, dtype=float), corpus=False)

    def compute(self, inputs: Inputs) -> MetricResult:
        return MetricResult(self.sentence(self._counts(inputs)).tolist(), {})

    def _counts(self, inputs: Inputs) -> Floats:
        raise NotImplementedError

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        raise NotImplementedError


def f_score(precision: Floats, recall: Floats, beta: float = 1.0) -> Floats:
    """Return (1 + beta^2) P R / (beta^2 P + R), and 0 where both are 0."""
    denominator = beta**2 * precision + recall
    return np.where(
        denominator > 0, (1 + beta**2) * precision * recall / np.where(denominator > 0, denominator, 1.0), 0.0
    )


def each_reference(
    candidates: list[Sequence[str]], references: list[list[Sequence[str]]], order: int
) -> tuple[Overlap, NDArray[np.int64], NDArray[np.int64]]:
    """Compare each candidate with each reference alone: overlap, where its pairs start, reference n-grams."""
    sizes = [len(group) for group in references]
    pairs = list(chain.from_iterable(references))
    repeated = [text for text, size in zip(candidates, sizes, strict=True) for _ in range(size)]
    overlap = ngram_overlap(repeated, [[text] for text in pairs], order)
    reference = np.maximum(overlap.closest[:, None] - np.arange(order), 0)
    return overlap, np.cumsum([0, *sizes[:-1]]), reference


def best_of_groups(scores: Floats, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of the best score of each group, the first one on ties."""
    group = np.searchsorted(starts, np.arange(len(scores)), side="right") - 1
    return np.lexsort((np.arange(len(scores)), -scores, group))[starts]
