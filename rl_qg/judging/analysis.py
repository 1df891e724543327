"""Metrics and people on the same questions, as plain rows: correlations, tests, pairs, classes, redundancy, agreement,
means of systems, parts of the data, distributions, and the questions on which they differ most.

All numbers of one file of judgements share the same draws of passages (`rl_qg.stats.intervals`), at question level and
at system level. The sign of metrics that are better when lower is reversed first: higher is always better.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.data.examples import by_key
from rl_qg.judging.judgements import AUTHORS, Judgement
from rl_qg.judging.redundancy import TRAINING, folds_of, forward_selection
from rl_qg.pages.results import NONE, Page, Table, joined_rows
from rl_qg.runtime.bars import ProgressBar
from rl_qg.settings import CorrelateSettings
from rl_qg.stats import correlation
from rl_qg.stats.agreement import agreement_of
from rl_qg.stats.intervals import SHARE, Floats, PassageDraws, estimate, quotient
from rl_qg.text.question_types import OTHER, TYPES, question_type
from rl_qg.text.spans import sentence_texts

Row = dict[str, Any]
Rows = list[Row]
Mask = NDArray[np.bool_]
FEWEST = 20  # questions of a type that a correlation needs
WHOLE = 0.9  # fraction of the questions of the metric with most scores that a metric needs for the regression
JUDGED, REFERENCES = "question", "references"
ONE, SEVERAL = "one sentence", "several sentences"
MOST_LEVELS, CLASSES = 6, 5  # ratings that a table and a drawing tell apart; classes of others
QUANTILES = {"low": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "high": 0.95}
SHOWN, MOST_TABLES = 10, 24  # cases of a table of the page, tables
LONGEST_PASSAGE = 300  # characters of the page
_ROUNDING = 1e-9
OF_CRITERIA = (
    *("correlations", "by_type", "differences", "best", "win_loss", "auc", "redundancy", "redundancy_chosen"),
    *("redundancy_left_out", "agreement", "by_system", "by_subset"),
)


@dataclass(frozen=True)
class RatedQuestions:
    """Rated questions with the scores of every metric, NaN where there is none, and how they are compared."""

    judgements: Sequence[Judgement]
    scores: Mapping[str, Floats]
    draws: PassageDraws
    settings: CorrelateSettings

    @cached_property
    def types(self) -> NDArray[np.str_]:
        """The type of each question: the one given, else the one that its words show."""
        language = self.settings.language
        return np.array([one.type or question_type(one.row.question, language) for one in self.judgements])

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


def analyse(rated: RatedQuestions, criteria: Sequence[str]) -> dict[str, Rows]:
    """Every table as plain rows; `differences` holds one row for every two metrics, criterion, level, coefficient."""
    tables: dict[str, Rows] = {name: [] for name in OF_CRITERIA}
    columns = {name: rated.ratings(name) for name in criteria}
    tables["criterion_pairs"] = [*_pairs(columns, "criterion")]
    tables["metric_pairs"] = [*_pairs(rated.scores, "metric")]
    tables |= {"means": mean_rows(rated, criteria), "scores_by_rating": [], "ratings_by_system": []}
    systems, member = rated.systems
    # Types that the rules know come first; none where no question has one, as under `language=other`.
    types = [] if (rated.types == OTHER).all() else dict.fromkeys((*TYPES, *rated.types.tolist()))
    groups = {
        "by_type": {kind: rated.types == kind for kind in types},
        "by_system": {name: member[:, at] > 0 for at, name in enumerate(systems)} if len(systems) > 1 else {},
        "by_subset": subsets_of(rated.judgements, rated.settings.sentences_of),
    }
    for criterion in ProgressBar(criteria, desc="correlate", unit="criterion"):
        ratings = columns[criterion]
        for level, correlated in (("question", _questions), ("system", _systems)):
            for name, rows in _compared(rated, ratings, correlated).items():
                tables[name] += [{"criterion": criterion, "level": level, **row} for row in rows]
        further: dict[str, Iterable[Row]] = {
            **{name: breakdown(rated, ratings, name.removeprefix("by_"), masks) for name, masks in groups.items()},
            "win_loss": _win_loss(rated, ratings),
            "auc": _auc(rated, ratings),
            **_redundancy(rated, ratings),
            "agreement": _agreement(rated, criterion),
            "scores_by_rating": _scores_by_rating(rated, ratings),
            "ratings_by_system": _ratings_by_system(rated, criterion),
        }
        for name, table in further.items():
            tables[name] += [{"criterion": criterion, **row} for row in table]
    return tables


def _compared(
    rated: RatedQuestions, ratings: Floats, correlated: Callable[..., correlation.Correlated | None]
) -> dict[str, Rows]:
    """`correlations` of each metric on its own questions; `differences` of two, on the questions that both have a
    score for; and which are the `best`. `correlated` is `_questions` or `_systems`.
    """
    known: dict[tuple[str, bytes], correlation.Correlated | None] = {}

    def at(name: str, rows: NDArray[np.intp]) -> correlation.Correlated | None:
        key = name, rows.tobytes()
        if key not in known:
            known[key] = correlated(rated, ratings, name, rows)
        return known[key]

    rows_of = {name: rated.rows(name, ratings) for name in rated.scores}
    own = {name: one for name, rows in rows_of.items() if (one := at(name, rows)) is not None}
    tables: dict[str, Rows] = {"correlations": [], "differences": [], "best": []}
    for name, one in own.items():
        tables["correlations"] += [
            {"metric": name, "coefficient": key, **one.cells(key)} for key in correlation.COEFFICIENTS
        ]
    for coefficient in correlation.COEFFICIENTS:
        pairs = []
        for name, against in combinations(own, 2):
            rows = np.intersect1d(rows_of[name], rows_of[against], assume_unique=True)
            first, second = at(name, rows), at(against, rows)
            if first is not None and second is not None:
                alike = correlation.between(coefficient, first.x, second.x)
                draws = first.draws[coefficient], second.draws[coefficient]
                pairs.append(correlation.Pair(name, against, *draws, first.n, first.passages, alike))
        tested = correlation.pair_rows(pairs)
        values = {name: float(one.draws[coefficient][0]) for name, one in own.items()}
        best, untested = correlation.not_worse_than_the_best(
            tested, {name: value for name, value in values.items() if np.isfinite(value)}
        )
        tables["differences"] += [{"coefficient": coefficient, **row} for row in tested]
        if best:
            tables["best"].append({"coefficient": coefficient, "metrics": best, "not_tested": untested})
    return tables


def _questions(rated: RatedQuestions, ratings: Floats, name: str, rows: NDArray[np.intp]) -> correlation.Correlated:
    x, y = rated.scores[name][rows], ratings[rows]
    draws = correlation.correlations(x, y, rated.draws, rows)
    return correlation.Correlated(draws, len(rows), rated.draws.units_of(rows), correlation.why_undefined(x, y), x, y)


def _systems(
    rated: RatedQuestions, ratings: Floats, name: str, rows: NDArray[np.intp]
) -> correlation.Correlated | None:
    """Correlations of the systems' means, undefined in a draw that lacks one of the systems; None without systems."""
    names, member = rated.systems
    if not names:
        return None
    members, columns = member[rows], (rated.scores[name][rows, None], ratings[rows, None])
    table = rated.draws.by_passage(np.hstack([members, *(members * column for column in columns)]), rows)
    sums = rated.draws.sums_of_passages(table).reshape(-1, 3, len(names))
    sums = sums[:, :, sums[0, 0] > 0]
    means = np.where((sums[:, :1] > 0).all(axis=2, keepdims=True), quotient(sums[:, 1:], sums[:, :1]), np.nan)
    why = f"{sums.shape[2]} systems with ratings; a correlation needs {correlation.SYSTEMS}"
    return correlation.correlated_systems(means[:, 0], means[:, 1], rated.draws.units_of(rows), why)


