"""Tests of dependent correlations: a published value, their promise under the null hypothesis, and Holm's family."""

from itertools import combinations

import numpy as np
import pytest

from rl_qg.stats.correlation import Pair, correlations, not_worse_than_the_best, pair_rows, williams
from rl_qg.stats.intervals import PassageDraws, holm


def test_williams_against_the_formula_by_hand() -> None:
    """r12 = 0.2, r13 = 0.5, r23 = 0.1, n = 315: |R| = 0.72; 2·0.72·314/312 + 0.35²·0.9³ = 1.53853; t = -4.4950."""
    computed = williams(0.2, 0.5, 0.1, 315)
    assert computed is not None
    assert computed[0] == pytest.approx(-4.4950, abs=1e-4)
    assert computed[1] == pytest.approx(9.8e-6, rel=0.02)
    swapped = williams(0.5, 0.2, 0.1, 315)
    assert swapped is not None and swapped == pytest.approx((-computed[0], computed[1]))


def test_williams_where_it_does_not_exist() -> None:
    assert williams(0.2, 0.5, 0.1, 3) is None
    assert williams(0.5, 0.5, 1.0, 50) is None
    assert williams(0.5, float("nan"), 0.1, 50) is None


def test_equal_metrics_are_called_different_one_time_in_twenty() -> None:
    rng = np.random.default_rng(8)
    hits, times, n = 0, 2000, 60
    for _ in range(times):
        human, common = rng.normal(size=(2, n))
        a, b = (human + common + rng.normal(size=n) for _ in range(2))
        table = np.corrcoef([human, a, b])
        computed = williams(table[0, 1], table[0, 2], table[1, 2], n)
        assert computed is not None
        hits += computed[1] < 0.05
    assert 0.035 < hits / times < 0.065  # three standard errors


def test_pairs_of_metrics() -> None:
    rng = np.random.default_rng(9)
    human = rng.normal(size=300)
    scores = {"good": human + rng.normal(size=300), "same": human + rng.normal(size=300), "bad": rng.normal(size=300)}
    draws = PassageDraws(range(300), resamples=500)
    computed = {name: correlations(x, human, draws, np.arange(300))["kendall"] for name, x in scores.items()}
    pairs = [Pair(a, b, computed[a], computed[b], 300, 300, between=0.5) for a, b in combinations(computed, 2)]
    rows = pair_rows(pairs)
    by_pair = {(row["metric"], row["against"]): row for row in rows}
    assert set(by_pair) == {("good", "same"), ("good", "bad"), ("same", "bad")}
    assert by_pair["good", "bad"]["p_holm"] < 0.001 < 0.05 < by_pair["good", "same"]["p_holm"]
    assert [row["p_holm"] for row in rows] == holm([row["p"] for row in rows])
    assert by_pair["good", "bad"]["value"] == computed["good"][0] - computed["bad"][0]
    values = {name: float(one[0]) for name, one in computed.items()}
    alike, untested = not_worse_than_the_best(rows, values)
    assert set(alike) == {"good", "same"} and not untested
    for row in rows:
        want = williams(values[row["metric"]], values[row["against"]], 0.5, 300)
        assert want is not None and (row["williams_t"], row["williams_p"]) == want
        assert row["williams_p_holm"] >= row["williams_p"]


def test_the_family_is_that_of_the_tests_of_draws() -> None:
    """Three pairs are tested by draws, and one of them by Williams' test, which is a family of its own."""
    rng = np.random.default_rng(4)
    first, second = rng.normal(0.5, 0.1, (2, 100))
    pairs = [
        Pair("a", other, first, second, 50, 50, between=at) for other, at in (("b", 0.3), ("c", None), ("d", None))
    ]
    rows = pair_rows(pairs)
    assert [row["family"] for row in rows] == [3, 3, 3]
    assert [row["p_holm"] for row in rows] == pytest.approx([min(1, 3 * row["p"]) for row in rows])
    assert rows[0]["williams_p_holm"] == rows[0]["williams_p"] and "williams_p" not in rows[1]


def test_metrics_not_tested_against_the_best_are_not_called_alike() -> None:
    rows = [{"metric": "a", "against": "b", "p": 0.4}]
    assert not_worse_than_the_best(rows, {"a": 0.5, "b": 0.4, "c": 0.3}) == (["a", "b"], ["c"])
    assert not_worse_than_the_best(rows, {"a": 0.5, "b": 0.4, "c": 0.6}) == (["c"], ["a", "b"])
    alone = [Pair("a", "b", np.full(9, 0.5), np.full(9, 0.4), 3, passages=1)]
    assert pair_rows(alone) == []


def test_further_metrics_do_not_make_a_worse_one_as_good_as_the_best() -> None:
    names = ["best", "worse", "like", *(f"m{number}" for number in range(30))]
    p = {("best", "worse"): 0.001, ("best", "like"): 0.2}
    rows = [
        {"metric": a, "against": b, "p": p.get((a, b), 1e-9 if a == "best" else 1.0)}
        for a, b in combinations(names, 2)
    ]
    values = dict(zip(names, np.linspace(0.5, 0.1, len(names)), strict=True))
    over_all_pairs = dict(
        zip([(row["metric"], row["against"]) for row in rows], holm([row["p"] for row in rows]), strict=True)
    )
    assert over_all_pairs["best", "worse"] > 0.05  # 33 metrics have 528 pairs
    assert not_worse_than_the_best(rows, values) == (["best", "like"], [])
    # Of two tests at 0.03 Holm's procedure rejects neither: the smaller needs 0.025.
    rows = [{"metric": "best", "against": name, "p": 0.03} for name in ("worse", "like")]
    assert not_worse_than_the_best(rows, {"best": 3, "worse": 2, "like": 1})[0] == ["best", "worse", "like"]


def test_metrics_that_differ_by_rounding_are_equal() -> None:
    rng = np.random.default_rng(2)
    human, scores = rng.integers(1, 6, 80).astype(float), rng.random(80)
    draws, rows = PassageDraws(range(80), resamples=100), np.arange(80)
    for name, first in correlations(scores, human, draws, rows).items():
        second = correlations(100 * scores + 3, human, draws, rows)[name]
        (row,) = pair_rows([Pair("a", "b", first, second, 80, 80)])
        assert (row["value"], row["p"]) == (0, 1), name
