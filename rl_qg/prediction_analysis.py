"""Means and corpus scores of questions with intervals, by type and length, and paired tests between files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np

from rl_qg.answer_text import SPACELESS
from rl_qg.bootstrap import holm
from rl_qg.metric_scores import JudgedRow
from rl_qg.passage_draws import Draws, Floats, difference_p, estimate
from rl_qg.qa_data import passage_hash
from rl_qg.question_types import TYPES, question_type

ALL, MEAN, CORPUS = "all", "mean of questions", "corpus"
_WORD = re.compile(rf"[{SPACELESS}]|\d+(?:[.,:]\d+)+|(?:(?![{SPACELESS}])[^\W_])+(?:['’-](?![{SPACELESS}])[^\W_]+)*")
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Predictions:
    """The questions of one file, with scores (NaN: none) and, where a metric has a corpus form, its counts."""

    name: str
    rows: Sequence[JudgedRow]
    scores: Mapping[str, Floats]
    counts: Mapping[str, Floats]
    draws: Draws

    def slices(self, lengths: Sequence[int], language: str) -> dict[tuple[str, str], np.ndarray]:
        """Which questions are of each kind: all, by type, and by words (`lengths`: where a new class begins)."""
        types = np.array([question_type(row.question, language) for row in self.rows])
        sizes = np.array([length_of(row.question) for row in self.rows])
        found = {(ALL, ""): np.ones(len(self.rows), dtype=bool)}
        found |= {("type", kind): types == kind for kind in TYPES}
        bounds = [0, *lengths]
        for low, high in zip(bounds, [*lengths, None], strict=True):
            within = (sizes >= low) & (sizes < (high or np.inf))
            found["length", f"{low}-{high - 1} words" if high else f"{low} words or more"] = within
        return {key: mask for key, mask in found.items() if mask.any()}

    @cached_property
    def items(self) -> list[tuple[Any, ...]]:
        """What each question was asked about."""
        return [(row.context, row.answer, row.references) for row in self.rows]


def length_of(question: str) -> int:
    """Words of a question; in scripts without spaces every character counts as one.

    >>> length_of("Who wrote Faust?"), length_of("誰が書いたか")
    (3, 6)
    """
    return len(_WORD.findall(question))


def passage_groups(rows: Sequence[JudgedRow]) -> list[str]:
    """What a bootstrap draws: the passage; without one the references, or the question itself."""
    return [
        passage_hash(row.context) if row.context is not None else repr(row.references or (place, row.question))
        for place, row in enumerate(rows)
    ]


def score_rows(predictions: Predictions, corpus: Mapping[str, Any], lengths: Sequence[int], language: str) -> Rows:
    """One row for each metric, form and kind of question.

    Args:
        predictions: of one file.
        corpus: for each metric with a corpus form the function that turns summed counts (…, k) into scores (…,).
        lengths: bounds of the classes of length.
        language: of the questions, for their types.
    """
    rows: Rows = []
    for (by, kind), mask in predictions.slices(lengths, language).items():
        n = int(mask.sum())
        named = {"predictions": predictions.name, "by": by, "kind": kind}
        for metric, scores in predictions.scores.items():
            there = mask & np.isfinite(scores)
            mean = _mean_draws(predictions.draws, scores, there)
            found = estimate(mean, int(there.sum()), why="no question with a score").to_dict()
            missing = {"without_score": n - int(there.sum())} if there.sum() < n else {}
            rows.append({**named, "metric": metric, "form": MEAN, **found, **missing})
            if metric in corpus:
                draws = _corpus_draws(predictions, metric, corpus[metric], mask)
                rows.append({**named, "metric": metric, "form": CORPUS, **estimate(draws, n).to_dict()})
    return rows


def not_alike(files: Sequence[Predictions]) -> str | None:
    """Why files cannot be compared question by question; None where they can."""
    for first, second in combinations(files, 2):
        if len(first.rows) != len(second.rows):
            return f"{first.name} has {len(first.rows):,} questions and {second.name} {len(second.rows):,}"
        for a, b, one, other in zip(first.items, second.items, first.rows, second.rows, strict=True):
            if a != b:
                return f"{one.where} and {other.where} are about different passages, answers or references"
    return None


def test_rows(files: Sequence[Predictions], corpus: Mapping[str, Any], direction: Mapping[str, int]) -> Rows:
    """One row for every two files, metric and form: the difference on the same questions, with its p-value before and
    after Holm's correction over all of them. `better` names the better file where p_holm < 0.05.
    """
    rows: Rows = []
    for first, second in combinations(files, 2):
        for metric in first.scores:
            there = np.isfinite(first.scores[metric]) & np.isfinite(second.scores[metric])
            forms = {MEAN: (_mean_draws(one.draws, one.scores[metric], there) for one in (first, second))}
            if metric in corpus:
                every = np.ones(len(there), dtype=bool)
                forms[CORPUS] = (_corpus_draws(one, metric, corpus[metric], every) for one in (first, second))
            for form, (a, b) in forms.items():
                n = int(there.sum()) if form == MEAN else len(there)
                row: dict[str, Any] = {
                    "metric": metric,
                    "form": form,
                    "predictions": first.name,
                    "against": second.name,
                }
                rows.append({**row, **estimate(a - b, n).to_dict(), "p": difference_p(a - b)})
    tested = [row for row in rows if row["p"] is not None]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        ahead = row["value"] * direction[row["metric"]] > 0
        winner = row["predictions"] if ahead else row["against"]
        row |= {"p_holm": corrected, "family": len(tested), "better": winner if corrected < 0.05 else None}
    return rows


def _mean_draws(draws: Draws, scores: Floats, there: np.ndarray) -> Floats:
    sums = draws.sums(np.column_stack([np.where(there, scores, 0.0), there]))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(sums[:, 1] > 0, sums[:, 0] / sums[:, 1], np.nan))


def _corpus_draws(predictions: Predictions, metric: str, score: Any, mask: np.ndarray) -> Floats:
    sums = predictions.draws.sums(predictions.counts[metric] * mask[:, None])
    return np.asarray(score(sums), dtype=np.float64)
