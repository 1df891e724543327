"""The file of a search, its space, and the configurations that are taken from it: all of a grid, some at random, or as
Optuna proposes.

A key of the space has a list of values, or a range `{low, high}` with `log: true` or `integer: true`. A value may be a
mapping of several keys that change together. Values are kept as they are typed after `key=`.
"""

import math
import random
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.scoring.held_out import DIRECTION
from rl_qg.settings import ClusterSettings
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import as_overrides, command_line_text, listed_values
from rl_qg.studies.halving import Configuration, Plan
from rl_qg.studies.jobs import JobFile, device_fault, file_content, item, read_job_file

DRAWS = 100  # in vain, before a space counts as exhausted
Point = tuple[str, tuple[str, ...]]  # a value as it is shown, and its overrides
Scores = Mapping[int, float | None]


@dataclass(frozen=True)
class Range:
    """Numbers of a key from low to high, uniform in their value or in their logarithm."""

    key: str
    low: float
    high: float
    log: bool = False
    integer: bool = False

    def point(self, value: float) -> Point:
        """A number as it is typed, with three digits."""
        near = min(self.high, max(self.low, float(f"{value:.3g}")))
        text = str(round(value)) if self.integer else f"{near:g}"
        return text, (f"{self.key}={text}",)

    def draw(self, rng: random.Random) -> Point:
        if self.integer and not self.log:
            return self.point(rng.randint(int(self.low), int(self.high)))
        if not self.log:
            return self.point(rng.uniform(self.low, self.high))
        return self.point(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))

    def suggest(self, trial: Any) -> Point:
        if self.integer:
            return self.point(trial.suggest_int(self.key, int(self.low), int(self.high), log=self.log))
        return self.point(trial.suggest_float(self.key, self.low, self.high, log=self.log))


@dataclass(frozen=True)
class Choice:
    """One of several values of a key: the overrides of each, by what is shown."""

    key: str
    values: Mapping[str, tuple[str, ...]]

    def draw(self, rng: random.Random) -> Point:
        return rng.choice([*self.values.items()])

    def suggest(self, trial: Any) -> Point:
        shown = trial.suggest_categorical(self.key, [*self.values])
        return shown, self.values[shown]


Space = Mapping[str, Range | Choice]


def read_space(content: Mapping[str, Any], file: str) -> Space:
    if not content:
        raise InputError(f"{file}: space: give at least one key of rl-qg train with its values")
    return {key: _dimension(key, value, f"{file}: space.{key}") for key, value in content.items()}


def _dimension(key: str, value: Any, where: str) -> Range | Choice:
    if key == "seed":
        raise InputError(f"{where}: seeds are repetitions of every configuration and not a choice; give seeds: [1, 2]")
    if isinstance(value, dict):
        return _range(key, value, where)
    choices: dict[str, tuple[str, ...]] = {}
    for one in value if isinstance(value, list) else [value]:
        overrides = as_overrides(one, where) if isinstance(one, dict) else [f"{key}={command_line_text(one)}"]
        shown = ", ".join(overrides) if isinstance(one, dict) else command_line_text(one)
        if shown in choices:
            raise InputError(f"{where}: {shown} is given twice")
        choices[shown] = tuple(overrides)
    if not choices:
        raise InputError(f"{where}: give at least one value")
    return Choice(key, choices)


def _range(key: str, value: Mapping[str, Any], where: str) -> Range:
    if not {"low", "high"} <= value.keys() <= {"low", "high", "log", "integer"}:
        raise InputError(f"{where}: expected a list of values, or a range with low, high, and log or integer")
    try:
        low, high = float(value["low"]), float(value["high"])
    except (TypeError, ValueError):
        raise InputError(f"{where}: low and high are not numbers") from None
    log, integer = (value.get(name, False) for name in ("log", "integer"))
    faults = {
        "log and integer are true or false": not (isinstance(log, bool) and isinstance(integer, bool)),
        f"low={low:g} is not below high={high:g}": not -math.inf < low < high < math.inf,
        f"integer: true needs whole numbers, not low={low:g} and high={high:g}": (
            integer and not (low.is_integer() and high.is_integer())
        ),
        "log: true needs low above 0": log and low <= 0,
    }
    for fault, holds in faults.items():
        if holds:
            raise InputError(f"{where}: {fault}")
    return Range(key, low, high, log, integer)


@dataclass
class SearchData:
    """What is learned from, and what is measured on: files or Hub data sets, as in `rl-qg train`."""

    train: str = MISSING
    validation: str = MISSING


