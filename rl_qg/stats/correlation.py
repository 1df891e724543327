"""Pearson's r, Spearman's ρ and Kendall's τ-b of two columns, in the data and in every draw of passages.

A draw that takes a passage twice has its questions twice. Each coefficient is that of the repeated questions, computed
from weights: nothing is repeated or sorted again, except for τ-b of more than 2,000 passages.

Sources: Kendall, "The treatment of ties in ranking problems", Biometrika 1945 (τ-b, and mid-ranks for ρ).
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.stats.intervals import (
    CORRELATION,
    NUMBERS_AT_ONCE,
    SHARE,
    Floats,
    PassageDraws,
    Statistic,
    add_holm,
    estimate,
    holm,
    paired_test,
    quotient,
)

COEFFICIENTS = ("pearson", "spearman", "kendall")
SYMBOLS = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}
SYSTEMS = 3  # systems that a correlation needs
OUTCOMES = ("wins", "ties", "losses")  # of two questions that people rate differently
_LARGEST_TABLE = 2000  # passages whose pairs are kept as a table


def why_undefined(x: Floats, y: Floats) -> str:
    if len(x) < 2:
        return "fewer than two values"
    return "all ratings are equal" if is_constant(y) else "all scores are equal" if is_constant(x) else "not defined"


def correlations(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> dict[str, Floats]:
    """Each of `COEFFICIENTS` between `x` and `y` (n,), the values of the questions `rows` (n,) of `draws`. Returns
    float64 (1 + resamples,) for each, the first of the data themselves; NaN where a column is constant.
    """
    if len(x) < 2 or is_constant(x) or is_constant(y):
        return {name: np.full(draws.resamples + 1, np.nan) for name in COEFFICIENTS}
    compute = (pearson_draws, spearman_draws, kendall_draws)
    return {name: of(x, y, draws, rows) for name, of in zip(COEFFICIENTS, compute, strict=True)}


def is_constant(x: Floats) -> bool:
    """Whether values differ by no more than the rounding of their sum."""
    return bool(np.ptp(x) <= 1e-12 * np.abs(x).max()) if len(x) else True


def pearson_draws(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    x, y = _standardised(x), _standardised(y)
    sums = draws.sums_of_passages(draws.by_passage(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1), rows))
    n, x, y, xx, yy, xy = sums.T
    with np.errstate(invalid="ignore", divide="ignore"):
        return _ratio(xy - x * y / n, xx - x * x / n, yy - y * y / n, smallest=1e-12 * n)


def spearman_draws(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """Spearman's ρ in each draw: Pearson's r of the mid-ranks of that draw."""
    columns, passage = [_levels(x), _levels(y)], draws.passage_index[rows]
    values = []
    for block in draws.blocks(len(x)):
        weights = block[:, passage]
        a, b = (_mid_ranks(weights, *levels) for levels in columns)
        values.append(_weighted_pearson(weights, a, b))
    return np.concatenate(values)


def kendall_draws(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """Kendall's τ-b in each draw: pairs in the same order minus pairs in the opposite order, over the geometric
    mean of the numbers of pairs that are not tied in each column.
    """
    if draws.passages > _LARGEST_TABLE:
        from scipy.stats import kendalltau

        passage = draws.passage_index[rows]
        every = (weights[passage].astype(int) for block in draws.blocks() for weights in block)
        return np.array([kendalltau(np.repeat(x, times), np.repeat(y, times)).statistic for times in every])
    order = np.argsort(draws.passage_index[rows], kind="stable")
    present, starts = np.unique(draws.passage_index[rows][order], return_index=True)
    both, of_x, of_y = _pair_tables(_levels(x)[0][order], _levels(y)[0][order], starts)
    values = []
    for block in draws.blocks():
        weights = block[:, present]
        joint, left, right = (np.einsum("rg,rg->r", weights @ table, weights) for table in (both, of_x, of_y))
        values.append(quotient(joint, np.sqrt(left * right)))
    return np.clip(np.concatenate(values), -1, 1)


def _pair_tables(x: NDArray[np.intp], y: NDArray[np.intp], starts: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
    """For each two passages the sums over pairs of their questions of sign·sign, |sign of x| and |sign of y|."""
    n, count = len(x), len(starts)
    passage = np.repeat(np.arange(count), np.diff([*starts, n]))
    both, of_x, of_y = (np.zeros((count, count)) for _ in range(3))
    for start in range(0, n, step := max(1, NUMBERS_AT_ONCE // n)):
        part = slice(start, start + step)
        a = np.sign(x[part, None] - x).astype(np.int8)
        b = np.sign(y[part, None] - y).astype(np.int8)
        passages, first = np.unique(passage[part], return_index=True)
        for table, product in ((both, a * b), (of_x, np.abs(a)), (of_y, np.abs(b))):
            columns = np.add.reduceat(product, starts, axis=1, dtype=np.int32)
            table[passages] += np.add.reduceat(columns, first, axis=0)
    return both, of_x, of_y


def row_correlations(x: Floats, y: Floats) -> Mapping[str, Floats]:
    """Each of `COEFFICIENTS` between the rows of `x` and `y` (draws, systems); NaN where a row is constant."""
    signs = [_signs(values) for values in (x, y)]
    ranks = [(sign.sum(axis=2) + x.shape[1] + 1) / 2 for sign in signs]
    joint, left, right = (np.einsum("rij,rij->r", a, b) for a, b in (signs, signs[:1] * 2, signs[1:] * 2))
    ones, kendall = np.ones_like(x), quotient(joint, np.sqrt(left * right))
    return {"pearson": _weighted_pearson(ones, x, y), "spearman": _weighted_pearson(ones, *ranks), "kendall": kendall}


def _signs(values: Floats) -> Floats:
    """The signs of the differences of every two means (draws, systems, systems), 0 where rounding alone made them."""
    differences = values[:, :, None] - values[:, None, :]
    scale = np.abs(values).max(axis=1)[:, None, None]
    return np.asarray(np.sign(np.where(np.abs(differences) <= 1e-12 * scale, 0.0, differences)))


def _standardised(x: Floats) -> Floats:
    x = quotient(x, np.abs(x).max())  # squares of very large or small numbers would not be finite
    return quotient(x - x.mean(), x.std())


def _levels(x: Floats) -> tuple[NDArray[np.intp], int]:
    distinct, level = np.unique(x, return_inverse=True)
    return level.reshape(-1), len(distinct)


def _mid_ranks(weights: Floats, level: NDArray[np.intp], count: int) -> Floats:
    """The mid-rank of every row in each draw (draws, n), where row i occurs `weights[:, i]` times."""
    order = np.argsort(level, kind="stable")
    starts = np.searchsorted(level[order], np.arange(count))
    times = np.add.reduceat(weights[:, order], starts, axis=1)
    return np.asarray((np.cumsum(times, axis=1) - times / 2 + 0.5)[:, level])


def _weighted_pearson(weights: Floats, a: Floats, b: Floats) -> Floats:
    total = np.maximum(weights.sum(axis=1), 1)[:, None]  # a draw may hold none of the questions: no spread, no value
    a, b = (c / np.maximum(np.abs(c).max(axis=1, keepdims=True), np.finfo(np.float64).tiny) for c in (a, b))
    a, b = (c - np.einsum("rn,rn->r", weights, c)[:, None] / total for c in (a, b))
    spread_a, spread_b = (np.einsum("rn,rn,rn->r", weights, c, c) for c in (a, b))
    joint = np.einsum("rn,rn,rn->r", weights, a, b)
    return _ratio(joint, spread_a, spread_b, smallest=1e-24 * total[:, 0])


def _ratio(joint: Floats, left: Floats, right: Floats, smallest: Floats) -> Floats:
    """The correlation; NaN where a spread is at most `smallest`, which is rounding of equal numbers."""
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where((left > smallest) & (right > smallest), joint / np.sqrt(left * right), np.nan)
    return np.clip(values, -1, 1)


def williams(r12: float, r13: float, r23: float, n: int) -> tuple[float, float] | None:
    """Statistic t (n - 3 degrees of freedom) and two-sided p of "the correlations r12 and r13, with variable 1 in
    common, are equal". None where it does not exist: n ≤ 3, or 2 and 3 correlate perfectly.

    Variable 1 is the human rating, 2 and 3 are metrics. The test takes the n rows as independent and normal; questions
    about one passage are not independent, so at question level its p-values are too small; use those of the bootstrap.
    With Spearman's ρ in place of r (as in "Generative Language Models for Paragraph-Level Question Generation", EMNLP
    2022, figure 7) the ranks are taken for the values, which is an approximation.

    Sources: Williams, "The comparison of regression variables", 1959, as given by Steiger, "Tests for comparing
    elements of a correlation matrix", Psychological Bulletin 1980; used for metrics by Graham and Baldwin, EMNLP 2014.
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
    from scipy.stats import kendalltau, t as student

    if len(x) < 3 or not math.isfinite(value):
        return None
    if coefficient == "kendall":
        return float(kendalltau(x, y).pvalue)
    spread = (1 - value) * (1 + value)
    if spread <= 0:
        return 0.0
    return float(2 * student.sf(abs(value) * math.sqrt((len(x) - 2) / spread), len(x) - 2))


