"""One-sided rank tests with fixed methods: Wilcoxon's signed-rank test of pairs and the rank-sum test of two groups.

Libraries change between exact and approximate methods by the number of values and by ties, and their defaults change
with their versions; a rater's pass must not depend on that.

Sources: Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1945; Mann and Whitney, "On a test
of whether one of two random variables is stochastically larger than the other", 1947; Pratt and Gibbons, "Concepts of
Nonparametric Theory", 1981, chapter 3 (ties and zero differences).
"""

from dataclasses import dataclass

import numpy as np

from rl_qg.stats.intervals import Floats

EXACT_UP_TO = 50  # pairs that differ; above: normal approximation
_SAME = 1e-9  # differences up to this are rounding of means


@dataclass(frozen=True)
class RankTest:
    """A p-value, of so many pairs (or values of the smaller group), and the smallest p that so many allow,
    without ties where p is approximate.
    """

    p: float
    statistic: float
    n: int
    smallest: float


def signed_rank(first: Floats, second: Floats) -> RankTest | None:
    """Wilcoxon's test of "`first` is not higher than `second`", pair by pair: p is small where it is higher. None
    without pairs. The statistic is the sum of positive ranks; pairs that do not differ are left out.

    Up to 50 pairs that differ p is exact, also with ties: the share of all 2^n choices of signs whose sum of positive
    mid-ranks is at least that of the data. Above, it is the normal approximation with the variance corrected for ties
    and without a correction for continuity.
    """
    from scipy.stats import norm, rankdata

    n = len(first)
    if not n:
        return None
    gaps = np.round((np.asarray(first, dtype=np.float64) - second) / _SAME) * _SAME
    gaps = gaps[gaps != 0]
    if not len(gaps):
        return RankTest(1.0, 0.0, n, 2.0**-n)
    ranks = rankdata(np.abs(gaps))
    statistic = float(ranks[gaps > 0].sum())
    if len(gaps) > EXACT_UP_TO:
        spread = np.sqrt((ranks**2).sum() / 4)
        return RankTest(float(norm.sf((statistic - ranks.sum() / 2) / spread)), statistic, n, 2.0**-n)
    doubled = np.round(2 * ranks).astype(int)  # mid-ranks are halves
    ways = np.zeros(doubled.sum() + 1)  # the share of all subsets of the ranks with each sum
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] = (ways[rank:] + ways[:-rank]) / 2
        ways[:rank] /= 2
    return RankTest(float(min(1.0, ways[round(2 * statistic) :].sum())), statistic, n, 2.0**-n)


def rank_sum(first: Floats, second: Floats) -> RankTest | None:
    """The Mann-Whitney test of "`first` is not higher than `second`": p is small where it is. None where one is empty.

    Normal approximation, with the variance corrected for ties and half a point for continuity, as scipy had it for any
    number of values when Dialogue-Eval (Ji et al., ACL 2022) used it. The statistic is the number of pairs in which
    `first` is higher, ties counted half.
    """
    from scipy.stats import mannwhitneyu, norm

    a, b = len(first), len(second)
    if not a or not b:
        return None
    smallest = float(norm.sf((a * b / 2 - 0.5) / np.sqrt(a * b * (a + b + 1) / 12)))
    if np.ptp(np.concatenate([first, second])) == 0:
        return RankTest(1.0, a * b / 2, min(a, b), smallest)
    test = mannwhitneyu(first, second, alternative="greater", use_continuity=True, method="asymptotic")
    return RankTest(float(test.pvalue), float(test.statistic), min(a, b), smallest)
