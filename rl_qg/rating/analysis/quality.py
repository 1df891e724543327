"""Whose ratings count: a rater must rate ordinary questions higher than degraded ones.

QAScore (section 4.2) tests all ratings of a rater together, each criterion of each question a pair. The criteria of a
question are not independent, so somebody who clicks at random but gives all criteria of a question about the same
value passes more often than the level says. Here the decision is on the mean over criteria of each question, over all
tasks of a rater, and the published p stands beside it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems, Scale, rated_items
from rl_qg.rating.protocol import DEGRADED, ITEM_MEANS, ORDINARY, REPEAT, SIGNED_RANK, Control, Protocol
from rl_qg.stats.intervals import Floats
from rl_qg.stats.rank_tests import rank_sum, signed_rank

# --- How raters rate: repeats, equal values, times. None of it decides whose ratings count. ---

Rows = list[dict[str, Any]]
FAST = 3.0  # times as fast as the study's median
LONG_RUN = 8  # equal values on end (Graham et al., "Can machine translation systems be evaluated by the crowd alone")
MOSTLY = 0.5  # share of one value
SLIDER_VALUES = 10  # criteria with more distinct values are sliders; on scales of few values equal ones mean nothing
FEWEST_REPEATS = 3
_DRAWS = 1000
PASSED, FAILED, UNDECIDED, UNTESTED = "passed", "failed", "undecided", "untested"
NOT_FAILED, EVERYBODY = "not_failed", "all"


def habits_of_raters(rated: RatedItems, *, seed: int = 0) -> Rows:
    """Every rater's habits; None where there is nothing to compute one from. `seed` is of the draws for repeats."""
    timed = rated.seconds[rated.seconds > 0]
    median = float(np.exp(np.median(np.log(timed)))) if len(timed) else None
    sliders = len(np.unique(rated.values[~np.isnan(rated.values)])) > SLIDER_VALUES
    rng = np.random.default_rng(seed)
    rows = [_habits(rated, number, median, rng) for number in range(len(rated.raters))]
    return [row | {"flags": [*_flags(row, sliders)]} for row in rows]


def _habits(rated: RatedItems, rater: int, median: float | None, rng: np.random.Generator) -> dict[str, Any]:
    own = rated.rater == rater
    values = rated.values[own]
    known = values[~np.isnan(values)]
    full = values[~np.isnan(values).any(axis=1)]
    timed = rated.seconds[own & (rated.seconds > 0)]
    seconds = float(np.median(timed)) if len(timed) else None
    changed = rated.changes[own & ~np.isnan(rated.changes)]
    runs = (_longest_run(rated.values[own & (rated.task == task)]) for task in np.unique(rated.task[own]))
    return {
        "rater": rated.raters[rater],
        "ratings": len(known),  # how many values
        "missing": int(np.isnan(values).sum()),  # criteria of items that have none
        **_repeats(rated, own, rng),
        "longest_run": max(runs, default=0),  # of equal values, in the order shown
        # The share of the most frequent value, and of items whose criteria all have one value.
        "most_frequent": float(np.unique(known, return_counts=True)[1].max() / len(known)) if len(known) else None,
        "alike": float((np.ptp(full, axis=1) == 0).mean()) if len(full) and full.shape[1] > 1 else None,
        "spread": float(known.std(ddof=1)) if len(known) > 1 else None,  # standard deviation of all values
        "seconds": seconds,  # median of an item
        # The study's median time, on the log scale, over the rater's.
        "speed": median / seconds if median and seconds else None,
        "changes": float(changed.sum() / max(1, len(known))) if len(changed) else None,  # values set per rating
    }


def _flags(one: Mapping[str, Any], sliders: bool) -> Iterator[str]:
    if one["spread"] is not None and one["spread"] <= 1e-9:
        yield "all values equal"
    elif sliders and one["longest_run"] > LONG_RUN:
        yield f"{one['longest_run']} equal values on end"
    elif sliders and one["ratings"] > LONG_RUN and (one["most_frequent"] or 0) > MOSTLY:
        yield f"{one['most_frequent']:.0%} of values equal"
    if (one["speed"] or 0) > FAST:
        yield f"{one['speed']:.1f} times as fast as the median"
    if one["repeats"] >= FEWEST_REPEATS and (one["p_repeats"] or 0) > 0.5:
        yield "repeats no more alike than other questions"


def _longest_run(values: Floats) -> int:
    """Of equal values in the order of items and criteria."""
    return max((len([*run]) for _, run in groupby(values[~np.isnan(values)].tolist())), default=0)


