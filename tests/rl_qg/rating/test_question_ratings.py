"""Ratings by question: agreement and records for `rl-qg correlate`."""

import pytest

from rl_qg.rating.analysis.scores import z_scores
from rl_qg.rating.analysis.study import Question, agreement_rows, judgement_lines
from rl_qg.rating.analysis.tables import analysis_tables
from rl_qg.rating.protocol import Control
from tests.rl_qg.rating.rating_rows import columns, rating

ROWS = [
    rating("r", 1, 80), rating("r", 2, 20, system="b"), rating("r", 3, 60, "repeat", original=1),
    rating("r", 4, 0, "degraded", original=1),
    rating("line", 1, 50), rating("line", 2, 50, system="b"), rating("line", 3, 50, "repeat", original=1),
    rating("line", 4, 50, "degraded", original=1),
]  # fmt: skip
QUESTIONS = {("h1", at): Question(f"Question {at}?", "A passage.", "passage") for at in (1, 2, 4)}


def test_records_by_hand() -> None:
    """μ of r is that of 80, 20 and 60; `line` has no z, and so no rating beside means of z."""
    rated = columns(ROWS)
    lines, lost = judgement_lines(rated, z_scores(rated).values, QUESTIONS, raw=False)
    first, second, bad = lines
    spread = ((80 - 160 / 3) ** 2 + (20 - 160 / 3) ** 2 + (60 - 160 / 3) ** 2) / 2
    assert first["human"] == {"c": pytest.approx((70 - 160 / 3) / spread**0.5)}
    assert (first["raters"], first["ratings"]) == (["line", "r"], {"c": [None, 70]})
    assert (second["system"], second["question"], "control" in second) == (["b"], "Question 2?", False)
    assert bad["control"] is True and bad["ratings"] == {"c": [None, 0]} and bad["human"]["c"] < second["human"]["c"]
    assert lost == 0 and first["item"] == "item h1" and first["group"] == "passage h1"


def test_raw_ratings_need_no_z() -> None:
    rated = columns(ROWS)
    (first, *_), lost = judgement_lines(rated, z_scores(rated).values, QUESTIONS, raw=True)
    assert first["human"] == {"c": 60} and first["ratings"] == {"c": [50, 70]} and lost == 0


def test_questions_without_a_score_are_counted() -> None:
    rated = columns(ROWS[4:])
    assert judgement_lines(rated, z_scores(rated).values, QUESTIONS, raw=False) == ([], 3)


def test_the_same_question_of_two_tasks_is_one() -> None:
    rows = [rating("r", 1, 80, item="i", passage="p"), rating("r", 2, 10, item="i", passage="p")]
    rows.append(rating("s", 7, 60, hit="h2", item="i", passage="p", system="b"))
    same = Question("Who?", "A passage.", "passage")
    questions = {("h1", 1): same, ("h1", 2): Question("What?", "A passage.", "passage"), ("h2", 7): same}
    rated = columns(rows)
    (first, _), _ = judgement_lines(rated, rated.values, questions, raw=True)
    assert first["system"] == ["a", "b"] and first["ratings"] == {"c": [80, 60]} and first["raters"] == ["r", "s"]


def test_agreement_of_raters_who_saw_the_questions_in_another_order() -> None:
    """Both give each system the same value; by position they would agree on nothing."""
    values = dict(zip("abcdef", (10, 20, 40, 60, 80, 90), strict=True))
    rated = columns([rating(who, at, values[name], system=name) for who, order in (("r", "abcdef"), ("s", "fdbeca"))
                     for at, name in enumerate(order, 1)])  # fmt: skip
    assert {row["value"] for row in agreement_rows(rated, resamples=5, seed=0)} == {1.0}


def test_several_questions_about_one_item_are_told_apart_by_position() -> None:
    """`s` lacks the first of two questions of one system about one item; both like the second."""
    values = {"r": (10, 80, 30, 50), "s": (None, 80, 30, 50)}
    rated = columns(
        [
            rating(who, at, value, item="i", passage="p", system="a" if at < 3 else f"b{at}")
            for who, given in values.items()
            for at, value in enumerate(given, 1)
            if value is not None
        ]
    )
    rows = {row["statistic"]: row["value"] for row in agreement_rows(rated, resamples=5, seed=0)}
    assert rows["Krippendorff's α, interval"] == 1.0


def test_agreement_by_hand() -> None:
    """α of two raters who differ by one value in three: 1 - observed / expected disagreement, by pairs of values."""
    values = {"r": (1, 2, 3), "s": (1, 2, 2)}
    rated = columns([rating(name, at, value) for name, given in values.items() for at, value in enumerate(given, 1)])
    rows = {row["statistic"]: row["value"] for row in agreement_rows(rated, resamples=5, seed=0)}
    pooled = [1, 2, 3, 1, 2, 2]
    expected = sum((a - b) ** 2 for a in pooled for b in pooled) / (6 * 5)
    assert rows["Krippendorff's α, interval"] == pytest.approx(1 - (2 * 1 / 6) / expected)
    assert rows["Fleiss' κ"] == pytest.approx((2 / 3 - 14 / 36) / (1 - 14 / 36))


def test_no_agreement_with_oneself() -> None:
    """A rater's repeat is no second rater."""
    assert agreement_rows(columns(ROWS[:4]), resamples=5, seed=0) == []
    sliders = agreement_rows(columns([rating(n, at, 7 * at + len(n)) for n in ("r", "ss") for at in range(9)]),
                             resamples=5, seed=0)  # fmt: skip
    assert [row["statistic"] for row in sliders] == ["Krippendorff's α, interval", "Krippendorff's α, ordinal"]


def test_the_page_counts_the_questions_that_two_raters_have_rated() -> None:
    """Also where κ is undefined, since questions have one rating or two."""
    rows = agreement_rows(
        columns([rating("r", at, at) for at in (1, 2, 3)] + [rating("s", 1, 1), rating("s", 2, 3)]),
        resamples=5, seed=0,
    )  # fmt: skip
    others = ("summary", "raters", "systems", "pairs", "mixed_model", "left_out")
    [table] = analysis_tables({"agreement": rows} | {name: [] for name in others}, Control(), [])
    assert [(line["criterion"], line["questions"], line["Fleiss' κ"]) for line in table.rows] == [("c", "2", "–")]
