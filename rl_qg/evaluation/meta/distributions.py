"""How scores and ratings are distributed: scores by rating, ratings by system.

Source: QRelScore (EMNLP 2022), figures 3 and 7 (scores of a metric for each rating of people) and figure 6
(the share of each rating, and the mean, by system and criterion).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import Floats
from rl_qg.evaluation.meta.judgement_analysis import RatedQuestions

Rows = list[dict[str, Any]]
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
    """`scores_by_rating` and `ratings_by_system`."""
    return {
        "scores_by_rating": [row for criterion in criteria for row in _scores(rated, criterion)],
        "ratings_by_system": [row for criterion in criteria for row in _ratings(rated, criterion)],
    }


def _scores(rated: RatedQuestions, criterion: str) -> Rows:
    """The quantiles of every metric's scores for each rating."""
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
