"""The space of a search and the configurations that are taken from it: all of a grid, some at random, or as Optuna
proposes.

A key has a list of values, or a range `{low, high}` with `log: true` or `integer: true`. A value may be a mapping of
several keys that change together. Values are kept as they are typed after `key=`.
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

from rl_qg.runtime.errors import InputError
from rl_qg.settings.yaml_files import as_overrides, command_line_text
from rl_qg.studies.halving import Configuration

METHODS = ("grid", "random", "optuna")
DIGITS = 3  # of numbers that are drawn
DRAWS = 100  # in vain, before a space counts as exhausted


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, uniform in their value or in their logarithm."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def text(self, value: float) -> str:
        """A number as it is typed, with three digits."""
        if self.integer:
            return str(round(value))
        return f"{min(self.high, max(self.low, float(f'{value:.{DIGITS}g}'))):g}"


@dataclass(frozen=True)
class Choice:
    """One of several values: as it is shown, and its overrides."""

    values: tuple[tuple[str, tuple[str, ...]], ...]


Space = Mapping[str, Range | Choice]


def read_space(content: Mapping[str, Any], file: str) -> Space:
    """The space of a search file."""
    if not content:
        raise InputError(f"{file}: space: give at least one key of rl-qg train with its values")
    return {key: _dimension(key, value, f"{file}: space.{key}") for key, value in content.items()}


def _dimension(key: str, value: Any, where: str) -> Range | Choice:
    if key == "seed":
        raise InputError(f"{where}: seeds are repetitions of every configuration and not a choice; give seeds: [1, 2]")
    if isinstance(value, dict):
        return _range(value, where)
    items = value if isinstance(value, list) else [value]
    if not items:
        raise InputError(f"{where}: give at least one value")
    choices = {}
    for item in items:
        together = isinstance(item, dict)
        overrides = tuple(as_overrides(item, where)) if together else (f"{key}={command_line_text(item)}",)
        shown = ", ".join(overrides) if together else command_line_text(item)
        if shown in choices:
            raise InputError(f"{where}: {shown} is given twice")
        choices[shown] = overrides
    return Choice(tuple(choices.items()))


def _range(value: Mapping[str, Any], where: str) -> Range:
    known = {"low", "high", "log", "integer"}
    if not {"low", "high"} <= value.keys() <= known:
        raise InputError(f"{where}: expected a list of values, or a range with low, high, and log or integer")
    try:
        low, high = float(value["low"]), float(value["high"])
    except (TypeError, ValueError):
        raise InputError(f"{where}: low and high are not numbers") from None
    log, integer = (value.get(name, False) for name in ("log", "integer"))
    if not (isinstance(log, bool) and isinstance(integer, bool)):
        raise InputError(f"{where}: log and integer are true or false")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InputError(f"{where}: low={low:g} is not below high={high:g}")
    if integer and not (low.is_integer() and high.is_integer()):
        raise InputError(f"{where}: integer: true needs whole numbers, not low={low:g} and high={high:g}")
    if log and low <= 0:
        raise InputError(f"{where}: log: true needs low above 0")
    return Range(low, high, log, integer)


# --- Proposals ---


class Proposals(Protocol):
    """Where the configurations of the first rung come from."""

    def next(self, scores: Mapping[int, float | None]) -> list[Configuration]:
        """The next configurations to measure; none at the end.

        Args:
            scores: of all earlier ones by number; None for those that failed.
        """


@dataclass
class Fixed:
    """Configurations that do not depend on scores."""

    configurations: Sequence[Configuration]

    def next(self, scores: Mapping[int, float | None]) -> list[Configuration]:
        return [item for item in self.configurations if item.number not in scores]


def grid(space: Space, file: str) -> Fixed:
    """Every combination; the last key changes first."""
    for key, dimension in space.items():
        if isinstance(dimension, Range):
            raise InputError(f"{file}: space.{key}: a grid needs a list of values; or give method: random")
    choices = [dimension.values for dimension in space.values() if isinstance(dimension, Choice)]
    return Fixed([_configuration(number, space, points) for number, points in enumerate(product(*choices), 1)])


def randomly(space: Space, count: int, seed: int) -> Fixed:
    """Different points, drawn uniformly; fewer than `count` where the space seems to have no more."""
    rng, found = random.Random(seed), dict[tuple[str, ...], Configuration]()
    in_vain = 0
    while len(found) < count and in_vain < DRAWS:
        points = [_draw(rng, key, dimension) for key, dimension in space.items()]
        drawn = _configuration(len(found) + 1, space, points)
        in_vain = in_vain + 1 if drawn.overrides in found else 0
        found.setdefault(drawn.overrides, drawn)
    return Fixed([*found.values()])


def _draw(rng: random.Random, key: str, dimension: Range | Choice) -> tuple[str, tuple[str, ...]]:
    if isinstance(dimension, Choice):
        return dimension.values[rng.randrange(len(dimension.values))]
    if dimension.integer and not dimension.log:
        return _number(key, dimension, rng.randint(math.ceil(dimension.low), math.floor(dimension.high)))
    low, high = (math.log(end) if dimension.log else end for end in (dimension.low, dimension.high))
    value = rng.uniform(low, high)
    return _number(key, dimension, math.exp(value) if dimension.log else value)


def _number(key: str, dimension: Range, value: float) -> tuple[str, tuple[str, ...]]:
    text = dimension.text(value)
    return text, (f"{key}={text}",)


def _configuration(number: int, space: Space, points: Sequence[tuple[str, tuple[str, ...]]]) -> Configuration:
    values = {key: shown for key, (shown, _) in zip(space, points, strict=True)}
    return Configuration(number, values, tuple(text for _, overrides in points for text in overrides))


class OptunaProposals:
    """Configurations that Optuna's TPE sampler proposes (ask and tell), some at a time.

    The scores of each batch are told in the order of its configurations when the whole batch is measured. So the same
    seed and scores lead to the same proposals, and a search that was interrupted is replayed from its finished runs.
    Its pruner is not used. Proposals that are equal to an earlier one are told its score and not run again.

    Args:
        space: of the search.
        count: configurations in all.
        batch: configurations at a time.
        seed: of the sampler.
        higher: whether larger scores are better.
    """

    def __init__(self, space: Space, count: int, batch: int, seed: int, *, higher: bool) -> None:
        try:
            import optuna
        except ImportError:
            raise InputError(
                "method: optuna: the package is not installed; pip install 'rl-qg[search]', or give method: random"
            ) from None
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._failed = optuna.trial.TrialState.FAIL
        sampler = optuna.samplers.TPESampler(seed=seed)
        self._study = optuna.create_study(direction="maximize" if higher else "minimize", sampler=sampler)
        self.space, self.count, self.batch = space, count, batch
        self._asked: list[tuple[Any, int]] = []  # Optuna's trials of the current batch, and their configurations
        self._numbers: dict[tuple[str, ...], int] = {}

    def next(self, scores: Mapping[int, float | None]) -> list[Configuration]:
        proposed: list[Configuration] = []
        for _ in range(DRAWS):
            self._tell(scores)
            wanted = min(self.batch, self.count - len(self._numbers))
            proposed = [item for item in self._ask(wanted) if item is not None]
            if proposed or not wanted:
                break
        return proposed

    def _tell(self, scores: Mapping[int, float | None]) -> None:
        for trial, number in self._asked:
            score = scores[number]
            if score is None:
                self._study.tell(trial, state=self._failed)
            else:
                self._study.tell(trial, score)
        self._asked = []

    def _ask(self, wanted: int) -> Iterator[Configuration | None]:
        for _ in range(wanted):
            trial = self._study.ask()
            points = [self._suggest(trial, key, dimension) for key, dimension in self.space.items()]
            item = _configuration(len(self._numbers) + 1, self.space, points)
            is_new = item.overrides not in self._numbers
            self._asked.append((trial, self._numbers.setdefault(item.overrides, item.number)))
            yield item if is_new else None

    @staticmethod
    def _suggest(trial: Any, key: str, dimension: Range | Choice) -> tuple[str, tuple[str, ...]]:
        if isinstance(dimension, Choice):
            shown = trial.suggest_categorical(key, [shown for shown, _ in dimension.values])
            return shown, dict(dimension.values)[shown]
        if dimension.integer:
            low, high = math.ceil(dimension.low), math.floor(dimension.high)
            return _number(key, dimension, trial.suggest_int(key, low, high, log=dimension.log))
        return _number(key, dimension, trial.suggest_float(key, dimension.low, dimension.high, log=dimension.log))
