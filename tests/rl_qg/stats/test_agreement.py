"""Agreement against the worked examples of the papers and a slow reading of the definitions."""

from itertools import permutations, product

import numpy as np
import pytest

from rl_qg.stats.agreement import LEVELS, fleiss_kappa, krippendorff_alpha
from rl_qg.stats.intervals import PassageDraws, interval_ends

N = None
# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), section C: four observers, twelve units
OBSERVERS = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, N, N, N],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, N, 3],
    [N, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, N],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, N],
]
UNITS = list(zip(*OBSERVERS, strict=True))
# Fleiss' coefficient worked through for ten subjects, fourteen raters, five categories: 0.210
COUNTS = """0 0 0 0 14|0 2 6 4 2|0 0 3 5 6|0 3 9 2 0|2 2 8 1 1|7 7 0 0 0|3 2 6 3 0|2 5 3 2 2|6 5 2 1 0|0 2 2 3 7"""


@pytest.mark.parametrize(("level", "alpha"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)])
def test_the_example_of_krippendorff(level: str, alpha: float) -> None:
    statistic = krippendorff_alpha(UNITS, level)
    assert statistic.value == pytest.approx(alpha, abs=5e-4)
    assert statistic.n == 11  # the last unit has a single rating


def test_interval_alpha_is_one_minus_the_ratio_of_mean_squared_differences() -> None:
    rated = [[value for value in unit if value is not N] for unit in UNITS]
    rated = [unit for unit in rated if len(unit) > 1]
    every = [value for unit in rated for value in unit]
    observed = sum(sum((a - b) ** 2 for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in rated) / len(
        every
    )
    expected = np.mean([(a - b) ** 2 for a, b in permutations(every, 2)])
    assert krippendorff_alpha(UNITS, "interval").value == pytest.approx(1 - observed / expected)


def slow_alpha(units, level: str) -> float:
    """From the table of coincidences, as the paper has it: every two values, every unit."""
    rated = [[value for value in unit if value is not N] for unit in units]
    rated = [unit for unit in rated if len(unit) > 1]
    values = sorted({value for unit in rated for value in unit})
    count = {c: sum(unit.count(c) for unit in rated) for c in values}

    def apart(c: float, k: float) -> float:
        between = sum(count[g] for g in values if min(c, k) <= g <= max(c, k)) - (count[c] + count[k]) / 2
        return {"nominal": float(c != k), "interval": (c - k) ** 2, "ordinal": between**2 if c != k else 0.0}[level]

    observed = sum(apart(c, k) / (len(unit) - 1) for unit in rated for c, k in permutations(unit, 2))
    expected = sum(count[c] * count[k] * apart(c, k) for c, k in product(values, values))
    return 1 - (sum(count.values()) - 1) * observed / expected


def test_any_number_of_distinct_ratings() -> None:
    rng = np.random.default_rng(3)
    units = [[float(value) if rng.random() < 0.8 else N for value in rng.normal(mean, 1, 4)] for mean in range(12)]
    for level in LEVELS:
        assert krippendorff_alpha(units, level).value == pytest.approx(slow_alpha(units, level))
    many = [[float(value) for value in row] for row in rng.random((4_000, 2))]  # a table for each unit would be 2 TB
    for level in LEVELS:
        value = krippendorff_alpha(many, level).value
        assert value is not None and abs(value) < 0.06
    kappa = fleiss_kappa(many).value
    assert kappa is not None and abs(kappa) < 0.001


def test_without_draws_there_is_no_interval() -> None:
    for statistic in (krippendorff_alpha(UNITS, "ordinal"), fleiss_kappa([[1, 2], [1, 1]])):
        assert statistic.value is not None and (statistic.low, statistic.high) == (None, None)
    alone = krippendorff_alpha(UNITS, "ordinal", PassageDraws([0] * len(UNITS), resamples=9))
    assert alone.value is not None and alone.low is None


def test_fleiss_example() -> None:
    units = [[k for k, n in enumerate(map(int, row.split())) for _ in range(n)] for row in COUNTS.split("|")]
    assert fleiss_kappa(units).value == pytest.approx(0.210, abs=5e-4)


def test_undefined_statistics_give_the_reason() -> None:
    assert krippendorff_alpha([[3, 3], [3, 3]], "ordinal").to_dict()["why"] == "all ratings are equal"
    assert krippendorff_alpha([[3], [N, 2]], "nominal").why == "no unit with two ratings"
    assert fleiss_kappa([[1, 2], [1, 2, 3]]).why == "questions have different numbers of ratings"
    assert fleiss_kappa([[1], [2]]).why == "fewer than two ratings a question"
    assert fleiss_kappa([[1, 1], [1, 1]]).why == "all ratings are equal"


def test_intervals_are_of_the_units_repeated() -> None:
    draws = PassageDraws([number // 3 for number in range(len(UNITS))], resamples=200, seed=0)
    for level in ("nominal", "ordinal"):
        statistic = krippendorff_alpha(UNITS, level, draws)
        slow = [statistic.value]
        for weights in np.concatenate(list(draws.blocks())).astype(int)[1:]:
            units = [
                unit for unit, times in zip(UNITS, weights[draws.passage_index], strict=True) for _ in range(times)
            ]
            value = krippendorff_alpha(units, level).value
            slow += [] if value is None else [value]
        rated = np.array([number for number, unit in enumerate(UNITS) if sum(one is not None for one in unit) > 1])
        ends = interval_ends(np.array(slow), draws.units_of(rated), bounds=(-1.0, 1.0))
        assert (statistic.low, statistic.high) == pytest.approx(ends)
