"""One scale for all raters, and the scores of systems."""

from math import pi, sqrt, tan
from statistics import NormalDist, mean, stdev
from typing import Any

import numpy as np
import pytest
from scipy.stats import wilcoxon

from rl_qg.judging.raters import OVERALL
from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems
from rl_qg.rating.analysis.scores import (
    DIALOGUE_EVAL,
    WITH_DEGRADED,
    QuestionScores,
    SystemScores,
    question_scores,
    system_scores,
    without_noisy,
    z_scores,
)
from rl_qg.rating.analysis.study import conclusion, is_certain, pair_rows, preference, replication_of_scores
from rl_qg.stats.crossed import CrossedDraws, CrossedValues
from tests.rl_qg.rating.rating_rows import columns, rating

# One rater: a (80, 60; seen again: 60, 40), b (20, 40), a degraded form of a (10, 0); criteria c and d.
ONE = [
    rating("r", position, value, kind, system, criterion=criterion, original=original)
    for position, kind, system, original, values in (
        (1, "ordinary", "a", None, (80, 60)),
        (2, "ordinary", "b", None, (20, 40)),
        (3, "repeat", "a", 1, (60, 40)),
        (4, "degraded", "a", 1, (10, 0)),
    )
    for criterion, value in zip("cd", values, strict=True)
]
KEPT = [80, 60, 20, 40, 60, 40]


def scored(rated: RatedItems, variant: str = "without_degraded", resamples: int = 20) -> SystemScores:
    return system_scores(rated, question_scores(rated, z_scores(rated, variant).values), resamples=resamples, seed=1)


def test_z_by_hand() -> None:
    rated = columns(ONE)
    middle, spread = mean(KEPT), stdev(KEPT)
    assert z_scores(rated).values[0] == pytest.approx([(80 - middle) / spread, (60 - middle) / spread])
    every = [*KEPT, 10, 0]
    with_degraded = z_scores(rated, WITH_DEGRADED).values
    assert with_degraded[3] == pytest.approx([(v - mean(every)) / stdev(every) for v in (10, 0)])
    published = z_scores(rated, DIALOGUE_EVAL).values
    assert published[0, 0] == pytest.approx((80 - mean(every)) / (stdev(every) + 1e-6), abs=1e-12)


def test_scores_by_hand() -> None:
    """Of the repeated question the mean of both ratings counts once; the degraded one not at all."""
    scores = scored(columns(ONE))
    middle, spread = mean(KEPT), stdev(KEPT)
    a, b = [(70 - middle) / spread, (50 - middle) / spread], [(20 - middle) / spread, (40 - middle) / spread]
    assert scores.systems == ("a", "b") and scores.criteria == ("c", "d")
    assert scores.values.data == pytest.approx(np.array([[*a, mean(a)], [*b, mean(b)]]))
    assert (scores.questions.tolist(), scores.shown.tolist(), scores.ratings.tolist()) == ([1, 1], [2, 1], [4, 2])


def test_a_repeat_whose_original_has_no_rating_is_a_question_of_its_own() -> None:
    rows = [rating("r", 1, 80), rating("r", 2, 20, "repeat", "b", original=9), rating("r", 3, 50, system="c")]
    scores = scored(columns(rows))
    assert scores.values.data[:, 0].tolist() == [1.0, -1.0, 0.0]
    assert scores.questions.tolist() == scores.shown.tolist() == [1, 1, 1]


def test_a_shared_question_counts_for_both() -> None:
    rows = [rating("r", 1, 80, system="a|b"), rating("r", 2, 20, system="b"), rating("r", 3, 50, system="a")]
    scores = scored(columns(rows))
    z = {80: 1.0, 20: -1.0, 50: 0.0}
    assert scores.values.data[:, 0] == pytest.approx([(z[80] + z[50]) / 2, (z[80] + z[20]) / 2])


def test_raters_without_spread_have_no_z_and_are_counted() -> None:
    rows = [rating("r", 1, 80), rating("r", 2, 20), rating("s", 1, 50), rating("s", 2, 50), rating("t", 1, 9)]
    z = z_scores(columns(rows))
    assert z.without_spread == ("s", "t") and z.ratings_left_out == 3
    assert np.isnan(z.values[2:]).all() and not np.isnan(z.values[:2]).any()
    assert scored(columns(rows)).questions.tolist() == [2]


