"""The bootstrap draws behind scores, kept in a file, so that results of two commands can be tested in pairs later.

Draws of passages depend on the passages, in their order, on the number of draws and on the seed
(`rl_qg.confidence_intervals.PassageDraws`). Two scores of the same rows have the same draws, so the difference of
their values in each draw is a paired bootstrap, whatever the metric.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, difference, difference_p, estimate
from rl_qg.data.formats import json_line_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer

FILE = "draws.jsonl"


@dataclass(frozen=True)
class ScoreDraws:
    """One score of one model, in the data and in every draw: `values` (1 + resamples,), NaN where it is undefined.

    `items` tells what the rows are about, in their order, and `seed` which draws they are. `complete`: every row has a
    score, so that two models are compared on the same rows. `units` and `degrees` are those of its interval
    (`rl_qg.confidence_intervals.interval_ends`); a file of an earlier version has none, and `passages` stand for them.
    """

    predictions: str
    metric: str
    form: str
    items: str
    passages: int
    seed: int
    complete: bool
    values: Floats
    units: float | None = None
    degrees: float | None = None

    def sample(self, *others: "ScoreDraws") -> tuple[float, float]:
        """The units and degrees of freedom of what is computed from these scores, those of the one with fewest."""
        every = (self, *others)
        units = min(one.passages if one.units is None else one.units for one in every)
        return units, min(units - 1 if one.degrees is None else one.degrees for one in every)

    def is_paired_with(self, other: "ScoreDraws") -> bool:
        """Whether both are of the same rows and of the same draws."""
        mine, others = ((one.items, one.seed, len(one.values), one.complete) for one in (self, other))
        return mine == others and self.complete


def paired_difference(first: ScoreDraws, second: ScoreDraws) -> dict[str, Any]:
    """`first - second` with its interval and the p-value of "the difference is 0", of paired draws."""
    gap = difference(first.values, second.values)
    units, degrees = first.sample(second)
    statistic = estimate(gap, first.passages, passages=units, degrees=degrees).to_dict()
    return {**statistic, "p": difference_p(gap, units, degrees)}


def write_draws(path: Path, draws: Iterable[ScoreDraws]) -> None:
    """Write one JSON line for each score."""
    with atomic_writer(path) as stream:
        for one in draws:
            values = [value if np.isfinite(value) else None for value in one.values.tolist()]
            stream.write(json.dumps({**vars(one), "values": values}, ensure_ascii=False) + "\n")


def read_draws(path: Path) -> list[ScoreDraws]:
    """What `write_draws` wrote; nothing where there is no file, as of earlier versions.

    Raises:
        InputError: the file is damaged.
    """
    return [_draws(where, record) for where, _, record in json_line_rows(path)] if path.is_file() else []


def _draws(where: str, record: Mapping[str, Any]) -> ScoreDraws:
    try:
        values = np.array([np.nan if value is None else value for value in record["values"]], dtype=np.float64)
        return ScoreDraws(**{**record, "values": values})
    except (KeyError, TypeError, ValueError):
        raise InputError(f"{where}: holds no draws of a score; make the result again") from None
