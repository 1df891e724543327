"""Intervals by the percentile bootstrap: how far a mean would move with other examples from the same source, and with
other seeds; tests of differences, and their correction when there are many.

Sources: Efron, "Bootstrap methods: another look at the jackknife" (1979); for comparing two systems on the same
examples, Koehn, "Statistical significance tests for machine translation evaluation" (2004); for values crossed by two
factors, Owen, "The pigeonhole bootstrap" (2007); Holm, "A simple sequentially rejective multiple test procedure"
(1979).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rl_qg.runtime.errors import InputError

_NUMBERS_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Interval:
    """A mean and the ends of its interval, in the unit of the values; `n` is the number of values."""

    mean: float
    low: float
    high: float
    n: int


def mean_interval(values: Sequence[float], *, seed: int = 0, resamples: int = 10_000, level: float = 0.95) -> Interval:
    """Return the mean of `values` with its percentile bootstrap interval; the same seed gives the same interval.

    Equal values, and so a single one, give an interval of width 0: with n = 1 that says nothing about spread, so show
    `n` beside it. Memory stays below about 50 MB. Raises `InputError` without values and for one that is not finite.
    """
    from scipy.stats import bootstrap

    array = np.asarray(values, dtype=np.float64)
    if array.size == 0:
        raise InputError("no values to average: give at least one")
    finite = np.isfinite(array)
    if not finite.all():
        raise InputError(f"value {int(np.argmin(finite))} of {array.size} (from 0) is not finite; mend it first")
    if (array == array[0]).all():
        constant = float(array[0])
        return Interval(mean=constant, low=constant, high=constant, n=array.size)
    found = bootstrap(
        (array,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, _NUMBERS_AT_ONCE // array.size),
        vectorized=True,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(mean=float(array.mean()), low=float(found.low), high=float(found.high), n=array.size)


def paired_interval(
    a: Sequence[float], b: Sequence[float], *, seed: int = 0, resamples: int = 10_000, level: float = 0.95
) -> Interval:
    """Return the interval of the mean of `a - b`, value by value on the same examples.

    An interval that leaves out 0 says that the two differ by more than the choice of examples explains.
    Raises `InputError` when the lengths differ, and as `mean_interval` does.
    """
    if len(a) != len(b):
        raise InputError(f"paired values must be about the same examples: got {len(a)} and {len(b)}")
    differences = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    return mean_interval(differences.tolist(), seed=seed, resamples=resamples, level=level)


class Resampling:
    """Draws of passages and of seeds, the same ones for everything that is measured on the same questions.

    Questions about one passage are not independent, so whole passages are drawn. Of s seeds s - 1 are drawn at a time:
    the mean of s draws would spread less than the mean of s seeds does, by (s - 1) / s in its variance, which matters
    where s is 3 (Rao and Wu, "Resampling inference with complex survey data", 1988). One seed alone is not drawn: its
    intervals say nothing about others.

    Args:
        groups: the passage of each question.
        seeds: how many seeds there are.
        seed: of the draws.
        resamples: how many draws.
    """

    def __init__(self, groups: Sequence[Hashable], *, seeds: int, seed: int = 0, resamples: int = 10_000) -> None:
        if not groups or seeds < 1:
            raise InputError("nothing to draw from: give at least one question and one seed")
        names = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        self._place = np.array([names[group] for group in groups])
        rng = np.random.default_rng(seed)
        count = len(names)
        self._passages = rng.multinomial(count, np.full(count, 1 / count), resamples).astype(np.float32)
        draws = max(1, seeds - 1)
        self._seeds = rng.multinomial(draws, np.full(seeds, 1 / seeds), resamples) / draws
        self._sizes = self._passages @ np.bincount(self._place, minlength=count).astype(np.float32)

    def means(self, values: ArrayLike) -> np.ndarray:
        """The mean of `values` (seeds, questions) in each draw, float64 (resamples,). Raises `InputError` for another
        shape.
        """
        table = np.asarray(values, dtype=np.float64)
        if table.shape != (self._seeds.shape[1], len(self._place)):
            raise InputError(
                f"values of shape {table.shape} where {self._seeds.shape[1]} seeds of {len(self._place)} questions "
                "were to be drawn"
            )
        count = self._passages.shape[1]
        sums = np.stack([np.bincount(self._place, weights=row, minlength=count) for row in table])
        return (self._seeds * (self._passages @ sums.T)).sum(axis=1) / self._sizes


def interval_of(means: np.ndarray, values: ArrayLike, level: float = 0.95) -> Interval:
    """The percentile interval of resampled means, around the mean of the values (seeds, questions) themselves."""
    table = np.asarray(values, dtype=np.float64)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(mean=float(table.mean()), low=float(low), high=float(high), n=table.shape[-1])


def two_sided_p(means: np.ndarray) -> float:
    """The p-value of "the mean difference is 0": twice the share of resampled differences on the far side of 0.

    It is below 0.05 about when the 95 % percentile interval leaves out 0. One more draw is counted on the far side
    than was seen, so that it is never 0 and no smaller than the number of draws can tell.
    """
    far = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    return float(min(1.0, 2 * (far + 1) / (len(means) + 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests by Holm's step-down procedure.

    Where all differences are 0, the probability that any corrected value is below a threshold is at most the
    threshold.
    """
    order = sorted(range(len(p_values)), key=lambda place: p_values[place])
    corrected, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(order):
        largest = max(largest, (len(p_values) - rank) * p_values[place])
        corrected[place] = min(1.0, largest)
    return corrected
