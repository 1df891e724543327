"""What a plan takes, and what it can show: minutes and pay, and the smallest difference between systems that it finds.

A rating is taken in units of its rater's spread (z), and is the mean over the criteria. It is the sum of the system's
score, what the passage adds for every system, what the question adds, and what the rater adds. The passage falls out,
since two systems are compared on the same passages.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as students_t

from rl_qg.rating.analysis.rank_tests import rank_sum, signed_rank
from rl_qg.rating.plan_files import Hit
from rl_qg.rating.protocol import DEGRADED, ORDINARY, RATINGS, REPEAT, SIGNED_RANK, Control, Protocol

POWER, LEVEL = 0.8, 0.05
ENOUGH_RATINGS = 385  # of a system, Graham et al., as the QAScore paper quotes
MOST_TASKS = 1000  # of one rater, that are tried
STUDIES = 1000  # simulated, and fewer where they would be larger than so many numbers:
NUMBERS = 2_000_000

QUESTION_SD = RATING_SD = 0.37
"""Standard deviations between the questions of a system and between raters of a question, in z of the mean over
criteria: those of the 7,500 ratings of QG-Bench's human evaluation (six systems, five raters, three criteria; passages
and systems taken out). Together .52; within the tasks of the direct assessment of Ji et al. (ACL 2022) they are .48 to
.53 in its three runs."""
PASS_RATE = 0.45
"""Share of tasks by raters who pass the control in the crowd of the QAScore paper: 334 of 786 and 282 of 598."""


@dataclass(frozen=True)
class Effort:
    """What raters give and get. Fees of a panel are not in it."""

    assignments: int  # tasks times raters of each
    minutes: float  # of a task, on average
    hours: float
    currency: str
    per_hit: float
    total: float


def effort_of(hits: Sequence[Hit], protocol: Protocol, raters: int, pay_per_hour: float, currency: str) -> Effort:
    """The time and pay of a plan; a task takes as much longer than the protocol's as it has more items."""
    minutes = protocol.minutes_per_hit * sum(len(hit.items) for hit in hits) / protocol.recipe.items / len(hits)
    assignments = raters * len(hits)
    hours = assignments * minutes / 60
    return Effort(assignments, minutes, hours, currency, pay_per_hour * minutes / 60, pay_per_hour * hours)


def tasks_for_control(hits: Sequence[Hit], control: Control, criteria: int) -> int | None:
    """How many tasks one rater has to rate before the control can pass anybody; None where that is one.

    Args:
        hits: the tasks; each counts with as many ordinary and degraded questions as they have on average.
        control: of the protocol.
        criteria: how many enter it.
    """
    kinds = [item.kind for hit in hits for item in hit.items]
    ordinary, degraded = kinds.count(ORDINARY), kinds.count(DEGRADED)
    if not degraded or not criteria:
        return None
    values = criteria if control.unit == RATINGS else 1
    for tasks in range(control.least_tasks, MOST_TASKS):
        share = tasks / len(hits) * values
        high, low = np.ones(max(1, int(ordinary * share))), np.zeros(int(degraded * share))
        test = signed_rank(low + 1, low) if control.method == SIGNED_RANK else rank_sum(high, low)
        if test is not None and test.smallest < control.level:
            return tasks if tasks > 1 else None
    return MOST_TASKS


@dataclass(frozen=True)
class Noise:
    """How much ratings vary (see `QUESTION_SD`), and the share of tasks that count."""

    question_sd: float = QUESTION_SD
    rating_sd: float = RATING_SD
    pass_rate: float = 1.0


@dataclass(frozen=True)
class Detectable:
    """The smallest difference that is found with probability `POWER`, by a two-sided paired t test at `LEVEL`.

    Args:
        pair: of the systems that share the fewest passages with their answer.
        shared: how many those are.
        pairs: of systems, for Holm's correction.
        one: in z, for this pair alone.
        holm: with the level of the first step of Holm's correction over all pairs.
    """

    pair: tuple[str, str]
    shared: int
    pairs: int
    one: float
    holm: float


@dataclass(frozen=True)
class _Place:
    """Where a system's question about a subject is rated."""

    task: int
    question: str
    forms: int  # 2 where it is repeated


