"""Scores of systems from ratings: one scale for all raters, then means.

Source: QAScore, section 4.3.3, equation 13: z = (rating - μ) / σ with μ and σ of the rater, over all criteria; the
score of a system on a criterion is the mean z of its questions, its overall score the mean over criteria. Degraded
questions are left out, and of a question that a rater saw twice the mean of both ratings counts.
"""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rl_qg.data.examples import by_key
from rl_qg.judging import raters
from rl_qg.judging.raters import OVERALL, noisy_ratings
from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems
from rl_qg.rating.protocol import DEGRADED, REPEAT
from rl_qg.stats.crossed import CrossedDraws, CrossedValues
from rl_qg.stats.intervals import Floats, Ints, quotient

WITHOUT_DEGRADED, WITH_DEGRADED, DIALOGUE_EVAL = "without_degraded", "with_degraded", "dialogue_eval"
_DIALOGUE_EVAL_ADDS = 1e-6  # to σ, in the code of Ji et al. (ACL 2022)


@dataclass(frozen=True)
class ZScores:
    """The z of every rating."""

    values: Floats  # (n, c) as `RatedItems.values`, NaN where there is none
    without_spread: tuple[str, ...]  # raters whose ratings are all equal, or single, and so have no z
    ratings_left_out: int  # how many ratings these are


def z_scores(rated: RatedItems, variant: str = WITHOUT_DEGRADED) -> ZScores:
    """(rating - μ) / σ of each rating, where μ and σ (n - 1 in the denominator) are of the rater's ratings.

    `variant`: μ and σ are of all ratings but those of degraded items (`without_degraded`), of all (`with_degraded`),
    or of all with 1e-6 added to σ (`dialogue_eval`, as the code of that study).
    """
    enters = rated.known
    if variant == WITHOUT_DEGRADED:
        enters &= ~rated.is_kind(DEGRADED)[:, None]
    rater = np.broadcast_to(rated.rater[:, None], rated.values.shape)
    added = _DIALOGUE_EVAL_ADDS if variant == DIALOGUE_EVAL else 0.0
    values, without_z = raters.z_scores(rater, rated.values, enters, raters=len(rated.raters), added=added)
    names = tuple(name for name, without in zip(rated.raters, without_z, strict=True) if without)
    return ZScores(values, names, int((rated.known & np.isnan(values)).sum()))


@dataclass(frozen=True)
class QuestionScores:
    """A row for each question and rater, without degraded ones; that of a repeated question is the mean of both."""

    criteria: tuple[str, ...]  # names, (c,)
    values: Floats  # (q, c), NaN: none
    rows: Ints  # of each question in `RatedItems`, (q,), as rater, item and passage
    rater: Ints
    item: Ints
    passage: Ints
    shown: Ints  # how often the rater saw it, (q,)
    systems: tuple[str, ...]  # names, (s,)
    member: Floats  # who asked it, (q, s), 1 or 0: a shared one is everybody's who asked it

    @cached_property
    def overall(self) -> Floats:
        """The mean over criteria of each row, (q,), NaN where one has no value."""
        return np.asarray(self.values.mean(axis=1))

    def with_overall(self) -> Floats:
        """The values, and in the last column the mean over criteria, (q, c + 1)."""
        return np.column_stack([self.values, self.overall])


def question_scores(rated: RatedItems, values: Floats) -> QuestionScores:
    """Rows of questions from values of items, (n, c), such as their z."""
    repeats = rated.is_kind(REPEAT) & (rated.original != NO_ORIGINAL)
    rows = np.flatnonzero(~repeats & ~rated.is_kind(DEGRADED))
    place = np.where(repeats, rated.original, np.arange(len(rated)))
    known = ~np.isnan(values)
    used: NDArray[np.bool_] = ~rated.is_kind(DEGRADED)
    sums, counts = np.zeros_like(values), np.zeros_like(values)
    np.add.at(sums, place[used], np.where(known, values, 0.0)[used])
    np.add.at(counts, place[used], known[used])
    shown = np.bincount(place[used], minlength=len(rated))
    merged = quotient(sums, counts)[rows]
    systems = tuple(dict.fromkeys(sorted(name for row in rows for name in rated.systems[row])))
    asked = [[name in rated.systems[row] for name in systems] for row in rows]
    member = np.array(asked, dtype=np.float64).reshape(len(rows), len(systems))
    columns = {name: getattr(rated, name)[rows] for name in ("rater", "item", "passage")}
    return QuestionScores(rated.criteria, merged, rows, shown=shown[rows], systems=systems, member=member, **columns)


