"""Metrics and people on the same questions: correlations, tests, pairs, classes, redundancy, agreement.

All numbers of one file of judgements share the same draws of passages (`rl_qg.confidence_intervals`), at question
level and at system level. The sign of metrics that are better when lower is reversed first: a higher correlation is
better throughout.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import CORRELATION, SHARE, Floats, PassageDraws, estimate
from rl_qg.evaluation.meta.agreement import LEVELS, fleiss_kappa, krippendorff_alpha
from rl_qg.evaluation.meta.correlation import COEFFICIENTS, correlations, is_constant, row_correlations
from rl_qg.evaluation.meta.judgements import Judgement
from rl_qg.evaluation.meta.pair_order import auc_draws, win_loss
from rl_qg.evaluation.meta.redundancy import TRAINING, folds_of, forward_selection
from rl_qg.evaluation.meta.significance import Pair, between, coefficient_p, not_worse_than_the_best, pair_rows
from rl_qg.runtime.bars import ProgressBar
from rl_qg.text.question_types import OTHER, TYPES, question_type

Rows = list[dict[str, Any]]
FEWEST = 20  # questions of a type that a correlation needs
SYSTEMS = 3  # systems that a correlation needs
WHOLE = 0.9  # fraction of the questions of the metric with most scores that a metric needs for the regression


@dataclass(frozen=True)
class Selection:
    """Options of forward selection: folds and how often they are drawn anew, steps, seed, and `select_on` (see
    `forward_selection`).
    """

    folds: int
    repeats: int
    steps: int
    seed: int
    select_on: str


@dataclass(frozen=True)
class RatedQuestions:
    """Rated questions with the scores of every metric, NaN where there is none; `standardised`: the ratings that count
    are not those that the raters gave.
    """

    judgements: Sequence[Judgement]
    scores: Mapping[str, Floats]
    draws: PassageDraws
    language: str
    standardised: bool = False

    @cached_property
    def types(self) -> NDArray[np.str_]:
        """The type of each question: the one given, else the one that its words show."""
        return np.array(
            [judgement.type or question_type(judgement.row.question, self.language) for judgement in self.judgements]
        )

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


def analyse(
    rated: RatedQuestions, criteria: Sequence[str], selection: Selection, *, min_gap: float = 0.0
) -> dict[str, Rows]:
    """Every table as plain rows; `differences` holds one row for every two metrics, criterion, level, coefficient.

    `min_gap` is how far the ratings of a pair of questions must lie apart to count in `win_loss`.
    """
    tables: dict[str, Rows] = {name: [] for name in ("correlations", "by_type", "differences", "best", "win_loss")}
    tables |= {name: [] for name in ("auc", "redundancy", "redundancy_chosen", "redundancy_left_out", "agreement")}
    for criterion in ProgressBar(criteria, desc="correlate", unit="criterion"):
        ratings = rated.ratings(criterion)
        for level, correlated in (("question", _questions), ("system", _systems)):
            comparison = _Comparison(rated, ratings, correlated)
            key = {"criterion": criterion, "level": level}
            for metric in comparison.metrics.values():
                for coefficient in COEFFICIENTS:
                    cells = metric.cells(coefficient)
                    tables["correlations"].append(
                        {**key, "metric": metric.metric, "coefficient": coefficient, **cells}
                    )
            for coefficient in COEFFICIENTS:
                rows, best, untested = comparison.tests(coefficient)
                key |= {"coefficient": coefficient}
                tables["differences"] += [{**key, **row} for row in rows]
                if best:
                    tables["best"].append({**key, "metrics": best, "not_tested": untested})
        redundancy, chosen, left_out = _redundancy(rated, ratings, selection)
        further: tuple[tuple[str, Iterable[dict[str, Any]]], ...] = (
            ("by_type", _by_type(rated, ratings)),
            ("win_loss", _win_loss(rated, ratings, min_gap)),
            ("auc", _auc(rated, ratings)),
            ("redundancy", redundancy),
            ("redundancy_chosen", chosen),
            ("redundancy_left_out", left_out),
            ("agreement", _agreement(rated, criterion)),
        )
        for name, table in further:
            tables[name] += [{"criterion": criterion, **row} for row in table]
    return tables


@dataclass(frozen=True)
class _Correlated:
    """A metric's coefficients in the data and in all draws, of n questions or systems, made of the questions `rows`
    about so many passages (`PassageDraws.units_of`); `values` is what was correlated with `ratings`, for tests.
    """

    metric: str
    draws: Mapping[str, Floats]
    n: int
    passages: float
    why: str
    values: Floats
    ratings: Floats

    def cells(self, coefficient: str) -> dict[str, Any]:
        """The value of a coefficient with its interval, and the p-value of "no association"."""
        draws = self.draws[coefficient]
        statistic = estimate(draws, self.n, passages=self.passages, why=self.why, bounds=CORRELATION).to_dict()
        p = coefficient_p(coefficient, float(draws[0]), self.values, self.ratings)
        return statistic | ({} if p is None else {"p": p})


class _Comparison:
    """The metrics of one criterion at one level; two of them are compared on the questions that both have a score for.

    Args:
        rated: the questions.
        ratings: of the criterion.
        correlated: `_questions` or `_systems`.

    Attributes:
        metrics: each metric on its own questions.
    """

    def __init__(self, rated: RatedQuestions, ratings: Floats, correlated: Callable[..., _Correlated | None]) -> None:
        self._of = lambda name, rows: correlated(rated, ratings, name, rows)
        self._known: dict[tuple[str, bytes], _Correlated | None] = {}
        self._rows = {name: rated.rows(name, ratings) for name in rated.scores}
        computed = {name: self._at(name, rows) for name, rows in self._rows.items()}
        self.metrics = {name: metric for name, metric in computed.items() if metric is not None}

    def _at(self, name: str, rows: NDArray[np.intp]) -> _Correlated | None:
        key = name, rows.tobytes()
        if key not in self._known:
            self._known[key] = self._of(name, rows)
        return self._known[key]

    def tests(self, coefficient: str) -> tuple[Rows, list[str], list[str]]:
        """All pairs of metrics; the metrics than which none is better; and those not tested against the best."""
        rows = pair_rows(self._pairs(coefficient))
        values = {name: float(metric.draws[coefficient][0]) for name, metric in self.metrics.items()}
        defined = {name: value for name, value in values.items() if np.isfinite(value)}
        return rows, *not_worse_than_the_best(rows, defined)

    def _pairs(self, coefficient: str) -> Iterator[Pair]:
        for name, against in combinations(self.metrics, 2):
            rows = np.intersect1d(self._rows[name], self._rows[against], assume_unique=True)
            first, second = self._at(name, rows), self._at(against, rows)
            if first is None or second is None:
                continue
            draws = first.draws[coefficient], second.draws[coefficient]
            alike = between(coefficient, first.values, second.values)
            yield Pair(name, against, *draws, first.n, first.passages, alike)


def _questions(rated: RatedQuestions, ratings: Floats, name: str, rows: NDArray[np.intp]) -> _Correlated:
    x, y = rated.scores[name][rows], ratings[rows]
    draws = correlations(x, y, rated.draws, rows)
    return _Correlated(name, draws, len(rows), rated.draws.units_of(rows), why_undefined(x, y), x, y)


def _systems(rated: RatedQuestions, ratings: Floats, name: str, rows: NDArray[np.intp]) -> _Correlated | None:
    """Correlations of the systems' means, undefined in a draw that lacks one of the systems; None without systems."""
    names, member = rated.systems
    if not names:
        return None
    members, columns = member[rows], (rated.scores[name][rows, None], ratings[rows, None])
    table = rated.draws.by_passage(np.hstack([members, *(members * column for column in columns)]), rows)
    sums = rated.draws.sums_of_passages(table).reshape(-1, 3, len(names))
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
        why = why_undefined(means[0, 0], means[0, 1])
    return _Correlated(name, values, n, rated.draws.units_of(rows), why, *means[0])


