"""What metrics of overlap with references share: words, and counts that add up over a corpus.

All scores are fractions from 0 to 1, also where a library prints percent (sacreBLEU: divide by 100). A row may have
several references; each metric's docstring says how they are used. A limit of all of them: a correct question in other
words than the reference scores low, and a copy of the reference with one decisive word changed scores high.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rewards.base import ROWS_AT_ONCE, Inputs, Metric, MetricResult
from rewards.overlap.counts import Overlap, ngram_overlap
from rewards.words import tokenizer

Floats = NDArray[np.float64]


class OverlapMetric(Metric):
    """A metric of texts split into words and compared with references."""

    needs = frozenset({"references"})
    bounds = (0.0, 1.0)
    tokenize: str

    def _rows(self, inputs: Inputs) -> tuple[list[Sequence[str]], list[list[Sequence[str]]]]:
        """Return the words of each question and of each of its references."""
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
        """Return the counts of each question, [rows, k]; sums of rows are the counts of a corpus.

        Raises:
            MetricInputError: as `score` does.
        """
        blank = [""] * len(questions)
        rows = self._check(questions, {"contexts": None, "answers": None, "references": references})
        inputs = Inputs([row[0] for row in rows], blank, blank, [row[3] for row in rows], list(range(len(rows))))
        starts = range(0, len(rows), ROWS_AT_ONCE)
        blocks = [self._counts(inputs.rows_from(at, at + ROWS_AT_ONCE)) for at in starts]
        return np.concatenate(blocks) if blocks else np.zeros((0, self._width()))

    def corpus(self, total: Floats) -> Floats:
        """Return the score of summed counts, [..., k] -> [...]."""
        return self._formula(np.asarray(total, dtype=float), corpus=True)

    def sentence(self, counts: Floats) -> Floats:
        """Return the score of each question from its counts, [rows, k] -> [rows]."""
        return self._formula(np.asarray(counts, dtype=float), corpus=False)

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return one score for each question."""
        return MetricResult(self._formula(self._counts(inputs), corpus=False).tolist(), {})

    def _counts(self, inputs: Inputs) -> Floats:
        raise NotImplementedError

    def _formula(self, counts: Floats, *, corpus: bool) -> Floats:
        raise NotImplementedError

    def _width(self) -> int:
        raise NotImplementedError


def each_reference(
    candidates: list[Sequence[str]], references: list[list[Sequence[str]]], order: int
) -> tuple[Overlap, NDArray[np.int64], NDArray[np.int64]]:
    """Compare each candidate with each of its references alone.

    Returns the overlap of each pair, where each candidate's pairs start, and the reference's n-grams, [pairs, order].
    """
    sizes = [len(group) for group in references]
    pairs = list(chain.from_iterable(references))
    repeated = [text for text, size in zip(candidates, sizes, strict=True) for _ in range(size)]
    overlap = ngram_overlap(repeated, [[text] for text in pairs], order)
    reference = np.maximum(overlap.closest[:, None] - np.arange(order), 0)
    return overlap, np.cumsum([0, *sizes[:-1]]), reference


def best_of_groups(scores: Floats, starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the row of the best score of each group, the first one on ties."""
    group = np.searchsorted(starts, np.arange(len(scores)), side="right") - 1
    order = np.lexsort((np.arange(len(scores)), -scores, group))
    return order[starts]