def test_raters_without_a_scale_are_not_drawn() -> None:
    """Five raters with scores are too few to be drawn, however many others rate everything alike."""
    rows = [rating(f"r{who}", at, 10 * who + at, hit=f"h{at}") for who in range(5) for at in (1, 2, 3)]
    alike = [rating(f"s{who}", 1, 50, hit=f"h{at}") for who in range(9) for at in (1, 2, 3, 4)]
    alone, among = scored(columns(rows)), scored(columns([*rows, *alike]))
    assert among.values.sizes == {"passages": 3} and among.note == alone.note != ""
    assert among.of("a").estimate(15) == alone.of("a").estimate(15)


def test_a_raters_scale_says_nothing() -> None:
    """A rater who rates half as far apart and 30 points higher gives the same scores."""
    rng = np.random.default_rng(2)
    values = rng.integers(0, 100, 12).tolist()
    plain = columns([rating("r", at, value, system="ab"[at % 2]) for at, value in enumerate(values)])
    other = columns([rating("r", at, value / 2 + 30, system="ab"[at % 2]) for at, value in enumerate(values)])
    assert scored(plain).values.data == pytest.approx(scored(other).values.data, abs=1e-12)


def test_noisy_ratings_are_left_out_and_counted() -> None:
    """Of 50, 50, 50, 50 and 100 the last has z = 2."""
    rows = [rating(f"r{at}", 1, value) for at, value in enumerate((50, 50, 50, 50, 100))]
    rated = without_noisy(columns(rows), sides="both_sides", threshold=1.0, most=5)
    assert np.isnan(rated.values[:, 0]).tolist() == [False] * 4 + [True]
    assert rated.left_out == {"far from the others (rater_filter)": 1}


# --- A slow version of the whole ---


def slow_scores(rated: RatedItems) -> dict[tuple[str, str], float]:
    """Equation 13 of QAScore, question by question."""
    given: dict[str, list[float]] = {}
    for row in range(len(rated)):
        if rated.kind[row] != 2:
            given.setdefault(rated.raters[rated.rater[row]], []).extend(rated.values[row].tolist())
    z: dict[tuple[int, int], list[float]] = {}
    for row in range(len(rated)):
        values = given[rated.raters[rated.rater[row]]]
        for column, value in enumerate(rated.values[row].tolist()):
            if rated.kind[row] != 2:
                first = row if rated.original[row] == NO_ORIGINAL else int(rated.original[row])
                z.setdefault((first, column), []).append((value - mean(values)) / stdev(values))
    found: dict[tuple[str, str], list[float]] = {}
    for (row, column), both in z.items():
        for system in rated.systems[row]:
            found.setdefault((system, rated.criteria[column]), []).append(mean(both))
    scores = {key: mean(values) for key, values in found.items()}
    for system in {system for system, _ in scores}:
        scores[system, OVERALL] = mean(scores[system, name] for name in rated.criteria)
    return scores


def random_study(seed: int, raters: int = 8, tasks: int = 2) -> RatedItems:
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    for rater in range(raters):
        for task in range(tasks):
            hit = f"h{rng.integers(6)}-{task}"
            for position, (system, kind, original) in enumerate(
                (("a", "ordinary", None), ("b", "ordinary", None), ("c|b", "ordinary", None), ("b", "repeat", 2),
                 ("a", "degraded", 1)), 1,
            ):  # fmt: skip
                rows += [
                    rating(f"r{rater}", position, int(rng.integers(101)), kind, system, hit=hit, criterion=name,
                           original=original)
                    for name in "cd"
                ]  # fmt: skip
    return columns(rows)


def test_scores_are_those_of_the_equation() -> None:
    for seed in range(3):
        rated = random_study(seed)
        scores, slow = scored(rated), slow_scores(rated)
        for system in scores.systems:
            for criterion in (*scores.criteria, OVERALL):
                value = scores.of(system, criterion).data
                assert float(value) == pytest.approx(slow[system, criterion], abs=1e-12)


# --- Intervals ---


def spread_of(rater: list[int], passage: list[int], values: list[float]) -> float:
    """The standard deviation that draws of both give to a mean; of so many draws it is within 1 %."""
    table = np.column_stack([values, np.ones(len(values))])
    draws = CrossedDraws(np.array(rater), np.array(passage), resamples=40_000, seed=3)
    return float(draws.sums(table).map(lambda part: part[:, 0] / part[:, 1]).combined()[1:].std())