def why_undefined(x: Floats, y: Floats) -> str:
    """Why a correlation is not defined."""
    if len(x) < 2:
        return "fewer than two values"
    return "all ratings are equal" if is_constant(y) else "all scores are equal" if is_constant(x) else "not defined"


def _by_type(rated: RatedQuestions, ratings: Floats) -> Iterator[dict[str, Any]]:
    """Nothing where no question has a type, as under `language=other`; the types that the rules know come first."""
    if (rated.types == OTHER).all():
        return
    groups = {kind: rated.types == kind for kind in dict.fromkeys((*TYPES, *rated.types.tolist()))}
    yield from breakdown(rated, ratings, "type", groups)


def breakdown(
    rated: RatedQuestions, ratings: Floats, column: str, groups: Mapping[str, NDArray[np.bool_]]
) -> Iterator[dict[str, Any]]:
    """The coefficients of every metric on the questions of each group, a mask (questions,); `column` names groups.

    A group without a question with score and rating has no row, one with fewer than `FEWEST` no value.
    """
    for name, scores in rated.scores.items():
        rows = rated.rows(name, ratings)
        for label, member in groups.items():
            chosen = rows[member[rows]]
            n = len(chosen)
            if not n:
                continue
            x, y = scores[chosen], ratings[chosen]
            enough = n >= FEWEST
            unknown = {coefficient: np.full(2, np.nan) for coefficient in COEFFICIENTS}
            draws = correlations(x, y, rated.draws, chosen) if enough else unknown
            why = why_undefined(x, y) if enough else f"fewer than {FEWEST} questions"
            correlated = _Correlated(name, draws, n, rated.draws.units_of(chosen), why, x, y)
            for coefficient in COEFFICIENTS:
                yield {
                    **{"metric": name, column: label, "n": n, "coefficient": coefficient},
                    **correlated.cells(coefficient),
                }