def _repeats(rated: RatedItems, own: NDArray[np.bool_], rng: np.random.Generator) -> dict[str, Any]:
    """About questions that the rater saw twice: how many; the mean |difference| of both ratings, in points, and of two
    of the rater's own questions, drawn at random; how often such a draw is as consistent; and the correlation of first
    and second rating.
    """
    found: dict[str, Any] = {"repeats": 0, "repeat_difference": None, "chance_difference": None}
    found |= {"p_repeats": None, "repeat_r": None}
    rows = np.flatnonzero(own & rated.is_kind(REPEAT) & (rated.original != NO_ORIGINAL))
    first, second = rated.values[rated.original[rows]], rated.values[rows]
    known = ~np.isnan(first) & ~np.isnan(second)
    if not known.any():
        return found
    a, b = first[known], second[known]
    difference = float(np.abs(a - b).mean())
    found |= {"repeats": len(rows), "repeat_difference": difference}
    if len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0:
        found["repeat_r"] = float(np.corrcoef(a, b)[0, 1])
    others = np.flatnonzero(own & ~rated.is_kind(REPEAT))
    if len(others) < 2:
        return found
    # As many pairs of two different questions of the rater as there are repeats, drawn again and again.
    left = rng.integers(len(others), size=(_DRAWS, len(rows)))
    right = (left + rng.integers(1, len(others), size=left.shape)) % len(others)
    gaps = np.abs(rated.values[others[left]] - rated.values[others[right]])  # (draws, repeats, criteria)
    means = np.nanmean(gaps.reshape(_DRAWS, -1), axis=1) if not np.isnan(gaps).all() else np.zeros(_DRAWS)
    p = float((np.count_nonzero(means <= difference + 1e-9) + 1) / (_DRAWS + 1))
    return found | {"chance_difference": float(np.nanmean(means)), "p_repeats": p}


@dataclass(frozen=True)
class RaterControl:
    """The control of one rater."""

    rater: str
    tasks: int
    pairs: int  # the number of degraded items compared
    difference: float | None  # by how much ordinary ones are rated higher on average
    p_item_means: float | None  # of the two units, None where there is nothing to compare
    p_ratings: float | None
    verdict: str  # undecided: so few pairs, or tasks, decide nothing, whatever the values; untested: no degraded items
    why: str = ""

    @property
    def counts(self) -> bool:
        return self.verdict in (PASSED, UNTESTED)


def pass_rates(records: Iterable[Mapping[str, Any]], protocol: Protocol) -> dict[str, Any]:
    """`counts_of` the control as the protocol says, and the control `of_raters`, of ratings so far (`ratings.jsonl`).
    Only submitted tasks count. A study without degraded items has no control: all its raters count as passed.
    """
    located = ((f"rating {number}", record) for number, record in enumerate(records, 1))
    rated = rated_items(located, scales_of(protocol))
    controls = control_of_raters(rated, protocol.control, controlled(protocol))
    return {**counts_of(controls), "of_raters": [asdict(one) for one in controls]}


def counted_raters(controls: Sequence[RaterControl], whose: str = PASSED) -> list[str]:
    """Whose ratings count: of those that `whose` says, and everybody's where the control could decide on nobody."""
    undecidable = all(one.verdict == UNDECIDED for one in controls)
    return [
        one.rater
        for one in controls
        if one.counts or whose == EVERYBODY or undecidable or (whose == NOT_FAILED and one.verdict == UNDECIDED)
    ]


def counts_of(controls: Sequence[RaterControl]) -> dict[str, int]:
    verdicts = [one.verdict for one in controls]
    return {
        "raters": len(controls),
        "passed": sum(one.counts for one in controls),
        "failed": verdicts.count(FAILED),
        "undecided": verdicts.count(UNDECIDED),
        "tasks": sum(one.tasks for one in controls),
        "tasks_passed": sum(one.tasks for one in controls if one.counts),
    }


def scales_of(protocol: Protocol) -> dict[str, Scale]:
    return {one.name: Scale(one.lowest, one.highest, one.reversed) for one in protocol.criteria}


def controlled(protocol: Protocol) -> list[str]:
    return [one.name for one in protocol.criteria if one.control]


def control_of_raters(rated: RatedItems, control: Control, criteria: Sequence[str]) -> list[RaterControl]:
    """The control of every rater, over all their tasks; `criteria` are those that enter it."""
    columns = [rated.criteria.index(name) for name in criteria if name in rated.criteria]
    is_tested = bool(columns) and bool(rated.is_kind(DEGRADED).any())
    compared = _pairs if control.method == SIGNED_RANK else _groups
    controls = []
    for number, name in enumerate(rated.raters):
        tasks = len(np.unique(rated.task[rated.rater == number]))
        if is_tested:
            controls.append(_control(name, tasks, *compared(rated, number, columns), control))
        else:
            controls.append(RaterControl(name, tasks, 0, None, None, None, UNTESTED, "no degraded questions"))
    return controls


