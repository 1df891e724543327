"""Intervals against exact quantiles, a slow plain bootstrap, the normal law and their own promise of coverage."""

import random

import numpy as np
import pytest
from scipy.stats import binom

from rl_qg import confidence_intervals as bootstrap
from rl_qg.confidence_intervals import (
    Interval,
    Resampling,
    holm,
    interval_of,
    mean_interval,
    paired_interval,
    two_sided_p,
)
from rl_qg.runtime.errors import InputError


@pytest.mark.parametrize("n", [20, 101])
@pytest.mark.parametrize("level", [0.95, 0.8])
def test_zeros_and_ones_give_the_quantiles_of_the_binomial(n: int, level: float) -> None:
    ones = n // 3
    found = mean_interval([1.0] * ones + [0.0] * (n - ones), level=level)
    share = ones / n
    # a resampled count is exactly binomial; at most one count of slack for the sampling of the quantile
    assert found.mean == pytest.approx(share)
    assert found.low * n == pytest.approx(binom.ppf((1 - level) / 2, n, share), abs=1.001)
    assert found.high * n == pytest.approx(binom.ppf((1 + level) / 2, n, share), abs=1.001)
    assert found.n == n


def test_two_values_have_three_means() -> None:
    assert mean_interval([0.0, 1.0]) == Interval(mean=0.5, low=0.0, high=1.0, n=2)
    assert mean_interval([0.0, 1.0], level=0.4) == Interval(mean=0.5, low=0.5, high=0.5, n=2)


def test_a_slow_plain_bootstrap_agrees() -> None:
    rng = random.Random(5)
    values = [rng.expovariate(1.0) for _ in range(30)]
    means = sorted(sum(rng.choices(values, k=30)) / 30 for _ in range(20_000))
    found = mean_interval(values, resamples=20_000)
    spread = means[19_500] - means[500]
    assert found.low == pytest.approx(means[500], abs=0.03 * spread)
    assert found.high == pytest.approx(means[19_500], abs=0.03 * spread)
    assert found.mean - found.low != pytest.approx(found.high - found.mean, rel=0.05)  # skewed, as the values are


def test_many_values_give_the_normal_interval() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, 4000)
    found = mean_interval(values.tolist(), resamples=4000)
    half = 1.96 * values.std() / np.sqrt(4000)
    assert found.mean == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert found.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_intervals_cover_the_true_mean_as_often_as_they_say() -> None:
    rng = np.random.default_rng(2)
    inside = 0
    for seed in range(300):
        found = mean_interval(rng.normal(0.0, 1.0, 50).tolist(), seed=seed, resamples=400, level=0.8)
        inside += found.low <= 0.0 <= found.high
    assert 0.7 < inside / 300 < 0.87  # 0.8 less a little for n = 50, within 4 standard errors


def test_the_seed_decides_and_the_batches_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(3).normal(size=25).tolist()
    found = mean_interval(values, seed=7)
    assert found == mean_interval(values, seed=7)
    assert found != mean_interval(values, seed=8)
    monkeypatch.setattr(bootstrap, "_NUMBERS_AT_ONCE", 3000)
    assert found == mean_interval(values, seed=7)
    monkeypatch.setattr(bootstrap, "_NUMBERS_AT_ONCE", 1)
    assert mean_interval(values, seed=7, resamples=300) == mean_interval(values, seed=7, resamples=300)


@pytest.mark.parametrize("values", [[0.1], [0.1] * 7, [0.0] * 3, [-2.0] * 1000])
def test_equal_values_have_no_width(values: list[float]) -> None:
    assert mean_interval(values) == Interval(mean=values[0], low=values[0], high=values[0], n=len(values))