def _win_loss(rated: RatedQuestions, ratings: Floats, min_gap: float) -> Iterator[dict[str, Any]]:
    for name, scores in rated.scores.items():
        rows = rated.rows(name, ratings)
        items = [rated.judgements[row].item for row in rows]
        fractions, pairs, alike = win_loss(scores[rows], ratings[rows], items, rated.draws, rows, min_gap)
        shares = {key: fraction.value for key, fraction in fractions.items()}
        interval = {key: value for key, value in alike.to_dict().items() if key != "n"}
        yield {"metric": name, "min_gap": min_gap, "pairs": pairs, **shares, **interval}


def _auc(rated: RatedQuestions, ratings: Floats) -> Iterator[dict[str, Any]]:
    """For a criterion with two values: how well each metric separates the higher one from the lower."""
    values = np.unique(ratings[np.isfinite(ratings)])
    for name, scores in rated.scores.items() if len(values) == 2 else ():
        rows = rated.rows(name, ratings)
        good = ratings[rows] == values[1]
        draws = auc_draws(scores[rows], good, rated.draws, rows)
        counts = {"metric": name, "good": int(good.sum()), "bad": int((~good).sum())}
        units = rated.draws.units_of(rows)
        area = estimate(draws, len(rows), passages=units, why="one class alone", bounds=SHARE)
        yield {**counts, **area.to_dict()}


def _redundancy(rated: RatedQuestions, ratings: Floats, selection: Selection) -> tuple[Rows, Rows, Rows]:
    """Forward selection among the metrics that have a score wherever most of them have one, on the questions for which
    all of these have one; how often each was added at each step; and the metrics left out. `n` of `of` rated
    questions: used, or with a score.
    """
    counts = {name: len(rated.rows(name, ratings)) for name in rated.scores}
    most = max(counts.values(), default=0)
    names = [name for name, count in counts.items() if count >= WHOLE * most]
    if not most or not selection.steps:
        return [], [], []
    table = np.column_stack([rated.scores[name] for name in names])
    whole = np.isfinite(table).all(axis=1) & np.isfinite(ratings)
    groups = [judgement.group for judgement, used in zip(rated.judgements, whole, strict=True) if used]
    fewest = 3 if selection.select_on == TRAINING else 2
    if len(set(groups)) < fewest or is_constant(ratings[whole]):
        return [], [], []
    folds = [folds_of(groups, selection.folds, selection.seed + number) for number in range(selection.repeats)]
    taken = forward_selection(table[whole], ratings[whole], names, folds, selection.steps, selection.select_on)
    total = int(np.isfinite(ratings).sum())
    used = {"n": int(whole.sum()), "of": total, "candidates": len(names)}
    left_out = [{"metric": name, "n": count, "of": total} for name, count in counts.items() if name not in names]
    chosen = [{"step": row["step"], "metric": name, "n": n} for row in taken for name, n in row["chosen"].items()]
    return [row | used | {"chosen": row["chosen"][row["metric"]]} for row in taken], chosen, left_out


def _agreement(rated: RatedQuestions, criterion: str) -> Iterator[dict[str, Any]]:
    ratings = [judgement.ratings.get(criterion, ()) for judgement in rated.judgements]
    if not any(ratings):
        return
    raters = max(map(len, ratings))
    for level in LEVELS:
        alpha = krippendorff_alpha(ratings, level, rated.draws)
        yield {"statistic": f"Krippendorff's α, {level}", "raters": raters, **alpha.to_dict()}
    yield {"statistic": "Fleiss' κ", "raters": raters, **fleiss_kappa(ratings, rated.draws).to_dict()}
