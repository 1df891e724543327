"""How raters rate, beside the control: repeats, equal values, times.

None of it decides whose ratings count. It is what somebody who runs a study wants to see of a rater who failed, or who
passed by chance.
"""

from dataclasses import dataclass

import numpy as np

from rl_qg.confidence_intervals import Floats
from rl_qg.rating.analysis.ratings import NO_ORIGINAL, RatedItems
from rl_qg.rating.protocol import REPEAT

FAST = 3.0  # times as fast as the study's median
LONG_RUN = 8  # equal values on end (Graham et al., "Can machine translation systems be evaluated by the crowd alone")
MOSTLY = 0.5  # share of one value
SLIDER_VALUES = 10  # criteria with more distinct values are sliders; on scales of few values equal ones mean nothing
FEWEST_REPEATS = 3
_DRAWS = 1000


@dataclass(frozen=True)
class Habits:
    """Of one rater; None where there is nothing to compute it from.

    Attributes:
        rater: the name.
        ratings: how many values; missing: how many of the items' criteria have none.
        repeats: items seen twice; repeat_difference: mean |difference| of both ratings, in points; chance_difference:
            the same for two of the rater's own questions, drawn at random; p_repeats: how often such a draw is as
            consistent; repeat_r: correlation of first and second rating.
        longest_run: of equal values, in the order shown; most_frequent: share of the most frequent value; alike: share
            of items whose criteria all have one value; spread: standard deviation of all values.
        seconds: median of an item; speed: the study's median over it, compared on the log scale.
        changes: values set per rating.
        flags: what is unusual.
    """

    rater: str
    ratings: int
    missing: int
    repeats: int
    repeat_difference: float | None
    chance_difference: float | None
    p_repeats: float | None
    repeat_r: float | None
    longest_run: int
    most_frequent: float | None
    alike: float | None
    spread: float | None
    seconds: float | None
    speed: float | None
    changes: float | None
    flags: tuple[str, ...]


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
    run = max(
        (_longest_run(rated.values[own & (rated.task == task)]) for task in np.unique(rated.task[own])), default=0
    )
    share = float(np.unique(known, return_counts=True)[1].max() / len(known)) if len(known) else None
    full = values[~np.isnan(values).any(axis=1)]
    alike = float((np.ptp(full, axis=1) == 0).mean()) if len(full) and full.shape[1] > 1 else None
    spread = float(known.std(ddof=1)) if len(known) > 1 else None
    timed = rated.seconds[own & (rated.seconds > 0)]
    seconds = float(np.median(timed)) if len(timed) else None
    speed = median / seconds if median and seconds else None
    changed = rated.changes[own & ~np.isnan(rated.changes)]
    changes = float(changed.sum() / max(1, len(known))) if len(changed) else None
    repeated = _repeats(rated, own, rng)
    flags = []
    if spread is not None and spread <= 1e-9:
        flags.append("all values equal")
    elif sliders and run > LONG_RUN:
        flags.append(f"{run} equal values on end")
    elif sliders and share is not None and share > MOSTLY and len(known) > LONG_RUN:
        flags.append(f"{share:.0%} of values equal")
    if speed is not None and speed > FAST:
        flags.append(f"{speed:.1f} times as fast as the median")
    if repeated[3] is not None and repeated[0] >= FEWEST_REPEATS and repeated[3] > 0.5:
        flags.append("repeats no more alike than other questions")
    return Habits(
        rater=rated.raters[rater],
        ratings=len(known),
        missing=int(np.isnan(values).sum()),
        repeats=repeated[0],
        repeat_difference=repeated[1],
        chance_difference=repeated[2],
        p_repeats=repeated[3],
        repeat_r=repeated[4],
        longest_run=run,
        most_frequent=share,
        alike=alike,
        spread=spread,
        seconds=seconds,
        speed=speed,
        changes=changes,
        flags=tuple(flags),
    )


def _longest_run(values: Floats) -> int:
    """Of equal values in the order of items and criteria."""
    flat = values.reshape(-1)
    flat = flat[~np.isnan(flat)]
    if not len(flat):
        return 0
    ends = np.flatnonzero(np.concatenate([np.diff(flat) != 0, [True]]))
    return int(np.diff(np.concatenate([[-1], ends])).max())


def _repeats(
    rated: RatedItems, own: np.ndarray, rng: np.random.Generator
) -> tuple[int, float | None, float | None, float | None, float | None]:
    """Repeats of a rater against pairs of the rater's own questions: how many, mean |difference| of both and by
    chance, the share of draws that is as small, and the correlation.
    """
    rows = np.flatnonzero(own & rated.is_kind(REPEAT) & (rated.original != NO_ORIGINAL))
    first, second = rated.values[rated.original[rows]], rated.values[rows]
    known = ~np.isnan(first) & ~np.isnan(second)
    if not known.any():
        return 0, None, None, None, None
    difference = float(np.abs(first - second)[known].mean())
    a, b = first[known], second[known]
    r = float(np.corrcoef(a, b)[0, 1]) if len(a) > 2 and np.ptp(a) > 0 and np.ptp(b) > 0 else None
    others = np.flatnonzero(own & ~rated.is_kind(REPEAT))
    if len(others) < 2:
        return len(rows), difference, None, None, r
    left = rng.integers(len(others), size=(_DRAWS, len(rows)))
    right = (left + rng.integers(1, len(others), size=left.shape)) % len(others)  # another one
    gaps = np.abs(rated.values[others[left]] - rated.values[others[right]])  # (draws, repeats, criteria)
    means = np.nanmean(gaps.reshape(_DRAWS, -1), axis=1) if not np.isnan(gaps).all() else np.zeros(_DRAWS)
    p = float((np.count_nonzero(means <= difference + 1e-9) + 1) / (_DRAWS + 1))
    return len(rows), difference, float(np.nanmean(means)), p, r