@pytest.mark.parametrize(
    ("values", "message"),
    [([], "no values"), ([1.0, float("nan")], "value 1 of 2"), ([float("inf"), 1.0, 2.0], "value 0 of 3")],
)
def test_values_without_a_mean(values: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mean_interval(values)


def test_pairs_take_out_what_both_share() -> None:
    rng = np.random.default_rng(4)
    shared = rng.normal(0.0, 10.0, 200)
    a, b = (shared + 0.5 + rng.normal(0.0, 0.5, 200)).tolist(), shared.tolist()
    found = paired_interval(a, b)
    assert found == mean_interval([x - y for x, y in zip(a, b, strict=True)])
    assert 0.35 < found.low < found.mean < found.high < 0.65
    alone_a, alone_b = mean_interval(a), mean_interval(b)
    assert alone_a.low < alone_b.high  # apart, the two cannot be told from each other
    back = paired_interval(b, a)
    assert (back.mean, back.low, back.high) == pytest.approx((-found.mean, -found.high, -found.low), abs=0.02)


def test_the_same_system_twice_differs_by_nothing() -> None:
    assert paired_interval([0.3, 0.9], [0.3, 0.9]) == Interval(mean=0.0, low=0.0, high=0.0, n=2)


def test_pairs_of_different_length() -> None:
    with pytest.raises(InputError, match="got 2 and 1"):
        paired_interval([1.0, 2.0], [1.0])


# --- Passages and seeds ---


def crossed(rng: np.random.Generator, seeds: int, passages: int, *, seed: float, passage: float, noise: float = 1.0):
    """Values with true mean 0 and their passages: effects of seeds, of passages (3 questions each), and noise."""
    groups = np.arange(passages).repeat(3)
    values = rng.normal(0, seed, (seeds, 1)) + rng.normal(0, passage, passages)[groups]
    return values + rng.normal(0, noise, (seeds, 3 * passages)), groups.tolist()


@pytest.mark.parametrize(("seeds", "spread", "least"), [(1, 0.0, 0.9), (6, 0.2, 0.85), (3, 0.0, 0.9)])
def test_crossed_intervals_cover_the_truth(seeds: int, spread: float, least: float) -> None:
    rng = np.random.default_rng(6)
    inside, naive = 0, 0
    for draw in range(200):
        values, groups = crossed(rng, seeds, 40, seed=spread, passage=1.0, noise=0.5)
        means = Resampling(groups, seeds=seeds, seed=draw, resamples=300).means(values)
        found = interval_of(means, values)
        assert found.mean == pytest.approx(values.mean())
        inside += found.low <= 0 <= found.high
        plain = mean_interval(values.ravel().tolist(), seed=draw, resamples=300)
        naive += plain.low <= 0 <= plain.high
    assert least <= inside / 200 <= 0.99
    assert naive < inside - 20  # questions of a passage are not independent


def test_a_slow_plain_draw_of_passages_and_seeds_agrees() -> None:
    values, groups = crossed(np.random.default_rng(7), 4, 12, seed=0.5, passage=1.0)
    values, groups = values[:, :-2], groups[:-2]  # passages of unequal size
    rng, slow = random.Random(8), []
    for _ in range(8000):
        seeds = [rng.randrange(4) for _ in range(3)]
        places = [i for _ in range(12) for p in [rng.randrange(12)] for i, group in enumerate(groups) if group == p]
        slow.append(values[np.ix_(seeds, places)].mean())
    found = interval_of(Resampling(groups, seeds=4, resamples=8000).means(values), values)
    low, high = np.quantile(slow, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.05 * (high - low))
    assert found.high == pytest.approx(high, abs=0.05 * (high - low))


def test_seeds_alone_spread_as_their_mean_does() -> None:
    of_seeds = np.array([1.0, 4.0, 10.0])
    means = Resampling(["p"] * 5, seeds=3, resamples=40_000).means(np.tile(of_seeds[:, None], 5))
    assert means.var() == pytest.approx(of_seeds.var(ddof=1) / 3, rel=0.03)
    assert Resampling(["p"] * 5, seeds=1).means(np.full((1, 5), 2.0)).tolist() == [2.0] * 10_000


def test_values_of_another_shape() -> None:
    draws = Resampling(["a", "b"], seeds=2, resamples=100)
    with pytest.raises(InputError, match=r"shape \(1, 2\) where 2 seeds of 2 questions"):
        draws.means([[1.0, 2.0]])
    with pytest.raises(InputError, match="nothing to draw from"):
        Resampling([], seeds=1)


def test_p_values_by_hand() -> None:
    assert two_sided_p(np.arange(1.0, 100.0)) == 2 / 100  # all above 0: one more is counted than was seen
    assert two_sided_p(np.array([-1.0, 1.0, 1.0, 1.0])) == 4 / 5
    assert two_sided_p(np.zeros(9)) == 1.0
    draws = np.concatenate([np.full(30, -1.0), np.full(970, 1.0)])
    assert two_sided_p(draws) == two_sided_p(-draws) == pytest.approx(62 / 1001)


@pytest.mark.parametrize("noise", [0.05, 1.0])
def test_p_values_are_uniform_where_nothing_differs(noise: float) -> None:
    rng, found = np.random.default_rng(9), []
    for draw in range(300):
        values, groups = crossed(rng, 5, 50, seed=0.02, passage=0.5, noise=noise)
        found.append(two_sided_p(Resampling(groups, seeds=5, seed=draw, resamples=300).means(values)))
    for level in (0.1, 0.25, 0.5, 0.75):
        below = np.mean(np.array(found) <= level)
        assert below < level + 0.1
        if noise < 0.5:  # noise of single answers is drawn with the passages and with the seeds: p is too large then
            assert below == pytest.approx(level, abs=0.1)


def test_p_values_agree_with_all_changes_of_sign() -> None:
    """The exact test of the same hypothesis where differences are symmetric: every passage's sign both ways."""
    rng = np.random.default_rng(10)
    signs = np.array([[1 if place >> bit & 1 else -1 for bit in range(14)] for place in range(2**14)])
    for shift in (0.1, 0.4, 0.8):
        values = rng.normal(shift, 1.0, 14)
        exact = np.mean(np.abs(signs @ values) >= abs(values.sum()) - 1e-12)
        found = two_sided_p(Resampling(list(range(14)), seeds=1).means(values[None]))
        assert found == pytest.approx(exact, abs=0.08)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9, 0.04]) == pytest.approx([1.0, 1.0, 0.12])
    assert holm([0.2]) == [0.2] and holm([]) == []


def test_holm_keeps_its_promise() -> None:
    rng = np.random.default_rng(11)
    wrong = sum(min(holm(rng.uniform(size=8).tolist())) <= 0.1 for _ in range(1000))
    assert 0.07 < wrong / 1000 < 0.13  # without correction it would be 0.57