def subsets_of(judgements: Sequence[Judgement], sentences_of: str = "none") -> dict[str, Mask]:
    """The questions (questions,) of every label in the file's field `subset`, and, where `sentences_of` names the
    judged text or its references, of those with one sentence and with several (in all references, for these), as in
    KPQA (NAACL 2021), table 6.
    """
    names = dict.fromkeys(label for judgement in judgements for label in judgement.subsets)
    masks = {name: np.array([name in judgement.subsets for judgement in judgements]) for name in names}
    if sentences_of not in (JUDGED, REFERENCES):
        return masks
    rows = [judgement.row for judgement in judgements]
    texts = [(row.question,) if sentences_of == JUDGED else row.references or () for row in rows]
    counts = np.array([min((len(sentence_texts(text)) for text in some), default=0) for some in texts])
    return {**masks, ONE: counts == 1, SEVERAL: counts > 1}


def breakdown(rated: RatedQuestions, ratings: Floats, column: str, groups: Mapping[str, Mask]) -> Iterator[Row]:
    """The coefficients of every metric on the questions of each group, a mask (questions,); `column` names groups. A
    group without a question with score and rating has no row, one with fewer than `FEWEST` no value.
    """
    for name, scores in rated.scores.items():
        rows = rated.rows(name, ratings)
        for label, member in groups.items():
            chosen = rows[member[rows]]
            n = len(chosen)
            if n >= FEWEST:
                correlated = _questions(rated, ratings, name, chosen)
            else:
                unknown = {coefficient: np.full(2, np.nan) for coefficient in correlation.COEFFICIENTS}
                why = f"fewer than {FEWEST} questions"
                correlated = correlation.Correlated(unknown, n, 0, why, scores[chosen], ratings[chosen])
            for coefficient in correlation.COEFFICIENTS if n else ():
                about = {"metric": name, column: label, "n": n, "coefficient": coefficient}
                yield about | correlated.cells(coefficient)


