"""What a search writes: `search.json` with everything, `leaderboard.csv` and `.html`, and the winner in `best/`."""

import hashlib
import logging
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any

from omegaconf import MISSING

from rl_qg.pages.results import NONE, Page, Table, as_csv, estimate_text, write_page
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, file_hash, read_json, write_json
from rl_qg.runtime.run_folder import MEASURES, git_state, hardware, package_versions, stop_folder
from rl_qg.scoring.held_out import DIRECTION, measure_signatures
from rl_qg.settings.yaml_files import as_overrides, listed_values, override, read_content, typed
from rl_qg.stats.intervals import mean_of_seeds
from rl_qg.studies.halving import Configuration, Halving, Plan, Trial, TrialResult
from rl_qg.studies.jobs import Job, JobOutcomes, command_hash, is_done, job_record
from rl_qg.studies.search_space import METHODS, Choice, Space, read_space

# The search file: what is searched, on which data, and how long, read from YAML and checked whole.
#
# `docs/how-to/search.md` explains the keys. A file may begin from one that comes with the package (`base`).


MANUAL = "docs/how-to/search.md"
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
        name: of a measure of training's own evaluation (`rl_qg.scoring.held_out`), or of what the commands
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
        rungs = tuple((epochs, keep) for epochs, keep in self.rungs)
        return Plan(rungs, self.every, self.go_on_to, tuple(self.seeds), self.measure.higher)

    @property
    def planned_epochs(self) -> int:
        """The passes over the data that every run plans: the last rung, or as far as the winner may go on."""
        return max(self.rungs[-1][0], self.go_on_to or 0)

    def dimensions(self) -> Space:
        return read_space(self.space, self.file)


def read_search(
    name: str, overrides: Sequence[str], shipped: Mapping[str, Path], *, allow_imports: bool = False
) -> SearchFile:
    """Read a search file, or one that comes with the package by its name; `overrides` (`key=value`, nested keys with
    dots, values in YAML) replace its values.
    """
    content = _with_base(name, shipped, allow_imports)
    for text in overrides:
        override(content, text, KIND, whole=("space", "settings"))
    search = typed(_written_out(content, name), SearchFile, name, MANUAL)
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
    content = read_content(path, KIND, keys="data, space, rungs", page=MANUAL, allow_imports=allow_imports)
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


# The runs of a search as jobs: `rl-qg train` up to each stop, the commands of the measure, and their results.
#
# A run's folder, `runs/<name>`, is named by its configuration, its seed and a hash of its command and data; all stops
# of the run are in it. Each stop is a job of its own in `jobs/<name>-e<epochs>`, so that what is measured is not run
# again.


WEIGHTS = "weights.json"  # in the folder of a training's job: the hash of the model at its stop
log = logging.getLogger(__name__)
RunJobs = Callable[..., JobOutcomes]  # of jobs, and `on_done`


@dataclass(frozen=True)
class RunPlan:
    """How a configuration is trained: the overrides that plan its epochs, and for an algorithm that cannot stop in
    between the folder of its final model.
    """

    overrides: tuple[str, ...]
    final: str | None = None


