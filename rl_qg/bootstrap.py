"""Intervals by the percentile bootstrap: how far a mean would move with other examples from the same source.

Source: Efron, "Bootstrap methods: another look at the jackknife" (1979); for comparing two systems on the same
examples, Koehn, "Statistical significance tests for machine translation evaluation" (2004).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rl_qg.errors import InputError

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
