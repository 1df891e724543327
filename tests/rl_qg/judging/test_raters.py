"""Raters: the filter by z, one scale for each rater, the mean of all criteria; worked by hand."""

from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from rl_qg.judging.correlate import prepared_ratings
from rl_qg.judging.judgements import Judgement, mean_rating, read_judgements
from rl_qg.judging.raters import filter_rows, filtered, noisy_ratings, standardised, with_overall
from rl_qg.runtime.errors import InputError
from rl_qg.settings import CorrelateSettings
from rl_qg.stats.intervals import PassageDraws
from tests.toy_metrics import write_lines


def read(tmp_path: Path, rows: list[dict[str, Any]]) -> list[Judgement]:
    return read_judgements(
        write_lines(tmp_path / "h.jsonl", [{"question": f"q{n}?", **row} for n, row in enumerate(rows)])
    )


# --- The filter ---


def test_ratings_far_from_the_others_by_hand() -> None:
    """Mean 4.3, variance (8·0.7² + 3.3² + 2.3²)/10 = 2.01: z = 0.494 eight times, -2.328 and -1.622."""
    ratings = [5.0, 5, 5, 5, 5, 5, 5, 5, 1, 2]
    assert noisy_ratings(ratings) == [8, 9]
    assert noisy_ratings(ratings, threshold=2) == [8]
    assert noisy_ratings(ratings, most=1) == [8]
    assert noisy_ratings(ratings, sides="above") == []
    assert noisy_ratings([6 - value for value in ratings], sides="above") == [8, 9]
    assert noisy_ratings([None, *ratings[:9], None, 2.0]) == [9, 11]


def test_at_most_five_and_none_at_the_threshold() -> None:
    """Six ratings have |z| = 2 / √2.4 = 1.29, of which five go; in two halves all have |z| = 1, which is not above."""
    assert noisy_ratings([1.0, 1, 1, 5, 5, 5, 3, 3, 3, 3]) == [0, 1, 2, 3, 4]
    assert noisy_ratings([1.0] * 5 + [5.0] * 5) == []
    assert noisy_ratings([1.1] * 5 + [4.7] * 5) == []  # its z are 1 up to rounding
    assert noisy_ratings([3.0] * 10) == noisy_ratings([4.0]) == noisy_ratings([None, None]) == []


def test_the_mean_is_of_what_is_left(tmp_path: Path) -> None:
    before = read(tmp_path, [{"human": {"ok": 9}, "ratings": {"ok": [5] * 8 + [1, 2]}}, {"human": {"ok": 2}}])
    after = filtered(before, sides="both_sides", threshold=1, most=5)
    assert after[0].human == {"ok": 5} and after[0].ratings["ok"] == (5.0,) * 8 + (None, None)
    assert after[1].human == {"ok": 2}
    with pytest.raises(InputError, match="rater_filter: no question has ratings"):
        filtered(before[1:], sides="above", threshold=1, most=5)


def test_a_question_without_a_rating_left_has_no_mean(tmp_path: Path) -> None:
    """In two halves all have |z| = 1, which is above 0.5; the mean that the file gives is of ratings that are gone."""
    rows = [{"human": {"ok": 3}, "ratings": {"ok": [1, 1, 5, 5], "fine": [4, 4]}}, {"ratings": {"ok": [2, 4]}}]
    first, second = filtered(read(tmp_path, rows), sides="both_sides", threshold=0.5, most=5)
    assert first.ratings["ok"] == (None,) * 4 and first.human == {"fine": 4}
    assert second.human == {}


def test_agreement_and_ratings_left(tmp_path: Path) -> None:
    before = read(tmp_path, [{"ratings": {"ok": [5, 5, 5, 1]}}, {"ratings": {"ok": [2, 2, 2, 2]}}, {}])
    after = filtered(before, sides="both_sides", threshold=1, most=5)
    rows = {row["statistic"]: row for row in filter_rows(before, after, ["ok"], PassageDraws(range(3), resamples=9))}
    interval = rows["Krippendorff's α, interval"]
    assert (interval["raters_before"], interval["raters_after"], interval["removed"], interval["n"]) == (4, 3.5, 1, 2)
    # Before: observed 2·3·16/3 = 32; expected over all pairs of 5,5,5,1,2,2,2,2: 2·(8·92 - 24²)/7 = 320/7.
    assert interval["before"] == pytest.approx(1 - 32 / (320 / 7)) and interval["after"] == 1
    assert rows["Fleiss' κ"]["after"] is None  # three and four ratings


# --- One scale ---

RATED = [
    {"raters": ["a", "b"], "ratings": {"x": [1, 2], "y": [3, 4]}},
    {"raters": ["a", "a", "c"], "ratings": {"x": [5, 3, 4], "y": [None, None, 4]}},
]


