"""Intervals against exact quantiles, a slow plain bootstrap, the normal law and their own promise of coverage."""

import random

import numpy as np
import pytest
from scipy.stats import binom

from rl_qg import bootstrap
from rl_qg.bootstrap import Interval, mean_interval, paired_interval
from rl_qg.errors import InputError


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