def _pairs(rated: RatedItems, rater: int, columns: list[int]) -> tuple[Floats, Floats]:
    """The values of a rater's ordinary items and their degraded forms, (pairs, criteria); NaN in both without one."""
    rows = np.flatnonzero((rated.rater == rater) & rated.is_kind(DEGRADED) & (rated.original != NO_ORIGINAL))
    bad, good = rated.values[rows][:, columns], rated.values[rated.original[rows]][:, columns]
    missing = np.isnan(good) | np.isnan(bad)
    known = ~missing.all(axis=1)
    good, bad = (np.where(missing, np.nan, values)[known] for values in (good, bad))
    return good, bad


def _groups(rated: RatedItems, rater: int, columns: list[int]) -> tuple[Floats, Floats]:
    """The values of all ordinary and of all degraded items of a rater, (items, criteria)."""
    kinds = [rated.values[(rated.rater == rater) & rated.is_kind(kind)][:, columns] for kind in (ORDINARY, DEGRADED)]
    good, bad = (values[~np.isnan(values).all(axis=1)] for values in kinds)
    return good, bad


def _control(name: str, tasks: int, good: Floats, bad: Floats, control: Control) -> RaterControl:
    if not len(good) or not len(bad):
        return RaterControl(name, tasks, 0, None, None, None, UNDECIDED, "no degraded question with its ordinary one")
    test = signed_rank if control.method == SIGNED_RANK else rank_sum
    means = test(np.nanmean(good, axis=1), np.nanmean(bad, axis=1))
    single = test(good[~np.isnan(good)], bad[~np.isnan(bad)])
    assert means is not None and single is not None  # neither is empty
    deciding, why = (means if control.unit == ITEM_MEANS else single), ""
    verdict = PASSED if deciding.p < control.level else FAILED
    if tasks < control.least_tasks:
        verdict, why = UNDECIDED, f"{tasks} of at least {control.least_tasks} tasks"
    elif deciding.smallest >= control.level:  # also where ties bring the normal approximation of so few below it
        verdict, why = UNDECIDED, f"{deciding.n} pairs: p cannot be below {deciding.smallest:.3g} without ties"
    difference = float(np.nanmean(good) - np.nanmean(bad))
    return RaterControl(name, tasks, len(bad), difference, means.p, single.p, verdict, why)


# --- Tables of raters (QAScore, table 4) ---


def summary_rows(rated: RatedItems, controls: Sequence[RaterControl], minutes: Mapping[str, float]) -> Rows:
    """Of those who passed, who did not, and of all. `minutes` of a task are means, as in the paper, and medians."""
    groups = {
        "passed": {one.rater for one in controls if one.counts},
        **{name: {one.rater for one in controls if one.verdict == name} for name in (FAILED, UNDECIDED)},
        "all": {one.rater for one in controls},
    }
    owner = _owners(rated)

    def share(part: int, whole: int) -> float | None:
        return part / whole if whole else None

    rows = []
    for name, raters in groups.items():
        if not raters and name == UNDECIDED:
            continue
        tasks = [task for task, rater in owner.items() if rater in raters]
        timed = [minutes[task] for task in tasks if task in minutes]
        rows.append(
            {
                "raters": name,
                "number": len(raters),
                "share": share(len(raters), len(controls)),
                "tasks": len(tasks),
                "share_of_tasks": share(len(tasks), len(owner)),
                "tasks_a_rater": share(len(tasks), len(raters)),
                "ratings": int(rated.known[rated.is_of(raters)].sum()),
                "minutes": float(np.mean(timed)) if timed else None,
                "median_minutes": float(np.median(timed)) if timed else None,
                "timed": len(timed),
            }
        )
    return rows


def rater_rows(
    controls: Sequence[RaterControl], habits: Rows, minutes: Mapping[str, float], rated: RatedItems
) -> Rows:
    owner, rows = _owners(rated), []
    for one, habit in zip(controls, habits, strict=True):
        times = [minutes[task] for task, rater in owner.items() if rater == one.rater and task in minutes]
        minute = float(np.mean(times)) if times else None
        rows.append({**vars(one), "minutes": minute, **habit, "flags": "; ".join(habit["flags"])})
    return rows


def _owners(rated: RatedItems) -> dict[str, str]:
    return {rated.tasks[task]: rated.raters[rater] for task, rater in zip(rated.task, rated.rater, strict=True)}
