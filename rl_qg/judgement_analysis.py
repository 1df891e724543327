"""What metrics and people say of the same questions: correlations, tests, pairs, classes, redundancy, agreement.

All numbers of one file of judgements share the same draws of passages (`rl_qg.passage_draws`), at question level and
at system level. Metrics that are better when lower are turned round first: a higher correlation is better throughout.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from rl_qg.agreement import LEVELS, fleiss_kappa, krippendorff_alpha
from rl_qg.correlation import COEFFICIENTS, correlations, is_constant, row_correlations
from rl_qg.judgements import Judgement
from rl_qg.passage_draws import Draws, Floats, estimate
from rl_qg.question_types import TYPES, question_type
from rl_qg.redundancy import folds_of, forward_selection
from rl_qg.roc import auc_draws
from rl_qg.significance import not_worse_than_the_best, pair_rows, pearson_between
from rl_qg.win_loss import win_loss

Rows = list[dict[str, Any]]
FEWEST = 20  # questions of a type of which a correlation is given
SYSTEMS = 3


@dataclass(frozen=True)
class Judged:
    """Rated questions with the scores of every metric, NaN where there is none."""

    judgements: Sequence[Judgement]
    scores: Mapping[str, Floats]
    draws: Draws
    language: str

    @cached_property
    def types(self) -> NDArray[np.str_]:
        """The type of each question."""
        return np.array([question_type(judgement.row.question, self.language) for judgement in self.judgements])

    @cached_property
    def systems(self) -> tuple[list[str], Floats]:
        """The systems, and which of them asked each question (questions, systems)."""
        names = sorted({name for judgement in self.judgements for name in judgement.systems})
        member = np.array([[name in judgement.systems for name in names] for judgement in self.judgements])
        return names, member.reshape(len(self.judgements), len(names)).astype(np.float64)

    def ratings(self, criterion: str) -> Floats:
        """The human rating of each question, NaN where there is none."""
        return np.array([judgement.human.get(criterion, np.nan) for judgement in self.judgements])

    def rows(self, name: str, ratings: Floats) -> NDArray[np.intp]:
        """The questions that have both a score and a rating."""
        return np.flatnonzero(np.isfinite(self.scores[name]) & np.isfinite(ratings))


def analyse(judged: Judged, criteria: Sequence[str], *, folds: int, steps: int, seed: int) -> dict[str, Rows]:
    """Every table as plain rows; `differences` holds one row for every two metrics, criterion, level, coefficient."""
    found: dict[str, Rows] = {name: [] for name in ("correlations", "by_type", "differences", "best", "win_loss")}
    found |= {name: [] for name in ("auc", "redundancy", "agreement")}
    for criterion in tqdm(criteria, desc="correlate", unit="criterion"):
        ratings = judged.ratings(criterion)
        levels = {"question": _questions(judged, ratings), "system": _systems(judged, ratings)}
        for level, by_metric in levels.items():
            for one in by_metric:
                for coefficient in COEFFICIENTS:
                    found["correlations"].append(
                        {"criterion": criterion, "level": level, "metric": one.metric, "coefficient": coefficient}
                        | estimate(one.draws[coefficient], one.n, why=one.why).to_dict()
                    )
            for coefficient in COEFFICIENTS:
                rows, best = _tests(by_metric, coefficient)
                named = {"criterion": criterion, "level": level, "coefficient": coefficient}
                found["differences"] += [named | row for row in rows]
                found["best"].append(named | {"metrics": best})
        tables: tuple[tuple[str, Iterable[dict[str, Any]]], ...] = (
            ("by_type", _by_type(judged, ratings)),
            ("win_loss", _win_loss(judged, ratings)),
            ("auc", _auc(judged, ratings)),
            ("redundancy", _redundancy(judged, ratings, folds, steps, seed)),
            ("agreement", _agreement(judged, criterion)),
        )
        for key, table in tables:
            found[key] += [{"criterion": criterion, **row} for row in table]
    return found


@dataclass(frozen=True)
class _Correlated:
    """A metric's coefficients in the data and in all draws; `values` is what was correlated, for Williams' test."""

    metric: str
    draws: Mapping[str, Floats]
    n: int
    why: str
    rows: NDArray[np.intp]
    values: Floats


def _questions(judged: Judged, ratings: Floats) -> list[_Correlated]:
    found = []
    for name, scores in judged.scores.items():
        rows = judged.rows(name, ratings)
        x, y = scores[rows], ratings[rows]
        why = _why(x, y)
        found.append(_Correlated(name, correlations(x, y, judged.draws, rows), len(rows), why, rows, x))
    return found


def _systems(judged: Judged, ratings: Floats) -> list[_Correlated]:
    """Correlations of the systems' means; a draw in which a system has no question is undefined."""
    names, member = judged.systems
    found = []
    for name, scores in judged.scores.items() if names else ():
        rows = judged.rows(name, ratings)
        own = member[rows]
        sums = judged.draws.sums_of_passages(
            judged.draws.by_passage(np.hstack([own, own * scores[rows][:, None], own * ratings[rows][:, None]]), rows)
        ).reshape(-1, 3, len(names))
        there = sums[0, 0] > 0
        sums = sums[:, :, there]
        n = int(there.sum())
        values = {coefficient: np.full(len(sums), np.nan) for coefficient in COEFFICIENTS}
        why = f"{n} systems with ratings; a correlation needs {SYSTEMS}"
        means = np.zeros((1, 2, n))
        if n >= SYSTEMS:
            whole = (sums[:, 0] > 0).all(axis=1)
            means = sums[whole, 1:] / sums[whole, :1]
            for coefficient, draws in row_correlations(means[:, 0], means[:, 1]).items():
                values[coefficient][whole] = draws
            why = _why(means[0, 0], means[0, 1])
        found.append(_Correlated(name, values, n, why, np.flatnonzero(there), means[0, 0]))
    return found


