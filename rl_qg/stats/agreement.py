"""How far raters agree: Krippendorff's α and Fleiss' κ, with intervals over passages.

Sources: Krippendorff, "Computing Krippendorff's Alpha-Reliability", 2011 (coincidence matrices and the difference
functions of nominal, ordinal and interval data); Fleiss, "Measuring nominal scale agreement among many raters",
Psychological Bulletin 1971.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np

from rl_qg.stats.intervals import CORRELATION, Floats, PassageDraws, Statistic, estimate, quotient

LEVELS = ("nominal", "ordinal", "interval")
Ratings = Sequence[Sequence[float | None]]


def krippendorff_alpha(ratings: Ratings, level: str, draws: PassageDraws | None = None) -> Statistic:
    """α of `ratings` (units, raters), None for those who did not rate: 1 - observed / expected disagreement, with an
    interval over the passages of the units, if `draws` are given.

    Raters need not be the same for every unit; units with fewer than two ratings have no pairs and do not count. 1:
    perfect agreement, 0: agreement by chance. Undefined where all ratings are equal. `level` is `nominal` (equal or
    not), `ordinal` (how many ratings lie between) or `interval` (squared difference).

    Expected disagreement is summed over ratings, not over pairs of values: the squared differences of all pairs of n
    numbers g add up to 2 (n Σ g² - (Σ g)²), where g are the ratings (interval) or their mid-ranks (ordinal). So there
    may be any number of distinct ratings.
    """
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is not one of {', '.join(LEVELS)}")
    units = _RatedUnits(ratings, draws)
    alphas = []
    for counts, pairs in units.blocks():
        total = counts.sum(axis=1)
        if level == "nominal":
            observed, expected = pairs.sum(axis=1), total**2 - (counts**2).sum(axis=1)
        else:
            marks = units.values[None] if level == "interval" else np.cumsum(counts, axis=1) - counts / 2
            marks = marks - quotient((marks * counts).sum(axis=1, keepdims=True), total[:, None])
            observed = (pairs * (marks[:, units.lower] - marks[:, units.higher]) ** 2).sum(axis=1)
            expected = 2 * total * (counts * marks**2).sum(axis=1)  # the marks of each draw add up to 0
        alpha = 1 - quotient((total - 1) * observed, expected)
        alphas.append(np.where((counts > 0).sum(axis=1) > 1, alpha, np.nan))
    return units.statistic(alphas)


def fleiss_kappa(ratings: Ratings, draws: PassageDraws | None = None) -> Statistic:
    """κ of units that all have the same number of ratings (whose raters may differ): (P - P_e) / (1 - P_e). Undefined
    where units differ in their number of ratings, have a single one, or all ratings are equal.
    """
    sizes = {sum(value is not None for value in unit) for unit in ratings} - {0}
    if len(sizes) != 1 or max(sizes) < 2:
        why = "questions have different numbers of ratings" if len(sizes) > 1 else "fewer than two ratings a question"
        rated = sum(any(value is not None for value in unit) for unit in ratings)
        return Statistic(None, None, None, rated, why=why)
    units = _RatedUnits(ratings, draws)
    kappas = []
    for counts, pairs in units.blocks():
        total = counts.sum(axis=1)
        observed = 1 - quotient(pairs.sum(axis=1), total)
        chance = (quotient(counts, total[:, None]) ** 2).sum(axis=1)
        kappas.append(np.where((counts > 0).sum(axis=1) > 1, quotient(observed - chance, 1 - chance), np.nan))
    return units.statistic(kappas)


def agreement_of(ratings: Ratings, draws: PassageDraws | None = None) -> dict[str, Statistic]:
    alphas = {f"Krippendorff's α, {level}": krippendorff_alpha(ratings, level, draws) for level in LEVELS}
    return {**alphas, "Fleiss' κ": fleiss_kappa(ratings, draws)}


class _RatedUnits:
    """Units with two ratings or more: their distinct `values` (v,), and the pairs of different values that a unit has,
    by their indices among the values, `lower` and `higher` (p,). Sums are kept by passage, without the zeros.
    """

    def __init__(self, ratings: Ratings, draws: PassageDraws | None) -> None:
        from scipy.sparse import csr_array

        rated = [[value for value in unit if value is not None] for unit in ratings]
        units = [number for number, unit in enumerate(rated) if len(unit) > 1]
        self.values, level = np.unique(
            np.array([value for unit in units for value in rated[unit]]), return_inverse=True
        )
        flat = iter(level.tolist())
        names: dict[tuple[int, int], int] = {}
        singles, pairs = list[tuple[int, int, float]](), list[tuple[int, int, float]]()
        for unit in units:
            passage = int(draws.passage_index[unit]) if draws is not None else 0
            levels = sorted(next(flat) for _ in rated[unit])
            singles += [(passage, value, 1.0) for value in levels]
            for pair in combinations(levels, 2):
                if pair[0] != pair[1]:
                    pairs.append((passage, names.setdefault(pair, len(names)), 2 / (len(levels) - 1)))
        self.lower, self.higher = np.array(list(names), dtype=np.intp).reshape(-1, 2).T
        self._draws, self._units = draws, units

        def table(entries: list[tuple[int, int, float]], width: int) -> csr_array:
            passages, columns, weights = np.array(entries, dtype=np.float64).reshape(-1, 3).T
            shape = (draws.passages if draws is not None else 1, width)
            return csr_array((weights, (passages.astype(np.intp), columns.astype(np.intp))), shape=shape)

        self._counts, self._pairs = table(singles, len(self.values)), table(pairs, len(names))

    def blocks(self) -> Iterator[tuple[Floats, Floats]]:
        """Some draws at a time, how often each value (draws, v) and each pair (draws, p) is in them, pairs both ways
        and weighted 1 / (ratings of the unit - 1); the data alone without draws.
        """
        columns = max(len(self.values), len(self.lower))
        for weights in self._draws.blocks(columns) if self._draws is not None else [np.ones((1, 1))]:
            yield weights @ self._counts, weights @ self._pairs

    def statistic(self, values: Sequence[Floats]) -> Statistic:
        if not self._units:
            return Statistic(None, None, None, 0, why="no unit with two ratings")
        n = len(self._units)
        units = self._draws.units_of(np.array(self._units)) if self._draws is not None else n
        return estimate(np.concatenate(values), n, passages=units, why="all ratings are equal", bounds=CORRELATION)