def _win_loss(rated: RatedQuestions, ratings: Floats) -> Iterator[Row]:
    """`min_gap` is how far the ratings of a pair of questions must lie apart to count."""
    min_gap = rated.settings.min_gap
    for name, scores in rated.scores.items():
        rows = rated.rows(name, ratings)
        items = [rated.judgements[row].item for row in rows]
        fractions, pairs, alike = correlation.win_loss(scores[rows], ratings[rows], items, rated.draws, rows, min_gap)
        shares = {key: fraction.value for key, fraction in fractions.items()}
        interval = {key: value for key, value in alike.to_dict().items() if key != "n"}
        yield {"metric": name, "min_gap": min_gap, "pairs": pairs, **shares, **interval}


def _auc(rated: RatedQuestions, ratings: Floats) -> Iterator[Row]:
    """For a criterion with two values: how well each metric separates the higher one from the lower."""
    values = np.unique(ratings[np.isfinite(ratings)])
    for name, scores in rated.scores.items() if len(values) == 2 else ():
        rows = rated.rows(name, ratings)
        good = ratings[rows] == values[1]
        draws, units = correlation.auc_draws(scores[rows], good, rated.draws, rows), rated.draws.units_of(rows)
        area = estimate(draws, len(rows), passages=units, why="one class alone", bounds=SHARE)
        yield {"metric": name, "good": int(good.sum()), "bad": int((~good).sum()), **area.to_dict()}


def _redundancy(rated: RatedQuestions, ratings: Floats) -> dict[str, Rows]:
    """Forward selection among the metrics that have a score wherever most of them have one, on the questions for which
    all of these have one; how often each was added at each step; and the metrics left out. `n` of `of` rated
    questions: used, or with a score.
    """
    settings = rated.settings
    counts = {name: len(rated.rows(name, ratings)) for name in rated.scores}
    most = max(counts.values(), default=0)
    names = [name for name, count in counts.items() if count >= WHOLE * most]
    if not most or not settings.max_selected:
        return {}
    table = np.column_stack([rated.scores[name] for name in names])
    whole = np.isfinite(table).all(axis=1) & np.isfinite(ratings)
    groups = [judgement.group for judgement, used in zip(rated.judgements, whole, strict=True) if used]
    fewest = 3 if settings.select_on == TRAINING else 2
    if len(set(groups)) < fewest or correlation.is_constant(ratings[whole]):
        return {}
    folds = [folds_of(groups, settings.folds, settings.seed + number) for number in range(settings.repeats)]
    taken = forward_selection(table[whole], ratings[whole], names, folds, settings.max_selected, settings.select_on)
    total = int(np.isfinite(ratings).sum())
    used = {"n": int(whole.sum()), "of": total, "candidates": len(names)}
    return {
        "redundancy": [row | used | {"chosen": row["chosen"][row["metric"]]} for row in taken],
        "redundancy_chosen": [
            {"step": row["step"], "metric": name, "n": n} for row in taken for name, n in row["chosen"].items()
        ],
        "redundancy_left_out": [
            {"metric": name, "n": count, "of": total} for name, count in counts.items() if name not in names
        ],
    }


def _agreement(rated: RatedQuestions, criterion: str) -> Iterator[Row]:
    ratings = [judgement.ratings.get(criterion, ()) for judgement in rated.judgements]
    if not any(ratings):
        return
    for name, statistic in agreement_of(ratings, rated.draws).items():
        yield {"statistic": name, "raters": max(map(len, ratings)), **statistic.to_dict()}