@dataclass(frozen=True)
class SystemScores:
    """Scores of s systems on c criteria and overall (last)."""

    systems: tuple[str, ...]
    criteria: tuple[str, ...]
    values: CrossedValues  # in the data and in draws, (1 + resamples, s, c + 1)
    questions: Ints  # rated questions of each, one for each rater, (s,)
    shown: Ints  # with repeats, which is N in the tables of QAScore, (s,)
    ratings: Ints  # single values, (s,)
    note: str  # what the intervals are not about

    def of(self, system: str, criterion: str = OVERALL) -> CrossedValues:
        s, c = self.systems.index(system), (*self.criteria, OVERALL).index(criterion)
        return self.values.map(lambda part: part[:, s, c])

    def gap(self, first: int, second: int, criterion: int) -> CrossedValues:
        """How much higher the first of two systems is, by their numbers; `criterion`: the number of a column."""
        return self.values.map(lambda part: part[:, first, criterion] - part[:, second, criterion])


def system_scores(rated: RatedItems, scores: QuestionScores, *, resamples: int, seed: int) -> SystemScores:
    """Means over questions by system and criterion, and their mean over criteria, in draws of raters and passages.
    Raters and passages without a score say nothing, and are not drawn.
    """
    known = ~np.isnan(scores.values)
    used = np.asarray(known.any(axis=1))
    draws = CrossedDraws(scores.rater[used], scores.passage[used], resamples=resamples, seed=seed)
    q, c, s = len(scores.rows), len(scores.criteria), len(scores.systems)
    sums = (scores.member[:, :, None] * np.where(known, scores.values, 0.0)[:, None, :]).reshape(q, s * c)
    counts = (scores.member[:, :, None] * known[:, None, :]).reshape(q, s * c)

    def means(part: Floats) -> Floats:
        by_criterion = quotient(*part.reshape(len(part), 2, s, c).swapaxes(0, 1))
        return np.concatenate([by_criterion, by_criterion.mean(axis=2, keepdims=True)], axis=2)

    values = draws.sums(np.hstack([sums, counts])[used]).map(means)
    rated_rows = scores.member * used[:, None]
    return SystemScores(
        scores.systems,
        scores.criteria,
        values,
        questions=rated_rows.sum(axis=0).astype(np.int64),
        shown=(rated_rows * scores.shown[:, None]).sum(axis=0).astype(np.int64),
        ratings=_ratings_by_system(rated, scores),
        note=draws.note,
    )


def _ratings_by_system(rated: RatedItems, scores: QuestionScores) -> Ints:
    """How many ratings of raters who have a score at all, as those whose ratings are all equal have not."""
    counts: Counter[str] = Counter()
    values = np.count_nonzero(~np.isnan(rated.values), axis=1)
    scored = np.isin(rated.rater, scores.rater[~np.isnan(scores.values).all(axis=1)])
    for row in np.flatnonzero(scored & ~rated.is_kind(DEGRADED)):
        counts.update(dict.fromkeys(rated.systems[row], int(values[row])))
    return np.array([counts[name] for name in scores.systems], dtype=np.int64)


def without_noisy(rated: RatedItems, *, sides: str, threshold: float, most: int) -> RatedItems:
    """Without ratings far from the others of a question (`noisy_ratings`, KPQA); `left_out` has their number."""
    values = rated.values.copy()
    for rows in by_key((question, row) for row, question in enumerate(rated.question.tolist())).values():
        for column in range(values.shape[1]):
            given = [None if np.isnan(value) else float(value) for value in values[rows, column]]
            for noisy in noisy_ratings(given, sides=sides, threshold=threshold, most=most):
                values[rows[noisy], column] = np.nan
    removed = rated.ratings - int(np.count_nonzero(~np.isnan(values)))
    return replace(rated, values=values, left_out={**rated.left_out, "far from the others (rater_filter)": removed})
