"""What metrics and people say of the same questions: correlations, tests, pairs, classes, redundancy, agreement.

All numbers of one file of judgements share the same draws of passages (`rl_qg.confidence_intervals`), at question
level and at system level. Metrics that are better when lower are turned round first: a higher correlation is better
throughout.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from rl_qg.confidence_intervals import Floats, PassageDraws, estimate
from rl_qg.evaluation.meta.agreement import LEVELS, fleiss_kappa, krippendorff_alpha
from rl_qg.evaluation.meta.correlation import COEFFICIENTS, correlations, is_constant, row_correlations
from rl_qg.evaluation.meta.judgements import Judgement
from rl_qg.evaluation.meta.pair_order import auc_draws, win_loss
from rl_qg.evaluation.meta.redundancy import folds_of, forward_selection
from rl_qg.evaluation.meta.significance import Pair, not_worse_than_the_best, pair_rows, pearson_between
from rl_qg.text.question_types import OTHER, TYPES, question_type

Rows = list[dict[str, Any]]
FEWEST = 20  # questions of a type of which a correlation is given
SYSTEMS = 3
WHOLE = 0.9  # of the questions of the metric with most scores: what a metric needs to be in the regression


@dataclass(frozen=True)
class Judged:
    """Rated questions with the scores of every metric, NaN where there is none."""

    judgements: Sequence[Judgement]
    scores: Mapping[str, Floats]
    draws: PassageDraws
    language: str

    @cached_property
    def types(self) -> NDArray[np.str_]:
        """The type of each question: the one given, else what its words tell."""
        return np.array([one.type or question_type(one.row.question, self.language) for one in self.judgements])

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
    found |= {name: [] for name in ("auc", "redundancy", "redundancy_left_out", "agreement")}
    for criterion in tqdm(criteria, desc="correlate", unit="criterion"):
        ratings = judged.ratings(criterion)
        for level, correlated in (("question", _questions), ("system", _systems)):
            compared = _Compared(judged, ratings, correlated)
            named = {"criterion": criterion, "level": level}
            for one in compared.own.values():
                for coefficient in COEFFICIENTS:
                    shown = estimate(one.draws[coefficient], one.n, passages=one.passages, why=one.why).to_dict()
                    found["correlations"].append(named | {"metric": one.metric, "coefficient": coefficient} | shown)
            for coefficient in COEFFICIENTS:
                rows, best, untested = compared.tests(coefficient)
                named |= {"coefficient": coefficient}
                found["differences"] += [{**named, **row} for row in rows]
                if best:
                    found["best"].append({**named, "metrics": best, "not_tested": untested})
        redundancy, left_out = _redundancy(judged, ratings, folds, steps, seed)
        tables: tuple[tuple[str, Iterable[dict[str, Any]]], ...] = (
            ("by_type", _by_type(judged, ratings)),
            ("win_loss", _win_loss(judged, ratings)),
            ("auc", _auc(judged, ratings)),
            ("redundancy", redundancy),
            ("redundancy_left_out", left_out),
            ("agreement", _agreement(judged, criterion)),
        )
        for key, table in tables:
            found[key] += [{"criterion": criterion, **row} for row in table]
    return found


@dataclass(frozen=True)
class _Correlated:
    """A metric's coefficients in the data and in all draws, of n questions or systems, made of the questions `rows`
    about so many passages; `values` is what was correlated, for Williams' test.
    """

    metric: str
    draws: Mapping[str, Floats]
    n: int
    passages: int
    why: str
    values: Floats


class _Compared:
    """The metrics of one criterion at one level; two of them are compared on the questions that both have a score for.

    Args:
        judged: the questions.
        ratings: of the criterion.
        correlated: `_questions` or `_systems`.
    """

    def __init__(self, judged: Judged, ratings: Floats, correlated: Callable[..., _Correlated | None]) -> None:
        self._of = lambda name, rows: correlated(judged, ratings, name, rows)
        self._known: dict[tuple[str, bytes], _Correlated | None] = {}
        self._rows = {name: judged.rows(name, ratings) for name in judged.scores}
        found = {name: self._at(name, rows) for name, rows in self._rows.items()}
        self.own = {name: one for name, one in found.items() if one is not None}

    def _at(self, name: str, rows: NDArray[np.intp]) -> _Correlated | None:
        key = name, rows.tobytes()
        if key not in self._known:
            self._known[key] = self._of(name, rows)
        return self._known[key]

    def tests(self, coefficient: str) -> tuple[Rows, list[str], list[str]]:
        """All pairs of metrics; the metrics that nothing is better than; and those not tested against the best."""
        rows = pair_rows(self._pairs(coefficient))
        values = {name: float(one.draws[coefficient][0]) for name, one in self.own.items()}
        defined = {name: value for name, value in values.items() if np.isfinite(value)}
        return rows, *not_worse_than_the_best(rows, defined)

    def _pairs(self, coefficient: str) -> Iterator[Pair]:
        for one, other in combinations(self.own, 2):
            rows = np.intersect1d(self._rows[one], self._rows[other], assume_unique=True)
            first, second = self._at(one, rows), self._at(other, rows)
            if first is None or second is None:
                continue
            between = pearson_between(first.values, second.values) if coefficient == "pearson" else None
            draws = first.draws[coefficient], second.draws[coefficient]
            yield Pair(one, other, *draws, first.n, first.passages, between)


def _questions(judged: Judged, ratings: Floats, name: str, rows: NDArray[np.intp]) -> _Correlated:
    x, y = judged.scores[name][rows], ratings[rows]
    draws = correlations(x, y, judged.draws, rows)
    return _Correlated(name, draws, len(rows), judged.draws.passages_of(rows), _why(x, y), x)


def _systems(judged: Judged, ratings: Floats, name: str, rows: NDArray[np.intp]) -> _Correlated | None:
    """Correlations of the systems' means, undefined in a draw without a question of one; None without systems."""
    names, member = judged.systems
    if not names:
        return None
    own, columns = member[rows], (judged.scores[name][rows, None], ratings[rows, None])
    table = judged.draws.by_passage(np.hstack([own, *(own * column for column in columns)]), rows)
    sums = judged.draws.sums_of_passages(table).reshape(-1, 3, len(names))
    sums = sums[:, :, sums[0, 0] > 0]
    n = sums.shape[2]
    values = {coefficient: np.full(len(sums), np.nan) for coefficient in COEFFICIENTS}
    why = f"{n} systems with ratings; a correlation needs {SYSTEMS}"
    means = np.zeros((1, 2, n))
    if n >= SYSTEMS:
        whole = (sums[:, 0] > 0).all(axis=1)
        means = sums[whole, 1:] / sums[whole, :1]
        for coefficient, draws in row_correlations(means[:, 0], means[:, 1]).items():
            values[coefficient][whole] = draws
        why = _why(means[0, 0], means[0, 1])
    return _Correlated(name, values, n, judged.draws.passages_of(rows), why, means[0, 0])