def test_one_passage_a_rater_is_one_sample() -> None:
    """Then raters, passages and pairs are the same, and the error is that of a mean of n numbers: s / √n, times
    Student's over the normal quantile (here 2.571 / 1.960). The product of both weights would give √3 of it."""
    values = np.random.default_rng(1).normal(size=6)
    expected = values.std(ddof=1) / np.sqrt(6) * 2.5706 / 1.9600
    assert spread_of([*range(6)], [*range(6)], values.tolist()) == pytest.approx(expected, rel=0.01)


def test_crossed_raters_and_passages_add_up() -> None:
    """Values u(rater) + v(passage) without noise, all rate all: the variances of both means add up, less that of the
    mean of so many pairs. Student's quantiles of 7, 5 and 47 degrees of freedom."""
    rng = np.random.default_rng(4)
    u, v = rng.normal(size=8), rng.normal(size=6)
    rater, passage = np.repeat(np.arange(8), 6), np.tile(np.arange(6), 8)
    values = u[rater] + v[passage]
    raters, passages, pairs = (
        part.var(ddof=1) / len(part) * (student / 1.9600) ** 2
        for part, student in ((u, 2.3646), (v, 2.5706), (values, 2.0117))
    )
    expected = np.sqrt(raters + passages - pairs)
    assert spread_of(rater.tolist(), passage.tolist(), values.tolist()) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("spreads", "variance"), [((3, 2, 1), 12), ((3, 1, 2), 9), ((1, 3, 2), 9)])
def test_four_draws_by_hand(spreads: tuple[int, int, int], variance: int) -> None:
    """Widened deviations of raters, passages and pairs: 3² + 2² - 1² = 12; but 3² + 1² - 2² is below 3². Two raters
    are widened by √2 and Student's quantile of one degree of freedom, three passages or pairs by √(3/2) and that of
    two.
    """
    signs = np.array([[1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]])
    two, three = (
        widened / NormalDist().inv_cdf(0.975)
        for widened in (sqrt(2) * tan(0.475 * pi), sqrt(1.5) * 0.95 / sqrt(2 * 0.975 * 0.025))
    )
    sizes = {"raters": 2, "passages": 3, "pairs": 3}
    drawn = {
        name: 5 + np.array([0, *row]) * spread / widening
        for name, row, spread, widening in zip(sizes, signs, spreads, (two, three, three), strict=True)
    }
    both = CrossedValues(drawn, sizes).combined()
    r, p, _ = spreads
    assert both - 5 == pytest.approx([0, *(r * signs[0] + p * signs[1]) * sqrt(variance / (r**2 + p**2))])
    assert both[1:].var() == pytest.approx(variance)


def test_what_cannot_be_drawn_is_said() -> None:
    few = CrossedDraws(np.array([0, 1, 2]), np.array([0, 1, 2]), resamples=10, seed=1)
    assert "3 raters cannot say how much other raters would differ" in few.note
    assert few.sums(np.ones((3, 1))).sizes == {"passages": 3}
    one = CrossedDraws(np.arange(6), np.zeros(6, dtype=int), resamples=10, seed=1)
    assert "5 raters cannot" in CrossedDraws(np.arange(5), np.arange(5), resamples=10, seed=1).note
    assert "one passage cannot say" in one.note and one.sums(np.ones((6, 1))).sizes == {"raters": 6}
    nothing = CrossedDraws(np.array([0]), np.array([0]), resamples=10, seed=1)
    assert nothing.note.startswith("One passage has no intervals: one rater cannot")
    alone = nothing.sums(np.ones((1, 1)))
    statistic = alone.map(lambda part: part[:, 0]).estimate(1)
    assert (statistic.value, statistic.low) == (1.0, None) and alone.map(lambda part: part[:, 0]).p() is None


