"""How far raters agree: Krippendorff's α and Fleiss' κ, with intervals over passages.

Sources: Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011 (coincidence matrices and the difference
functions of nominal, ordinal and interval data); Fleiss, "Measuring nominal scale agreement among many raters",
Psychological Bulletin 1971.
"""

from collections.abc import Sequence

import numpy as np

from rl_qg.passage_draws import Draws, Estimate, Floats, estimate

LEVELS = ("nominal", "ordinal", "interval")
Ratings = Sequence[Sequence[float | None]]


def krippendorff_alpha(ratings: Ratings, level: str, draws: Draws | None = None) -> Estimate:
    """α of units with one rating per rater, None for those who did not rate: 1 - observed / expected disagreement.

    Any number of raters, who need not be the same for every unit; units with fewer than two ratings pair nothing and
    do not count. 1: perfect agreement, 0: what chance gives, below 0: disagreement by system. Undefined where all
    ratings are equal.

    Args:
        ratings: (units, raters).
        level: `nominal` (equal or not), `ordinal` (how many ratings lie between) or `interval` (squared difference).
        draws: of the passages of the units; None: no interval.
    """
    tables, values, units = _coincidences(ratings)
    if not units:
        return Estimate(None, None, None, 0, why="no unit with two ratings")
    draws = draws or Draws(range(len(tables)), resamples=1)
    sums = draws.sums(tables.reshape(len(tables), -1)).reshape(-1, len(values), len(values))
    margins = sums.sum(axis=2)
    apart = _differences(values, margins, level)
    total = margins.sum(axis=1)
    observed = (sums * apart).sum(axis=(1, 2))
    expected = (margins[:, :, None] * margins[:, None, :] * apart).sum(axis=(1, 2))
    with np.errstate(invalid="ignore", divide="ignore"):
        alpha = np.where(expected > 0, 1 - (total - 1) * observed / expected, np.nan)
    return estimate(alpha, units, why="all ratings are equal")


def fleiss_kappa(ratings: Ratings, draws: Draws | None = None) -> Estimate:
    """κ of units that all have the same number of ratings (whose raters may differ): (P - P_e) / (1 - P_e).

    Undefined where units differ in their number of ratings, have a single one, or all ratings are equal.
    """
    rated = [[value for value in unit if value is not None] for unit in ratings]
    sizes = {len(unit) for unit in rated if unit}
    if len(sizes) != 1 or max(sizes) < 2:
        why = "questions have different numbers of ratings" if len(sizes) > 1 else "fewer than two ratings a question"
        return Estimate(None, None, None, sum(map(bool, rated)), why=why)
    size = sizes.pop()
    values = sorted({value for unit in rated for value in unit})
    counts = np.array([[unit.count(value) for value in values] for unit in rated], dtype=np.float64)
    agreed = (counts * (counts - 1)).sum(axis=1) / (size * (size - 1))
    has = counts.any(axis=1).astype(np.float64)
    draws = draws or Draws(range(len(rated)), resamples=1)
    sums = draws.sums(np.column_stack([has, agreed, counts]))
    with np.errstate(invalid="ignore", divide="ignore"):
        observed = sums[:, 1] / sums[:, 0]
        chance = ((sums[:, 2:] / (size * sums[:, :1])) ** 2).sum(axis=1)
        kappa = np.where(chance < 1 - 1e-12, (observed - chance) / (1 - chance), np.nan)
    return estimate(kappa, int(has.sum()), why="all ratings are equal")


def _coincidences(ratings: Ratings) -> tuple[Floats, Floats, int]:
    """For each unit its pairs of ratings (units, values, values), each weighted 1 / (ratings - 1); the values; and how
    many units have pairs.
    """
    rated = [[value for value in unit if value is not None] for unit in ratings]
    values = np.array(sorted({value for unit in rated if len(unit) > 1 for value in unit}), dtype=np.float64)
    tables = np.zeros((len(rated), len(values), len(values)))
    for table, unit in zip(tables, rated, strict=True):
        if len(unit) > 1:
            counts = np.array([unit.count(value) for value in values], dtype=np.float64)
            table += (np.outer(counts, counts) - np.diag(counts)) / (len(unit) - 1)
    return tables, values, sum(len(unit) > 1 for unit in rated)


def _differences(values: Floats, margins: Floats, level: str) -> Floats:
    """The squared difference between every two values, (draws or 1, values, values)."""
    if level == "nominal":
        return np.asarray((values[:, None] != values[None, :]).astype(np.float64)[None])
    if level == "interval":
        return np.asarray(((values[:, None] - values[None, :]) ** 2)[None])
    if level != "ordinal":
        raise ValueError(f"level {level!r} is not one of {', '.join(LEVELS)}")
    middle = np.cumsum(margins, axis=1) - margins / 2  # of each value among the ratings in order
    return np.asarray((middle[:, :, None] - middle[:, None, :]) ** 2)
