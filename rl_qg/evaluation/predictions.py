"""Means and corpus scores of questions with intervals, by type and length, and paired tests between files."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations, groupby
from operator import itemgetter
from typing import Any

import numpy as np

from rl_qg.data.examples import passage_hash
from rl_qg.pages.results import Table, estimate_text, joined_rows, p_text
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import packaged_yaml
from rl_qg.scoring.kept_scores import MetricRow, ScoreDraws, texts_hash
from rl_qg.stats.intervals import Bounds, Floats, PassageDraws, add_holm, estimate, paired_test
from rl_qg.text.question_types import TYPE_TABLES, TYPES, question_type
from rl_qg.text.words import word_count

NOTES: dict[str, str] = packaged_yaml(__file__, "notes.yaml")
ALL, MEAN, CORPUS = "all", "mean of questions", "corpus"
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Predictions:
    """The questions of one file: scores (NaN: none), counts for corpus forms, and the `bounds` of metrics."""

    name: str
    rows: Sequence[MetricRow]
    scores: Mapping[str, Floats]
    counts: Mapping[str, Floats]
    draws: PassageDraws
    bounds: Mapping[str, Bounds] = field(default_factory=dict)

    def slices(self, lengths: Sequence[int], language: str) -> dict[tuple[str, str], np.ndarray]:
        """Which questions are of each kind: all, by type if known, by words (`lengths`: where each class begins)."""
        types = np.array([question_type(row.question, language) for row in self.rows])
        sizes = np.array([word_count(row.question) for row in self.rows])
        masks = {(ALL, ""): np.ones(len(self.rows), dtype=bool)}
        if language.casefold() in TYPE_TABLES:
            masks |= {("type", kind): types == kind for kind in TYPES}
        bounds = [0, *lengths]
        for low, high in zip(bounds, [*lengths, None], strict=True):
            within = (sizes >= low) & (sizes < (high or np.inf))
            masks["length", f"{low}-{high - 1} words" if high else f"{low} words or more"] = within
        return {key: mask for key, mask in masks.items() if mask.any()}

    @cached_property
    def items(self) -> list[tuple[Any, ...]]:
        return [(row.context, row.answer, row.references) for row in self.rows]


def passage_groups(rows: Sequence[MetricRow]) -> list[str]:
    """What a bootstrap draws: the passage of each row; without one its references, or the row itself."""
    return [
        passage_hash(row.context) if row.context is not None else repr(row.references or (number, row.question))
        for number, row in enumerate(rows)
    ]


def score_rows(predictions: Predictions, corpus: Mapping[str, Any], lengths: Sequence[int], language: str) -> Rows:
    """One row for each metric, form and kind of question; `corpus` has for each metric with a corpus form the function
    that turns summed counts (…, k) into scores (…,). `lengths` and `language` are as in `Predictions.slices`.
    """
    slices = predictions.slices(lengths, language)
    masks = list(slices.values())
    draws = {
        (metric, form): _draws(predictions, metric, form, corpus, masks)
        for metric, form in _forms(predictions, corpus)
    }
    rows: Rows = []
    for number, ((by, kind), mask) in enumerate(slices.items()):
        for (metric, form), values in draws.items():
            used = mask & np.isfinite(predictions.scores[metric]) if form == MEAN else mask
            n, missing = int(used.sum()), int(mask.sum() - used.sum())
            options: dict[str, Any] = {"why": "no question with a score", "bounds": predictions.bounds.get(metric)}
            cells = estimate(values[number], n, passages=predictions.draws.units_of(used), **options).to_dict()
            row = {"predictions": predictions.name, "by": by, "kind": kind, "metric": metric, "form": form, **cells}
            rows.append(row | ({"without_score": missing} if missing else {}))
    return rows


def draw_rows(predictions: Predictions, corpus: Mapping[str, Any]) -> list[ScoreDraws]:
    draws, every = predictions.draws, np.ones(len(predictions.rows), dtype=bool)
    about = texts_hash(predictions.items), draws.passages, draws.seed
    found = []
    for metric, form in _forms(predictions, corpus):
        complete = form == CORPUS or bool(np.isfinite(predictions.scores[metric]).all())
        (values,) = _draws(predictions, metric, form, corpus, [every])
        found.append(ScoreDraws(predictions.name, metric, form, *about, complete, values, draws.units_of()))
    return found


def not_alike(files: Sequence[Predictions]) -> str | None:
    """Why files cannot be compared question by question; None where they can."""
    for first, second in combinations(files, 2):
        if len(first.rows) != len(second.rows):
            return f"{first.name} has {len(first.rows):,} questions and {second.name} {len(second.rows):,}"
        for item, other_item, row, other_row in zip(first.items, second.items, first.rows, second.rows, strict=True):
            if item != other_item:
                return f"{row.where} and {other_row.where} are about different passages, answers or references"
    return None


def example_rows(files: Sequence[Predictions], wanted: int | list[int]) -> Rows:
    """The human questions, and that of every file with its scores, about the same answers: so many, spread over all,
    or those with these numbers, from 1 on. `InputError` where there is none of a number.
    """
    total = len(files[0].rows)
    if isinstance(wanted, int):
        count = min(wanted, total)
        wanted = [1 + place * total // count for place in range(count)]
    if wanted and max(wanted) > total:
        raise InputError(f"examples={wanted}: the files have {total:,} questions; give numbers up to that")
    rows: Rows = []
    for number in wanted:
        asked = files[0].rows[number - 1]
        about = {"number": number, "context": asked.context or "", "answer": asked.answer or ""}
        rows += [{**about, "asked by": "human", "question": text} for text in asked.references or ()]
        for file in files:
            scores = {label: float(values[number - 1]) for label, values in file.scores.items()}
            row = {**about, "asked by": file.name, "question": file.rows[number - 1].question}
            known = {f"{name} (score)" if name in row else name: s for name, s in scores.items() if np.isfinite(s)}
            rows.append(row | known)
    return rows


def example_tables(rows: Rows) -> list[Table]:
    """A table for each number of `example_rows`, below its passage and answer."""
    tables = []
    for (number, context, answer), group in groupby(rows, itemgetter("number", "context", "answer")):
        lines = [
            {key: value if isinstance(value, str) else f"{value:.3f}" for key, value in list(row.items())[3:]}
            for row in group
        ]
        about = " ".join(filter(None, [context, answer and f"Answer: {answer}."]))
        tables.append(Table(f"Side by side: question {number}", lines, about))
    return tables


def test_rows(files: Sequence[Predictions], corpus: Mapping[str, Any], direction: Mapping[str, int]) -> Rows:
    """One row for every two files, metric and form: the difference on the same questions, with its p-value before and
    after Holm's correction over all of them. `better` names the better file where p_holm < 0.05.
    """
    rows: Rows = []
    for first, second in combinations(files, 2):
        for metric, form in _forms(first, corpus):
            used = np.isfinite(first.scores[metric]) & np.isfinite(second.scores[metric])
            if form == CORPUS:
                used = np.ones(len(used), dtype=bool)
            before, after = (_draws(file, metric, form, corpus, [used])[0] for file in (first, second))
            about = {"metric": metric, "form": form, "predictions": first.name, "against": second.name}
            units, why = first.draws.units_of(used), "no question with both scores"
            bounds = first.bounds.get(metric)
            rows.append(about | paired_test(before, after, int(used.sum()), units, why=why, bounds=bounds))
    return with_better(rows, lambda row: row["value"] * direction[row["metric"]] > 0)


def with_better(rows: Rows, is_first: Callable[[dict[str, Any]], bool]) -> Rows:
    """Rows with Holm's p over all; below 0.05 `better` is the first file if `is_first` of the row, else the second."""
    add_holm(rows)
    for row in rows:
        if row["p"] is not None:
            better = row["predictions"] if is_first(row) else row["against"]
            row["better"] = better if row["p_holm"] < 0.05 else None
    return rows


