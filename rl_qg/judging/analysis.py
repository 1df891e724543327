"""Metrics and people on the same questions, as plain rows: correlations, tests, pairs, classes, redundancy, agreement,
means of systems, parts of the data, distributions, and the questions on which they differ most.

All numbers of one file of judgements share the same draws of passages (`rl_qg.stats.intervals`), at question level and
at system level. The sign of metrics that are better when lower is reversed first: a higher correlation is better
throughout.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.judging.judgements import AUTHORS, Judgement
from rl_qg.judging.redundancy import TRAINING, folds_of, forward_selection
from rl_qg.pages.results import NONE, Page, Table, joined_rows
from rl_qg.runtime.bars import ProgressBar
from rl_qg.stats.agreement import LEVELS, fleiss_kappa, krippendorff_alpha
from rl_qg.stats.correlation import (
    COEFFICIENTS,
    SYSTEMS,
    Pair,
    auc_draws,
    between,
    coefficient_p,
    correlations,
    is_constant,
    not_worse_than_the_best,
    pair_rows,
    row_correlations,
    why_undefined,
    win_loss,
)
from rl_qg.stats.intervals import CORRELATION, SHARE, Floats, PassageDraws, estimate
from rl_qg.text.question_types import OTHER, TYPES, question_type
from rl_qg.text.spans import sentence_texts

Rows = list[dict[str, Any]]
FEWEST = 20  # questions of a type that a correlation needs
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


# Means of systems, as in QG-Bench (EMNLP 2022), table 6; their correlation with those of a second run of the human
# evaluation, as in QAScore, section 4.3.4 and table 7.


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
    if len(shared) < SYSTEMS:
        return [(name, np.full(2, np.nan), np.zeros(0), np.zeros(0)) for name in COEFFICIENTS]
    x, y = (np.column_stack([part[name] for name in shared]) for part in parts)
    whole = np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1)
    values = {name: np.full(len(x), np.nan) for name in COEFFICIENTS}
    for name, draws in row_correlations(x[whole], y[whole]).items():
        values[name][whole] = draws
    return [(name, draws, x[0], y[0]) for name, draws in values.items()]


# Parts of the data, as in KPQA (NAACL 2021), table 9 (by system) and table 6 (answers of several sentences); criteria
# and metrics with each other, as in QG-Bench (EMNLP 2022), figures 5 and 6.


JUDGED, REFERENCES = "question", "references"
SENTENCES_OF = ("none", JUDGED, REFERENCES)
ONE, SEVERAL = "one sentence", "several sentences"


def breakdown_tables(rated: RatedQuestions, criteria: Sequence[str], sentences_of: str) -> dict[str, Rows]:
    """`by_system`, where there are two or more, and `by_subset`."""
    systems, member = rated.systems
    groups = {
        "by_system": {name: member[:, at] > 0 for at, name in enumerate(systems)} if len(systems) > 1 else {},
        "by_subset": subsets_of(rated.judgements, sentences_of),
    }
    tables: dict[str, Rows] = {}
    for table, masks in groups.items():
        column = table.removeprefix("by_")
        tables[table] = [
            {"criterion": criterion, **row}
            for criterion in (ProgressBar(criteria, desc=column, unit="criterion", leave=False) if masks else ())
            for row in breakdown(rated, rated.ratings(criterion), column, masks)
        ]
    return tables


def subsets_of(judgements: Sequence[Judgement], sentences_of: str = "none") -> Mapping[str, NDArray[np.bool_]]:
    """The questions (questions,) of every label in the file's field `subset`, and, where `sentences_of` names the
    judged text or its references, of those with one sentence and with several (in all references, for these).
    """
    names = dict.fromkeys(label for judgement in judgements for label in judgement.subsets)
    masks = {name: np.array([name in judgement.subsets for judgement in judgements]) for name in names}
    if sentences_of not in (JUDGED, REFERENCES):
        return masks
    texts = [
        (judgement.row.question,) if sentences_of == JUDGED else judgement.row.references or ()
        for judgement in judgements
    ]
    counts = np.array([min((len(sentence_texts(text)) for text in some), default=0) for some in texts])
    return {**masks, ONE: counts == 1, SEVERAL: counts > 1}


def pair_tables(rated: RatedQuestions, criteria: Sequence[str]) -> dict[str, Rows]:
    """`criterion_pairs` and `metric_pairs`: the coefficients of every two, on the questions that have both."""
    ratings = {name: rated.ratings(name) for name in criteria}
    return {
        "criterion_pairs": [*_pairs(ratings, "criterion")],
        "metric_pairs": [*_pairs(rated.scores, "metric")],
    }


def _pairs(columns: Mapping[str, Floats], kind: str) -> Iterator[dict[str, Any]]:
    from scipy.stats import kendalltau, pearsonr, spearmanr

    compute = dict(zip(COEFFICIENTS, (pearsonr, spearmanr, kendalltau), strict=True))
    for name, against in combinations(columns, 2):
        both = np.isfinite(columns[name]) & np.isfinite(columns[against])
        x, y = columns[name][both], columns[against][both]
        defined = len(x) > 1 and not is_constant(x) and not is_constant(y)
        for coefficient in COEFFICIENTS:
            row = {kind: name, "against": against, "coefficient": coefficient, "n": len(x)}
            value = float(compute[coefficient](x, y).statistic) if defined else None
            if value is None:
                yield {**row, "value": None, "why": why_undefined(x, y).replace("ratings", f"values of {against}")}
            else:
                yield {**row, "value": value, "p": coefficient_p(coefficient, value, x, y)}


# Scores by rating and ratings by system, as in QRelScore (EMNLP 2022), figures 3 and 7, and figure 6.


MOST_LEVELS = 6  # ratings that a table and a drawing tell apart
CLASSES = 5
_ROUNDING = 1e-9
QUANTILES = {"low": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "high": 0.95}


@dataclass(frozen=True)
class RatingLevels:
    """The ratings that are told apart, lowest first, and which of them each rating (n,) is; -1 where there is none."""

    labels: tuple[str, ...]
    index: NDArray[np.intp]


def rating_levels(ratings: Floats) -> RatingLevels:
    """Up to six distinct ratings as they are. Means of ratings on a scale of three to six steps, such as 1-3, are
    rounded to whole ratings, halves upwards. All others are in five classes of equal width.
    """
    known = np.isfinite(ratings)
    values = ratings[known]
    distinct = np.unique(values)
    index = np.full(len(ratings), -1, dtype=np.intp)
    if len(distinct) <= MOST_LEVELS:
        labels = [f"{value:g}" for value in distinct]
        index[known] = np.searchsorted(distinct, values)
    elif 1 < np.ptp(whole := np.floor(values + 0.5 + _ROUNDING)) < MOST_LEVELS:
        low, high = int(whole.min()), int(whole.max())
        labels = [str(level) for level in range(low, high + 1)]
        index[known] = (whole - low).astype(np.intp)
    else:
        edges = np.linspace(values.min(), values.max(), CLASSES + 1)
        labels = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges)]
        index[known] = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, CLASSES - 1)
    return RatingLevels(tuple(labels), index)


def distribution_tables(rated: RatedQuestions, criteria: Sequence[str]) -> dict[str, Rows]:
    return {
        "scores_by_rating": [row for criterion in criteria for row in _scores(rated, criterion)],
        "ratings_by_system": [row for criterion in criteria for row in _ratings(rated, criterion)],
    }


def _scores(rated: RatedQuestions, criterion: str) -> Rows:
    ratings = rated.ratings(criterion)
    levels = rating_levels(ratings)
    rows: Rows = []
    for name, scores in rated.scores.items():
        for number, label in enumerate(levels.labels):
            chosen = scores[(levels.index == number) & np.isfinite(scores)]
            row: dict[str, Any] = {"criterion": criterion, "metric": name, "rating": label, "n": len(chosen)}
            if len(chosen):
                quantiles = np.quantile(chosen, list(QUANTILES.values())).tolist()
                row |= {"mean": float(chosen.mean()), **dict(zip(QUANTILES, quantiles, strict=True))}
            rows.append(row)
    return rows


def _ratings(rated: RatedQuestions, criterion: str) -> Rows:
    """How many of a system's single ratings, or of its mean ratings where there are no single ones, are at each level;
    `mean` is that of the system's questions.
    """
    names, member = rated.systems
    means = rated.ratings(criterion)
    single = [
        [value for value in judgement.ratings.get(criterion, ()) if value is not None]
        for judgement in rated.judgements
    ]
    if rated.standardised or not any(single):
        single = [[value] if np.isfinite(value) else [] for value in means.tolist()]
    owner = np.repeat(np.arange(len(single)), [len(values) for values in single])
    levels = rating_levels(np.array([value for values in single for value in values], dtype=np.float64))
    rows: Rows = []
    for at, system in enumerate(names):
        chosen = levels.index[member[owner, at] > 0]
        known = means[(member[:, at] > 0) & np.isfinite(means)]
        for number, label in enumerate(levels.labels if len(chosen) else ()):
            count = int((chosen == number).sum())
            rows.append(
                {"criterion": criterion, "system": system, "rating": label, "count": count}
                | {
                    "fraction": count / len(chosen),
                    "n": len(chosen),
                    "mean": float(known.mean()),
                    "questions": len(known),
                }
            )
    return rows


# The questions with the largest difference of ranks, as in KPQA (NAACL 2021), section 5.4, and QRelScore, appendix E.


SHOWN = 10  # cases of a table of the page
MOST_TABLES = 24
LONGEST_PASSAGE = 300  # characters of the page


def disagreements(rated: RatedQuestions, criteria: Sequence[str], most: int) -> tuple[Rows, Rows]:
    """For every criterion and metric the `most` questions with the largest difference of ranks, largest first; and how
    many of these cases are of each type of question, with the number of rated questions of that type.

    Ranks count from 1, the best; equal values share their mean rank. A positive `difference` says that the metric
    places the question higher than people do.
    """
    from scipy.stats import rankdata

    cases: Rows = []
    types: Rows = []
    for criterion in criteria if most else ():
        ratings = rated.ratings(criterion)
        for name, scores in rated.scores.items():
            rows = rated.rows(name, ratings)
            people, metric = rankdata(-ratings[rows]), rankdata(-scores[rows])
            order = np.argsort(-np.abs(people - metric), kind="stable")[:most]
            order = order[people[order] != metric[order]]
            key = {"criterion": criterion, "metric": name}
            for place, at in enumerate(order, 1):
                case = {**key, "place": place, "rank_people": float(people[at]), "rank_metric": float(metric[at])}
                case |= {"difference": float(people[at] - metric[at]), **_case(rated, rows[at])}
                cases.append(case | {"rating": float(ratings[rows[at]]), "score": float(scores[rows[at]])})
            every = Counter(rated.types[rows].tolist())
            found = Counter(rated.types[rows[order]].tolist())
            types += [
                {**key, "type": kind, "cases": found[kind], "of": len(order), "questions": count, "rated": len(rows)}
                for kind, count in every.most_common()
            ]
    return cases, types


def _case(rated: RatedQuestions, number: int) -> dict[str, Any]:
    judgement = rated.judgements[number]
    texts = {"question": judgement.row.question, "answer": judgement.row.answer, "context": judgement.row.context}
    about = {"type": str(rated.types[number]), "system": ", ".join(judgement.systems), "where": judgement.row.where}
    return about | texts


def disagreement_page(title: str, cases: Rows, types: Rows, signatures: Mapping[str, str]) -> Page:
    """The first cases of every criterion and metric, of the metrics computed here before those of the data's authors,
    with the types of all cases.
    """
    parts = list(dict.fromkeys((row["criterion"], row["metric"]) for row in cases))
    parts.sort(key=lambda part: part[1].startswith(AUTHORS))
    tables = [_types_table(types)] if types else []
    for criterion, metric in parts[:MOST_TABLES]:
        chosen = [row for row in cases if (row["criterion"], row["metric"]) == (criterion, metric)]
        note = f"The {min(SHOWN, len(chosen))} of {len(chosen)} cases with the largest difference of ranks."
        tables.append(Table(f"{criterion}, {metric}", [*map(_line, chosen[:SHOWN])], note))
    facts = [
        "Ranks: 1 is the best; people rank by their mean rating, the metric by its score, over all rated questions."
    ]
    if len(parts) > MOST_TABLES:
        facts.append(f"{MOST_TABLES} of {len(parts)} tables are here; tables/disagreements.csv has all.")
    return Page("correlate", f"{title}: where metrics and people differ", facts, tables, signatures)


def _line(row: Mapping[str, Any]) -> dict[str, str]:
    passage = row["context"] or NONE
    if len(passage) > LONGEST_PASSAGE:
        passage = passage[: LONGEST_PASSAGE - 1].rstrip() + "…"
    return {
        "question": row["question"],
        "answer": row["answer"] or NONE,
        "passage": passage,
        "type": row["type"],
        "system": row["system"] or NONE,
        "rating": f"{row['rating']:.3g}",
        "score": f"{row['score']:.4g}",
        "rank by people": f"{row['rank_people']:,g}",
        "rank by metric": f"{row['rank_metric']:,g}",
    }


def _types_table(types: Rows) -> Table:
    lines = joined_rows(
        types,
        ("criterion", "metric"),
        lambda row: {"cases": str(row["of"]), row["type"]: f"{row['cases']} of {row['questions']:,}"},
    )
    return Table("Types of the cases", lines, "Cases of each type of question, of all rated questions of it.")