@dataclass(frozen=True)
class Correlated:
    """Coefficients in the data and in all draws, of n questions or systems, made of questions about so many passages
    (`PassageDraws.units_of`); `why` says why they are undefined, and `x` and `y` (n,) are what was correlated.
    """

    draws: Mapping[str, Floats]
    n: int
    passages: float
    why: str
    x: Floats
    y: Floats
    degrees: float | None = None

    def cells(self, coefficient: str) -> dict[str, Any]:
        """The value of a coefficient with its interval, and the p-value of "no association"."""
        draws = self.draws[coefficient]
        options: dict[str, Any] = {"degrees": self.degrees, "why": self.why, "bounds": CORRELATION}
        statistic = estimate(draws, self.n, passages=self.passages, **options).to_dict()
        p = coefficient_p(coefficient, float(draws[0]), self.x, self.y)
        return statistic | ({} if p is None else {"p": p})


def correlated_systems(x: Floats, y: Floats, units: float, too_few: str, degrees: float | None = None) -> Correlated:
    """Correlations between values of systems (1 + resamples, systems), in the draws in which all are defined."""
    values = {coefficient: np.full(len(x), np.nan) for coefficient in COEFFICIENTS}
    n, why = x.shape[1], too_few
    if n >= SYSTEMS:
        whole = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
        for coefficient, draws in row_correlations(x[whole], y[whole]).items():
            values[coefficient][whole] = draws
        why = why_undefined(x[0], y[0])
    return Correlated(values, n, units, why, x[0], y[0], degrees)