def file_table(rows: Rows, part: str) -> list[dict[str, str]]:
    """For people a line for each metric and value of `part`, with a column for each file."""
    return joined_rows(rows, ("metric", part), lambda row: {row["predictions"]: estimate_text(row, 4)})


def test_table(title: str, rows: Rows, columns: Sequence[str], pair: str, note: str, digits: int = 4) -> list[Table]:
    """The table of paired tests, none without tests: first `columns`, then both names below `pair`."""
    lines = [
        {
            **{column: row[column] for column in columns},
            pair: f"{row['predictions']} − {row['against']}",
            "difference": estimate_text(row, digits, signed=True),
            "p": p_text(row["p"]),
            "p (Holm)": p_text(row.get("p_holm")),
            "better": row.get("better") or "",
        }
        for row in rows
    ]
    return [Table(title, lines, note.format(family=rows[0].get("family", 0)))] if rows else []


def _forms(predictions: Predictions, corpus: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for metric in predictions.scores:
        yield metric, MEAN
        if metric in corpus:
            yield metric, CORPUS


def _draws(
    predictions: Predictions, metric: str, form: str, corpus: Mapping[str, Any], masks: Sequence[np.ndarray]
) -> list[Floats]:
    """For each mask the score of its questions in each draw, NaN in a draw without any of them."""
    known = np.isfinite(predictions.scores[metric]) | (form == CORPUS)
    values = predictions.counts[metric] if form == CORPUS else np.where(known, predictions.scores[metric], 0.0)

    def score(sums: Floats, number: Floats) -> Floats:
        return np.asarray(corpus[metric](sums) if form == CORPUS else sums[:, 0] / number, dtype=np.float64)

    sums_of_masks = _sums(predictions.draws, np.column_stack([values, known]), masks)
    with np.errstate(invalid="ignore", divide="ignore"):
        return [np.where(sums[:, -1] > 0, score(sums[:, :-1], sums[:, -1]), np.nan) for sums in sums_of_masks]


def _sums(draws: PassageDraws, table: Floats, masks: Sequence[np.ndarray]) -> list[Floats]:
    """For each mask the sums of its rows of `table` (questions, k) in each draw, from one pass over the draws."""
    stacked = np.hstack([draws.by_passage(table[index], index) for index in map(np.flatnonzero, masks)])
    return np.split(draws.sums_of_passages(stacked), len(masks), axis=1)