@dataclass
class Measure:
    """The criterion: a measure of training's own evaluation (`rl_qg.scoring.held_out`), or what further `commands` of
    `rl-qg` measure after each training: the number at `value` in the JSON `file` that they write.
    """

    name: str = "bleu4"
    better: str | None = item(None, choices=("higher", "lower"))
    commands: list[str] = item([])
    file: str | None = None
    value: list[str] = item([])

    @property
    def higher(self) -> bool:
        return DIRECTION[self.name] > 0 if self.better is None else self.better == "higher"


@dataclass
class SearchFile(JobFile):
    """A search file, which may begin from a packaged one (`base`); `docs/how-to/search.md` explains the keys."""

    output_dir: Path = MISSING
    data: SearchData = item(SearchData)
    space: dict[str, Any] = MISSING
    stages: str = item("ce", choices=("ce", "scst", "both"))
    preset: str = "paper"
    settings: list[str] = item([], form=as_overrides)
    method: str = item("grid", choices=("grid", "random", "optuna"))
    configurations: int | None = item(None, least=1)
    batch: int = item(8, least=1)
    seed: int = 0
    rungs: list[list[int]] = item([[2, 5], [8, 1]])
    every: int | None = item(1, least=1)
    go_on_to: int | None = None
    seeds: list[int] = item([1], required=True, least=0, form=listed_values)
    measure: Measure = item(Measure, form=lambda value, where: {"name": value} if isinstance(value, str) else value)
    allow_equal: bool = False
    devices: list[str] = item(["cpu"], required=True, form=listed_values, fault=device_fault)
    threads: int = item(1, least=1)
    cluster: ClusterSettings | None = None
    keep_models: bool = False

    kind, page, shown_keys = "search", "docs/how-to/search.md", "data, space, rungs"
    whole = ("space", "settings")
    set_itself = "{} is set by the search itself (data, stages, rungs, seeds, output_dir)"

    @property
    def plan(self) -> Plan:
        rungs = tuple((epochs, keep) for epochs, keep in self.rungs)
        return Plan(rungs, self.every, self.go_on_to, tuple(self.seeds), self.measure.higher)

    @property
    def planned_epochs(self) -> int:
        """The passes over the data that every run plans: the last rung, or as far as the winner may go on."""
        return max(self.rungs[-1][0], self.go_on_to or 0)

    def dimensions(self) -> Space:
        return read_space(self.space, self.file)

    def own_keys(self) -> Sequence[str]:
        of_stage = "ce.epochs" if self.stages == "ce" else "scst.epochs"
        return ("seed", "output_dir", "stages", "data.train", "data.validation", "training.stop_after", of_stage)

    def overrides(self) -> Sequence[str]:
        choices = [one.values for one in self.dimensions().values() if isinstance(one, Choice)]
        return [*self.settings, *(text for one in choices for texts in one.values() for text in texts), *self.space]

    def complete(self) -> None:
        self.seeds = list(dict.fromkeys(self.seeds))
        self.dimensions()

    def conflicts(self) -> Iterator[str]:
        if not self.rungs or any(len(rung) != 2 or min(rung) < 1 for rung in self.rungs):
            yield "rungs: expected pairs of epochs and configurations kept, such as [[2, 5], [8, 1]]"
        else:
            if any(later[0] <= rung[0] or later[1] > rung[1] for rung, later in pairwise(self.rungs)):
                yield f"rungs: {self.rungs}: the epochs must rise, and no rung may keep more than the one before"
            if self.go_on_to is not None and self.go_on_to <= self.rungs[-1][0]:
                yield f"go_on_to: {self.go_on_to} is not above the last rung, {self.rungs[-1][0]}"
        if (self.method == "grid") != (self.configurations is None):
            yield "configurations: how many random or optuna proposes; a grid takes all"
        measure = self.measure
        known = [name for name, direction in DIRECTION.items() if direction]
        if not measure.commands:
            if measure.name not in known:
                yield f"measure: {measure.name!r} is not one of {', '.join(known)}; another one needs measure.commands"
            if measure.file or measure.value:
                yield "measure: file and value are for the result of commands"
            return
        if measure.name not in known and measure.better is None:
            yield f"measure.better: say of {measure.name} which is better, higher or lower"
        if not measure.file or not measure.value:
            yield "measure: name the file of the commands' result, and where its value is"
        for text in measure.commands:
            try:
                words = shlex.split(text)
                text.format(model="", train="", validation="", seed=1, out="")
            except (ValueError, LookupError, AttributeError, TypeError) as error:
                yield f"measure.commands: {text!r} cannot be read ({error})"
                continue
            if not words or words[0] == "rl-qg":
                yield f"measure.commands: {text!r}: begin with the command, such as generate model.path={{model}}"


