"""Tables of raters: who counts and why, and how many passed, in how many minutes (QAScore, table 4)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rl_qg.rating.analysis.habits import Habits
from rl_qg.rating.analysis.quality import FAILED, UNDECIDED, RaterControl
from rl_qg.rating.analysis.ratings import RatedItems

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
    """One row for each rater: verdict, both p-values, habits and flags."""
    of_tasks: dict[str, list[float]] = {}
    for task, rater in dict(zip(rated.task.tolist(), rated.rater.tolist(), strict=True)).items():
        if rated.tasks[task] in minutes:
            of_tasks.setdefault(rated.raters[rater], []).append(minutes[rated.tasks[task]])
    rows = []
    for one, habit in zip(controls, habits, strict=True):
        cells = {name: value for name, value in vars(habit).items() if name not in ("rater", "flags")}
        times = of_tasks.get(one.rater)
        rows.append(
            {
                **vars(one),
                "minutes": float(np.mean(times)) if times else None,
                **cells,
                "flags": "; ".join(habit.flags),
            }
        )
    return rows