def replicated(*parts: tuple[Sequence[str], Floats], units: float, where: str) -> list[dict[str, Any]]:
    """The coefficients between two parts (names of systems, values (1 + resamples, systems)) over the systems of both,
    and how many are in one alone (QAScore, section 4.3.4 and table 7). `where` both are, for a reason.
    """
    first, second = (
        {name: values[:, at] for at, name in enumerate(names) if np.isfinite(values[0, at])} for names, values in parts
    )
    shared, draws = [name for name in first if name in second], min(len(values) for _, values in parts)
    counts = {"only_first": len(first) - len(shared), "only_second": len(second) - len(shared)}
    x, y = (np.array([of[name][:draws] for name in shared]).reshape(len(shared), draws).T for of in (first, second))
    correlated = correlated_systems(x, y, units, f"{len(shared)} systems in {where}; a correlation needs {SYSTEMS}")
    return [{"coefficient": name, **correlated.cells(name), **counts} for name in COEFFICIENTS]


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
    """One row for every two metrics that can be tested: the difference of their coefficients with its interval and
    p-values, each with a corrected one (`p_holm`, `williams_p_holm`) over all pairs of this call.
    """
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        row: dict[str, Any] = {"metric": pair.metric, "against": pair.against}
        row |= paired_test(pair.first, pair.second, pair.n, pair.passages, bounds=CORRELATION)
        if row["p"] is None:
            continue
        if pair.between is not None:
            test = williams(float(pair.first[0]), float(pair.second[0]), pair.between, pair.n)
            row |= {"williams_t": test and test[0], "williams_p": test and test[1]}
        rows.append(row)
    add_holm(rows, "p")
    add_holm(rows, "williams_p", family=False)
    return rows