def _pairs(columns: Mapping[str, Floats], kind: str) -> Iterator[Row]:
    """The coefficients of every two columns, on the questions that have both (QG-Bench, EMNLP 2022, figures 5, 6)."""
    from scipy.stats import kendalltau, pearsonr, spearmanr

    compute = dict(zip(correlation.COEFFICIENTS, (pearsonr, spearmanr, kendalltau), strict=True))
    for name, against in combinations(columns, 2):
        both = np.isfinite(columns[name]) & np.isfinite(columns[against])
        x, y = columns[name][both], columns[against][both]
        undefined = len(x) < 2 or correlation.is_constant(x) or correlation.is_constant(y)
        for coefficient in correlation.COEFFICIENTS:
            row = {kind: name, "against": against, "coefficient": coefficient, "n": len(x), "value": None}
            if undefined:
                yield {**row, "why": correlation.why_undefined(x, y).replace("ratings", f"values of {against}")}
            else:
                value = float(compute[coefficient](x, y).statistic)
                yield {**row, "value": value, "p": correlation.coefficient_p(coefficient, value, x, y)}


def _means_of_systems(rated: RatedQuestions, values: Floats) -> Floats:
    """The mean of `values` (questions,) by system: float64 (1 + resamples, systems); NaN where there is none."""
    _, member = rated.systems
    known = np.isfinite(values)
    member = member * known[:, None]
    sums = rated.draws.sums(np.hstack([member, member * np.where(known, values, 0.0)[:, None]]))
    count, total = np.split(sums, 2, axis=1)
    return quotient(total, count)


def mean_rows(rated: RatedQuestions, criteria: Sequence[str]) -> Rows:
    """The mean of every criterion and every metric by system (`of`: criterion or metric), as in QG-Bench, table 6."""
    names, member = rated.systems
    columns = [("criterion", name, rated.ratings(name)) for name in criteria]
    columns += [("metric", name, scores) for name, scores in rated.scores.items()]
    rows = []
    for kind, column, values in columns if names else ():
        means = _means_of_systems(rated, values)
        for number, system in enumerate(names):
            used = np.flatnonzero((member[:, number] > 0) & np.isfinite(values))
            units = rated.draws.units_of(used)
            statistic = estimate(means[:, number], len(used), passages=units, why="no question has a value")
            rows.append({"system": system, "of": kind, "name": column, **statistic.to_dict()})
    return rows


def replication_rows(first: RatedQuestions, second: RatedQuestions, criteria: Sequence[str]) -> Rows:
    """The correlation of the systems' mean ratings in two files by criterion, with draws of each one's passages."""
    rows = []
    units = min(first.draws.units_of(), second.draws.units_of())
    for criterion in criteria:
        parts = [(rated.systems[0], _means_of_systems(rated, rated.ratings(criterion))) for rated in (first, second)]
        found = correlation.replicated(*parts, units=units, where="both files")
        rows += [{"criterion": criterion, **row} for row in found]
    return rows


