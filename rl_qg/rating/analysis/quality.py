"""Whose ratings count: a rater must rate ordinary questions higher than degraded ones.

QAScore (section 4.2) tests all ratings of a rater together, each criterion of each question a pair. The criteria of a
question are not independent, so somebody who clicks at random but gives all criteria of a question about the same
value passes more often than the level says. Here the decision is on the mean over criteria of each question, over all
tasks of a rater, and the published p stands beside it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats
from rl_qg.rating.analysis.rank_tests import RankTest, rank_sum, signed_rank
from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems, Scale, rated_items
from rl_qg.rating.protocol import DEGRADED, ORDINARY, Control, Protocol

SIGNED_RANK, RANK_SUM = "signed_rank", "rank_sum"
ITEM_MEANS, RATINGS = "item_means", "ratings"
PASSED, FAILED, UNDECIDED, UNTESTED = "passed", "failed", "undecided", "untested"
NOT_FAILED, EVERYBODY = "not_failed", "all"


@dataclass(frozen=True)
class RaterControl:
    """The control of one rater.

    `p_item_means` and `p_ratings` are those of the two units, None where there is nothing to compare; `pairs` is the
    number of degraded items compared, `difference` by how much ordinary ones are rated higher on average. `verdict`:
    `undecided` where so few pairs, or tasks, cannot pass whatever the values; `untested` where the study has no
    degraded items.
    """

    rater: str
    tasks: int
    pairs: int
    difference: float | None
    p_item_means: float | None
    p_ratings: float | None
    verdict: str
    why: str = ""

    @property
    def counts(self) -> bool:
        """Whether the ratings count."""
        return self.verdict in (PASSED, UNTESTED)


@dataclass(frozen=True)
class PassRates:
    """How many raters, and their tasks, passed the control so far."""

    raters: int
    passed: int
    failed: int
    undecided: int
    tasks: int
    tasks_passed: int
    of_raters: tuple[RaterControl, ...]


def pass_rates(records: Iterable[Mapping[str, Any]], protocol: Protocol) -> PassRates:
    """The control as the protocol says, of ratings so far; `records` are those of `ratings.jsonl`.

    Only submitted tasks count. A study without degraded items has no control: all its raters count as passed.
    """
    located = ((f"rating {number}", record) for number, record in enumerate(records, 1))
    rated = rated_items(located, scales_of(protocol))
    return pass_rates_of(control_of_raters(rated, protocol.control, controlled(protocol)))


def counted_raters(controls: Sequence[RaterControl], whose: str = PASSED) -> list[str]:
    """Whose ratings count: of those who passed, who did not fail (`not_failed`), or of all.

    Where the control could decide on nobody, everybody counts, as without a control.
    """
    undecidable = all(one.verdict == UNDECIDED for one in controls)
    return [
        one.rater
        for one in controls
        if one.counts or whose == EVERYBODY or undecidable or (whose == NOT_FAILED and one.verdict == UNDECIDED)
    ]


def pass_rates_of(controls: Sequence[RaterControl]) -> PassRates:
    """The sums over raters."""
    verdicts = [one.verdict for one in controls]
    return PassRates(
        len(controls),
        sum(one.counts for one in controls),
        verdicts.count(FAILED),
        verdicts.count(UNDECIDED),
        sum(one.tasks for one in controls),
        sum(one.tasks for one in controls if one.counts),
        tuple(controls),
    )


def scales_of(protocol: Protocol) -> dict[str, Scale]:
    """The scale of each criterion of a protocol."""
    return {one.name: Scale(one.lowest, one.highest, one.reversed) for one in protocol.criteria}


def controlled(protocol: Protocol) -> list[str]:
    """The criteria that enter the control."""
    return [one.name for one in protocol.criteria if one.control]


def control_of_raters(rated: RatedItems, control: Control, criteria: Sequence[str]) -> list[RaterControl]:
    """The control of every rater, over all their tasks; `criteria` are those that enter it."""
    columns = [rated.criteria.index(name) for name in criteria if name in rated.criteria]
    if not columns or not rated.is_kind(DEGRADED).any():
        return [
            RaterControl(name, _tasks(rated, number), 0, None, None, None, UNTESTED, "no degraded questions")
            for number, name in enumerate(rated.raters)
        ]
    compared = _pairs if control.method == SIGNED_RANK else _groups
    return [_control(rated, number, compared(rated, number, columns), control) for number in range(len(rated.raters))]


def _tasks(rated: RatedItems, rater: int) -> int:
    return len(np.unique(rated.task[rated.rater == rater]))


def _pairs(rated: RatedItems, rater: int, columns: list[int]) -> tuple[Floats, Floats]:
    """The values of a rater's ordinary items and of their degraded forms, (pairs, criteria); NaN in both where one has
    none.
    """
    rows = np.flatnonzero((rated.rater == rater) & rated.is_kind(DEGRADED) & (rated.original != NO_ORIGINAL))
    bad, good = rated.values[rows][:, columns], rated.values[rated.original[rows]][:, columns]
    missing = np.isnan(good) | np.isnan(bad)
    known = ~missing.all(axis=1)
    good, bad = (np.where(missing, np.nan, values)[known] for values in (good, bad))
    return good, bad


def _groups(rated: RatedItems, rater: int, columns: list[int]) -> tuple[Floats, Floats]:
    """The values of all ordinary and of all degraded items of a rater, (items, criteria)."""
    own = rated.rater == rater
    parts = []
    for kind in (ORDINARY, DEGRADED):
        values = rated.values[own & rated.is_kind(kind)][:, columns]
        parts.append(values[~np.isnan(values).all(axis=1)])
    return parts[0], parts[1]


def _control(rated: RatedItems, rater: int, compared: tuple[Floats, Floats], control: Control) -> RaterControl:
    name, tasks = rated.raters[rater], _tasks(rated, rater)
    good, bad = compared
    if not len(good) or not len(bad):
        return RaterControl(name, tasks, 0, None, None, None, UNDECIDED, "no degraded question with its ordinary one")
    test = signed_rank if control.method == SIGNED_RANK else rank_sum
    means = test(np.nanmean(good, axis=1), np.nanmean(bad, axis=1))
    single = test(good[~np.isnan(good)], bad[~np.isnan(bad)])
    assert means is not None and single is not None  # neither is empty
    verdict, why = _verdict(means if control.unit == ITEM_MEANS else single, tasks, control)
    difference = float(np.nanmean(good) - np.nanmean(bad))
    return RaterControl(name, tasks, len(bad), difference, means.p, single.p, verdict, why)


def _verdict(test: RankTest, tasks: int, control: Control) -> tuple[str, str]:
    if tasks < control.least_tasks:
        return UNDECIDED, f"{tasks} of at least {control.least_tasks} tasks"
    if test.p < control.level:
        return PASSED, ""
    if test.smallest >= control.level:
        return UNDECIDED, f"{test.n} pairs: p cannot be below {test.smallest:.3g}"
    return FAILED, ""
