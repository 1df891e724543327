"""Is one metric nearer to people than another? Tests of dependent correlations, all pairs, Holm's correction.

Sources: Williams, "The comparison of regression variables", 1959, as given by Steiger, "Tests for comparing elements
of a correlation matrix", Psychological Bulletin 1980, and used for metrics by Graham and Baldwin, "Testing for
significance of increased correlation with human judgment", EMNLP 2014.
"""

import math
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from rl_qg.bootstrap import holm
from rl_qg.passage_draws import Floats, difference_p, estimate


def williams(r12: float, r13: float, r23: float, n: int) -> tuple[float, float] | None:
    """Statistic t (n - 3 degrees of freedom) and two-sided p of "the correlations r12 and r13, with variable 1 in
    common, are equal". None where it does not exist: n ≤ 3, or 2 and 3 correlate perfectly.

    Variable 1 is the human rating, 2 and 3 are metrics. The test takes the n rows as independent and normal; questions
    about one passage are not independent, so at question level its p-values are too small and the bootstrap's count.
    """
    from scipy.stats import t as student

    if n <= 3 or not all(map(math.isfinite, (r12, r13, r23))):
        return None
    determinant = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    beneath = 2 * determinant * (n - 1) / (n - 3) + (r12 + r13) ** 2 / 4 * (1 - r23) ** 3
    if beneath <= 1e-15 or 1 - r23 <= 1e-12:
        return None
    value = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / beneath)
    return value, float(2 * student.sf(abs(value), n - 3))


def pair_rows(
    draws: Mapping[str, Floats], n: int, between: Mapping[tuple[str, str], float] | None = None
) -> list[dict[str, Any]]:
    """One row for every two metrics: the difference of their coefficients with its interval and p-values.

    Args:
        draws: for each metric its coefficient in the data and in every draw, the same draws for all.
        n: questions or systems.
        between: Pearson's r between the metrics of each pair, for Williams' test; None where the coefficient is none
            that the test is about.

    Each p has a corrected one beside it (`p_holm`, `williams_p_holm`), over all pairs of this call.
    """
    rows: list[dict[str, Any]] = []
    for first, second in combinations(draws, 2):
        differences = draws[first] - draws[second]
        p = difference_p(differences)
        if p is None:
            continue
        row = {"metric": first, "against": second, **estimate(differences, n).to_dict(), "p": p}
        if between is not None:
            test = williams(float(draws[first][0]), float(draws[second][0]), between[first, second], n)
            row |= {"williams_t": test and test[0], "williams_p": test and test[1]}
        rows.append(row)
    _correct(rows, "p")
    _correct(rows, "williams_p")
    return rows


def not_worse_than_the_best(rows: list[dict[str, Any]], values: Mapping[str, float], level: float = 0.05) -> list[str]:
    """The best metric, and those whose difference from it is not significant after correction."""
    if not values:
        return []
    best = max(values, key=lambda name: values[name])
    pairs = {frozenset((row["metric"], row["against"])): row["p_holm"] for row in rows}
    return [name for name in values if name == best or pairs.get(frozenset((name, best)), 1.0) >= level]


def _correct(rows: list[dict[str, Any]], key: str) -> None:
    tested = [row for row in rows if row.get(key) is not None]
    for row, corrected in zip(tested, holm([row[key] for row in tested]), strict=True):
        row |= {f"{key}_holm": corrected, "family": len(tested)}


def pearson_between(x: Floats, y: Floats) -> float:
    """Pearson's r of two columns; NaN where one is constant."""
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])