def test_scores_on_the_scale_of_each_rater_by_hand(tmp_path: Path) -> None:
    """Rater a gave 1, 3, 5, 3: μ = 3, σ = √(8/3). Rater b gave 2, 4: μ = 3, σ = √2. Rater c has no spread."""
    (first, second), counts = standardised(read(tmp_path, RATED), ["x", "y"])
    a = sqrt(8 / 3)
    assert first.human == pytest.approx({"x": (-2 / a - 1 / sqrt(2)) / 2, "y": (0 + 1 / sqrt(2)) / 2})
    assert second.human == pytest.approx({"x": (2 / a + 0) / 2})  # a rated it twice; nobody but c rated y
    assert counts == {"raters": 3, "raters_without_spread": 1, "ratings_left_out": 2}


def test_controls_enter_mean_and_deviation_alone(tmp_path: Path) -> None:
    """With a control of 11, rater b gave 2, 4, 11: μ = 17/3, σ² = ((11/3)² + (5/3)² + (16/3)²)/2 = 67/3."""
    control = {"raters": ["b"], "ratings": {"x": [11]}, "control": True}
    *judgements, bad = read(tmp_path, [*RATED, control])
    assert bad.control and not judgements[0].control
    scaled, _ = standardised(judgements, ["x", "y"], [bad])
    want = (-2 / sqrt(8 / 3) + (2 - 17 / 3) / sqrt(67 / 3)) / 2
    assert scaled[0].human["x"] == pytest.approx(want)
    path = write_lines(tmp_path / "c.jsonl", [{"question": "q", **row} for row in [*RATED, control]])
    values = {}
    for variant in ("rater", "rater_with_controls"):
        prepared = prepared_ratings(path, CorrelateSettings(standardise=variant))
        assert len(prepared.judgements) == 2 and prepared.counts["controls"] == 1
        values[variant] = prepared.judgements[0].human["x"]
    assert values["rater_with_controls"] == pytest.approx(want) != values["rater"]


def test_each_rater_has_mean_zero_and_deviation_one(tmp_path: Path) -> None:
    rows = [{"raters": [f"r{n % 3}"], "ratings": {"x": [n * n % 17]}} for n in range(60)]
    human = [judgement.human["x"] for judgement in standardised(read(tmp_path, rows), ["x"])[0]]
    for rater in range(3):
        z = human[rater::3]
        assert sum(z) == pytest.approx(0, abs=len(z) * 5e-13)  # each is rounded to 12 decimals
        assert sum(v * v for v in z) == pytest.approx(len(z) - 1)


def test_means_of_z_are_tied_where_sums_of_ratings_are(tmp_path: Path) -> None:
    """Both raters use the same scale equally often, so equal sums are equal means of z, also over criteria."""
    scale = [1, 2, 3, 4, 5, 4] * 5
    pairs = [*zip(scale, [*scale[7:], *scale[:7]], strict=True)]
    rows = [{"raters": ["a", "b"], "ratings": {"x": [*pair], "y": [*pair[::-1]]}} for pair in pairs]
    human = [one.human for one in with_overall(standardised(read(tmp_path, rows), ["x", "y"])[0], ["x", "y"])]
    for name in ("x", "y", "overall"):
        both = sorted({(sum(pair), one[name]) for pair, one in zip(pairs, human, strict=True)})
        assert [total for total, _ in both] == sorted({*map(sum, pairs)})  # one mean for each sum
        assert [mean for _, mean in both] == sorted({mean for _, mean in both})


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"human": {"x": 3}}, r"h\.jsonl: line 3: standardise: 'x' has no rating of a single rater"),
        ({"ratings": {"x": [3]}}, "line 3: standardise: 'x' has ratings without the name of their rater"),
        ({"ratings": {"x": [3, 4]}, "raters": ["a", None]}, "line 3: standardise: 'x' has ratings without the name"),
    ],
)
def test_ratings_without_raters_are_named(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        standardised(read(tmp_path, [*RATED, row]), ["x"])


def test_raters_without_a_scale(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="standardise: no rater gave two different ratings"):
        standardised(read(tmp_path, [{"raters": ["a"], "ratings": {"x": [3]}}]), ["x"])


# --- All criteria together ---


def test_the_mean_of_all_criteria(tmp_path: Path) -> None:
    judgements = read(tmp_path, [{"human": {"x": 1, "y": 4}}, {"human": {"x": 1}}])
    assert [one.human.get("overall") for one in with_overall(judgements, ["x", "y"])] == [2.5, None]
    with pytest.raises(InputError, match="overall: it needs two criteria"):
        with_overall(judgements, ["x"])
    with pytest.raises(InputError, match="overall: the file has a criterion of that name"):
        with_overall(judgements, ["x", "overall"])


def test_a_file_of_controls_alone(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "h.jsonl", [{"question": "q", "human": {"x": 1}, "control": True}])
    with pytest.raises(InputError, match="all 1 questions are controls"):
        prepared_ratings(path, CorrelateSettings())


def test_the_order_of_ratings_does_not_change_their_mean() -> None:
    assert sum([0.1, 0.2, 0.3]) / 3 != sum([0.3, 0.2, 0.1]) / 3
    assert mean_rating([0.1, 0.2, 0.3]) == mean_rating([0.3, 0.2, 0.1]) == 0.2
