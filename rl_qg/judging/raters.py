"""Raters: whose ratings count, and on what scale.

`filtered` leaves out ratings far from the others of the same question (KPQA, NAACL 2021, section 4.2); `standardised`
puts each rater's ratings on one scale (QAScore, section 4.3.3, equation 13); `with_overall` adds the mean of all
criteria. Each returns new judgements, whose `human` are the means of what is left.
"""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.judging.judgements import Judgement, mean_rating
from rl_qg.runtime.errors import InputError
from rl_qg.stats.agreement import Ratings, agreement_of
from rl_qg.stats.intervals import Floats, Ints, PassageDraws

NONE, BOTH_SIDES, ABOVE = "none", "both_sides", "above"
RATER, WITH_CONTROLS, OVERALL = "rater", "rater_with_controls", "overall"
_ROUNDING = 1e-9
_DECIMALS = 12  # of means of z: equal ones of other ratings would differ by rounding, and be no ties


def noisy_ratings(
    ratings: Sequence[float | None], *, sides: str = BOTH_SIDES, threshold: float = 1.0, most: int = 5
) -> list[int]:
    """Positions of the ratings of one question to leave out: those with z above `threshold`, the largest z first, at
    most `most` of them.

    z = (rating - mean) / standard deviation among the ratings of this question (n in the denominator, computed once).
    KPQA's text says "higher than 1", which `sides="above"` takes to the letter: only ratings above the mean are noise.
    `both_sides` takes |z|. Of ratings with equal z the first in the list go first.
    """
    known = [(place, value) for place, value in enumerate(ratings) if value is not None]
    values = np.array([value for _, value in known])
    if len(known) < 2 or np.ptp(values) == 0:
        return []
    z = (values - values.mean()) / values.std()
    z = np.abs(z) if sides == BOTH_SIDES else z
    order = np.argsort(-np.round(z, 9), kind="stable")
    return [known[index][0] for index in order[:most] if z[index] > threshold + _ROUNDING]


def filtered(judgements: Sequence[Judgement], *, sides: str, threshold: float, most: int) -> list[Judgement]:
    """The judgements without noisy ratings (null in their place), and with the means of the others.

    Raises `InputError` where no question has ratings to filter.
    """
    if not any(value is not None for one in judgements for given in one.ratings.values() for value in given):
        raise InputError("rater_filter: no question has ratings; give each a field ratings, with one for each rater")
    changed = []
    for judgement in judgements:
        ratings, human = {}, dict(judgement.human)
        for name, given in judgement.ratings.items():
            noisy = set(noisy_ratings(given, sides=sides, threshold=threshold, most=most))
            ratings[name] = tuple(None if place in noisy else value for place, value in enumerate(given))
            if noisy:
                human.pop(name, None)
            if left := [value for value in ratings[name] if value is not None]:
                human[name] = mean_rating(left)
        changed.append(replace(judgement, ratings=ratings, human=human))
    return changed


def filter_rows(
    before: Sequence[Judgement], after: Sequence[Judgement], criteria: Sequence[str], draws: PassageDraws
) -> list[dict[str, Any]]:
    """Agreement and ratings a question before and after the filter (KPQA, table 2), by criterion and statistic."""
    rows = []
    for criterion in criteria:
        tables: list[Ratings] = [[one.ratings.get(criterion, ()) for one in part] for part in (before, after)]
        sizes = [[sum(value is not None for value in unit) for unit in table] for table in tables]
        rated = sum(size > 0 for size in sizes[0])
        if not rated:
            continue
        counts = {"n": rated, "raters_before": sum(sizes[0]) / rated, "raters_after": sum(sizes[1]) / rated}
        counts["removed"] = sum(sizes[0]) - sum(sizes[1])
        found = {when: agreement_of(table, draws) for when, table in zip(("before", "after"), tables, strict=True)}
        for name in found["before"]:
            row: dict[str, Any] = {"criterion": criterion, "statistic": name}
            for when, statistics in found.items():
                one = statistics[name]
                row |= {when: one.value, f"{when}_low": one.low, f"{when}_high": one.high}
            rows.append(row | counts)
    return rows