def not_worse_than_the_best(rows: list[dict[str, Any]], values: Mapping[str, float]) -> tuple[list[str], list[str]]:
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
    alike = [name for name in values if name == best or corrected.get(name, 0) >= 0.05]
    return alike, [name for name in others if name not in tested]


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


def win_loss(
    scores: Floats,
    ratings: Floats,
    items: Sequence[Hashable],
    draws: PassageDraws,
    rows: NDArray[np.intp],
    min_gap: float = 0.0,
) -> tuple[dict[str, Statistic], int, Statistic]:
    """Pairs of questions about one item that people rate differently: the fractions that the metric orders as people
    do (`wins`), scores equally (`ties`) and orders the other way (`losses`).

    Correlations over all questions also ask whether a metric tells easy passages from hard ones; these pairs ask only
    for the better question, which is all that a reward, beam or filter needs. Source: Callison-Burch et al., "Further
    meta-evaluation of machine translation", WMT 2008; with pairs whose ratings are far apart alone, KPQA, table 7.

    Returns the fractions with intervals, the number of pairs, and the fraction of wins plus half the ties. `scores`,
    `ratings`, `items` (what each question is about) and `rows` (the indices of the questions among those of `draws`)
    are (n,); a pair counts where its ratings differ by more than `min_gap`.
    """
    beyond = min_gap + 1e-9 * (min_gap > 0)  # means of ratings that differ by exactly this differ by rounding as well
    counts = np.zeros((len(scores), 3))
    members: dict[Hashable, list[int]] = {}
    for number, item in enumerate(items):
        members.setdefault(item, []).append(number)
    for index in map(np.array, members.values()):
        better = ratings[index][:, None] - ratings[index] > beyond
        order = np.sign(scores[index][:, None] - scores[index])
        for column, sign in enumerate((1, 0, -1)):
            counts[index, column] = (better & (order == sign)).sum(axis=1)
    sums = draws.sums_of_passages(draws.by_passage(counts, rows))
    fractions = quotient(sums, sums.sum(axis=1)[:, None])
    pairs = int(counts.sum())
    gap = f"ratings that differ by more than {min_gap:g}" if min_gap else "different ratings"
    why = f"no two questions about one item have {gap}"
    units = draws.units_of(rows[counts.any(axis=1)])
    columns = {name: fractions[:, column] for column, name in enumerate(OUTCOMES)}
    columns["alike"] = fractions[:, 0] + fractions[:, 1] / 2
    statistics = {
        name: estimate(values, pairs, passages=units, why=why, bounds=SHARE) for name, values in columns.items()
    }
    return statistics, pairs, statistics.pop("alike")


def auc_draws(scores: Floats, good: NDArray[np.bool_], draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """The area under the ROC curve, the probability that a good question (`good`, (n,)) scores above a bad one, ties
    counted half, in the data and in each draw: float64 (1 + resamples,); NaN without both kinds. `rows` (n,) are the
    indices of the questions among those of `draws`. Source: Hanley and McNeil, Radiology 1982 (the area is the
    Mann-Whitney statistic).
    """
    order = np.argsort(scores, kind="stable")
    _, starts = np.unique(scores[order], return_index=True)
    passage, is_good = draws.passage_index[rows][order], good[order].astype(np.float64)
    areas = []
    for block in draws.blocks(len(scores)):
        weights = block[:, passage]
        above = np.add.reduceat(weights * is_good, starts, axis=1)
        below = np.add.reduceat(weights * (1 - is_good), starts, axis=1)
        won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
        areas.append(quotient(won, above.sum(axis=1) * below.sum(axis=1)))
    return np.concatenate(areas)