def detectable_difference(
    hits: Sequence[Hit], systems: Sequence[str], raters: int, noise: Noise, seed: int
) -> Detectable | None:
    """Simulate the studies of a plan; None where two systems share too few passages, or one alone is rated.

    Args:
        hits: the tasks.
        systems: all of them; those without an ordinary question are not compared.
        raters: of each task.
        noise: standard deviations and the share of tasks that count.
        seed: of the simulation.
    """
    places = _places(hits)
    common = {
        (one, other): [(of[one], of[other]) for of in places.values() if one in of and other in of]
        for one, other in combinations([name for name in systems if any(name in of for of in places.values())], 2)
    }
    if not common:
        return None
    pair = min(common, key=lambda names: sum(one.question != other.question for one, other in common[names]))
    if len(common[pair]) < 2:
        return None
    studies = _simulated(common[pair], raters, noise, np.random.default_rng(seed))
    found = [_smallest(studies, LEVEL / pairs) for pairs in (1, len(common))]
    if None in found:
        return None
    return Detectable(pair, len(common[pair]), len(common), *[value for value in found if value is not None])


def _places(hits: Sequence[Hit]) -> Mapping[str, Mapping[str, _Place]]:
    """By subject, then by system."""
    found: defaultdict[str, dict[str, _Place]] = defaultdict(dict)
    for task, hit in enumerate(hits):
        repeated = {item.original for item in hit.items if item.kind == REPEAT}
        for item in hit.items:
            if item.kind == ORDINARY:
                place = _Place(task, item.question, 1 + (item.position in repeated))
                found[item.item].update(dict.fromkeys(item.systems, place))
    return found


@dataclass(frozen=True)
class _Studies:
    """Of each simulated study: how many differences it has, their mean and variance without an effect; the mean and
    variance of the effect's share in them and its covariance with the noise.
    """

    count: NDArray[np.float64]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    share: NDArray[np.float64]
    share_variance: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def power(self, effect: float, level: float) -> float:
        """The share of studies that find a mean difference of `effect`."""
        variance = self.variance + 2 * effect * self.covariance + effect**2 * self.share_variance
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (self.mean + effect * self.share) / np.sqrt(variance / self.count)
            return float(np.mean(np.abs(t) > students_t.isf(level / 2, self.count - 1)))


def _simulated(
    places: Sequence[tuple[_Place, _Place]], raters: int, noise: Noise, rng: np.random.Generator
) -> _Studies:
    """Differences of one pair of systems on the passages that both have asked about. Where their questions are equal
    the difference is 0, and the others have more of the effect.
    """
    differs = np.array([one.question != other.question for one, other in places], dtype=bool)
    tasks = sorted({place.task for pair in places for place in pair})
    size = (max(100, min(STUDIES, NUMBERS // max(1, len(places)))), len(tasks))
    passed = rng.binomial(raters, noise.pass_rate, size=size)
    column = {task: number for number, task in enumerate(tasks)}
    ratings = [
        passed[:, [column[pair[side].task] for pair in places]] * [pair[side].forms for pair in places]
        for side in (0, 1)
    ]
    rated = (ratings[0] > 0) & (ratings[1] > 0)
    inverse = sum(1 / np.maximum(counts, 1) for counts in ratings)
    spread = np.sqrt(2 * noise.question_sd**2 + noise.rating_sd**2 * inverse)
    values = np.where(rated & differs, rng.standard_normal(rated.shape) * spread, 0.0)
    share = np.where(rated & differs, len(places) / max(1, differs.sum()), 0.0)
    count = rated.sum(axis=1).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, mean_share = values.sum(axis=1) / count, share.sum(axis=1) / count
        from_mean = np.where(rated, values - mean[:, None], 0.0)
        of_share = np.where(rated, share - mean_share[:, None], 0.0)
        products = ((from_mean**2).sum(1), (of_share**2).sum(1), (from_mean * of_share).sum(1))
        variance, share_variance, covariance = (total / (count - 1) for total in products)
    return _Studies(count, mean, variance, mean_share, share_variance, covariance)


def _smallest(studies: _Studies, level: float) -> float | None:
    """The effect that is found with probability `POWER`, by bisection; None where none is found so often."""
    high = 0.01
    while studies.power(high, level) < POWER:
        high *= 2
        if high > 100:
            return None
    low = high / 2
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if studies.power(middle, level) >= POWER else (middle, high)
    return high
