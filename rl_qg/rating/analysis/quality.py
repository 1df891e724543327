"""Whose ratings count: a rater must rate ordinary questions higher than degraded ones.

QAScore (section 4.2) tests all ratings of a rater together, each criterion of each question a pair. The criteria of a
question are not independent, so somebody who clicks at random but gives all criteria of a question about the same
value passes more often than the level says. Here the decision is on the mean over criteria of each question, over all
tasks of a rater, and the published p stands beside it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems, Scale, rated_items
from rl_qg.rating.protocol import DEGRADED, ITEM_MEANS, ORDINARY, REPEAT, SIGNED_RANK, Control, Protocol
from rl_qg.stats.intervals import Floats
from rl_qg.stats.rank_tests import RankTest, rank_sum, signed_rank

# --- How raters rate: repeats, equal values, times. None of it decides whose ratings count. ---

FAST = 3.0  # times as fast as the study's median
LONG_RUN = 8  # equal values on end (Graham et al., "Can machine translation systems be evaluated by the crowd alone")
MOSTLY = 0.5  # share of one value
SLIDER_VALUES = 10  # criteria with more distinct values are sliders; on scales of few values equal ones mean nothing
FEWEST_REPEATS = 3
_DRAWS = 1000


@dataclass(frozen=True)
class Habits:
    """Of one rater; None where there is nothing to compute it from."""

    rater: str
    ratings: int  # how many values
    missing: int  # criteria of items that have none
    repeats: int  # items seen twice
    repeat_difference: float | None  # mean |difference| of both ratings, in points
    chance_difference: float | None  # the same for two of the rater's own questions, drawn at random
    p_repeats: float | None  # how often such a draw is as consistent
    repeat_r: float | None  # correlation of first and second rating
    longest_run: int  # of equal values, in the order shown
    most_frequent: float | None  # share of the most frequent value
    alike: float | None  # share of items whose criteria all have one value
    spread: float | None  # standard deviation of all values
    seconds: float | None  # median of an item
    speed: float | None  # the study's median time over it, on the log scale
    changes: float | None  # values set per rating
    flags: tuple[str, ...] = ()  # what is unusual


def habits_of_raters(rated: RatedItems, *, seed: int = 0) -> list[Habits]:
    """Every rater's habits; `seed` is of the draws for repeats."""
    timed = rated.seconds[rated.seconds > 0]
    median = float(np.exp(np.median(np.log(timed)))) if len(timed) else None
    sliders = len(np.unique(rated.values[~np.isnan(rated.values)])) > SLIDER_VALUES
    rng = np.random.default_rng(seed)
    return [_habits(rated, number, median, sliders, rng) for number in range(len(rated.raters))]


def _habits(rated: RatedItems, rater: int, median: float | None, sliders: bool, rng: np.random.Generator) -> Habits:
    own = rated.rater == rater
    values = rated.values[own]
    known = values[~np.isnan(values)]
    full = values[~np.isnan(values).any(axis=1)]
    timed = rated.seconds[own & (rated.seconds > 0)]
    seconds = float(np.median(timed)) if len(timed) else None
    changed = rated.changes[own & ~np.isnan(rated.changes)]
    runs = (_longest_run(rated.values[own & (rated.task == task)]) for task in np.unique(rated.task[own]))
    habits = Habits(
        rater=rated.raters[rater],
        ratings=len(known),
        missing=int(np.isnan(values).sum()),
        **_repeats(rated, own, rng),
        longest_run=max(runs, default=0),
        most_frequent=float(np.unique(known, return_counts=True)[1].max() / len(known)) if len(known) else None,
        alike=float((np.ptp(full, axis=1) == 0).mean()) if len(full) and full.shape[1] > 1 else None,
        spread=float(known.std(ddof=1)) if len(known) > 1 else None,
        seconds=seconds,
        speed=median / seconds if median and seconds else None,
        changes=float(changed.sum() / max(1, len(known))) if len(changed) else None,
    )
    return replace(habits, flags=tuple(_flags(habits, sliders)))