def z_scores(
    rater: Ints, values: Floats, enters: NDArray[np.bool_], *, raters: int, added: float = 0.0
) -> tuple[Floats, NDArray[np.bool_]]:
    """The z of each value, (rating - μ) / σ, and which raters have none: their ratings are all equal, or single.

    Args:
        rater: who gave each value, indices below `raters`, in the shape of `values`.
        values: NaN where there is no rating, and then no z.
        enters: the ratings that μ and σ (n - 1 in the denominator) of a rater are of.
        raters: how many there are.
        added: to σ.
    """
    count = np.bincount(rater[enters], minlength=raters)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.bincount(rater[enters], weights=values[enters], minlength=raters) / count
        gaps = values - mean[rater]
        squares = np.bincount(rater[enters], weights=gaps[enters] ** 2, minlength=raters)
        spread = np.sqrt(squares / (count - 1))
        spread = np.where((count > 1) & (spread > _ROUNDING), spread, np.nan)
        return gaps / (spread + added)[rater], np.isnan(spread)


def standardised(
    judgements: Sequence[Judgement], criteria: Sequence[str], controls: Sequence[Judgement] = ()
) -> tuple[list[Judgement], dict[str, int]]:
    """Judgements whose `human` is the mean of the raters' z (`z_scores`), where μ and σ are of all ratings of that
    rater, over all criteria; `ratings` stay as given. And counts: of raters, of those without a z, of their ratings.

    A rater who is named twice at a question rated it twice: the mean of both z counts, once. `controls` enter μ and σ
    alone. Each rating of a criterion needs the name of its rater, and some rater a z.
    """
    given: list[tuple[int, str, str, float]] = []  # number of the question, criterion, rater, rating
    for number, judgement in enumerate((*judgements, *controls)):
        for criterion in criteria:
            ratings = judgement.ratings.get(criterion, ())
            pairs = zip(judgement.raters, ratings, strict=False)
            named = [(rater, value) for rater, value in pairs if rater is not None and value is not None]
            single = sum(value is not None for value in ratings)
            if (criterion in judgement.human and not single) or single != len(named):
                what = "ratings without the name of their rater" if single else "no rating of a single rater"
                raise InputError(
                    f"{judgement.row.where}: standardise: {criterion!r} has {what}; give ratings and raters, or leave "
                    "the criterion out of criteria=[…]"
                )
            given += [(number, criterion, *rating) for rating in named]
    index = {name: at for at, name in enumerate(dict.fromkeys(rater for _, _, rater, _ in given))}
    rater = np.array([index[name] for _, _, name, _ in given], dtype=np.int64)
    values = np.array([value for *_, value in given], dtype=np.float64)
    z, without = z_scores(rater, values, np.ones(len(values), dtype=bool), raters=len(index))
    if without.all():
        raise InputError("standardise: no rater gave two different ratings, so there is no scale to put them on")
    of_questions: list[dict[str, dict[str, list[float]]]] = [{} for _ in (*judgements, *controls)]
    for (number, criterion, name, _), value in zip(given, z.tolist(), strict=True):
        if not without[index[name]]:
            of_questions[number].setdefault(criterion, {}).setdefault(name, []).append(value)
    changed = [
        replace(one, human={name: round(fmean(map(fmean, z.values())), _DECIMALS) for name, z in of_question.items()})
        for one, of_question in zip(judgements, of_questions, strict=False)
    ]
    counts = {"raters_without_spread": int(without.sum()), "ratings_left_out": int(without[rater].sum())}
    return changed, {"raters": len(index), **counts}


def with_overall(judgements: Sequence[Judgement], criteria: Sequence[str]) -> list[Judgement]:
    """Each question that is rated on all criteria gets their mean as the criterion `overall`; others get none.

    Where every question is rated on all, the mean of a system is that of equation 13 of QAScore. Raises `InputError`
    where the file has a criterion of that name, or fewer than two criteria.
    """
    if OVERALL in criteria or len(criteria) < 2:
        why = "the file has a criterion of that name" if OVERALL in criteria else "it needs two criteria"
        raise InputError(f"overall: {why}; leave it out, or choose others with criteria=[…]")
    return [
        replace(one, human={**one.human, OVERALL: round(mean_rating(one.human[name] for name in criteria), _DECIMALS)})
        if all(name in one.human for name in criteria)
        else one
        for one in judgements
    ]