def read_search(
    name: str, overrides: Sequence[str], shipped: Mapping[str, Path], *, allow_imports: bool = False
) -> SearchFile:
    """Read a search file, or one that comes with the package by its name."""
    return read_job_file(SearchFile, name, overrides, _with_base(name, shipped, allow_imports))


def _with_base(name: str, shipped: Mapping[str, Path], allow_imports: bool) -> dict[str, Any]:
    path = Path(name)
    if not path.is_file():  # a folder of this name may hold the search's results
        path = shipped.get(name, path)
    if not path.exists() and not path.suffix:
        raise InputError(f"{name}: no such file, and no search of this name; those are {', '.join(shipped)}")
    content = file_content(SearchFile, path, allow_imports)
    base = content.pop("base", None)
    if base is None:
        return content
    if not isinstance(base, str) or base not in shipped:
        raise InputError(f"{name}: base: {base!r} is not one of {', '.join(shipped)}")
    below = _with_base(base, shipped, allow_imports)
    settings, of_base = content.get("settings"), below.get("settings", {})
    if settings is None or isinstance(settings, dict):
        content["settings"] = {**of_base, **(settings or {})}
    else:
        content["settings"] = [*as_overrides(of_base, base), *as_overrides(settings, f"{name}: settings")]
    return {**below, **content}


# --- Proposals: the next configurations to measure, of the scores of all earlier ones by number (None: it failed) ---


def proposals(search: SearchFile) -> Callable[[Scores], list[Configuration]]:
    """Where the configurations of the first rung come from; none at the end."""
    space, count = search.dimensions(), search.configurations
    if count is not None and search.method == "optuna":
        return OptunaProposals(space, count, search.batch, search.seed, higher=search.measure.higher)
    fixed = grid(space, search.file) if count is None else randomly(space, count, search.seed)
    return lambda scores: [one for one in fixed if one.number not in scores]


def grid(space: Space, file: str) -> list[Configuration]:
    """Every combination; the last key changes first."""
    for key, dimension in space.items():
        if isinstance(dimension, Range):
            raise InputError(f"{file}: space.{key}: a grid needs a list of values; or give method: random")
    choices = [[*one.values.items()] for one in space.values() if isinstance(one, Choice)]
    return [_configuration(number, space, points) for number, points in enumerate(product(*choices), 1)]


def randomly(space: Space, count: int, seed: int) -> list[Configuration]:
    """Different points, drawn uniformly; fewer than `count` where the space seems to have no more."""
    rng, found = random.Random(seed), dict[tuple[str, ...], Configuration]()
    in_vain = 0
    while len(found) < count and in_vain < DRAWS:
        drawn = _configuration(len(found) + 1, space, [one.draw(rng) for one in space.values()])
        in_vain = in_vain + 1 if drawn.overrides in found else 0
        found.setdefault(drawn.overrides, drawn)
    return [*found.values()]


def _configuration(number: int, space: Space, points: Sequence[Point]) -> Configuration:
    values = {key: shown for key, (shown, _) in zip(space, points, strict=True)}
    return Configuration(number, values, tuple(text for _, overrides in points for text in overrides))


class OptunaProposals:
    """Configurations that Optuna's TPE sampler proposes (ask and tell), some at a time.

    The scores of each batch are told in the order of its configurations when the whole batch is measured. So the same
    seed and scores lead to the same proposals, and a search that was interrupted is replayed from its finished runs.
    Its pruner is not used. Proposals that are equal to an earlier one are told its score and not run again.

    `count` configurations in all, `batch` at a time; `higher`: larger scores are better.
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

    def __call__(self, scores: Scores) -> list[Configuration]:
        for _ in range(DRAWS):
            for trial, number in self._asked:
                score = scores[number]
                self._study.tell(trial, score, state=self._failed if score is None else None)
            self._asked = []
            wanted = min(self.batch, self.count - len(self._numbers))
            if proposed := [one for one in (self._ask() for _ in range(wanted)) if one is not None]:
                return proposed
        return []

    def _ask(self) -> Configuration | None:
        trial = self._study.ask()
        points = [dimension.suggest(trial) for dimension in self.space.values()]
        one = _configuration(len(self._numbers) + 1, self.space, points)
        is_new = one.overrides not in self._numbers
        self._asked.append((trial, self._numbers.setdefault(one.overrides, one.number)))
        return one if is_new else None
