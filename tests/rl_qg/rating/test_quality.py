"""Whose ratings count."""

import numpy as np
import pytest
from scipy.stats import binom

from experiments.rating.simulated_raters import HALO, HONEST, RANDOM, STRAIGHT_LINE, simulated_values
from rl_qg.rating.analysis.quality import (
    FAILED,
    PASSED,
    UNDECIDED,
    UNTESTED,
    RaterControl,
    control_of_raters,
    counted_raters,
    pass_rates,
)
from rl_qg.rating.analysis.ratings import RatedItems
from rl_qg.rating.protocol import ITEM_MEANS, RANK_SUM, RATINGS, SIGNED_RANK, Control, Criterion, Protocol, TaskRecipe
from tests.rl_qg.rating.rating_rows import columns, pairs_of, rating
from tests.rl_qg.stats.test_rank_tests import B, Q

CONTROL = Control(SIGNED_RANK, ITEM_MEANS)


def only(found: list[RaterControl]) -> RaterControl:
    (one,) = found
    return one


def test_a_rater_by_hand() -> None:
    one = only(control_of_raters(columns(pairs_of("r", Q, B)), CONTROL, ["c"]))
    assert (one.verdict, one.pairs, one.tasks, one.p_item_means, one.p_ratings) == (PASSED, 6, 1, 0.046875, 0.046875)
    assert one.difference == pytest.approx(float(np.mean(Q - B)))


def test_both_units_are_shown_and_one_decides() -> None:
    """Two criteria, equal in each question: single ratings see twelve pairs, which are six."""
    gaps = [10, 20, 30, 40, 50, -25]
    rows = [row for c in "cd" for row in pairs_of("r", [50 + gap / 2 for gap in gaps], [50 - gap / 2 for gap in gaps],
                                                  criterion=c)]  # fmt: skip
    rated = columns(rows)
    means = only(control_of_raters(rated, Control(SIGNED_RANK, ITEM_MEANS), ["c", "d"]))
    single = only(control_of_raters(rated, Control(SIGNED_RANK, RATINGS), ["c", "d"]))
    assert (means.p_item_means, means.p_ratings) == (single.p_item_means, single.p_ratings)
    assert means.p_item_means == 5 / 64 and means.verdict == FAILED  # only the third smallest is down
    assert single.p_ratings is not None and single.p_ratings < 0.05 and single.verdict == PASSED


def test_all_tasks_of_a_rater_count_together() -> None:
    rows = pairs_of("r", [80, 70, 60], [10, 20, 30]) + pairs_of("r", [80, 70, 60], [11, 21, 31], hit="h2")
    one = only(control_of_raters(columns(rows), CONTROL, ["c"]))
    assert (one.tasks, one.pairs, one.p_item_means, one.verdict) == (2, 6, 1 / 64, PASSED)


def test_too_few_pairs_are_no_failure() -> None:
    one = only(control_of_raters(columns(pairs_of("r", [80, 70, 60, 90], [10, 20, 30, 5])), CONTROL, ["c"]))
    assert one.verdict == UNDECIDED and one.p_item_means == 1 / 16 and "4 pairs: p cannot be below 0.0625" in one.why
    strict = Control(SIGNED_RANK, ITEM_MEANS, least_tasks=2)
    two = only(control_of_raters(columns(pairs_of("r", Q, B)), strict, ["c"]))
    assert two.verdict == UNDECIDED and two.why == "1 of at least 2 tasks"


@pytest.mark.parametrize("good", [[80, 81, 82, 83, 84], [80] * 5])
def test_one_degraded_question_against_five_decides_nothing(good: list[float]) -> None:
    """Of six values the smallest exact p is 1/6; the normal approximation has .121, and with ties .037."""
    rows = [rating("r", at, value) for at, value in enumerate(good, 1)] + [rating("r", 9, 10, "degraded", original=1)]
    one = only(control_of_raters(columns(rows), Control(RANK_SUM, ITEM_MEANS), ["c"]))
    assert one.verdict == UNDECIDED and one.why == "1 pairs: p cannot be below 0.121 without ties"


def test_degraded_questions_without_their_ordinary_ones() -> None:
    rows = [rating("r", 1, 80), rating("r", 2, 10, "degraded"), rating("s", 1, 5)]
    found = control_of_raters(columns(rows), CONTROL, ["c"])
    assert {one.verdict for one in found} == {UNDECIDED}
    ranks = control_of_raters(columns(rows), Control(RANK_SUM, RATINGS), ["c"])
    assert ranks[0].p_ratings is not None and ranks[0].verdict == UNDECIDED  # one against one


