"""Repeats, equal values and times of raters."""

from typing import Any

import numpy as np
import pytest

from rl_qg.rating.analysis.quality import habits_of_raters
from tests.rl_qg.rating.rating_rows import columns, rating


def of(rows: list[dict[str, object]]) -> dict[str, Any]:
    return {one["rater"]: one for one in habits_of_raters(columns(rows))}


def test_runs_and_shares_by_hand() -> None:
    values = [50, 50, 50, 20, 50, 60, 60]
    habit = of([rating("r", at, value) for at, value in enumerate(values, 1)])["r"]
    assert (habit["ratings"], habit["longest_run"], habit["most_frequent"]) == (7, 3, pytest.approx(4 / 7))
    assert habit["spread"] == pytest.approx(np.std(values, ddof=1)) and habit["alike"] is None


def test_a_run_ends_with_its_task() -> None:
    rows = [rating("r", at, 50, hit=hit) for hit in ("h1", "h2") for at in (1, 2)]
    assert of(rows)["r"]["longest_run"] == 2


def test_criteria_alike_and_missing() -> None:
    rows = [rating("r", 1, 5), rating("r", 1, 5, criterion="d"), rating("r", 2, 5), rating("r", 2, 6, criterion="d")]
    habit = of([*rows, rating("r", 3, 5)])["r"]
    assert habit["alike"] == 0.5 and habit["missing"] == 1


def test_flags_of_sliders_but_not_of_few_values() -> None:
    varied = [rating("other", at, 7 * at) for at in range(1, 13)]
    line = [rating("line", at, 50) for at in range(1, 13)]
    run = [rating("run", at, 50 if at < 10 else at) for at in range(1, 13)]
    found = of([*varied, *line, *run])
    assert found["other"]["flags"] == [] and found["line"]["flags"] == ["all values equal"]
    assert found["run"]["flags"] == ["9 equal values on end"]
    stars = of([rating("r", at, 3 if at < 11 else 2) for at in range(1, 13)])["r"]
    assert stars["longest_run"] == 10 and stars["flags"] == []


def test_times_are_compared_with_the_study() -> None:
    rows = [rating(f"r{rater}", at, at, last_ms=20_000) for rater in range(4) for at in range(1, 4)]
    rows += [rating("fast", at, at, last_ms=4_000, changes=2) for at in range(1, 4)]
    found = of(rows)
    assert (
        found["fast"]["seconds"] == 4 and found["fast"]["speed"] == pytest.approx(5) and found["fast"]["changes"] == 2
    )
    assert found["fast"]["flags"] == ["5.0 times as fast as the median"] and found["r1"]["flags"] == []


def test_repeats_against_the_raters_own_spread() -> None:
    """One rater gives repeats within a point of the first value, another anything."""
    rng = np.random.default_rng(3)
    rows = []
    for name, noise in (("steady", 1.0), ("anything", 60.0)):
        first = rng.uniform(0, 100, 10)
        rows += [rating(name, at + 1, value) for at, value in enumerate(first)]
        for at in range(6):
            value = first[at] + noise * rng.uniform(-1, 1)
            rows.append(rating(name, 11 + at, value, "repeat", original=at + 1))
    found = of(rows)
    steady, other = found["steady"], found["anything"]
    assert steady["repeats"] == 6 and steady["repeat_difference"] is not None and steady["repeat_difference"] < 1
    assert steady["p_repeats"] is not None and steady["p_repeats"] < 0.01 and steady["repeat_r"] is not None
    assert steady["repeat_r"] > 0.99 and steady["chance_difference"] is not None and steady["chance_difference"] > 15
    assert other["p_repeats"] is not None and other["p_repeats"] > 0.1


def test_the_chance_difference_is_that_of_all_pairs() -> None:
    values = [10.0, 20.0, 40.0, 80.0]
    rows = [rating("r", at, value) for at, value in enumerate(values, 1)] + [rating("r", 5, 10, "repeat", original=1)]
    pairs = [abs(a - b) for at, a in enumerate(values) for b in values[at + 1 :]]
    habit = of(rows)["r"]
    assert habit["repeat_difference"] == 0 and habit["repeat_r"] is None
    assert habit["chance_difference"] == pytest.approx(np.mean(pairs), rel=0.1)