def _why(x: Floats, y: Floats) -> str:
    """Why a correlation is not defined."""
    if len(x) < 2:
        return "fewer than two values"
    return "all ratings are equal" if is_constant(y) else "all scores are equal" if is_constant(x) else "not defined"


def _tests(by_metric: Sequence[_Correlated], coefficient: str) -> tuple[Rows, list[str]]:
    """All pairs of metrics that are about the same questions, and the metrics that nothing is better than."""
    defined = {one.metric: one for one in by_metric if np.isfinite(one.draws[coefficient][0])}
    if not defined:
        return [], []
    most = max((one.rows for one in defined.values()), key=len)
    same = {name: one for name, one in defined.items() if np.array_equal(one.rows, most)}
    between = None
    if coefficient == "pearson":
        between = {
            (first, second): pearson_between(same[first].values, same[second].values)
            for first in same
            for second in same
        }
    rows = pair_rows({name: one.draws[coefficient] for name, one in same.items()}, len(most), between)
    values = {name: float(one.draws[coefficient][0]) for name, one in same.items()}
    return rows, not_worse_than_the_best(rows, values)


def _by_type(judged: Judged, ratings: Floats) -> Iterator[dict[str, Any]]:
    for name, scores in judged.scores.items():
        rows = judged.rows(name, ratings)
        for kind in TYPES:
            own = rows[judged.types[rows] == kind]
            if not len(own):
                continue
            row: dict[str, Any] = {"metric": name, "type": kind, "n": len(own)}
            x, y = scores[own], ratings[own]
            enough = len(own) >= FEWEST
            draws = correlations(x, y, judged.draws, own) if enough else {}
            why = _why(x, y) if enough else f"fewer than {FEWEST} questions"
            for coefficient in COEFFICIENTS:
                values = draws.get(coefficient, np.full(2, np.nan))
                yield {**row, "coefficient": coefficient, **estimate(values, len(own), why=why).to_dict()}


def _win_loss(judged: Judged, ratings: Floats) -> Iterator[dict[str, Any]]:
    for name, scores in judged.scores.items():
        rows = judged.rows(name, ratings)
        items = [judged.judgements[row].item for row in rows]
        shares, pairs, draws = win_loss(scores[rows], ratings[rows], items, judged.draws, rows)
        accuracy = estimate(draws, pairs, why="no two questions about one item have different ratings").to_dict()
        yield {
            "metric": name,
            "pairs": pairs,
            **{key: share.value for key, share in shares.items()},
            **{key: accuracy[key] for key in ("value", "low", "high")},
            **({"why": accuracy["why"]} if "why" in accuracy else {}),
        }


def _auc(judged: Judged, ratings: Floats) -> Iterator[dict[str, Any]]:
    """For a criterion with two values: how well each metric tells the higher one from the lower."""
    values = np.unique(ratings[np.isfinite(ratings)])
    for name, scores in judged.scores.items() if len(values) == 2 else ():
        rows = judged.rows(name, ratings)
        good = ratings[rows] == values[1]
        draws = auc_draws(scores[rows], good, judged.draws, rows)
        shown = {"metric": name, "good": int(good.sum()), "bad": int((~good).sum())}
        yield {**shown, **estimate(draws, len(rows), why="one class alone").to_dict()}


def _redundancy(judged: Judged, ratings: Floats, folds: int, steps: int, seed: int) -> Rows:
    """Forward selection among the metrics that have a score wherever most of them have one."""
    counts = {name: len(judged.rows(name, ratings)) for name in judged.scores}
    most = max(counts.values(), default=0)
    names = [name for name, count in counts.items() if count >= 0.9 * most]
    if not most or not steps:
        return []
    table = np.column_stack([judged.scores[name] for name in names])
    whole = np.isfinite(table).all(axis=1) & np.isfinite(ratings)
    groups = [judgement.group for judgement, there in zip(judged.judgements, whole, strict=True) if there]
    if len(set(groups)) < 2 or is_constant(ratings[whole]):
        return []
    found = forward_selection(table[whole], ratings[whole], names, folds_of(groups, folds, seed), steps)
    return [{**row, "n": int(whole.sum()), "candidates": len(names)} for row in found]


def _agreement(judged: Judged, criterion: str) -> Iterator[dict[str, Any]]:
    ratings = [judgement.ratings.get(criterion, ()) for judgement in judged.judgements]
    if not any(ratings):
        return
    raters = max(map(len, ratings))
    for level in LEVELS:
        found = krippendorff_alpha(ratings, level, judged.draws)
        yield {"statistic": f"Krippendorff's α, {level}", "raters": raters, **found.to_dict()}
    yield {"statistic": "Fleiss' κ", "raters": raters, **fleiss_kappa(ratings, judged.draws).to_dict()}