def _flags(one: Habits, sliders: bool) -> Iterator[str]:
    if one.spread is not None and one.spread <= 1e-9:
        yield "all values equal"
    elif sliders and one.longest_run > LONG_RUN:
        yield f"{one.longest_run} equal values on end"
    elif sliders and one.ratings > LONG_RUN and one.most_frequent is not None and one.most_frequent > MOSTLY:
        yield f"{one.most_frequent:.0%} of values equal"
    if one.speed is not None and one.speed > FAST:
        yield f"{one.speed:.1f} times as fast as the median"
    if one.p_repeats is not None and one.repeats >= FEWEST_REPEATS and one.p_repeats > 0.5:
        yield "repeats no more alike than other questions"


def _longest_run(values: Floats) -> int:
    """Of equal values in the order of items and criteria."""
    flat = values.reshape(-1)
    flat = flat[~np.isnan(flat)]
    if not len(flat):
        return 0
    ends = np.flatnonzero(np.concatenate([np.diff(flat) != 0, [True]]))
    return int(np.diff(np.concatenate([[-1], ends])).max())


def _repeats(rated: RatedItems, own: NDArray[np.bool_], rng: np.random.Generator) -> dict[str, Any]:
    """The fields of `Habits` about questions that the rater saw twice."""
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


# --- The control ---

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
    return {one.name: Scale(one.lowest, one.highest, one.reversed) for one in protocol.criteria}


def controlled(protocol: Protocol) -> list[str]:
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


# --- Tables of raters (QAScore, table 4) ---


Rows = list[dict[str, Any]]
ALL = "all"


def summary_rows(rated: RatedItems, controls: Sequence[RaterControl], minutes: Mapping[str, float]) -> Rows:
    """Raters, tasks, ratings and minutes of those who passed, of those who did not, and of all.

    `minutes` of a task are means, as in the paper, and medians; tasks whose time is not known are left out of both.
    """
    groups: dict[str, set[str]] = {
        "passed": {one.rater for one in controls if one.counts},
        **{name: {one.rater for one in controls if one.verdict == name} for name in (FAILED, UNDECIDED)},
        ALL: {one.rater for one in controls},
    }
    owner = {rated.tasks[task]: rated.raters[rater] for task, rater in zip(rated.task, rated.rater, strict=True)}
    values = np.count_nonzero(~np.isnan(rated.values), axis=1)
    rows = []
    for name, raters in groups.items():
        if not raters and name == UNDECIDED:
            continue
        tasks = [task for task, rater in owner.items() if rater in raters]
        own = np.array([rater in raters for rater in rated.raters], dtype=bool)[rated.rater]
        timed = [minutes[task] for task in tasks if task in minutes]
        rows.append(
            {
                "raters": name,
                "number": len(raters),
                "share": _share(len(raters), len(controls)),
                "tasks": len(tasks),
                "share_of_tasks": _share(len(tasks), len(owner)),
                "tasks_a_rater": _share(len(tasks), len(raters)),
                "ratings": int(values[own].sum()),
                "minutes": float(np.mean(timed)) if timed else None,
                "median_minutes": float(np.median(timed)) if timed else None,
                "timed": len(timed),
            }
        )
    return rows


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def rater_rows(
    controls: Sequence[RaterControl], habits: Iterable[Habits], minutes: Mapping[str, float], rated: RatedItems
) -> Rows:
    of_tasks: dict[str, list[float]] = {}
    for task, rater in dict(zip(rated.task.tolist(), rated.rater.tolist(), strict=True)).items():
        if rated.tasks[task] in minutes:
            of_tasks.setdefault(rated.raters[rater], []).append(minutes[rated.tasks[task]])
    rows = []
    for one, habit in zip(controls, habits, strict=True):
        times = of_tasks.get(one.rater)
        minute = float(np.mean(times)) if times else None
        rows.append({**vars(one), "minutes": minute, **vars(habit), "flags": "; ".join(habit.flags)})
    return rows