def test_a_study_without_degraded_questions_has_no_control() -> None:
    rated = columns([rating("r", 1, 80), rating("s", 1, 80), rating("s", 1, 60, hit="h2")])
    why = "no degraded questions"
    expected = [RaterControl(name, tasks, 0, None, None, None, UNTESTED, why) for name, tasks in (("r", 1), ("s", 2))]
    assert control_of_raters(rated, CONTROL, ["c"]) == expected and all(one.counts for one in expected)
    with_degraded = columns(pairs_of("r", Q, B))  # but no criterion of theirs enters the control
    assert only(control_of_raters(with_degraded, CONTROL, ["d"])).verdict == UNTESTED


def test_criteria_that_are_missing_in_one_of_a_pair() -> None:
    """A question without a value of `d` is compared by `c` alone, and so is its degraded form."""
    rows = [row for at, (q, b) in enumerate(zip(Q, B, strict=True)) for row in (
        rating("r", 2 * at + 1, q), rating("r", 2 * at + 2, b, "degraded", original=2 * at + 1),
        rating("r", 2 * at + 2, 100, "degraded", original=2 * at + 1, criterion="d"),
    )]  # fmt: skip
    one = only(control_of_raters(columns(rows), CONTROL, ["c", "d"]))
    assert (one.p_item_means, one.p_ratings, one.verdict) == (0.046875, 0.046875, PASSED)


def test_who_counts() -> None:
    verdicts = {"a": PASSED, "b": FAILED, "c": UNDECIDED}
    controls = [RaterControl(name, 1, 6, 1.0, 0.1, 0.1, verdict) for name, verdict in verdicts.items()]
    assert counted_raters(controls) == ["a"] and counted_raters(controls, "not_failed") == ["a", "c"]
    assert counted_raters(controls, "all") == ["a", "b", "c"]
    assert counted_raters(controls[1:]) == [] and counted_raters(controls[2:]) == ["c"]  # no control for anybody


def test_pass_rates_so_far() -> None:
    text = {"en": "A statement."}
    protocol = Protocol(
        "p", "s", (Criterion("c", text), Criterion("d", text, reversed=True, control=False)), TaskRecipe(),
        Control(), text, (text,), text,
    )  # fmt: skip
    rows = pairs_of("good", Q, B) + pairs_of("bad", B, Q) + [rating("new", 1, 50), rating("half", 1, 50, state="open")]
    rows += [rating("bad", 1, 100, criterion="d")]  # does not enter the control
    rates = pass_rates(rows, protocol)
    assert {name: count for name, count in rates.items() if name != "of_raters"} == {
        **{"raters": 3, "passed": 1, "failed": 1, "undecided": 1}, **{"tasks": 3, "tasks_passed": 1}
    }  # fmt: skip
    assert pass_rates([], protocol)["raters"] == 0


# --- A crowd of which the truth is known ---


def crowd(kind: str, raters: int, *, seed: int) -> RatedItems:
    """Raters of one task of QAScore's form each: six questions and their degraded forms, 20 points worse, on four
    criteria."""
    rng = np.random.default_rng(seed)
    quality = np.tile([70.0, 50.0], 6)
    rows = []
    for rater in range(raters):
        values = simulated_values(kind, quality, 4, rng)
        for at, of_item in enumerate(values.tolist()):
            original = at if at % 2 else None
            kind_of_item = "degraded" if at % 2 else "ordinary"
            rows += [
                rating(f"r{rater:04}", at + 1, value, kind_of_item, original=original, criterion=f"c{column}")
                for column, value in enumerate(of_item)
            ]
    return columns(rows)


def passed(rated: RatedItems, unit: str) -> int:
    return sum(one.verdict == PASSED for one in control_of_raters(rated, Control(SIGNED_RANK, unit), rated.criteria))


@pytest.mark.parametrize(
    ("kind", "single", "means"),
    [(HALO, 0.215, 3 / 64), (HONEST, 0.96, 0.75), (RANDOM, 0.05, 3 / 64), (STRAIGHT_LINE, 0.0, 0.0)],
)
def test_who_passes_with_one_task(kind: str, single: float, means: float) -> None:
    """Clicking at random with all criteria alike passes the published test with .21 and not .05; an honest rater
    passes the stricter one less often, .75 in place of .95. Bounds are those of 99.9 % of such samples, a little wider
    where the rate itself is known to two digits."""
    raters = 150
    rated = crowd(kind, raters, seed=5)
    for unit, rate in ((RATINGS, single), (ITEM_MEANS, means)):
        low, high = binom.interval(0.999, raters, rate)
        assert low - 2 <= passed(rated, unit) <= high + 2, unit
