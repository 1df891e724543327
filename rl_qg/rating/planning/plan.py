"""From questions of several systems to tasks for raters.

Writes `hits.jsonl` and `plan.json`, whose bytes depend on the settings and the files alone, and prints how many raters
the plan needs, what they are paid, what was left out, and the smallest difference between systems that it can show.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import t as students_t

from rl_qg.pages.results import text_template
from rl_qg.rating.plan_files import PLAN, Hit, write_plan_files
from rl_qg.rating.planning.hits import counts_of, make_tasks
from rl_qg.rating.planning.questions import read_questions
from rl_qg.rating.protocol import DEGRADED, KINDS, ORDINARY, RATINGS, REPEAT, SIGNED_RANK, Control, Protocol
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import writing
from rl_qg.settings import RatePlanSettings
from rl_qg.stats.rank_tests import rank_sum, signed_rank
from rl_qg.text.languages import code_of
from rl_qg.text.words import counted

# The smallest difference between systems that a plan finds: a rating is taken in units of its rater's spread (z), and
# is the mean over the criteria. It is the sum of the system's score, what the passage adds for every system, what the
# question adds, and what the rater adds. The passage falls out: two systems are compared on the same passages.
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
LEAST_PAY = {"USD": 8.0, "GBP": 6.0}  # an hour (docs.prolific.com)


def effort_of(hits: Sequence[Hit], protocol: Protocol, raters: int, pay_per_hour: float) -> dict[str, float]:
    """What raters give and get, without fees of a panel. A task takes as much longer as it has more items."""
    minutes = protocol.minutes_per_hit * sum(len(hit.items) for hit in hits) / protocol.recipe.items / len(hits)
    assignments = raters * len(hits)
    hours = assignments * minutes / 60
    pay = {"pay_per_hit": pay_per_hour * minutes / 60, "total": pay_per_hour * hours}
    return {"assignments": assignments, "minutes": minutes, "hours": hours, **pay}


def tasks_for_control(hits: Sequence[Hit], control: Control, criteria: int) -> int | None:
    """How many tasks one rater has to rate before the control can pass anybody; None where that is one. Each task
    counts with as many ordinary and degraded questions as they have on average; `criteria`: how many count.
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


class _Place(NamedTuple):
    """Where a system's question about a subject is rated; it has two forms where it is repeated."""

    task: int
    question: str
    forms: int


def detectable_difference(
    hits: Sequence[Hit], systems: Sequence[str], raters: int, noise: Noise, seed: int
) -> dict[str, Any] | None:
    """The smallest difference that is found with probability `POWER`, by a two-sided paired t test at `LEVEL`, in
    simulated studies of a plan; `raters`: of each task. Systems without an ordinary question are not compared.

    Returns `pair`, the systems that share the fewest passages with their answer, and how many are `shared`; `one`, the
    difference in z for this pair alone; and `holm`, that with the level of the first step of Holm's correction over
    all `pairs`. None where two systems share too few passages, or one alone is rated.
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
    power = _simulated(common[pair], raters, noise, np.random.default_rng(seed))
    one, holm = (_smallest(power, LEVEL / pairs) for pairs in (1, len(common)))
    if one is None or holm is None:
        return None
    return {"pair": pair, "shared": len(common[pair]), "pairs": len(common), "one": one, "holm": holm}


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


def _simulated(
    places: Sequence[tuple[_Place, _Place]], raters: int, noise: Noise, rng: np.random.Generator
) -> Callable[[float, float], float]:
    """The share of simulated studies that find a mean difference of some size at some level. A study has the
    differences of one pair of systems on the passages that both have asked about; where their questions are equal the
    difference is 0, and the others have more of the effect.
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

    def power(effect: float, level: float) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            of_effect = variance + 2 * effect * covariance + effect**2 * share_variance
            t = (mean + effect * mean_share) / np.sqrt(of_effect / count)
            return float(np.mean(np.abs(t) > students_t.isf(level / 2, count - 1)))

    return power


