"""Ratings by question: agreement of raters, and `judgements.jsonl` for `rl-qg correlate`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, PassageDraws
from rl_qg.evaluation.meta.agreement import fleiss_kappa, krippendorff_alpha
from rl_qg.rating.analysis.ratings import RatedItems
from rl_qg.rating.analysis.scores import question_scores
from rl_qg.rating.analysis.study_files import Question
from rl_qg.rating.planning.plan_questions import HUMAN
from rl_qg.rating.protocol import DEGRADED

Rows = list[dict[str, Any]]
FEW_VALUES = 10  # distinct values of a criterion, up to which κ, which knows equal or not, means something


def agreement_rows(rated: RatedItems, *, resamples: int, seed: int) -> Rows:
    """Krippendorff's α (interval, ordinal) and, for scales of few values, Fleiss' κ of each criterion, over the
    questions that two raters or more have rated; of a repeated question a rater's mean counts.

    Empty where no question has two raters.
    """
    scores = question_scores(rated, rated.values)
    units: dict[int, list[int]] = {}
    for number, row in enumerate(scores.rows):
        units.setdefault(int(rated.question[row]), []).append(number)
    if max(map(len, units.values()), default=0) < 2:
        return []
    draws = PassageDraws([int(scores.passage[rows[0]]) for rows in units.values()], resamples=resamples, seed=seed)
    found: Rows = []
    for column, criterion in enumerate(scores.criteria):
        values = scores.values[:, column]
        table = [[None if np.isnan(values[at]) else float(values[at]) for at in rows] for rows in units.values()]
        statistics = {f"Krippendorff's α, {level}": krippendorff_alpha(table, level, draws) for level in _LEVELS}
        if len(np.unique(rated.values[~np.isnan(rated.values[:, column]), column])) <= FEW_VALUES:
            statistics["Fleiss' κ"] = fleiss_kappa(table, draws)
        found += [{"criterion": criterion, "statistic": name, **one.to_dict()} for name, one in statistics.items()]
    return found


_LEVELS = ("interval", "ordinal")


def judgement_lines(
    rated: RatedItems, z: Floats, questions: Mapping[tuple[str, int], Question], *, raw: bool
) -> tuple[list[dict[str, Any]], int]:
    """Records in the format of `rl_qg.evaluation.meta.judgements`, one for each question in words, and how many have
    no score and are left out.

    Args:
        rated: the ratings that count.
        z: their z-scores, as `RatedItems.values`.
        questions: by HIT and position.
        raw: `human` are means of ratings, not of z.

    `ratings` are as given, reversed ones turned, with the mean of both for a question that a rater saw twice. With z,
    ratings without one (of a rater whose ratings are all equal) are null: they would count on another scale.
    """
    records: dict[tuple[Any, ...], _Rated] = {}
    for row, values, standard in _rows(rated, z):
        known = questions[rated.hits[rated.hit[row]], int(rated.position[row])]
        control = bool(rated.is_kind(DEGRADED)[row])
        key = (control, rated.passages[rated.passage[row]], rated.items[rated.item[row]], known)
        records.setdefault(key, _Rated(row, known)).add(row, values, standard)
    lines = [one.line(rated, raw=raw) for one in records.values()]
    kept = [line for line in lines if line["human"]]
    return kept, len(lines) - len(kept)


def with_references(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The judgements of systems about passages and answers of which people asked too, with their question as the
    reference. Those of people are left out: they would be compared with themselves.
    """
    asked = {line["item"]: line["question"] for line in lines if HUMAN in line["system"] and "control" not in line}
    found = []
    for line in lines:
        systems = [name for name in line["system"] if name != HUMAN]
        if systems and line["item"] in asked:
            found.append({**line, "system": systems, "references": [asked[line["item"]]]})
    return found


def _rows(rated: RatedItems, z: Floats) -> Iterator[tuple[int, Floats, Floats]]:
    """Questions, then degraded ones: row, ratings and z."""
    plain, standard = question_scores(rated, rated.values), question_scores(rated, z)
    yield from zip(plain.rows.tolist(), plain.values, standard.values, strict=True)
    for row in np.flatnonzero(rated.is_kind(DEGRADED)).tolist():
        yield row, rated.values[row], z[row]


class _Rated:
    """One question and what raters gave it."""

    def __init__(self, row: int, known: Question) -> None:
        self.first, self.known = row, known
        self.given: list[tuple[int, Floats, Floats]] = []

    def add(self, row: int, values: Floats, standard: Floats) -> None:
        """What one rater gave."""
        self.given.append((row, values, standard))

    def line(self, rated: RatedItems, *, raw: bool) -> dict[str, Any]:
        """As a record."""
        human, ratings = {}, {}
        for column, criterion in enumerate(rated.criteria):
            scores = [(values if raw else standard)[column] for _, values, standard in self.given]
            ratings[criterion] = [
                None if np.isnan(score) else float(values[column])
                for score, (_, values, _) in zip(scores, self.given, strict=True)
            ]
            if present := [float(score) for score in scores if not np.isnan(score)]:
                human[criterion] = float(np.mean(present))
        systems: Sequence[str] = list(dict.fromkeys(name for row, _, _ in self.given for name in rated.systems[row]))
        return {
            "question": self.known.question,
            "context": self.known.context,
            "answer": self.known.answer,
            "system": systems,
            "item": rated.items[rated.item[self.first]],
            "group": rated.passages[rated.passage[self.first]],
            "human": human,
            "ratings": ratings,
            "raters": [rated.raters[rated.rater[row]] for row, _, _ in self.given],
            **({"control": True} if rated.is_kind(DEGRADED)[self.first] else {}),
        }