@dataclass(frozen=True)
class SearchRuns:
    """Makes the jobs of trials and reads what they measured.

    Args:
        search: the search file.
        run_jobs: runs jobs that are not done, and calls `on_done` with each that ended well, before it is recorded as
            done.
        plan_of: how a configuration is trained.
        sources: SHA-256 of the data files.
    """

    search: SearchFile
    run_jobs: RunJobs
    plan_of: Callable[[Configuration], RunPlan]
    sources: Mapping[str, str]

    def __call__(self, trials: Sequence[Trial]) -> dict[tuple[int, int, int], TrialResult]:
        """Run trials; what is done is read again."""
        chains = {trial.key: self.chain(trial) for trial in trials}
        jobs = [job for chain in chains.values() for job in chain]
        names = {job.name for job in jobs}
        # What an earlier rung trained is done, and not among these.
        jobs = [replace(job, needs=tuple(name for name in job.needs if name in names)) for job in jobs]
        outcomes = self.run_jobs(jobs, on_done=note_weights)
        return {trial.key: self._result(trial, chains[trial.key], outcomes) for trial in trials}

    def command(self, configuration: Configuration, seed: int) -> list[str]:
        search = self.search
        return [
            f"preset={search.preset}",
            *search.settings,
            *configuration.overrides,
            f"data.train={search.data.train}",
            f"data.validation={search.data.validation}",
            f"stages={search.stages}",
            *self.plan_of(configuration).overrides,
            f"seed={seed}",
        ]

    def name(self, configuration: Configuration, seed: int) -> str:
        arguments = [*self.command(configuration, seed), *(f"{key}={value}" for key, value in self.sources.items())]
        return f"{configuration.number}-s{seed}-{command_hash('train', arguments, self.search.output_dir)}"

    def folder(self, configuration: Configuration, seed: int) -> Path:
        return self.search.output_dir / "runs" / self.name(configuration, seed)

    def model(self, trial: Trial) -> Path:
        run, final = self.folder(trial.configuration, trial.seed), self.plan_of(trial.configuration).final
        return run / final if final else stop_folder(run, trial.epochs)

    def chain(self, trial: Trial) -> list[Job]:
        """The jobs of a trial, in their order: training, then the commands of the measure."""
        name = self.name(trial.configuration, trial.seed)
        label, out, model = f"{name}-e{trial.epochs}", self._out(trial), self.model(trial)

        def job(kind: str, label: str, words: Sequence[str], needs: Sequence[str]) -> Job:
            folder = self.search.output_dir / "jobs" / label
            return Job(label, kind, trial.seed, kind, tuple(words), folder, tuple(needs), exclusive=name)

        stop = [] if self.plan_of(trial.configuration).final else [f"training.stop_after={trial.epochs}"]
        folder = self.folder(trial.configuration, trial.seed)
        train = [*self.command(trial.configuration, trial.seed), *stop, f"output_dir={folder}"]
        earlier = [f"{name}-e{epochs}" for epochs in stops(self.search) if epochs < trial.epochs]
        jobs = [job("train", label, train, earlier[-1:])]
        data = {"train": self.search.data.train, "validation": self.search.data.validation}
        for text in self.search.measure.commands:
            words = [word.format(model=model, seed=trial.seed, out=out, **data) for word in shlex.split(text)]
            digest = command_hash(words[0], words[1:], self.search.output_dir)
            jobs.append(job(words[0], f"{label}-{words[0]}-{digest}", words[1:], [jobs[-1].name]))
        return jobs

    def measures(self, trial: Trial) -> dict[str, float]:
        path = self.model(trial) / MEASURES
        measures: dict[str, float] = read_json(path)["measures"] if path.exists() else {}
        return measures

    def weights(self, trial: Trial) -> str | None:
        path = self.chain(trial)[0].folder / WEIGHTS
        return str(read_json(path)["weights"]) if path.exists() else None

    def tidy(self, halving: Halving, left: Sequence[int]) -> None:
        """Delete checkpoints of the configurations that have `left` the race, and the weights of every measured model
        but the best one of each configuration.
        """
        for number, by_epochs in halving.values.items():
            configuration = halving.configurations[number]
            for seed in self.search.seeds:
                run = self.folder(configuration, seed)
                for checkpoint in run.glob("checkpoint-*") if number in left else ():
                    shutil.rmtree(checkpoint, ignore_errors=True)
                best = halving.score(number)[1] if by_epochs else None
                for epochs in by_epochs:
                    if epochs != best:
                        for weights in stop_folder(run, epochs).glob("*.safetensors"):
                            weights.unlink()

    def restore(self, trial: Trial, halving: Halving) -> None:
        """Train a run again where the weights of this stop were deleted: a search with another measure preferred other
        epochs. The run is the same bit for bit; all its measured stops are made again.
        """
        run, noted = self.folder(trial.configuration, trial.seed), self.weights(trial) is not None
        if not noted or any(self.model(trial).glob("*.safetensors")):
            return
        log.info("%s: the weights after epoch %d were deleted; training it again", run, trial.epochs)
        trials = [replace(trial, epochs=epochs) for epochs in sorted(halving.values[trial.configuration.number])]
        for one in trials:  # before the run, so that an interruption leaves nothing that seems done
            for folder in (*(job.folder for job in self.chain(one)), self._out(one)):
                shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(run, ignore_errors=True)
        result = self(trials)[trial.key]
        if result.fault is not None:
            raise InputError(f"{run}: cannot be trained again: {result.fault}; give the same command again")

    def _out(self, trial: Trial) -> Path:
        name = self.name(trial.configuration, trial.seed)
        return self.search.output_dir / "measured" / f"{name}-e{trial.epochs}"

    def _result(self, trial: Trial, chain: Sequence[Job], outcomes: JobOutcomes) -> TrialResult:
        for job in chain:
            if job.name in outcomes.failed:
                return TrialResult(None, fault=f"{outcomes.failed[job.name]} (log: {job.folder / 'log.txt'})")
            if not is_done(job):
                return TrialResult(None, fault="not run: an earlier part of the run failed, or its worker was killed")
        try:
            return TrialResult(self._value(trial), self.weights(trial))
        except InputError as error:
            return TrialResult(None, fault=str(error))

    def _value(self, trial: Trial) -> float:
        measure = self.search.measure
        if not measure.commands:
            path, at = self.model(trial) / MEASURES, ["measures", measure.name]
        else:
            assert measure.file is not None
            path, at = self._out(trial) / measure.file, measure.value
        value = _at(read_json(path), at, path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{path}: {' '.join(at)} is no number, but {value!r}")
        return float(value)


def stops(search: SearchFile) -> list[int]:
    """The epochs after which runs may stop, in their order."""
    found, before = list[int](), 0
    for epochs, _ in search.rungs:
        step = (search.every or epochs) if before else epochs
        found += [*range(before + step, epochs, step), epochs]
        before = epochs
    return [*found, *range(before + 1, (search.go_on_to or 0) + 1)]


def note_weights(job: Job) -> None:
    """Note the hash of the model that a job has trained, in the job's folder: the model itself may be deleted."""
    if job.kind != "train":
        return
    values = dict(text.split("=", 1) for text in job.arguments)
    run, stop = Path(values["output_dir"]), values.get("training.stop_after")
    final = "ce" if values["stages"] == "ce" else "scst"
    folder = run / final if stop is None else stop_folder(run, float(stop))
    hashes = [file_hash(path) for path in sorted(folder.glob("*.safetensors"))]
    if hashes:
        write_json(job.folder / WEIGHTS, {"weights": hashlib.sha256("".join(hashes).encode()).hexdigest()})


def _at(content: Any, keys: Sequence[str], path: Path) -> Any:
    """The value in nested JSON; `key=text` takes the first item of a list whose key has this value."""
    value = content
    for key in keys:
        name, equals, text = key.partition("=")
        try:
            if isinstance(value, list) and equals:
                value = next(item for item in value if str(item.get(name)) == text)
            else:
                value = value[int(key)] if isinstance(value, list) else value[key]
        except (KeyError, IndexError, ValueError, TypeError, StopIteration, AttributeError):
            raise InputError(f"{path}: there is no {key!r} of {' '.join(keys)}; see measure") from None
    return value


FILE, PAGE, BEST = "search.json", "leaderboard", "best"
OF_RUN = ("config.yaml", "run.json", "metrics.jsonl")  # copied beside the winner's model


def origin_of(search: SearchFile) -> dict[str, Any]:
    """With what the search is made: code, versions, hardware."""
    optuna = {"optuna": metadata.version("optuna")} if search.method == "optuna" else {}
    return {"code": git_state(Path(__file__)), "versions": {**package_versions(), **optuna}, "hardware": hardware()}


def write_search(search: SearchFile, runs: SearchRuns, halving: Halving, origin: Mapping[str, Any]) -> dict[str, Any]:
    """Write record and leaderboard of what is done so far; return the record. `origin` is that of `origin_of`."""
    rows = [*_configurations(search, runs, halving)]
    plan = asdict(halving.plan) | {"planned_epochs": search.planned_epochs}
    record: dict[str, Any] = {
        "search": {"file": search.file, **asdict(search), "output_dir": str(search.output_dir)},
        **origin,
        "data": {**asdict(search.data), "sha256": dict(runs.sources)},
        "measure": {
            "name": search.measure.name,
            "better": "higher" if search.measure.higher else "lower",
            "signature": None if search.measure.commands else measure_signatures().get(search.measure.name),
        },
        "plan": plan,
        "winner": _winner(search, runs, halving),
        "configurations": rows,
        "rungs": [asdict(rung) for rung in halving.rungs],
        "ties": [asdict(tie) for tie in halving.ties],
        "without_effect": [asdict(pair) for pair in halving.without_effect()],
        "failed": [{"configuration": number, **asdict(item)} for number, item in sorted(halving.failed.items())],
    }
    write_json(search.output_dir / FILE, record)
    with atomic_writer(search.output_dir / f"{PAGE}.csv") as stream:
        stream.write(as_csv([_csv_row(row) for row in rows]))
    write_page(search.output_dir, PAGE, _page(search, record))
    return record


def write_best(search: SearchFile, runs: SearchRuns, halving: Halving) -> Path:
    """Copy the winner's model of the first seed to `best/`, with the files of its run and the record of the search."""
    assert halving.winner is not None
    trial = best_trial(search, halving)
    best, run = search.output_dir / BEST, runs.folder(trial.configuration, trial.seed)
    partial = best.with_name(f"{BEST}.part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(runs.model(trial), partial)
    for path in (*(run / name for name in OF_RUN), search.output_dir / FILE):
        if path.exists():
            shutil.copy2(path, partial)
    shutil.rmtree(best, ignore_errors=True)
    partial.rename(best)
    return best


def best_trial(search: SearchFile, halving: Halving) -> Trial:
    """The winner after its best epoch, with the first seed."""
    assert halving.winner is not None
    return Trial(halving.configurations[halving.winner], search.seeds[0], halving.score(halving.winner)[1])


def _winner(search: SearchFile, runs: SearchRuns, halving: Halving) -> dict[str, Any] | None:
    if halving.winner is None:
        return None
    trial = best_trial(search, halving)
    return {
        "configuration": trial.configuration.number,
        "epochs": trial.epochs,
        "seed": trial.seed,
        "value": halving.score(halving.winner)[0],
        "settings": list(trial.configuration.overrides),
        "model": str(runs.model(trial)),
    }


def _configurations(search: SearchFile, runs: SearchRuns, halving: Halving) -> Iterator[dict[str, Any]]:
    """One record for each configuration: the ranked ones in their order, then those that are not ranked."""
    ranked = halving.leaders()
    rest = [number for number in halving.configurations if number not in ranked]
    for rank, number in enumerate([*ranked, *rest], 1):
        by_epochs = halving.values.get(number, {})
        row: dict[str, Any] = {
            "rank": rank if number in ranked else None,
            "configuration": number,
            "values": dict(halving.configurations[number].values),
            "outcome": _outcome(halving, number),
            "tied_with": sorted({other for tie in halving.ties if number in tie.configurations
                                 for other in tie.configurations} - {number}),
        }  # fmt: skip
        if by_epochs:
            _, best = halving.score(number)
            mean, low, high = mean_of_seeds(by_epochs[best])
            row |= {"value": mean, "low": low, "high": high, "by_seed": by_epochs[best], "epochs": best}
            row["trained"] = max(by_epochs)
        row["runs"] = [*_runs(search, runs, halving, number)]
        yield row


def _runs(search: SearchFile, runs: SearchRuns, halving: Halving, number: int) -> Iterator[dict[str, Any]]:
    configuration = halving.configurations[number]
    for seed in search.seeds:
        for epochs, values in sorted(halving.values.get(number, {}).items()):
            trial = Trial(configuration, seed, epochs)
            chain = runs.chain(trial)
            yield {
                "seed": seed,
                "epochs": epochs,
                "value": values[search.seeds.index(seed)],
                "measures": runs.measures(trial),
                "weights": runs.weights(trial),
                "commands": [job.line() for job in chain],
                "seconds": [job_record(job)["seconds"] for job in chain if is_done(job)],
                "folder": str(runs.folder(configuration, seed)),
            }


def _outcome(halving: Halving, number: int) -> str:
    if number in halving.failed:
        failed = halving.failed[number]
        return f"failed on the way to epoch {failed.epochs}, seed {failed.seed}: {failed.fault}"
    if number == halving.winner:
        return "winner"
    left = next((rung.epochs for rung in halving.rungs if number in rung.ranking and number not in rung.kept), None)
    return f"left after epoch {left}" if left is not None else "in the race"


def _csv_row(row: Mapping[str, Any]) -> dict[str, Any]:
    columns = ("value", "low", "high", "epochs", "trained")
    return {
        "rank": "" if row["rank"] is None else row["rank"],
        "configuration": row["configuration"],
        **row["values"],
        **{name: "" if row.get(name) is None else row[name] for name in columns},
        "by_seed": " ".join(map(str, row.get("by_seed", []))),
        "tied_with": " ".join(map(str, row["tied_with"])),
        "outcome": row["outcome"],
    }


# --- The page ---


def _page(search: SearchFile, record: Mapping[str, Any]) -> Page:
    plan, measure, winner = record["plan"], record["measure"], record["winner"]
    rungs = ", ".join(f"after epoch {epochs} the best {keep} are kept" for epochs, keep in plan["rungs"])
    facts = [
        f"{len(record['configurations'])} configurations ({search.method}), {len(record['failed'])} failed; seeds "
        f"{', '.join(map(str, plan['seeds']))}; {rungs}; {plan['planned_epochs']} planned",
        f"Ranked by {measure['name']} on {search.data.validation} ({measure['better']} is better)",
    ]
    if winner is not None:
        facts.append(f"Best: configuration {winner['configuration']} after epoch {winner['epochs']}, in {BEST}/")
    note = (
        "Value: the best of the measured epochs, mean over seeds with Student's 95 % interval. Configurations that "
        "left at a lower rung were trained less and stand below those of a higher one."
    )
    if len(plan["seeds"]) < 2:
        note += " With one seed there are no intervals: small differences may be chance."
    tables = [Table("Leaderboard", [_shown(row) for row in record["configurations"]], note)]
    if record["ties"]:
        ties = [_shown_tie(tie) for tie in record["ties"]]
        tables.append(Table("Ties", ties, "Equal values are ranked by the order of the configurations."))
    if record["without_effect"]:
        equal = [
            {"configurations": f"{pair['first']}, {pair['second']}", "keys": ", ".join(pair["keys"]),
             "seed": str(pair["seed"])}
            for pair in record["without_effect"]
        ]  # fmt: skip
        tables.append(Table("Settings without effect", equal, "Their models are equal bit for bit at the first rung."))
    tables.append(Table("Runs", [*_shown_runs(record)], f"Their commands are in {FILE}."))
    signature = measure["signature"]
    return Page("search", Path(search.file).stem, facts, tables, {measure["name"]: signature} if signature else {})


def _shown(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "rank": NONE if row["rank"] is None else str(row["rank"]),
        "configuration": str(row["configuration"]),
        **row["values"],
        "value": estimate_text(row, 4),
        "epochs": str(row.get("epochs", NONE)),
        "trained": str(row.get("trained", NONE)),
        "tied with": ", ".join(map(str, row["tied_with"])),
        "outcome": row["outcome"],
    }


def _shown_tie(tie: Mapping[str, Any]) -> dict[str, str]:
    return {
        "after epoch": str(tie["epochs"]),
        "value": f"{tie['value']:.4f}",
        "configurations": ", ".join(map(str, tie["configurations"])),
        "who was kept": "decided by their order" if tie["decided"] else "not affected",
    }


def _shown_runs(record: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for row in record["configurations"]:
        for run in row["runs"]:
            measured = {name: f"{value:.4f}" for name, value in run["measures"].items()}
            yield {
                "configuration": str(row["configuration"]),
                "seed": str(run["seed"]),
                "epochs": str(run["epochs"]),
                **measured,
                **{record["measure"]["name"]: f"{run['value']:.4f}"},
            }
