"""Rank tests, against enumeration and scipy."""

from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
from scipy.stats import rankdata, wilcoxon

from rl_qg.stats.rank_tests import rank_sum, signed_rank

Q = np.array([80.0, 75, 90, 60, 85, 70])
B = np.array([60.0, 70, 40, 65, 50, 30])


def test_the_worked_example() -> None:
    """Two differences of 5 points, one up and one down, share the ranks 1 and 2: W = 19.5."""
    test = signed_rank(Q, B)
    assert test is not None and (test.p, test.statistic, test.n) == (0.046875, 19.5, 6)
    assert test.smallest == 1 / 64
    approximate = wilcoxon(Q, B, alternative="greater", method="approx").pvalue
    assert approximate == pytest.approx(0.0292, abs=5e-5)  # which would pass with more to spare: not used here
    other = signed_rank(B, Q)
    assert other is not None and 2 * min(test.p, other.p) == 0.09375


@pytest.mark.parametrize(("down", "p"), [((), 1), ((0,), 2), ((1,), 3), ((2,), 5), ((0, 1), 5)])
def test_six_pairs_know_few_p_values(down: tuple[int, ...], p: int) -> None:
    """All six up: 1/64 = .0156; the smallest down .0313, the second smallest .0469, the third .0781."""
    gaps = np.array([-gap if at in down else gap for at, gap in enumerate((1.0, 2, 3, 4, 5, 6))])
    test = signed_rank(gaps, np.zeros(6))
    assert test is not None and test.p == p / 64


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_exact_p_with_ties_and_zeros_is_the_share_of_all_choices_of_signs(n: int) -> None:
    rng = np.random.default_rng(n)
    for _ in range(20):
        gaps = rng.integers(-3, 5, n).astype(float)
        known = gaps[gaps != 0]
        ranks = rankdata(np.abs(known))
        seen = ranks[known > 0].sum()
        sums = [ranks[np.array(signs, dtype=bool)].sum() for signs in product((0, 1), repeat=len(known))]
        test = signed_rank(gaps, np.zeros(n))
        assert test is not None and test.p == pytest.approx(np.mean([one >= seen for one in sums]), abs=1e-12)


@pytest.mark.parametrize("n", [51, 300])
def test_many_pairs_are_approximated_as_by_scipy(n: int) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.integers(0, 30, n) + 100.0, rng.integers(0, 27, n) + 100.0
    a[:1] = b[:1] + 1  # no fewer than 51 differ
    a = np.where(a == b, a + 1, a)
    test = signed_rank(a, b)
    scipy = wilcoxon(a, b, alternative="greater", zero_method="wilcox", correction=False, method="approx")
    assert test is not None and test.p == pytest.approx(scipy.pvalue, rel=1e-9)


def test_fifty_pairs_are_exact() -> None:
    rng = np.random.default_rng(0)
    gaps = rng.permutation(np.arange(1.0, 51)) * rng.choice([-1, 1, 1], 50)
    test = signed_rank(gaps, np.zeros(50))
    assert test is not None
    assert test.p == pytest.approx(wilcoxon(gaps, alternative="greater", method="exact").pvalue, rel=1e-9)


def test_rounding_of_means_makes_no_difference() -> None:
    a, b = np.array([0.1 + 0.2, 1.0]), np.array([0.3, 0.0])
    test = signed_rank(a, b)
    assert test is not None and test.p == 0.5 and test.smallest == 0.25


def test_nothing_to_compare() -> None:
    empty = np.zeros(0)
    assert signed_rank(empty, empty) is None and rank_sum(empty, Q) is None
    same = signed_rank(Q, Q)
    assert same is not None and same.p == 1


def test_equal_values_are_the_middle() -> None:
    """Of 3·4 pairs half; the smallest p is that of U = 12: (12 - 6 - ½) / √(3·4·8/12) = 1.9445."""
    equal = rank_sum(np.ones(3), np.ones(4))
    assert equal is not None and (equal.p, equal.statistic, equal.n) == (1.0, 6.0, 3)
    assert equal.smallest == pytest.approx(NormalDist().cdf(-5.5 / 8**0.5))


def test_rank_sum_by_hand() -> None:
    """Three above two: U = 6, mean 3, variance 3·2·6/12 = 3; (6 - 3 - ½) / √3 = 1.443, p = .0745."""
    test = rank_sum(np.array([3.0, 4, 5]), np.array([1.0, 2]))
    assert test is not None and (test.statistic, test.n) == (6, 2) and test.p == pytest.approx(0.0745, abs=5e-5)
    assert test.p == pytest.approx(test.smallest)  # there is no smaller one of three and two values