def test_intervals_of_a_replication_are_widened_once() -> None:
    """Deviations of five passages are widened by √(5/4) and Student's quantile of four degrees of freedom over the
    normal one; the interval is then that of r in the draws.
    """
    rng, names = np.random.default_rng(6), tuple("abcdefgh")
    quality, none = rng.normal(size=8), np.ones(8, dtype=int)
    studies, widened = [], []
    for _ in range(2):
        data = quality + rng.normal(0, 0.5, 8)
        deviations = rng.normal(0, 0.2, (4000, 8))
        drawn = np.vstack([data, data + deviations])[:, :, None].repeat(2, axis=2)  # one criterion, and overall
        values = CrossedValues({"passages": drawn}, {"passages": 5})
        studies.append(SystemScores(names, ("c",), values, none, none, none, ""))
        widened.append(data + deviations * sqrt(5 / 4) * 2.7764 / 1.9600)
    drawn_r = [np.corrcoef(x, y)[0, 1] for x, y in zip(*widened, strict=True)]
    row = replication_of_scores(*studies)[0]
    assert (row["criterion"], row["coefficient"]) == ("c", "pearson")
    assert [row["low"], row["high"]] == pytest.approx(np.quantile(drawn_r, [0.025, 0.975]), abs=0.003)


# --- Pairs of systems ---


def study_of(gap: float, tasks: int = 30) -> tuple[QuestionScores, SystemScores]:
    rng = np.random.default_rng(9)
    rows = []
    for task in range(tasks):
        for at, system in enumerate(("ce", "scst")):
            rows.append(
                rating(f"r{task % 10}", at + 1, 50 + gap * at + rng.normal(0, 10), system=system, hit=f"h{task}")
            )
    rated = columns(rows)
    questions = question_scores(rated, z_scores(rated).values)
    return questions, system_scores(rated, questions, resamples=500, seed=1)


def test_a_planted_difference_is_found() -> None:
    scores, systems = study_of(15)
    (row,) = rows = pair_rows(scores, systems)
    ce, scst = (scores.overall[scores.member[:, at] > 0] for at in range(2))  # of the same tasks in the same order
    assert row["p_paired"] == pytest.approx(wilcoxon(scst, ce, method="exact").pvalue)
    assert (row["preferred"], row["to"], row["pairs"]) == ("scst", "ce", 30)
    assert row["low"] > 0 and row["p_holm"] < 0.005 and row["p_paired"] < 0.01 and row["p_rank_sum"] < 0.01
    assert row["higher"] + row["lower"] == 30 and row["difference"] == pytest.approx(row["paired_difference"])
    (text,) = conclusion(rows)
    assert text.startswith(f"people prefer scst to ce: +{row['difference']:.2f} z [") and text.endswith(
        f"p (Holm) {row['p_holm']:.3f}"
    )
    assert is_certain(row)


def test_no_difference_is_not_certain() -> None:
    (text,) = conclusion(pair_rows(*study_of(0)))
    assert text.startswith("it is not certain that people prefer ")


def test_sentences() -> None:
    row = {"preferred": "scst", "to": "ce", "difference": 0.21, "low": 0.08, "high": 0.35, "p_holm": 0.003}
    assert preference(row) == "people prefer scst to ce: +0.21 z [0.08, 0.35], p (Holm) 0.003"
    alone = {**row, "low": None, "high": None, "p_holm": None}
    assert preference(alone) == "it is not certain that people prefer scst to ce: +0.21 z"
    assert preference({**row, "p_holm": 0.0}).startswith("people prefer scst to ce: ")
    assert preference({**row, "p_holm": 0.0}).endswith("0.35], p (Holm) < 0.001")
    p_values = {"ab": 0.2, "ac": 0.01, "ad": 0.001, "bc": 0.3, "bd": 0.3, "cd": 0.9}
    several = [{**row, "preferred": pair[0], "to": pair[1], "p_holm": p} for pair, p in p_values.items()]
    assert conclusion(several)[1] == "best is a: people prefer it to c, d (p (Holm) < 0.05); not certain for b"
    several[1]["p_holm"] = 0.0  # smaller than any number
    assert conclusion(several)[1] == "best is a: people prefer it to c, d (p (Holm) < 0.05); not certain for b"
    assert conclusion([]) == []


def test_holm_is_over_all_pairs() -> None:
    rated = random_study(5, raters=12, tasks=3)
    rows = pair_rows(question_scores(rated, z_scores(rated).values), scored(rated, resamples=200))
    assert len(rows) == 3
    smallest = min(rows, key=lambda row: row["p"])
    assert smallest["p_holm"] == pytest.approx(min(1, 3 * smallest["p"]))
    of_d = pair_rows(question_scores(rated, z_scores(rated).values), scored(rated, resamples=200), of="d")
    scores = scored(rated)
    for row in of_d:
        gap = float(scores.of(row["preferred"], "d").data - scores.of(row["to"], "d").data)
        assert row["difference"] == pytest.approx(gap) and gap >= 0