def _why(x: Floats, y: Floats) -> str:
    """Why a correlation is not defined."""
    if len(x) < 2:
        return "fewer than two values"
    return "all ratings are equal" if is_constant(y) else "all scores are equal" if is_constant(x) else "not defined"


def _by_type(judged: Judged, ratings: Floats) -> Iterator[dict[str, Any]]:
    """Nothing where no question has a type, as under `language=other`."""
    if (judged.types == OTHER).all():
        return
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
                shown = estimate(values, len(own), passages=judged.draws.passages_of(own), why=why)
                yield {**row, "coefficient": coefficient, **shown.to_dict()}


def _win_loss(judged: Judged, ratings: Floats) -> Iterator[dict[str, Any]]:
    for name, scores in judged.scores.items():
        rows = judged.rows(name, ratings)
        items = [judged.judgements[row].item for row in rows]
        shares, pairs, alike = win_loss(scores[rows], ratings[rows], items, judged.draws, rows)
        yield {"metric": name, "pairs": pairs, **{key: share.value for key, share in shares.items()}} | {
            key: value for key, value in alike.to_dict().items() if key != "n"
        }


def _auc(judged: Judged, ratings: Floats) -> Iterator[dict[str, Any]]:
    """For a criterion with two values: how well each metric tells the higher one from the lower."""
    values = np.unique(ratings[np.isfinite(ratings)])
    for name, scores in judged.scores.items() if len(values) == 2 else ():
        rows = judged.rows(name, ratings)
        good = ratings[rows] == values[1]
        draws = auc_draws(scores[rows], good, judged.draws, rows)
        shown = {"metric": name, "good": int(good.sum()), "bad": int((~good).sum())}
        passages = judged.draws.passages_of(rows)
        yield {**shown, **estimate(draws, len(rows), passages=passages, why="one class alone").to_dict()}


def _redundancy(judged: Judged, ratings: Floats, folds: int, steps: int, seed: int) -> tuple[Rows, Rows]:
    """Forward selection among the metrics that have a score wherever most of them have one, on the questions for which
    all of these have one; and the metrics left out. `n` of `of` rated questions: used, or with a score.
    """
    counts = {name: len(judged.rows(name, ratings)) for name in judged.scores}
    most = max(counts.values(), default=0)
    names = [name for name, count in counts.items() if count >= WHOLE * most]
    if not most or not steps:
        return [], []
    table = np.column_stack([judged.scores[name] for name in names])
    whole = np.isfinite(table).all(axis=1) & np.isfinite(ratings)
    groups = [judgement.group for judgement, there in zip(judged.judgements, whole, strict=True) if there]
    if len(set(groups)) < 2 or is_constant(ratings[whole]):
        return [], []
    found = forward_selection(table[whole], ratings[whole], names, folds_of(groups, folds, seed), steps)
    rated = int(np.isfinite(ratings).sum())
    used = {"n": int(whole.sum()), "of": rated, "candidates": len(names)}
    left_out = [{"metric": name, "n": count, "of": rated} for name, count in counts.items() if name not in names]
    return [row | used for row in found], left_out


def _agreement(judged: Judged, criterion: str) -> Iterator[dict[str, Any]]:
    ratings = [judgement.ratings.get(criterion, ()) for judgement in judged.judgements]
    if not any(ratings):
        return
    raters = max(map(len, ratings))
    for level in LEVELS:
        found = krippendorff_alpha(ratings, level, judged.draws)
        yield {"statistic": f"Krippendorff's α, {level}", "raters": raters, **found.to_dict()}
    yield {"statistic": "Fleiss' κ", "raters": raters, **fleiss_kappa(ratings, judged.draws).to_dict()}
