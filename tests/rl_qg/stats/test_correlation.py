"""Correlations of weighted questions against scipy's of repeated ones."""

import numpy as np
import pytest
from scipy import stats

from rl_qg.stats import correlation
from rl_qg.stats.correlation import COEFFICIENTS, correlations, row_correlations
from rl_qg.stats.intervals import PassageDraws

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def repeated(values: np.ndarray, draws: PassageDraws) -> list[np.ndarray]:
    weights = np.concatenate(list(draws.blocks())).astype(int)
    return [np.repeat(values, row[draws.passage_index]) for row in weights]


@pytest.mark.parametrize("ties", [True, False])
def test_every_draw_is_that_of_the_questions_repeated(ties: bool) -> None:
    rng = np.random.default_rng(4)
    x = rng.integers(0, 5, 40).astype(float) if ties else rng.normal(size=40)
    y = x + rng.integers(-3, 4, 40)
    draws = PassageDraws([int(k) for k in rng.integers(0, 12, 40)], resamples=30, seed=1)
    computed = correlations(x, y, draws, np.arange(40))
    for name, slow in SCIPY.items():
        pairs = zip(repeated(x, draws), repeated(y, draws), strict=True)
        np.testing.assert_allclose(computed[name], [slow(a, b).statistic for a, b in pairs], atol=1e-12)


def test_some_of_the_questions_and_many_passages(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    x, y = rng.integers(0, 9, 30).astype(float), rng.normal(size=30)
    draws = PassageDraws([k // 2 for k in range(60)], resamples=20, seed=2)
    rows = np.sort(rng.permutation(60)[:30])
    by_table = correlations(x, y, draws, rows)
    monkeypatch.setattr(correlation, "NUMBERS_AT_ONCE", 64)  # blocks of two questions, which cut passages in two
    for largest in (2000, 5):
        monkeypatch.setattr(correlation, "_LARGEST_TABLE", largest)
        for name, values in correlations(x, y, draws, rows).items():
            np.testing.assert_allclose(values, by_table[name], atol=1e-12)


def test_constant_columns_have_no_correlation() -> None:
    draws = PassageDraws(range(6), resamples=5)
    x = np.arange(6.0)
    for y in (np.full(6, 0.1 + 0.2), np.full(6, 1e9) + np.array([0, 0, 0, 0, 0, 1e-7])):
        assert all(np.isnan(values).all() for values in correlations(x, y, draws, np.arange(6)).values())


def test_a_draw_without_spread_is_undefined_alone() -> None:
    draws = PassageDraws([0, 0, 1, 1], resamples=40, seed=0)  # a draw may take one passage twice
    y = np.array([1.0, 1.0, 2.0, 2.0])
    computed = correlations(np.array([1.0, 2.0, 3.0, 4.0]), y, draws, np.arange(4))
    alone = np.array([np.ptp(values) == 0 for values in repeated(y, draws)])
    assert alone.any() and not alone[0]
    for name in COEFFICIENTS:
        assert (np.isnan(computed[name]) == alone).all()


def test_systems_row_by_row() -> None:
    rng = np.random.default_rng(6)
    x, y = (rng.integers(0, 6, (8, 9)).astype(float) for _ in range(2))
    y[0] = 2.0
    computed = row_correlations(x, y)
    for name, slow in SCIPY.items():
        assert np.isnan(computed[name][0])
        expected = [slow(a, b).statistic for a, b in zip(x[1:], y[1:], strict=True)]
        np.testing.assert_allclose(computed[name][1:], expected, atol=1e-12)


def test_very_large_and_very_small_numbers() -> None:
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=30), rng.normal(size=30)
    draws = PassageDraws(range(30), resamples=10)
    expected = correlations(x, y, draws, np.arange(30))
    for scale in (1e-200, 1e200):
        for name, values in correlations(x * scale, y, draws, np.arange(30)).items():
            np.testing.assert_allclose(values, expected[name], atol=1e-9)
    systems = row_correlations(x[None, :6], y[None, :6])["pearson"]
    for scale in (1e-14, 1e-200, 1e200):  # a spread of 1e-28 is a spread
        assert row_correlations(scale * x[None, :6], y[None, :6])["pearson"] == pytest.approx(systems)
    noise = 72.333 + 1e-14 * np.array([[0, 1, 0, 1]])
    assert np.isnan(row_correlations(noise, np.arange(4.0)[None])["pearson"]).all()
