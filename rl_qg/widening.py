"""The rule of all intervals and p-values: what draws of few passages, seeds or raters are widened by.

Draws of few passages spread less than means of as many do, and few passages have no normal tails. So all intervals
and p-values are read from deviations that `widening` makes larger (Hesterberg, "What teachers should know about the
bootstrap", 2015, section 4.3).
"""

from functools import lru_cache
from math import ceil, isinf

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bounds = tuple[float, float]
ROUNDING = 1e-12


def widening(units: float, level: float = 0.95, degrees: float | None = None) -> float:
    """What the deviations of draws from the data are multiplied with, for an interval of so much `level`.

    The first factor is √(n / (n - 1)) for n `units`: draws of n out of n spread less than means of n do. It is 1 for
    infinitely many, such as draws that are corrected already. The second is the ratio of Student's and the normal
    quantile for `degrees` of freedom, by default n - 1. Fewer than two units count as two.
    """
    from scipy.stats import norm, t

    tail = (1 + level) / 2
    factor = spread_factor(units) * t.ppf(tail, degrees_of(units, degrees)) / norm.ppf(tail)
    return max(1.0, float(factor))  # rounding alone makes it less


def spread_factor(units: float) -> float:
    """√(n / (n - 1)) for n units, 1 for infinitely many."""
    known = max(units, 2.0)
    return 1.0 if isinf(known) else float(np.sqrt(known / (known - 1)))


def degrees_of(units: float, degrees: float | None) -> float:
    """`degrees`, by default one less than the units."""
    return max(units, 2.0) - 1 if degrees is None else degrees


def interval_ends(
    values: Floats,
    units: float,
    *,
    level: float = 0.95,
    degrees: float | None = None,
    bounds: Bounds | None = None,
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
    from scipy.stats import norm, t

    tails = np.arange(1, draws // 2 + 1) / (draws + 1)
    return np.maximum(1.0, spread_factor(units) * t.isf(tails, degrees_of(units, degrees)) / norm.isf(tails))
