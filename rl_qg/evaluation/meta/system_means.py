"""Means of systems: their ratings and scores with intervals over passages, and how far two files of ratings agree on
them.

Sources: QG-Bench (EMNLP 2022), table 6 (means by system); QAScore, section 4.3.4 and table 7 (a second run of the
human evaluation, correlated with the first, system by system).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import CORRELATION, Floats, estimate
from rl_qg.evaluation.meta.correlation import COEFFICIENTS, row_correlations
from rl_qg.evaluation.meta.judgement_analysis import SYSTEMS, RatedQuestions, why_undefined
from rl_qg.evaluation.meta.significance import coefficient_p

Rows = list[dict[str, Any]]


def means_of_systems(rated: RatedQuestions, values: Floats) -> Floats:
    """The mean of `values` (questions,), NaN where there is none, by system: float64 (1 + resamples, systems), in the
    order of `rated.systems`; NaN for a system without a value.
    """
    _, member = rated.systems
    known = np.isfinite(values)
    member = member * known[:, None]
    sums = rated.draws.sums(np.hstack([member, member * np.where(known, values, 0.0)[:, None]]))
    count, total = np.split(sums, 2, axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan)


def mean_rows(rated: RatedQuestions, criteria: Sequence[str]) -> Rows:
    """The mean of every criterion and every metric by system (`of`: criterion or metric)."""
    names, member = rated.systems
    columns = [("criterion", name, rated.ratings(name)) for name in criteria]
    columns += [("metric", name, scores) for name, scores in rated.scores.items()]
    rows = []
    for kind, column, values in columns:
        means = means_of_systems(rated, values) if names else np.zeros((1, 0))
        for number, system in enumerate(names):
            used = np.flatnonzero((member[:, number] > 0) & np.isfinite(values))
            statistic = estimate(
                means[:, number], len(used), passages=rated.draws.units_of(used), why="no question has a value"
            )
            rows.append({"system": system, "of": kind, "name": column, **statistic.to_dict()})
    return rows


def replication_rows(first: RatedQuestions, second: RatedQuestions, criteria: Sequence[str]) -> Rows:
    """For every criterion the correlation of the systems' mean ratings in two files, over the systems of both; draws
    take the passages of each file apart. `only_first` and `only_second` count systems without a counterpart.
    """
    rows = []
    for criterion in criteria:
        parts = []
        for rated in (first, second):
            means = means_of_systems(rated, rated.ratings(criterion))
            parts.append({name: means[:, at] for at, name in enumerate(rated.systems[0]) if np.isfinite(means[0, at])})
        shared = [name for name in parts[0] if name in parts[1]]
        n = len(shared)
        counts = {"only_first": len(parts[0]) - n, "only_second": len(parts[1]) - n}
        units = min(first.draws.units_of(), second.draws.units_of())
        for coefficient, draws, x, y in _correlated(parts, shared):
            why = f"{n} systems in both files; a correlation needs {SYSTEMS}" if n < SYSTEMS else why_undefined(x, y)
            cells = estimate(draws, n, passages=units, why=why, bounds=CORRELATION).to_dict()
            p = coefficient_p(coefficient, float(draws[0]), x, y)
            rows.append(
                {"criterion": criterion, "coefficient": coefficient, **cells}
                | ({} if p is None else {"p": p})
                | counts
            )
    return rows


def _correlated(parts: Sequence[dict[str, Floats]], shared: Sequence[str]) -> list[tuple[str, Floats, Floats, Floats]]:
    """Each coefficient with its values in all draws, and both columns of the data."""
    if len(shared) < SYSTEMS:
        return [(name, np.full(2, np.nan), np.zeros(0), np.zeros(0)) for name in COEFFICIENTS]
    x, y = (np.column_stack([part[name] for name in shared]) for part in parts)
    whole = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
    values = {name: np.full(len(x), np.nan) for name in COEFFICIENTS}
    for name, draws in row_correlations(x[whole], y[whole]).items():
        values[name][whole] = draws
    return [(name, draws, x[0], y[0]) for name, draws in values.items()]
