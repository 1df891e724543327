"""Whether one metric agrees with people more than another: tests of dependent correlations, Holm's correction.

Sources: Williams, "The comparison of regression variables", 1959, as given by Steiger, "Tests for comparing elements
of a correlation matrix", Psychological Bulletin 1980, and used for metrics by Graham and Baldwin, "Testing for
significance of increased correlation with human judgment", EMNLP 2014.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, difference, difference_p, estimate, holm


def williams(r12: float, r13: float, r23: float, n: int) -> tuple[float, float] | None:
    """Statistic t (n - 3 degrees of freedom) and two-sided p of "the correlations r12 and r13, with variable 1 in
    common, are equal". None where it does not exist: n ≤ 3, or 2 and 3 correlate perfectly.

    Variable 1 is the human rating, 2 and 3 are metrics. The test takes the n rows as independent and normal; questions
    about one passage are not independent, so at question level its p-values are too small; use those of the bootstrap.
    With Spearman's ρ in place of r (as in "Generative Language Models for Paragraph-Level Question Generation", EMNLP
    2022, figure 7) the ranks are taken for the values, which is an approximation.
    """
    from scipy.stats import t as student

    if n <= 3 or not all(map(math.isfinite, (r12, r13, r23))):
        return None
    determinant = 1 - r12**2 - r13**2 - r23**2 + 2 * r12 * r13 * r23
    denominator = 2 * determinant * (n - 1) / (n - 3) + (r12 + r13) ** 2 / 4 * (1 - r23) ** 3
    if denominator <= 1e-15 or 1 - r23 <= 1e-12:
        return None
    value = (r12 - r13) * math.sqrt((n - 1) * (1 + r23) / denominator)
    return value, float(2 * student.sf(abs(value), n - 3))


def coefficient_p(coefficient: str, value: float, x: Floats, y: Floats) -> float | None:
    """Two-sided p of "x and y (n,) are not associated", where `value` is their `coefficient`; None where it has none.

    r and ρ: t = r √((n - 2) / (1 - r²)) with n - 2 degrees of freedom (KPQA, NAACL 2021, appendix C.2). τ-b: scipy's
    test, exact for up to 33 values without ties, else normal. All take the n pairs as independent.
    """
    from scipy.stats import kendalltau
    from scipy.stats import t as student

    if len(x) < 3 or not math.isfinite(value):
        return None
    if coefficient == "kendall":
        return float(kendalltau(x, y).pvalue)
    spread = (1 - value) * (1 + value)
    if spread <= 0:
        return 0.0
    return float(2 * student.sf(abs(value) * math.sqrt((len(x) - 2) / spread), len(x) - 2))


@dataclass(frozen=True)
class Pair:
    """Two metrics on the same questions: their coefficients (1 + resamples,) in the data and in every draw, of n
    questions or systems about so many passages (`PassageDraws.units_of`); `between`: the same coefficient between the
    two, for Williams' test, which is about r and ρ only.
    """

    metric: str
    against: str
    first: Floats
    second: Floats
    n: int
    passages: float
    between: float | None = None


def pair_rows(pairs: Iterable[Pair]) -> list[dict[str, Any]]:
    """One row for every two metrics: the difference of their coefficients with its interval and p-values; a pair that
    cannot be tested has none.

    Each p has a corrected one with it (`p_holm`, `williams_p_holm`), over all pairs of this call.
    """
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        gap = difference(pair.first, pair.second)
        p = difference_p(gap, pair.passages)
        if p is None:
            continue
        row: dict[str, Any] = {"metric": pair.metric, "against": pair.against}
        row |= {**estimate(gap, pair.n, passages=pair.passages).to_dict(), "p": p}
        if pair.between is not None:
            test = williams(float(pair.first[0]), float(pair.second[0]), pair.between, pair.n)
            row |= {"williams_t": test and test[0], "williams_p": test and test[1]}
        rows.append(row)
    _correct(rows, "p")
    _correct(rows, "williams_p")
    return rows


def not_worse_than_the_best(
    rows: list[dict[str, Any]], values: Mapping[str, float], level: float = 0.05
) -> tuple[list[str], list[str]]:
    """The best metric and those whose difference from it is not significant; and those not tested against it.

    Holm's correction is over the tests against the best alone: the number of all pairs grows with the square of the
    number of metrics, and their correction would in the end find nothing worse than the best.
    """
    if not values:
        return [], []
    best = max(values, key=lambda name: values[name])
    p_of = {frozenset((row["metric"], row["against"])): row["p"] for row in rows}
    others = [name for name in values if name != best]
    tested = {name: p for name in others if (p := p_of.get(frozenset((name, best)))) is not None}
    corrected = dict(zip(tested, holm(list(tested.values())), strict=True))
    alike = [name for name in values if name == best or corrected.get(name, 0) >= level]
    return alike, [name for name in others if name not in tested]


def _correct(rows: list[dict[str, Any]], key: str) -> None:
    tested = [row for row in rows if row.get(key) is not None]
    for row, corrected in zip(tested, holm([row[key] for row in tested]), strict=True):
        row |= {f"{key}_holm": corrected, "family": len(tested)}


def between(coefficient: str, x: Floats, y: Floats) -> float | None:
    """Pearson's r or Spearman's ρ of two columns, NaN where one is constant; None for another coefficient."""
    from scipy.stats import rankdata

    if coefficient not in ("pearson", "spearman"):
        return None
    if len(x) < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return math.nan
    if coefficient == "spearman":
        x, y = rankdata(x), rankdata(y)
    x, y = (column / np.abs(column).max() for column in (x, y))  # squares of very large numbers are not finite
    return float(np.corrcoef(x, y)[0, 1])
