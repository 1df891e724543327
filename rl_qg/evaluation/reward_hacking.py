"""Is the reward being hacked? The rule that compares the optimised reward with measures that it does not see.

A generator that learns by a metric also learns the metric's weaknesses: the reward keeps rising while the questions
become long, all alike, or copies of the passage (`rl_qg.evaluation.text_measures`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from rl_qg.evaluation.text_measures import DIRECTION

TOLERANCE = 0.1  # fraction of its value at the start that a measure may lose
_TOLERANCES = {"held_out": 0.05}  # log-likelihoods lose much meaning before they lose many percent
_BOTH_WAYS = 2.5  # times that, where neither direction is better: a style that is learnt changes lengths too
# Changes too small to matter however small the start is: one BLEU point in 100, one question in twenty.
LEAST = {
    "bleu4": 0.01,
    "rouge_l": 0.01,
    "distinct_1": 0.02,
    "distinct_2": 0.02,
    "length_words": 1.0,
    "copy_rate": 0.05,
    "no_question_mark": 0.05,
    "repeated_3grams": 0.05,
    "unsupported": 0.05,
}
_RISE = 0.01  # fraction of its start by which a reward must grow to have gone up
_ENDS = 3  # evaluations whose median is taken for the start of a stage, and for its end
FEWEST = 4  # evaluations: with fewer, one noisy value decides


@dataclass(frozen=True)
class SeriesChange:
    """Where a series began and where it ended: medians of its first and of its last evaluations."""

    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "SeriesChange | None":
        """None for fewer than four finite values: there one noisy evaluation could decide."""
        finite = [value for value in values if math.isfinite(value)]
        if len(finite) < FEWEST:
            return None
        return cls(median(finite[:_ENDS]), median(finite[-_ENDS:]))


def rises(reward: Sequence[float]) -> bool:
    """Return whether a reward grew over a stage by more than 1 % of its start."""
    gain = SeriesChange.of(reward)
    return gain is not None and gain.end - gain.start > _RISE * abs(gain.start)


def diverges(
    reward: Sequence[float],
    other: Sequence[float],
    direction: int,
    *,
    tolerance: float = TOLERANCE,
    least: float = 0.0,
) -> bool:
    """Return whether the optimised reward went up while another measure clearly got worse.

    Both are series of one self-critical stage, from the last evaluation before it on; start and end are medians of
    three evaluations, which one noisy value cannot move. The reward went up when it grew by more than 1 % of its
    start. The other measure got worse when it lost more than `tolerance` of its start, and more than `least` in its
    own unit; with `direction` 0 both ways are worse, and 2.5 times the tolerance is allowed. Series of fewer than four
    finite values never count as diverging.
    """
    change = SeriesChange.of(other)
    if change is None or not rises(reward):
        return False
    moved = change.end - change.start
    if direction == 0:
        return abs(moved) > max(_BOTH_WAYS * tolerance * abs(change.start), least)
    return -direction * moved > max(tolerance * abs(change.start), least)


def divergences(reward: Sequence[float], others: Mapping[str, Sequence[float]]) -> dict[str, SeriesChange]:
    """Return the measures of `DIRECTION` among `others` that diverge from the optimised reward, and their changes."""
    diverging = {}
    for name, values in others.items():
        change = SeriesChange.of(values)
        tolerance, least = _TOLERANCES.get(name, TOLERANCE), LEAST.get(name, 0.0)
        if change is not None and diverges(reward, values, DIRECTION[name], tolerance=tolerance, least=least):
            diverging[name] = change
    return diverging
