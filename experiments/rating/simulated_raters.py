"""Raters that are made up, to try a plan, the control and the analysis on ratings whose truth is known.

Four kinds, on sliders from 0 to 100: `honest` ones see the quality of a question with noise of the question, which
all its criteria share, and noise of each criterion; `random` ones click anywhere; `halo` ones click anywhere but give
all criteria of a question about the same value; `straight_line` ones give one value to everything.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_qg.rating.plan_files import Hit
from rl_qg.rating.protocol import DEGRADED, Criterion
from rl_qg.stats.intervals import Floats

HONEST, RANDOM, HALO, STRAIGHT_LINE = "honest", "random", "halo", "straight_line"
RATER_KINDS = (HONEST, RANDOM, HALO, STRAIGHT_LINE)
ITEM_NOISE, CRITERION_NOISE, HALO_NOISE = 11.0, 11.0, 3.0  # standard deviations, in points
_MIDDLE, _LINE, _SECONDS = 60.0, 70.0, 20.0  # quality of an ordinary question; one value; median time of an item


@dataclass(frozen=True)
class SimulatedRater:
    """A rater: its kind, and by how many points it rates all questions higher than others do."""

    name: str
    kind: str = HONEST
    bias: float = 0.0


def simulated_values(kind: str, quality: Floats, criteria: int, rng: np.random.Generator) -> Floats:
    """What a rater gives to items of some quality (items,), 0 to 100: whole numbers (items, criteria)."""
    shape = len(quality), criteria
    if kind == HONEST:
        seen = quality[:, None] + rng.normal(0, ITEM_NOISE, (len(quality), 1))
        values = seen + rng.normal(0, CRITERION_NOISE, shape)
    elif kind == RANDOM:
        values = rng.uniform(0, 100, shape)
    elif kind == HALO:
        values = rng.uniform(0, 100, (len(quality), 1)) + rng.normal(0, HALO_NOISE, shape)
    elif kind == STRAIGHT_LINE:
        values = np.full(shape, _LINE)
    else:
        raise ValueError(f"{kind!r} is not one of {', '.join(RATER_KINDS)}")
    return np.clip(np.round(values), 0, 100)


def simulated_ratings(
    hits: Sequence[Hit],
    criteria: Sequence[Criterion],
    raters: Sequence[SimulatedRater],
    *,
    raters_per_hit: int = 1,
    better: Mapping[str, float] | None = None,
    effect: float = 20.0,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Ratings of tasks by raters in turn, as lines of `ratings.jsonl`.

    Args:
        hits: the tasks.
        criteria: of the protocol; values are on their scales, and high ones are bad where they are reversed.
        raters: who rates, in turn.
        raters_per_hit: how many of them rate each task.
        better: by how many points of 100 each system is better than the others.
        effect: by how many points degraded questions are worse than ordinary ones.
        seed: of all noise.
    """
    rng = np.random.default_rng(seed)
    turn = 0
    for hit in hits:
        ease = rng.normal(0, 5)  # of the passage
        for _ in range(min(raters_per_hit, len(raters))):
            rater, turn = raters[turn % len(raters)], turn + 1
            quality = [
                _MIDDLE + ease + rater.bias + _better(item.systems, better or {}) - effect * (item.kind == DEGRADED)
                for item in hit.items
            ]
            values = simulated_values(rater.kind, np.array(quality), len(criteria), rng)
            yield from _records(hit, rater.name, criteria, values, rng)


def _better(systems: Sequence[str], better: Mapping[str, float]) -> float:
    return sum(better.get(name, 0.0) for name in systems) / max(1, len(systems))


def _records(
    hit: Hit, rater: str, criteria: Sequence[Criterion], values: Floats, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    for item, row in zip(hit.items, values, strict=True):
        milliseconds = int(1000 * _SECONDS * np.exp(rng.normal(0, 0.4)))
        for criterion, value in zip(criteria, row, strict=True):
            yield {
                "study": "simulated",
                "hit": hit.hit,
                "assignment": f"{hit.hit}-{rater}",
                "rater": rater,
                "position": item.position,
                "kind": item.kind,
                "systems": [*item.systems],
                "item": item.item,
                "passage": hit.passages[item.passage].passage,
                "original": item.original,
                "criterion": criterion.name,
                "value": _on_scale(float(value), criterion),
                "first_ms": milliseconds // 3,
                "last_ms": milliseconds,
                "changes": 1,
                "state": "submitted",
            }


def _on_scale(value: float, criterion: Criterion) -> int:
    """A value of 0 to 100 on the scale of a criterion."""
    share = (100 - value if criterion.reversed else value) / 100
    return round(criterion.lowest + share * (criterion.highest - criterion.lowest))
