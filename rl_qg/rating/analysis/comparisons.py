"""Whom people prefer, and how certain that is: every two systems, by draws and by rank tests, corrected by Holm.

Three tests of the same two systems, from the most to the least that they take into account:

- the difference of their scores in draws of raters and passages (`crossed_draws`), two-sided; the conclusion is
  drawn from this one;
- Wilcoxon's signed-rank test of pairs, two-sided: what one rater gave to both about one passage and answer;
- the rank-sum test of all questions of one against all of the other, one-sided in the direction of their means, as
  Ji et al. (ACL 2022) published it: it takes every question as independent.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, holm
from rl_qg.evaluation.meta.raters import OVERALL
from rl_qg.rating.analysis.rank_tests import rank_sum, signed_rank
from rl_qg.rating.analysis.scores import QuestionScores, SystemScores

Rows = list[dict[str, Any]]
CERTAIN = 0.05


def pair_rows(scores: QuestionScores, systems: SystemScores, *, of: str = OVERALL) -> Rows:
    """One row for every two systems, the one with the higher score first; `of` is a criterion or `overall`."""
    column = (*systems.criteria, OVERALL).index(of)
    order = sorted(range(len(systems.systems)), key=lambda at: -np.nan_to_num(systems.data[at, column], nan=-np.inf))
    order = [at for at in order if np.isfinite(systems.data[at, column])]
    values = scores.with_overall()[:, column]
    of_pairs = _paired_means(scores, values)
    rows = []
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            rows.append(_pair(scores, systems, values, of_pairs, first, second, column))
    for key in ("p", "p_rank_sum", "p_paired"):
        tested = [row for row in rows if row[key] is not None]
        for row, corrected in zip(tested, holm([row[key] for row in tested]), strict=True):
            row[f"{key}_holm"] = corrected
    return rows


def _pair(
    scores: QuestionScores,
    systems: SystemScores,
    values: Floats,
    of_pairs: Floats,
    first: int,
    second: int,
    column: int,
) -> dict[str, Any]:
    gap = systems.values.map(lambda part: part[:, first, column] - part[:, second, column])
    questions = [values[(scores.member[:, at] > 0) & ~np.isnan(values)] for at in (first, second)]
    cells = gap.estimate(int(systems.questions[[first, second]].sum())).to_dict()
    ranks = rank_sum(*questions)
    both = of_pairs[:, [first, second]]
    both = both[~np.isnan(both).any(axis=1)]
    gaps = both[:, 0] - both[:, 1]
    sides = [test.p for a, b in ((0, 1), (1, 0)) if (test := signed_rank(both[:, a], both[:, b])) is not None]
    return {
        "preferred": systems.systems[first],
        "to": systems.systems[second],
        **{"difference": cells.pop("value"), **cells},
        "p": gap.p(),
        "p_rank_sum": None if ranks is None else ranks.p,
        "pairs": len(gaps),
        "paired_difference": float(gaps.mean()) if len(gaps) else None,
        "higher": int((gaps > 1e-9).sum()),
        "equal": int((np.abs(gaps) <= 1e-9).sum()),
        "lower": int((gaps < -1e-9).sum()),
        "p_paired": min(1.0, 2 * min(sides)) if sides else None,
    }


def _paired_means(scores: QuestionScores, values: Floats) -> Floats:
    """The mean of each system's questions by rater and item, (rater-item pairs, systems), NaN where there is none."""
    pairs = np.unique(np.column_stack([scores.rater, scores.item]), axis=0, return_inverse=True)[1].reshape(-1)
    known = ~np.isnan(values)
    member = scores.member * known[:, None]
    sums, counts = (np.zeros((int(pairs.max(initial=-1)) + 1, member.shape[1])) for _ in range(2))
    np.add.at(sums, pairs, member * np.where(known, values, 0.0)[:, None])
    np.add.at(counts, pairs, member)
    with np.errstate(invalid="ignore"):
        return np.where(counts > 0, sums / counts, np.nan)


def conclusion(rows: Rows, unit: str = "z") -> list[str]:
    """What the pairs say: a sentence for each, or, of more than three systems, one for the best two and one for the
    best against all others.
    """
    if len(rows) <= 3:
        return [preference(row, unit) for row in rows]
    best = [row for row in rows if row["preferred"] == rows[0]["preferred"]]
    certain = [row["to"] for row in best if (row.get("p_holm") or 1.0) < CERTAIN]
    other = [row["to"] for row in best if row["to"] not in certain]
    text = f"best is {rows[0]['preferred']}: "
    text += f"people prefer it to {', '.join(certain)} (p (Holm) < {CERTAIN:g})" if certain else ""
    text += ("; " if certain and other else "") + (f"not certain for {', '.join(other)}" if other else "")
    return [preference(rows[0], unit), text]


def preference(row: Mapping[str, Any], unit: str = "z") -> str:
    """One pair as a sentence: "people prefer scst to ce: +0.21 z [0.08, 0.35], p (Holm) 0.003"."""
    p = row.get("p_holm")
    who = f"people prefer {row['preferred']} to {row['to']}"
    if p is None or p >= CERTAIN:
        who = f"it is not certain that {who}"
    text = f"{who}: {row['difference']:+.2f} {unit}"
    if row.get("low") is not None:
        text += f" [{row['low']:.2f}, {row['high']:.2f}]"
    return text + (f", p (Holm) {p:.3f}" if p is not None and p >= 0.001 else ", p (Holm) < 0.001" if p else "")


def certain_pairs(rows: Sequence[Mapping[str, Any]], key: str = "p_holm") -> int:
    """How many pairs have a p below 0.05."""
    return sum(row.get(key) is not None and row[key] < CERTAIN for row in rows)
