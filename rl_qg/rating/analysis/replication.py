"""Two studies of the same systems: how far their scores agree (QAScore, section 4.3.4 and table 7)."""

from typing import Any

import numpy as np

from rl_qg.confidence_intervals import CORRELATION, Floats, estimate
from rl_qg.evaluation.meta.correlation import COEFFICIENTS, row_correlations
from rl_qg.evaluation.meta.judgement_analysis import SYSTEMS, why_undefined
from rl_qg.evaluation.meta.raters import OVERALL
from rl_qg.evaluation.meta.significance import coefficient_p
from rl_qg.rating.analysis.scores import SystemScores

Rows = list[dict[str, Any]]


def replication_of_scores(first: SystemScores, second: SystemScores) -> Rows:
    """r, ρ and τ-b between the systems' scores in two studies, for each criterion of both and overall.

    Intervals are those of draws of each study's own raters and passages; `second` must have been drawn with another
    seed. `only_first` and `only_second` count systems that the other study does not have. `overall` is compared only
    where both have the same criteria.
    """
    same = {*first.criteria} == {*second.criteria}
    criteria = [name for name in first.criteria if name in second.criteria] + ([OVERALL] if same else [])
    rows = []
    for criterion in criteria:
        x, y, counts = _shared(first, second, criterion)
        n = x.shape[1]
        clusters = min(first.values.clusters, second.values.clusters)
        values = {name: np.full(len(x), np.nan) for name in COEFFICIENTS}
        if n >= SYSTEMS:
            whole = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
            for name, drawn in row_correlations(x[whole], y[whole]).items():
                values[name][whole] = drawn
        why = f"{n} systems in both; a correlation needs {SYSTEMS}" if n < SYSTEMS else why_undefined(x[0], y[0])
        for name, drawn in values.items():
            cells = estimate(drawn, n, passages=clusters, why=why, bounds=CORRELATION).to_dict()
            p = coefficient_p(name, float(drawn[0]), x[0], y[0])
            rows.append(
                {"criterion": criterion, "coefficient": name, **cells} | ({} if p is None else {"p": p}) | counts
            )
    return rows


def _shared(first: SystemScores, second: SystemScores, criterion: str) -> tuple[Floats, Floats, dict[str, int]]:
    """The scores of systems of both in the data and in draws, (1 + resamples, n) each."""
    parts = []
    for study in (first, second):
        drawn = study.values.combined()[:, :, (*study.criteria, OVERALL).index(criterion)]
        parts.append({name: drawn[:, at] for at, name in enumerate(study.systems) if np.isfinite(drawn[0, at])})
    names = [name for name in parts[0] if name in parts[1]]
    counts = {"only_first": len(parts[0]) - len(names), "only_second": len(parts[1]) - len(names)}
    draws = min(len(study.values.combined()) for study in (first, second))
    x, y = (np.array([part[name][:draws] for name in names]).reshape(len(names), -1).T for part in parts)
    return x, y, counts
