"""The search file: what is searched, on which data, and how long, read from YAML and checked whole.

`docs/how-to/search.md` explains the keys. A file may begin from one that comes with the package (`base`).
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from rl_qg.evaluation.text_measures import DIRECTION
from rl_qg.runtime.errors import InputError
from rl_qg.studies.halving import Plan
from rl_qg.studies.search_space import METHODS, Choice, Space, read_space
from rl_qg.studies.yaml_file import as_overrides, listed_values, override, read_content, typed

PAGE = "docs/how-to/search.md"
KIND = "search"
BETTER = ("higher", "lower")
CLUSTERS = ("slurm", "local")
SET_BY_THE_SEARCH = ("seed", "output_dir", "stages", "data.train", "data.validation", "training.stop_after")


@dataclass
class SearchData:
    """What is learned from, and what is measured on: files or Hub data sets, as in `rl-qg train`."""

    train: str = MISSING
    validation: str = MISSING


@dataclass
class Measure:
    """The criterion.

    Args:
        name: of a measure of training's own evaluation (`rl_qg.evaluation.text_measures`), or of what the commands
            measure.
        better: higher or lower; None: as known for the name.
        commands: further commands of `rl-qg` after each training, with `{model}`, `{train}`, `{validation}`, `{seed}`
            and `{out}`, a folder for their results.
        file: the JSON file, below `{out}`, with their result.
        value: where the number is in it: keys, positions in lists, and `key=text` for the first item of a list with
            that value.
    """

    name: str = "bleu4"
    better: str | None = None
    commands: list[str] = field(default_factory=list)
    file: str | None = None
    value: list[str] = field(default_factory=list)

    @property
    def higher(self) -> bool:
        """Whether larger values are better."""
        return DIRECTION[self.name] > 0 if self.better is None else self.better == "higher"


@dataclass
class Cluster:
    """The scheduler that runs the jobs (submitit), and its parameters, such as `timeout_min` and `slurm_partition`."""

    kind: str = "slurm"
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass
class SearchFile:
    """A search file. Overrides are written as on the command line, `key=value`."""

    output_dir: Path = MISSING
    data: SearchData = field(default_factory=SearchData)
    space: dict[str, Any] = MISSING
    stages: str = "ce"
    preset: str = "paper"
    settings: list[str] = field(default_factory=list)
    method: str = "grid"
    configurations: int | None = None
    batch: int = 8
    seed: int = 0
    rungs: list[list[int]] = field(default_factory=lambda: [[2, 5], [8, 1]])
    every: int | None = 1
    go_on_to: int | None = None
    seeds: list[int] = field(default_factory=lambda: [1])
    measure: Measure = field(default_factory=Measure)
    allow_equal: bool = False
    devices: list[str] = field(default_factory=lambda: ["cpu"])
    threads: int = 1
    cluster: Cluster | None = None
    keep_models: bool = False

    file = ""  # where it was read from; without a type, and so not a key

    @property
    def plan(self) -> Plan:
        """Rungs and seeds."""
        rungs = tuple((epochs, keep) for epochs, keep in self.rungs)
        return Plan(rungs, self.every, self.go_on_to, tuple(self.seeds), self.measure.higher)

    @property
    def planned_epochs(self) -> int:
        """The passes over the data that every run plans: the last rung, or as far as the winner may go on."""
        return max(self.rungs[-1][0], self.go_on_to or 0)

    def dimensions(self) -> Space:
        """The space, read."""
        return read_space(self.space, self.file)


def read_search(
    name: str, overrides: Sequence[str], shipped: Mapping[str, Path], *, allow_imports: bool = False
) -> SearchFile:
    """Read a search file, or one that comes with the package by its name; `overrides` (`key=value`, nested keys with
    dots, values in YAML) replace its values.

    Raises:
        InputError: in one line, with the file and the key.
    """
    content = _with_base(name, shipped, allow_imports)
    for text in overrides:
        override(content, text, KIND, whole=("space", "settings"))
    search = typed(_written_out(content, name), SearchFile, name, PAGE)
    search.file = name
    search.seeds = list(dict.fromkeys(search.seeds))
    search.dimensions()
    if errors := [*_wrong_plan(search), *_wrong_measure(search), *_wrong_rest(search)]:
        raise InputError(f"{name}: " + "; ".join(errors))
    return search


def _with_base(name: str, shipped: Mapping[str, Path], allow_imports: bool, depth: int = 0) -> dict[str, Any]:
    path = Path(name)
    if not path.exists():
        if not path.suffix and name not in shipped:
            raise InputError(f"{name}: no such file, and no search of this name; those are {', '.join(shipped)}")
        path = shipped.get(name, path)
    content = read_content(path, KIND, keys="data, space, rungs", page=PAGE, allow_imports=allow_imports)
    base = content.pop("base", None)
    if base is None:
        return content
    if depth or base not in shipped:
        raise InputError(f"{name}: base: {base!r} is not one of {', '.join(shipped)}")
    below = _with_base(base, shipped, allow_imports, depth + 1)
    settings, of_base = content.get("settings"), below.get("settings", {})
    if isinstance(settings, dict):
        content["settings"] = {**of_base, **settings}
    elif settings is None:
        content["settings"] = of_base
    else:
        content["settings"] = [*as_overrides(of_base, base), *as_overrides(settings, f"{name}: settings")]
    return {**below, **content}


def _written_out(content: Mapping[str, Any], file: str) -> dict[str, Any]:
    """The content with every short form in full."""
    full = dict(content)
    for key in full.keys() & {"seeds", "devices"}:
        full[key] = listed_values(full[key], f"{file}: {key}")
    if "settings" in full:
        full["settings"] = as_overrides(full["settings"], f"{file}: settings")
    if isinstance(full.get("measure"), str):
        full["measure"] = {"name": full["measure"]}
    return full


def _wrong_plan(search: SearchFile) -> Iterator[str]:
    rungs = search.rungs
    if not rungs or any(len(rung) != 2 or min(rung) < 1 for rung in rungs):
        yield "rungs: expected pairs of epochs and configurations kept, such as [[2, 5], [8, 1]]"
        return
    if any(later[0] <= rung[0] or later[1] > rung[1] for rung, later in pairwise(rungs)):
        yield f"rungs: {rungs}: the epochs must rise, and no rung may keep more than the one before"
    if search.every is not None and search.every < 1:
        yield f"every: {search.every} is less than 1"
    if search.go_on_to is not None and search.go_on_to <= rungs[-1][0]:
        yield f"go_on_to: {search.go_on_to} is not above the last rung, {rungs[-1][0]}"
    if not search.seeds or min(search.seeds) < 0:
        yield "seeds: give at least one, none below 0"


def _wrong_measure(search: SearchFile) -> Iterator[str]:
    measure = search.measure
    known = [name for name, direction in DIRECTION.items() if direction]
    if measure.better is not None and measure.better not in BETTER:
        yield f"measure.better: {measure.better!r} is not one of {', '.join(BETTER)}"
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
        except (ValueError, KeyError, IndexError) as error:
            yield f"measure.commands: {text!r} cannot be read ({error})"
            continue
        if not words or words[0] == "rl-qg":
            yield f"measure.commands: {text!r}: begin with the command, such as generate model.path={{model}}"


def _wrong_rest(search: SearchFile) -> Iterator[str]:
    if search.method not in METHODS:
        yield f"method: {search.method!r} is not one of {', '.join(METHODS)}"
    if search.stages not in ("ce", "scst", "both"):
        yield f"stages: {search.stages!r} is not one of ce, scst, both"
    if (search.method == "grid") != (search.configurations is None):
        yield "configurations: how many random or optuna proposes; a grid takes all"
    if search.configurations is not None and search.configurations < 1:
        yield f"configurations: {search.configurations} is less than 1"
    for key in ("batch", "threads"):
        if getattr(search, key) < 1:
            yield f"{key}: {getattr(search, key)} is less than 1"
    if not search.devices:
        yield "devices: give at least one"
    for name in search.devices:
        if name != "cpu" and not name.isdecimal():
            yield f"devices: {name} is neither cpu nor the number of a GPU"
    if search.cluster is not None and search.cluster.kind not in CLUSTERS:
        yield f"cluster.kind: {search.cluster.kind!r} is not one of {', '.join(CLUSTERS)}"
    choices = [dimension for dimension in search.dimensions().values() if isinstance(dimension, Choice)]
    varied = [text for choice in choices for _, overrides in choice.values for text in overrides]
    ours = {*SET_BY_THE_SEARCH, "ce.epochs" if search.stages == "ce" else "scst.epochs"}
    keys = [text.lstrip("+~").partition("=")[0] for text in (*search.settings, *varied)]
    for key in dict.fromkeys([*keys, *search.space]):
        if key in ours:
            yield f"{key} is set by the search itself (data, stages, rungs, seeds, output_dir)"
