"""Pearson's r, Spearman's ρ and Kendall's τ-b of two columns, in the data and in every draw of passages.

A draw that takes a passage twice has its questions twice. Each coefficient is that of the repeated questions, computed
from weights: nothing is repeated or sorted again, except for τ-b of more than 2,000 passages.

Sources: Kendall, "The treatment of ties in ranking problems", Biometrika 1945 (τ-b, and mid-ranks for ρ).
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import Floats, PassageDraws

COEFFICIENTS = ("pearson", "spearman", "kendall")
_NUMBERS_AT_ONCE = 4_000_000
_LARGEST_TABLE = 2000  # passages whose pairs are kept as a table


def correlations(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> dict[str, Floats]:
    """Each of `COEFFICIENTS` between `x` and `y` (n,), the values of the questions `rows` (n,) of `draws`.

    Returns float64 (1 + resamples,) for each, the first of the data themselves; NaN where a column is constant.
    """
    if len(x) < 2 or is_constant(x) or is_constant(y):
        return {name: np.full(draws.resamples + 1, np.nan) for name in COEFFICIENTS}
    return {
        "pearson": pearson_draws(x, y, draws, rows),
        "spearman": spearman_draws(x, y, draws, rows),
        "kendall": kendall_draws(x, y, draws, rows),
    }


def is_constant(x: Floats) -> bool:
    """Whether values differ by no more than the rounding of their sum."""
    return bool(np.ptp(x) <= 1e-12 * np.abs(x).max()) if len(x) else True


def pearson_draws(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """Pearson's r in each draw."""
    x, y = _standardised(x), _standardised(y)
    sums = draws.sums_of_passages(draws.by_passage(np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], 1), rows))
    return _from_moments(*sums.T)


def spearman_draws(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """Spearman's ρ in each draw: Pearson's r of the mid-ranks of that draw."""
    columns, passage = [_levels(x), _levels(y)], draws.passage_index[rows]
    values = []
    for block in draws.blocks():
        step = max(1, _NUMBERS_AT_ONCE // len(x))
        for start in range(0, len(block), step):
            weights = block[start : start + step, passage]
            a, b = (_mid_ranks(weights, *levels) for levels in columns)
            values.append(_weighted_pearson(weights, a, b))
    return np.concatenate(values)


def kendall_draws(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """Kendall's τ-b in each draw: pairs in the same order minus pairs in the opposite order, over the geometric
    mean of the numbers of pairs that are not tied in each column.
    """
    if draws.passages > _LARGEST_TABLE:
        return _kendall_by_sorting(x, y, draws, rows)
    order = np.argsort(draws.passage_index[rows], kind="stable")
    present, starts = np.unique(draws.passage_index[rows][order], return_index=True)
    both, of_x, of_y = _pair_tables(_levels(x)[0][order], _levels(y)[0][order], starts)
    values = []
    for block in draws.blocks():
        weights = block[:, present]
        joint, left, right = (np.einsum("rg,rg->r", weights @ table, weights) for table in (both, of_x, of_y))
        with np.errstate(invalid="ignore", divide="ignore"):
            values.append(np.where((left > 0) & (right > 0), joint / np.sqrt(left * right), np.nan))
    return np.clip(np.concatenate(values), -1, 1)


def _kendall_by_sorting(x: Floats, y: Floats, draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    from scipy.stats import kendalltau

    passage = draws.passage_index[rows]
    values = []
    for block in draws.blocks():
        for weights in block:
            times = weights[passage].astype(int)
            values.append(kendalltau(np.repeat(x, times), np.repeat(y, times)).statistic)
    return np.array(values)


def _pair_tables(x: NDArray[np.intp], y: NDArray[np.intp], starts: NDArray[np.intp]) -> tuple[Floats, Floats, Floats]:
    """For each two passages the sums over pairs of their questions of sign·sign, |sign of x| and |sign of y|."""
    n, count = len(x), len(starts)
    passage = np.repeat(np.arange(count), np.diff([*starts, n]))
    both, of_x, of_y = (np.zeros((count, count)) for _ in range(3))
    for start in range(0, n, step := max(1, _NUMBERS_AT_ONCE // n)):
        part = slice(start, start + step)
        a = np.sign(x[part, None] - x).astype(np.int8)
        b = np.sign(y[part, None] - y).astype(np.int8)
        passages, first = np.unique(passage[part], return_index=True)
        for table, product in ((both, a * b), (of_x, np.abs(a)), (of_y, np.abs(b))):
            columns = np.add.reduceat(product, starts, axis=1, dtype=np.int32)
            table[passages] += np.add.reduceat(columns, first, axis=0)
    return both, of_x, of_y


# --- Systems: one value for each in every draw ---


def row_correlations(x: Floats, y: Floats) -> Mapping[str, Floats]:
    """Each of `COEFFICIENTS` between the rows of `x` and `y` (draws, systems); NaN where a row is constant."""
    ranks = [_ranks_of_rows(values) for values in (x, y)]
    signs = [np.sign(_without_rounding(values[:, :, None] - values[:, None, :], values)) for values in (x, y)]
    joint, left, right = (np.einsum("rij,rij->r", a, b) for a, b in (signs, signs[:1] * 2, signs[1:] * 2))
    ones = np.ones_like(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        kendall = np.where((left > 0) & (right > 0), joint / np.sqrt(left * right), np.nan)
    return {"pearson": _weighted_pearson(ones, x, y), "spearman": _weighted_pearson(ones, *ranks), "kendall": kendall}


def _ranks_of_rows(values: Floats) -> Floats:
    """Mid-ranks within each row."""
    below = np.sign(_without_rounding(values[:, :, None] - values[:, None, :], values))
    return np.asarray((below.sum(axis=2) + values.shape[1] + 1) / 2)


def _without_rounding(differences: Floats, values: Floats) -> Floats:
    """Differences of means, 0 where rounding alone made them."""
    scale = np.abs(values).max(axis=1)[:, None, None]
    return np.where(np.abs(differences) <= 1e-12 * scale, 0.0, differences)


# --- Weighted sums ---


def _standardised(x: Floats) -> Floats:
    x = x / np.abs(x).max()  # squares of very large or small numbers would not be finite
    return np.asarray((x - x.mean()) / x.std())


def _levels(x: Floats) -> tuple[NDArray[np.intp], int]:
    """The index of each value among the distinct ones in order, and how many there are."""
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


def _from_moments(n: Floats, x: Floats, y: Floats, xx: Floats, yy: Floats, xy: Floats) -> Floats:
    with np.errstate(invalid="ignore", divide="ignore"):
        return _ratio(xy - x * y / n, xx - x * x / n, yy - y * y / n, smallest=1e-12 * n)


def _ratio(joint: Floats, left: Floats, right: Floats, smallest: Floats) -> Floats:
    """The correlation; NaN where a spread is at most `smallest`, which is rounding of equal numbers."""
    with np.errstate(invalid="ignore", divide="ignore"):
        values = np.where((left > smallest) & (right > smallest), joint / np.sqrt(left * right), np.nan)
    return np.clip(values, -1, 1)