def rating_levels(ratings: Floats) -> tuple[list[str], NDArray[np.intp]]:
    """The ratings that are told apart, lowest first, and which of them each rating (n,) is; -1 where there is none.

    Up to six distinct ratings are as they are. Means of ratings on a scale of three to six steps, such as 1-3, are
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
    return labels, index


def _scores_by_rating(rated: RatedQuestions, ratings: Floats) -> Iterator[Row]:
    """As in QRelScore, figures 3 and 7."""
    labels, index = rating_levels(ratings)
    for name, scores in rated.scores.items():
        for number, label in enumerate(labels):
            chosen = scores[(index == number) & np.isfinite(scores)]
            row: Row = {"metric": name, "rating": label, "n": len(chosen)}
            if len(chosen):
                quantiles = np.quantile(chosen, list(QUANTILES.values())).tolist()
                row |= {"mean": float(chosen.mean()), **dict(zip(QUANTILES, quantiles, strict=True))}
            yield row


def _ratings_by_system(rated: RatedQuestions, criterion: str) -> Iterator[Row]:
    """How many of a system's single ratings, or of its mean ratings where there are no single ones, are at each level;
    `mean` is that of the system's questions (QRelScore, figure 6).
    """
    names, member = rated.systems
    means = rated.ratings(criterion)
    single = [[value for value in one.ratings.get(criterion, ()) if value is not None] for one in rated.judgements]
    if rated.settings.standardise != "none" or not any(single):
        single = [[value] if np.isfinite(value) else [] for value in means.tolist()]
    owner = np.repeat(np.arange(len(single)), [len(values) for values in single])
    labels, index = rating_levels(np.array([value for values in single for value in values], dtype=np.float64))
    for at, system in enumerate(names):
        chosen = index[member[owner, at] > 0]
        known = means[(member[:, at] > 0) & np.isfinite(means)]
        for number, label in enumerate(labels if len(chosen) else ()):
            count, n = int((chosen == number).sum()), len(chosen)
            row = {"system": system, "rating": label, "count": count, "fraction": count / n, "n": n}
            yield row | {"mean": float(known.mean()), "questions": len(known)}


def disagreements(rated: RatedQuestions, criteria: Sequence[str]) -> tuple[Rows, Rows]:
    """For every criterion and metric the questions with the largest difference of ranks, largest first; and how many
    of these cases are of each type of question, with the number of rated questions of that type.

    Ranks count from 1, the best; equal values share their mean rank. A positive `difference` says that the metric
    places the question higher than people do (KPQA, section 5.4; QRelScore, appendix E).
    """
    from scipy.stats import rankdata

    cases: Rows = []
    types: Rows = []
    most = rated.settings.disagreements
    for criterion in criteria if most else ():
        ratings = rated.ratings(criterion)
        for name, scores in rated.scores.items():
            rows = rated.rows(name, ratings)
            people, metric = rankdata(-ratings[rows]), rankdata(-scores[rows])
            order = np.argsort(-np.abs(people - metric), kind="stable")[:most]
            order = order[people[order] != metric[order]]
            key = {"criterion": criterion, "metric": name}
            for place, at in enumerate(order, 1):
                number, judgement = rows[at], rated.judgements[rows[at]]
                case = {**key, "place": place, "rank_people": float(people[at]), "rank_metric": float(metric[at])}
                case |= {"difference": float(people[at] - metric[at]), "type": str(rated.types[number])}
                case |= {"system": ", ".join(judgement.systems), "where": judgement.row.where}
                case |= {text: getattr(judgement.row, text) for text in ("question", "answer", "context")}
                cases.append(case | {"rating": float(ratings[number]), "score": float(scores[number])})
            every = Counter(rated.types[rows].tolist())
            found = Counter(rated.types[rows[order]].tolist())
            types += [
                {**key, "type": kind, "cases": found[kind], "of": len(order), "questions": count, "rated": len(rows)}
                for kind, count in every.most_common()
            ]
    return cases, types


def disagreement_page(title: str, cases: Rows, types: Rows, signatures: Mapping[str, str]) -> Page:
    """The first cases of each criterion and metric, those of the data's authors last; the types of all cases."""
    parts = by_key(((row["criterion"], row["metric"]), row) for row in cases)
    shown = sorted(parts, key=lambda part: part[1].startswith(AUTHORS))[:MOST_TABLES]
    of_types = joined_rows(
        types,
        ("criterion", "metric"),
        lambda row: {"cases": str(row["of"]), row["type"]: f"{row['cases']} of {row['questions']:,}"},
    )
    note = "Cases of each type of question, of all rated questions of it."
    tables = [Table("Types of the cases", of_types, note)] if types else []
    for part in shown:
        chosen = parts[part]
        note = f"The {min(SHOWN, len(chosen))} of {len(chosen)} cases with the largest difference of ranks."
        tables.append(Table(", ".join(part), [*map(_line, chosen[:SHOWN])], note))
    facts = [
        "Ranks: 1 is the best; people rank by their mean rating, the metric by its score, over all rated questions."
    ]
    if len(parts) > MOST_TABLES:
        facts.append(f"{MOST_TABLES} of {len(parts)} tables are here; tables/disagreements.csv has all.")
    return Page("correlate", f"{title}: where metrics and people differ", facts, tables, signatures)


def _line(row: Row) -> dict[str, str]:
    passage = row["context"] or NONE
    if len(passage) > LONGEST_PASSAGE:
        passage = passage[: LONGEST_PASSAGE - 1].rstrip() + "…"
    texts = {"question": row["question"], "answer": row["answer"] or NONE, "passage": passage, "type": row["type"]}
    numbers = {"rating": f"{row['rating']:.3g}", "score": f"{row['score']:.4g}"}
    ranks = {f"rank by {who}": f"{row[f'rank_{who}']:,g}" for who in ("people", "metric")}
    return texts | {"system": row["system"] or NONE} | numbers | ranks
