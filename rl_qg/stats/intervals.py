"""Intervals and tests by the widened percentile bootstrap over passages: of the pipeline, of `evaluate`, of the
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
from functools import cached_property, lru_cache
from math import ceil, inf, isinf
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri, stdtr, stdtrit  # quantiles; scipy.stats, which calls them, takes a second to load

from rl_qg.runtime.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bounds = tuple[float, float]
SHARE, PERCENT, CORRELATION = (0.0, 1.0), (0.0, 100.0), (-1.0, 1.0)
ROUNDING = 1e-12
UNDEFINED = "not defined for these values"
FEW, TAIL = 10, 20  # passages below which a page warns, and from which the normal tail is used
FEWEST_DRAWS = 39  # of fewer, 2.5 % are less than one (`rl_qg.settings.keys.RESAMPLES`)
NUMBERS_AT_ONCE = 4_000_000
_NUMBERS_KEPT = 200_000_000  # of one byte each


def without_rounding(x: Floats) -> Floats:
    """Values to 12 significant digits: of those that differ by rounding alone, none is larger. NaN stays."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = 10.0 ** (11 - np.floor(np.log10(np.abs(x))))
        return np.asarray(np.where(np.isfinite(scale) & (scale > 0), np.round(x * scale) / scale, x))


def quotient(part: Floats, whole: Floats) -> Floats:
    """`part / whole`, NaN where `whole` is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(whole != 0, part / whole, np.nan)


# Draws of few passages, seeds or raters spread less than means of as many do, and so few have no normal tails: all
# intervals and p-values are read from deviations that `widening` makes larger (Hesterberg, "What teachers should know
# about the bootstrap", 2015, section 4.3).


def widening(units: float, level: float = 0.95, degrees: float | None = None) -> float:
    """What the deviations of draws from the data are multiplied with, for an interval of so much `level`.

    The first factor is √(n / (n - 1)) for n `units`: draws of n out of n spread less than means of n do. It is 1 for
    infinitely many, such as draws that are corrected already. The second is the ratio of Student's and the normal
    quantile for `degrees` of freedom, by default n - 1. Fewer than two units count as two.
    """
    tail = (1 + level) / 2
    factor = spread_factor(units) * stdtrit(degrees_of(units, degrees), tail) / ndtri(tail)
    return max(1.0, float(factor))  # rounding alone makes it less


def spread_factor(units: float) -> float:
    known = max(units, 2.0)
    return 1.0 if isinf(known) else float(np.sqrt(known / (known - 1)))


def degrees_of(units: float, degrees: float | None) -> float:
    return max(units, 2.0) - 1 if degrees is None else degrees


def interval_ends(
    values: Floats, units: float, *, level: float = 0.95, degrees: float | None = None, bounds: Bounds | None = None
) -> tuple[float, float]:
    """The ends of the interval of a statistic from its values (1 + resamples,), the first of the data: those of the
    middle `level` of the draws that are defined, widened (`widening`).

    They are deviations of single draws, not between two, so that the interval leaves out 0 where `difference_p` is
    below `1 - level`; that needs 2 / (1 - level) draws. `bounds` are those of the statistic, which the interval does
    not leave. Where the data and all draws are at one of them, the other end is that of the exact binomial interval
    for 0 of so many units (Clopper and Pearson, "The use of confidence or fiducial limits", 1934).
    """
    value, rest = values[0], np.sort(values[1:][np.isfinite(values[1:])])
    number = max(0, ceil(round((1 - level) / 2 * (len(rest) + 1), 9)) - 2)
    reached = max(level, 1 - 2 * (number + 1) / (len(rest) + 1))
    low, high = value + widening(units, reached, degrees) * (rest[[number, -1 - number]] - value)
    least, most = bounds or (-np.inf, np.inf)
    if np.isfinite(most - least) and np.ptp(np.append(rest, value)) <= ROUNDING:
        hidden = (most - least) * (1 - ((1 - level) / 2) ** (1 / units))
        if abs(value - least) <= ROUNDING:
            return least, least + hidden
        if abs(value - most) <= ROUNDING:
            return most - hidden, most
    return float(max(low, least)), float(min(high, most))


@lru_cache(maxsize=64)
def widenings(draws: int, units: float, degrees: float | None) -> Floats:
    """`widening` for the intervals between the k-th smallest and k-th largest of so many draws, (draws // 2,)."""
    tails = np.arange(1, draws // 2 + 1) / (draws + 1)
    return np.maximum(1.0, spread_factor(units) * stdtrit(degrees_of(units, degrees), tails) / ndtri(tails))


class PassageDraws:
    """How often each passage is in each draw: weights (1 + resamples, passages). The first row is all ones, so that a
    statistic of the data and its values in the draws come from the same lines of code.

    The same seed gives the same draws. Up to 200 million weights are kept, one byte each; more are drawn again, block
    by block, each time they are needed, so memory does not grow with the data.

    Args:
        groups: the passage of each question; there are `passages` different ones, and `passage_index` (questions,).
        seeds: of how many training seeds there are results, see `means_over_seeds`.
        resamples, seed: how many draws, and their seed.
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

    def blocks(self, columns: int = 1) -> Iterator[Floats]:
        """The weights (draws, passages), so many draws at a time as leave memory for `columns` numbers of each."""
        step = max(1, NUMBERS_AT_ONCE // max(1, columns))
        for block in self._kept if self._kept is not None else self._drawn(np.random.default_rng(self.seed)):
            for start in range(0, len(block), step):
                yield block[start : start + step].astype(np.float64)

    def sums(self, table: ArrayLike) -> Floats:
        """For each draw the sums over questions of `table` (questions, k): float64 (1 + resamples, k)."""
        return self.sums_of_passages(self.by_passage(table))

    def by_passage(self, table: ArrayLike, rows: NDArray[np.intp] | None = None) -> Floats:
        """Sums over the questions of each passage, float64 (passages, k), of the questions `rows`; None: all."""
        values = np.asarray(table, dtype=np.float64)
        index = self.passage_index if rows is None else self.passage_index[rows]
        return np.stack([np.bincount(index, weights=column, minlength=self.passages) for column in values.T], axis=1)

    def sums_of_passages(self, table: Floats) -> Floats:
        """For each draw the sums over passages of `table` (passages, k): float64 (1 + resamples, k)."""
        return np.concatenate([weights @ table for weights in self.blocks()])

    def units_of(self, rows: NDArray[Any] | slice = slice(None)) -> float:
        """How many passages with equally many questions tell as much as those of `rows`, indices or a mask: squared
        number of questions by sum of the squared numbers of each passage; 1 where all are about one passage.
        """
        sizes = np.bincount(self.passage_index[rows]).astype(np.float64)
        return float(sizes.sum() ** 2 / (sizes**2).sum()) if sizes.any() else 0.0

    def column(self, values: ArrayLike) -> Floats:
        """`values` as float64 (questions,). Raises `InputError` where they are of another shape."""
        column = np.asarray(values, dtype=np.float64)
        if column.shape != self.passage_index.shape:
            raise InputError(f"values of shape {column.shape} for draws of {len(self.passage_index)} questions")
        return column

    def means(self, values: ArrayLike) -> Floats:
        """The mean of `values` (questions,) in each draw, float64 (1 + resamples,). NaN stands for a question without
        a value, and is the mean of a draw in which no question has one.
        """
        column = self.column(values)
        known = ~np.isnan(column)
        return quotient(*self.sums(np.column_stack([np.where(known, column, 0.0), known])).T)

    def means_over_seeds(self, values: ArrayLike) -> Floats:
        """The mean of `values` (seeds, questions) in each draw of passages and seeds, float64 (1 + resamples,).

        The mean of s drawn seeds would spread less than the mean of s seeds does, by (s - 1) / s in its variance. So
        the weights of seeds differ √(s / (s - 1)) times as much from 1/s as those of plain draws, and may be negative
        (Rao and Wu, "Resampling inference with complex survey data", 1988). Passages are plainly drawn, and
        `interval_ends` widens for them. A single seed is not drawn: its intervals say nothing about other seeds.
        """
        table = np.asarray(values, dtype=np.float64)
        if table.shape != (self._seed_weights.shape[1], len(self.passage_index)):
            raise InputError(
                f"values of shape {table.shape} for draws of {self._seed_weights.shape[1]} seeds and "
                f"{len(self.passage_index)} questions"
            )
        return np.asarray((self._seed_weights * self.sums(table.T)).sum(axis=1) / self._questions)

    def degrees_over_seeds(self, values: ArrayLike) -> float:
        """The degrees of freedom of `means_over_seeds` of `values` (seeds, questions): near those of the seeds where
        these differ more than passages explain, near those of the passages where they do not (Satterthwaite, "An
        approximate distribution of estimates of variance components", 1946).
        """
        table, units = np.asarray(values, dtype=np.float64), max(self.units_of(), 2.0)
        seeds, questions = table.shape
        if seeds < 2:
            return units - 1
        of_passages = self.by_passage((table.mean(axis=0) - table.mean())[:, None])[:, 0]
        by_passage = float((of_passages**2).sum()) / questions**2 * units / (units - 1)
        by_seed = float(table.mean(axis=1).var(ddof=1)) / seeds
        if by_passage + by_seed == 0:
            return units - 1
        return (by_passage + by_seed) ** 2 / (by_passage**2 / (units - 1) + by_seed**2 / (seeds - 1))

    @cached_property
    def _questions(self) -> Floats:
        return self.sums(np.ones((len(self.passage_index), 1)))[:, 0]

    def _drawn(self, rng: np.random.Generator) -> Iterator[NDArray[np.uint8]]:
        at_once = max(1, NUMBERS_AT_ONCE // self.passages)
        equal = np.full(self.passages, 1 / self.passages)
        for start in range(0, self.resamples, at_once):
            # a passage is drawn once on average: 256 times has a probability below 1e-500
            drawn = rng.multinomial(self.passages, equal, min(at_once, self.resamples - start)).astype(np.uint8)
            yield drawn if start else np.concatenate([np.ones((1, self.passages), dtype=np.uint8), drawn])


def _seed_weights(rng: np.random.Generator, seeds: int, resamples: int) -> Floats:
    """The weights of seeds in the data and in each draw, (1 + resamples, seeds); each row adds up to 1."""
    equal = np.full(seeds, 1 / seeds)
    drawn = rng.multinomial(seeds, equal, resamples) / seeds
    if seeds > 1:
        drawn = equal + (drawn - equal) * spread_factor(seeds)
    return np.concatenate([equal[None], drawn])


@dataclass(frozen=True)
class Interval:
    """A mean of `n` questions about so many `passages`, with its interval; of one passage it has no ends."""

    mean: float
    low: float | None
    high: float | None
    n: int
    passages: int


def mean_interval(
    values: ArrayLike, draws: PassageDraws, *, level: float = 0.95, bounds: Bounds | None = None
) -> Interval:
    """Return the mean of `values` (questions,) with its interval over the passages of `draws` (`interval_ends`).

    NaN stands for a question without a value, which is left out. Equal values give an interval of width 0, unless they
    are at one of the `bounds` that values can have. Raises `InputError` without values and for one that is infinite.
    """
    column = draws.column(values)
    known = ~np.isnan(column)
    if np.isinf(column).any():
        raise InputError(f"value {int(np.argmax(np.isinf(column)))} of {column.size} (from 0) is infinite; correct it")
    if not known.any():
        raise InputError("no values to average: give at least one")
    present, passages = column[known], len(np.unique(draws.passage_index[known]))
    equal = bool((present == present[0]).all())  # rounding would make their means in the draws differ
    mean = float(present[0] if equal else present.mean())
    ends: tuple[float | None, float | None] = (mean, mean)
    if passages < 2:
        ends = (None, None)
    elif not equal or (bounds is not None and mean in bounds):
        means = np.full(2, mean) if equal else draws.means(column)
        ends = interval_ends(means, draws.units_of(known), level=level, bounds=bounds)
    return Interval(mean, *ends, present.size, passages)


def paired_interval(a: ArrayLike, b: ArrayLike, draws: PassageDraws, *, bounds: Bounds | None = None) -> Interval:
    """Return the interval of the mean of `a - b`, question by question, over those with both values; `bounds` are
    those of a value. Raises `InputError` when the lengths differ, and as `mean_interval` does.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise InputError(f"paired values must be about the same questions: got {first.size} and {second.size}")
    return mean_interval(first - second, draws, bounds=bounds_of_difference(bounds))


def seed_interval(means: Floats, values: ArrayLike, draws: PassageDraws, *, bounds: Bounds | None = None) -> Interval:
    """The interval around the mean of `values` (seeds, questions); `means` is `draws.means_over_seeds(values)`."""
    table = np.asarray(values, dtype=np.float64)
    ends: tuple[float | None, float | None] = (None, None)
    if draws.passages > 1:
        ends = interval_ends(means, draws.units_of(), degrees=draws.degrees_over_seeds(table), bounds=bounds)
    return Interval(float(table.mean()), *ends, table.shape[-1], draws.passages)


def mean_of_seeds(values: Sequence[float], bounds: Bounds = (-inf, inf)) -> tuple[float, float | None, float | None]:
    """The mean of one number for each training seed, with Student's 95 % interval; a single seed has none."""
    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean())
    if numbers.size < 2:
        return mean, None, None
    half = float(stdtrit(numbers.size - 1, 0.975) * numbers.std(ddof=1) / np.sqrt(numbers.size))
    return mean, max(bounds[0], mean - half), min(bounds[1], mean + half)


@dataclass(frozen=True)
class Statistic:
    """A statistic with the ends of its 95 % interval, None where either is not defined, and `why` not.

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
        extra = {"undefined_draws": self.undefined or None, "why": self.why}
        shown: dict[str, float | int | str | None] = {key: getattr(self, key) for key in ("value", "low", "high", "n")}
        return shown | {key: value for key, value in extra.items() if value is not None}


def estimate(
    values: Floats,
    n: int,
    *,
    passages: float,
    why: str = UNDEFINED,
    degrees: float | None = None,
    bounds: Bounds | None = None,
) -> Statistic:
    """A statistic with its interval from its values (1 + resamples,): the first is of the data; NaN is undefined.

    `passages` is the number of those that the n questions are about, or as many of equal size as tell as much
    (`PassageDraws.units_of`); with `degrees` and `bounds` as in `interval_ends`. All draws of a single one are alike,
    and their interval would have width 0, as if it were certain: there is none; nor where, of more draws, it is
    defined in fewer than `FEWEST_DRAWS`.
    """
    value, rest = values[0], values[1:]
    defined = int(np.count_nonzero(np.isfinite(rest)))
    undefined = len(rest) - defined
    if not np.isfinite(value):
        return Statistic(None, None, None, n, why=why)
    if passages <= 1 or defined < min(FEWEST_DRAWS, max(1, len(rest))):  # where some are not: too few for 95 %
        why = "one passage alone" if passages <= 1 else f"{defined or 'no'} draws in which it is defined"
        return Statistic(float(value), None, None, n, undefined, f"no interval: {why}")
    return Statistic(float(value), *interval_ends(values, passages, degrees=degrees, bounds=bounds), n, undefined)


def difference(first: Floats, second: Floats) -> Floats:
    """`first - second`, 0 where they differ by rounding alone."""
    gap = first - second
    smallest = ROUNDING * np.maximum(1.0, np.maximum(np.abs(first), np.abs(second)))
    return np.where(np.abs(gap) <= smallest, 0.0, gap)


def bounds_of_difference(bounds: Bounds | None) -> Bounds | None:
    """Of the difference of two values that have `bounds`."""
    return bounds and (bounds[0] - bounds[1], bounds[1] - bounds[0])


def difference_p(differences: Floats, passages: float, degrees: float | None = None) -> float | None:
    """The two-sided p-value of "the difference is 0" from its values (1 + resamples,), the first of the data
    (`difference`); None where it is undefined, and for one passage, whose draws are all alike.

    It is 1 less the largest level whose interval (`interval_ends`, with the same `passages` and `degrees`) leaves out
    0. One more draw is counted on the other side than was seen, so that the p-value is never 0 and no smaller than the
    number of draws can tell. Where it is as small as that, which Holm's correction over hundreds of pairs would make 1
    again, and there are 20 passages, the tail of Student's distribution with the widened standard deviation of the
    draws says how much smaller it is. Differences that are all the same have no spread to compare with: p is that of
    the sign test, 2^(1 - passages).
    """
    value, rest = differences[0], np.sort(differences[1:][np.isfinite(differences[1:])])
    if not np.isfinite(value) or len(rest) < 2 or passages <= 1:
        return None
    if value == 0:
        return 1.0
    mean, spread, fewest = abs(rest.mean()), rest.std(ddof=1) * spread_factor(passages), 2 / (len(rest) + 1)
    if spread <= ROUNDING * mean:
        return float(max(fewest, 2.0 ** (1 - passages)))
    factors = widenings(len(rest), float(passages), degrees)
    low, high = (value + factors * (end[: len(factors)] - value) for end in (rest, rest[::-1]))
    p = min(1.0, fewest * (np.count_nonzero((low <= 0) & (high >= 0)) + 1))
    if passages >= TAIL and p <= fewest:
        p = min(p, 2 * stdtr(degrees_of(passages, degrees), -mean / spread))
    return float(p)


def paired_test(
    first: Floats,
    second: Floats,
    n: int,
    passages: float,
    *,
    why: str = UNDEFINED,
    degrees: float | None = None,
    bounds: Bounds | None = None,
) -> dict[str, Any]:
    """The `estimate` of `first - second`, of values with `bounds`, and its `p` (`difference_p`), as plain JSON."""
    gap, of_gap = difference(first, second), bounds_of_difference(bounds)
    shown = estimate(gap, n, passages=passages, degrees=degrees, bounds=of_gap, why=why).to_dict()
    return {**shown, "p": difference_p(gap, passages, degrees)}


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests by Holm's step-down procedure: where all differences are 0, the probability
    that any corrected value is below a threshold is at most the threshold.
    """
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, (len(p_values) - rank) * p_values[number])
        corrected[number] = min(1.0, largest)
    return corrected


def add_holm(rows: Sequence[dict[str, Any]], key: str = "p", *, family: bool = True) -> None:
    """Add to rows of tests that have a p-value the corrected one (`p_holm`), and with `family` of how many it is."""
    tested = [row for row in rows if row.get(key) is not None]
    for row, corrected in zip(tested, holm([row[key] for row in tested]), strict=True):
        row |= {f"{key}_holm": corrected, **({"family": len(tested)} if family else {})}


def few_passages(passages: int) -> str | None:
    """What a page says of intervals and p-values from few passages; None where there are enough."""
    if passages < 2:
        return "One passage alone: there are no intervals and no tests."
    only = f"Only {passages} passages: intervals take their means for normal, and nothing here is certain."
    return only if passages < FEW else None