def _smallest(power: Callable[[float, float], float], level: float) -> float | None:
    """The effect that is found with probability `POWER`, by bisection; None where none is found so often."""
    high = 0.01
    while power(high, level) < POWER:
        high *= 2
        if high > 100:
            return None
    low = high / 2
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if power(middle, level) >= POWER else (middle, high)
    return high


def write_plan(settings: RatePlanSettings, protocol: Protocol) -> None:
    if not settings.output:
        raise InputError("output has no value; name a folder, such as output=plan")
    folder = Path(settings.output).expanduser()
    language, raters = code_of(settings.language), settings.raters or protocol.raters_per_hit
    study = read_questions(settings.questions, settings.gold)
    tasks = make_tasks(study, protocol.recipe, language=language, seed=settings.seed, items=settings.items)
    if not tasks.hits:
        raise InputError("questions: none of a system beside people; the human ones are references of this protocol")
    effort = effort_of(tasks.hits, protocol, raters, settings.pay_per_hour)
    items = [item for hit in tasks.hits for item in hit.items]
    pass_rate = settings.pass_rate or (PASS_RATE if any(item.kind == DEGRADED for item in items) else 1.0)
    noise = Noise(settings.question_sd, settings.rating_sd, pass_rate)
    found = detectable_difference(tasks.hits, study.systems, raters, noise, settings.seed)
    found = found or {"one": None, "holm": None}
    changed = {"raters_per_hit": raters, "minutes_per_hit": max(0.1, round(effort["minutes"], 1))}
    protocol = Protocol.from_dict("rate_plan", protocol.to_dict() | changed)
    found = {key: round(value, 3) if isinstance(value, float) else value for key, value in found.items()}
    record = {
        "study": settings.study or folder.resolve().name,
        "seed": settings.seed,
        "language": language,
        "raters_per_hit": raters,
        "retention_days": settings.retention_days,
        "hits": len(tasks.hits),
        "items": len(items),
        "ratings": len(items) * raters * len(protocol.criteria),
        "systems": counts_of(tasks.hits, study.systems),
        "shared_questions": sum(item.kind == ORDINARY and len(item.systems) > 1 for item in items),
        "nearer_hits": {str(distance): count for distance, count in sorted(tasks.nearer.items())},
        "left_out": {reason: count for reason, count in (study.left_out + tasks.left_out).items() if count},
        "minutes": round(effort["minutes"], 1),
        "cost": {
            "currency": settings.currency,
            "pay_per_hour": settings.pay_per_hour,
            "assignments": effort["assignments"],
            "hours": round(effort["hours"], 1),
            "pay_per_hit": round(effort["pay_per_hit"], 2),
            "total": round(effort["total"], 2),
        },
        "detectable": {"unit": "z, mean over criteria", "power": POWER, "level": LEVEL, **asdict(noise), **found},
    }
    needed = tasks_for_control(tasks.hits, protocol.control, sum(one.control for one in protocol.criteria))
    with writing(folder, "output", "folder"):
        write_plan_files(folder, record, protocol, tasks.hits)
    print(summary(record, protocol, needed), end="")
    print(f"done: {folder / PLAN}; next: rl-qg rate serve plan={folder}")


def summary(record: Mapping[str, Any], protocol: Protocol, needed: int | None = None) -> str:
    """The plan in a few lines; `needed`: tasks that a rater must have before the control can pass anybody."""
    systems: Mapping[str, Mapping[str, int]] = record["systems"]
    ratings = {system: counts[ORDINARY] * record["raters_per_hit"] for system, counts in systems.items()}
    few = [(system, count) for system, count in ratings.items() if 0 < count < ENOUGH_RATINGS]
    return text_template("rl_qg.rating.planning", "summary.txt").render(
        **record,
        protocol=protocol,
        needed=needed,
        kinds=[kind for kind in KINDS if any(counts[kind] for counts in systems.values())],
        width=max(map(len, ["system", *systems])),
        compared=sum(count > 0 for count in ratings.values()),
        few=min(few, key=itemgetter(1), default=None),
        enough=ENOUGH_RATINGS,
        least_pay=LEAST_PAY.get(record["cost"]["currency"], 0),
        counted=counted,
    )
