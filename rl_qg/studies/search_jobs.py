"""The runs of a search as jobs: `rl-qg train` up to each stop, the commands of the measure, and their results.

A run's folder, `runs/<name>`, is named by its configuration, its seed and a hash of its command and data; all stops of
the run are in it. Each stop is a job of its own in `jobs/<name>-e<epochs>`, so that what is measured is not run again.
"""

import hashlib
import logging
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.run_folder import MEASURES, stop_folder
from rl_qg.studies.grid import Job, command_hash, is_done
from rl_qg.studies.halving import Configuration, Halving, Trial, TrialResult
from rl_qg.studies.job_pool import JobOutcomes
from rl_qg.studies.search_file import SearchFile

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
        """The arguments of `rl-qg train` without folder and stop."""
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
        """The name of a run."""
        arguments = [*self.command(configuration, seed), *(f"{key}={value}" for key, value in self.sources.items())]
        return f"{configuration.number}-s{seed}-{command_hash('train', arguments, self.search.output_dir)}"

    def folder(self, configuration: Configuration, seed: int) -> Path:
        """The run folder."""
        return self.search.output_dir / "runs" / self.name(configuration, seed)

    def model(self, trial: Trial) -> Path:
        """The folder of the model that is measured."""
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
        """Everything that training's own evaluation measured."""
        path = self.model(trial) / MEASURES
        measures: dict[str, float] = read_json(path)["measures"] if path.exists() else {}
        return measures

    def weights(self, trial: Trial) -> str | None:
        """The hash of the model that was measured."""
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
