"""Intervals and tests by the percentile bootstrap over passages: of the pipeline, of `evaluate`, of the
meta-evaluation and of studies.

Questions about one passage are not independent, so a draw takes whole passages with replacement, each with all its
questions (the cluster bootstrap: Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8).
Results of several training seeds are crossed by passages and seeds, and both are drawn (Owen, "The pigeonhole
bootstrap", 2007).

Further sources: Efron, "Bootstrap methods: another look at the jackknife" (1979); for comparing two systems on the
same examples, Koehn, "Statistical significance tests for machine translation evaluation" (2004); Holm, "A simple
sequentially rejective multiple test procedure" (1979).
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_qg.runtime.errors import InputError

Floats = NDArray[np.float64]
_NUMBERS_AT_ONCE = 4_000_000
_NUMBERS_KEPT = 200_000_000  # of one byte each
FEW, TAIL = 10, 20  # passages below which a page warns, and from which the normal tail is used
ROUNDING = 1e-12


class PassageDraws:
    """How often each passage is in each draw: weights (1 + resamples, passages). The first row is all ones, so that a
    statistic of the data and its values in the draws come from the same lines of code.

    The same seed gives the same draws. Up to 200 million weights are kept, one byte each; more are drawn again, block
    by block, each time they are needed, so memory does not grow with the data.

    Args:
        groups: the passage of each question.
        seeds: of how many training seeds there are results, see `means_over_seeds`.
        resamples: how many draws.
        seed: of the draws.

    Attributes:
        passages: how many different passages there are.
        passage_index: the index of each question's passage, (questions,).
        seed: as given; with the same passages and number of draws it gives the same draws.
    """

    def __init__(self, groups: Sequence[Hashable], *, seeds: int = 1, resamples: int = 10_000, seed: int = 0) -> None:
        if not groups or seeds < 1 or resamples < 1:
            raise InputError("nothing to draw from: give at least one question, one seed and one draw")
        index = {group: number for number, group in enumerate(dict.fromkeys(groups))}
        self.passage_index = np.array([index[group] for group in groups])
        self.passages, self.resamples = len(index), resamples
        self.seed = seed
        rng = np.random.default_rng(seed)
        keep = (resamples + 1) * self.passages <= _NUMBERS_KEPT
        self._kept = list(self._drawn(rng)) if keep else None
        if not keep and seeds > 1:
            deque(self._drawn(rng), maxlen=0)  # the seeds are drawn after the passages, kept or not
        self._seed_weights = _seed_weights(rng, seeds, resamples)

    def blocks(self) -> Iterator[Floats]:
        """The weights, some draws at a time."""
        for block in self._kept if self._kept is not None else self._drawn(np.random.default_rng(self.seed)):
            yield block.astype(np.float64)

    def sums(self, table: ArrayLike) -> Floats:
        """For each draw the sums over questions of `table` (questions, k): float64 (1 + resamples, k)."""
        return self.sums_of_passages(self.by_passage(table))

    def by_passage(self, table: ArrayLike, rows: NDArray[np.intp] | None = None) -> Floats:
        """Sums over the questions of each passage, float64 (passages, k).

        `rows` are the indices of the questions that `table` is about; None: all of them.
        """
        values = np.asarray(table, dtype=np.float64)
        index = self.passage_index if rows is None else self.passage_index[rows]
        return np.stack([np.bincount(index, weights=column, minlength=self.passages) for column in values.T], axis=1)

    def sums_of_passages(self, table: Floats) -> Floats:
        """For each draw the sums over passages of `table` (passages, k)."""
        return np.concatenate([weights @ table for weights in self.blocks()])

    def passages_of(self, rows: NDArray[Any]) -> int:
        """How many passages the questions `rows`, indices or a mask, are about."""
        return len(np.unique(self.passage_index[rows]))

    def column(self, values: ArrayLike) -> Floats:
        """`values` as float64 (questions,). Raises `InputError` where they are of another shape."""
        column = np.asarray(values, dtype=np.float64)
        if column.shape != self.passage_index.shape:
            raise InputError(f"values of shape {column.shape} for draws of {len(self.passage_index)} questions")
        return column

    def means(self, values: ArrayLike) -> Floats:
        """The mean of `values` (questions,) in each draw, float64 (1 + resamples,).

        NaN stands for a question without a value, and is the mean of a draw in which no question has one.
        """
        column = self.column(values)
        known = ~np.isnan(column)
        sums, counts = self.sums(np.column_stack([np.where(known, column, 0.0), known])).T
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(counts > 0, sums / counts, np.nan)

    def means_over_seeds(self, values: ArrayLike) -> Floats:
        """The mean of `values` (seeds, questions) in each draw of passages and seeds, float64 (1 + resamples,).

        Of s seeds s - 1 are drawn at a time: the mean of s draws would spread less than the mean of s seeds does, by
        (s - 1) / s in its variance, which matters where s is 3 (Rao and Wu, "Resampling inference with complex survey
        data", 1988). A single seed is not drawn: its intervals say nothing about other seeds.

        Raises:
            InputError: values of another shape.
        """
        table = np.asarray(values, dtype=np.float64)
        if table.shape != (self._seed_weights.shape[1], len(self.passage_index)):
            raise InputError(
                f"values of shape {table.shape} for draws of {self._seed_weights.shape[1]} seeds and "
                f"{len(self.passage_index)} questions"
            )
        return np.asarray((self._seed_weights * self.sums(table.T)).sum(axis=1) / self._questions)

    @cached_property
    def _questions(self) -> Floats:
        """How many questions are in each draw, (1 + resamples,)."""
        return self.sums(np.ones((len(self.passage_index), 1)))[:, 0]

    def _drawn(self, rng: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
        at_once = max(1, _NUMBERS_AT_ONCE // self.passages)
        equal = np.full(self.passages, 1 / self.passages)
        for start in range(0, self.resamples, at_once):
            # a passage is drawn once on average: 256 times has a probability below 1e-500
            drawn = rng.multinomial(self.passages, equal, min(at_once, self.resamples - start)).astype(np.uint8)
            yield drawn if start else np.concatenate([np.ones((1, self.passages), dtype=np.uint8), drawn])


def _seed_weights(rng: np.random.Generator, seeds: int, resamples: int) -> Floats:
    """The weight of each seed in the data and in each draw, (1 + resamples, seeds); each row adds up to 1."""
    draws = max(1, seeds - 1)
    drawn = rng.multinomial(draws, np.full(seeds, 1 / seeds), resamples) / draws
    return np.concatenate([np.full((1, seeds), 1 / seeds), drawn])


# --- Means, which always exist ---


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval, in the unit of the values; of `n` questions about so many `passages`.

    The ends are None where all questions are about one passage: all draws of it are alike.
    """

    mean: float
    low: float | None
    high: float | None
    n: int
    passages: int


def mean_interval(values: ArrayLike, draws: PassageDraws, *, level: float = 0.95) -> Interval:
    """Return the mean of `values` (questions,) with its percentile interval over the passages of `draws`.

    NaN stands for a question without a value, which is left out. Equal values give an interval of width 0.
    Raises `InputError` without values and for one that is infinite.
    """
    column = draws.column(values)
    if np.isinf(column).any():
        raise InputError(f"value {int(np.argmax(np.isinf(column)))} of {column.size} (from 0) is infinite; correct it")
    known = ~np.isnan(column)
    if not known.any():
        raise InputError("no values to average: give at least one")
    present, passages = column[known], draws.passages_of(known)
    equal = bool((present == present[0]).all())  # rounding would make their means in the draws differ
    mean = float(present[0] if equal else present.mean())
    low: float | None = mean
    high: float | None = mean
    if passages < 2:
        low = high = None
    elif not equal:
        low, high = percentiles(draws.means(column)[1:], level)
    return Interval(mean, low, high, present.size, passages)


def paired_interval(a: ArrayLike, b: ArrayLike, draws: PassageDraws, *, level: float = 0.95) -> Interval:
    """Return the interval of the mean of `a - b`, question by question, over those with both values.

    An interval that leaves out 0 says that the two differ by more than the choice of passages explains.
    Raises `InputError` when the lengths differ, and as `mean_interval` does.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise InputError(f"paired values must be about the same questions: got {first.size} and {second.size}")
    return mean_interval(first - second, draws, level=level)


def seed_interval(means: Floats, values: ArrayLike, draws: PassageDraws, *, level: float = 0.95) -> Interval:
    """The interval around the mean of `values` (seeds, questions); `means` is `draws.means_over_seeds(values)`."""
    table = np.asarray(values, dtype=np.float64)
    low, high = percentiles(means[1:], level)
    return Interval(float(table.mean()), low, high, table.shape[-1], draws.passages)


def mean_of_seeds(values: Sequence[float], level: float = 0.95) -> tuple[float, float | None, float | None]:
    """The mean of one number for each training seed, and Student's interval for the mean of all seeds; a single seed
    has none.
    """
    from scipy.stats import t

    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean())
    if numbers.size < 2:
        return mean, None, None
    half = float(t.ppf((1 + level) / 2, numbers.size - 1) * numbers.std(ddof=1) / np.sqrt(numbers.size))
    return mean, mean - half, mean + half


def percentiles(values: Floats, level: float = 0.95) -> tuple[float, float]:
    """The ends of the middle `level` of the resampled values that are defined."""
    low, high = np.quantile(values[np.isfinite(values)], [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


# --- Statistics that may not be defined ---


@dataclass(frozen=True)
class Statistic:
    """A statistic with the ends of its 95 % percentile interval, None where either is not defined, and `why` not.

    `n` is the number of questions (or systems) that it is about; `undefined` counts the draws in which it does not
    exist, such as a correlation where all ratings drawn are equal: the interval is that of the others.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    undefined: int = 0
    why: str | None = None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """As plain JSON, without the fields that are empty."""
        shown = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        extra = {"undefined_draws": self.undefined or None, "why": self.why}
        return {**shown, **{key: value for key, value in extra.items() if value is not None}}


def estimate(
    values: Floats, n: int, *, passages: int, why: str = "not defined for these values", level: float = 0.95
) -> Statistic:
    """A statistic with its interval from its values (1 + resamples,): the first is of the data; NaN is undefined.

    `passages` is the number of those that the n questions are about. All draws of a single one are alike, and their
    interval would have width 0, as if it were certain: there is none.
    """
    value, rest = values[0], values[1:]
    undefined = int(np.count_nonzero(~np.isfinite(rest)))
    if not np.isfinite(value):
        return Statistic(None, None, None, n, why=why)
    if passages < 2 or undefined == len(rest):
        why = "no interval: one passage alone" if passages < 2 else "no interval: no draws in which it is defined"
        return Statistic(float(value), None, None, n, undefined, why)
    low, high = percentiles(rest, level)
    return Statistic(float(value), low, high, n, undefined)


# --- Tests ---


def difference(first: Floats, second: Floats) -> Floats:
    """`first - second`, 0 where they differ by rounding alone."""
    gap = first - second
    smallest = ROUNDING * np.maximum(1.0, np.maximum(np.abs(first), np.abs(second)))
    return np.where(np.abs(gap) <= smallest, 0.0, gap)


def two_sided_p(draws: Floats) -> float:
    """The p-value of "the difference is 0": twice the fraction of resampled differences on the other side of 0.

    It is below 0.05 about when the 95 % percentile interval leaves out 0. One more draw is counted on the other side
    than was seen, so that the p-value is never 0 and no smaller than the number of draws can tell.
    """
    far = min(np.count_nonzero(draws <= 0), np.count_nonzero(draws >= 0))
    return float(min(1.0, 2 * (far + 1) / (len(draws) + 1)))


def difference_p(differences: Floats, passages: int) -> float | None:
    """The p-value of "the difference is 0" from its values (1 + resamples,), the first of the data (`difference`);
    None where it is undefined, and for one passage, whose draws are all alike.

    It is `two_sided_p` of the draws, but no less than 2^(1 - passages): passages that lean either way by chance all
    lean the same way with that probability, and draws of such passages never cross 0. Where it is as small as the
    number of draws can tell, which Holm's correction over hundreds of pairs would make 1 again, and there are 20
    passages, the tail of the normal distribution with the draws' standard deviation says how much smaller it is.
    """
    from scipy.stats import norm

    rest = differences[1:][np.isfinite(differences[1:])]
    if not np.isfinite(differences[0]) or len(rest) < 2 or passages < 2:
        return None
    if differences[0] == 0:
        return 1.0
    p, mean, spread = two_sided_p(rest), abs(rest.mean()), rest.std(ddof=1)
    if passages >= TAIL and p <= 2 / (len(rest) + 1) and spread > ROUNDING * mean:
        p = min(p, float(2 * norm.sf(mean / spread)))
    return float(max(p, 2.0 ** (1 - passages)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests by Holm's step-down procedure.

    Where all differences are 0, the probability that any corrected value is below a threshold is at most the
    threshold.
    """
    order = sorted(range(len(p_values)), key=lambda number: p_values[number])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[number])
        corrected[number] = min(1.0, largest)
    return corrected


def few_passages(passages: int) -> str | None:
    """What a page says of intervals and p-values from few passages; None where there are enough."""
    if passages >= FEW:
        return None
    if passages < 2:
        return "One passage alone: there are no intervals and no tests."
    return f"Only {passages} passages: intervals are too narrow, and nothing here is certain."
