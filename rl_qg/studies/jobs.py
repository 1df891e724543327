"""Jobs: commands of `rl-qg` in folders of their own, the pool that runs those that are not done, and the one reader of
the YAML files of studies, searches and transfers, which say what the jobs are.

A job's folder is named by what it does and by a hash of its whole command, so a changed study file leads to new
folders for what it changes, and finds the rest done. A job is recorded as done when its command has ended well. The
same jobs given again go on after any interruption: what had begun is run by the same command in the same folder.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, TypeVar

from rl_qg.data.examples import by_key
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, write_json, write_text
from rl_qg.runtime.processes import available_cores
from rl_qg.settings import Settings
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import override, read_content, typed

GRACE = 60.0  # seconds that an interrupted job has to write a checkpoint
MINUTES = 24 * 60  # of a job of a cluster, where the parameters say nothing
CPU = "cpu"
FAILED = "failed.json"  # in the folder of a job that failed when it was last tried
Compose = Callable[[str, Sequence[str]], Settings]  # the settings of a command with its arguments
Values = Mapping[str, Any]  # of keys
OnDone = Callable[["Job"], None]  # called when a job's command has ended well, before the job is recorded as done
RESULTS = "out"  # what the command writes, below the job's folder
COMMANDS = {"ce": "train", "scst": "train", "reader": "qa"}  # of a kind of job, where its name is another
# Overrides of these sections go to these commands alone; all others go to every command.
READ_BY = {
    **dict.fromkeys(("ce", "scst", "held_out", "evaluation", "peft"), ("train",)),
    **dict.fromkeys(("reward", "reward_models"), ("train", "augment")),
    **dict.fromkeys(("augment", "filters"), ("augment",)),
    "model": ("train", "generate"),
    "generate": ("generate",),
    "qa": ("qa", "augment"),
}
ALL_EXAMPLES = ("data.max_train=null", "data.max_validation=null", "data.labelled_fraction=1.0")


@dataclass(frozen=True)
class Job:
    """One command of `rl-qg`."""

    name: str  # its folder below `jobs/`
    kind: str  # the command, or `ce`, `scst` or `reader`
    seed: int
    command: str
    arguments: tuple[str, ...]
    folder: Path
    needs: tuple[str, ...] = ()  # names of the jobs whose results it reads
    exclusive: str = ""  # jobs with the same text here never run at the same time

    @property
    def results(self) -> Path:
        return self.folder / RESULTS

    def line(self) -> str:
        return shlex.join(["rl-qg", self.command, *self.arguments])


@dataclass
class JobList:
    """The jobs of a folder so far, by name, each after those it needs; equal commands are one job."""

    root: Path
    jobs: dict[str, Job] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        label: str,
        seed: int,
        arguments: Sequence[str],
        needs: Sequence[Job] = (),
        exclusive: str = "",
        hashes: Iterable[str] = (),
    ) -> Job:
        """The job of this command; `{out}` is the folder of its results, `hashes` are of contents that it reads."""
        command = COMMANDS.get(kind, kind)
        name = f"{kind}-{label}-s{seed}-{command_hash(command, [*arguments, *hashes], self.root)}"
        folder = self.root / "jobs" / name
        filled = tuple(text.replace("{out}", str(folder / RESULTS)) for text in arguments)
        names = tuple(dict.fromkeys(need.name for need in needs))
        return self.jobs.setdefault(name, Job(name, kind, seed, command, filled, folder, names, exclusive))


def settings_of(
    command: str, overrides: Iterable[str], given: Iterable[str], read_by: Mapping[str, Sequence[str]] = READ_BY
) -> list[str]:
    """What the command reads of the overrides; a generation that reranks, by all that is `given`, reads more."""
    if command == "generate" and any(re.match(r"\+*(generate\.)?rerank[.=](?!null$)", text) for text in given):
        read_by = {**read_by, "reward_models": (command,)}
    return [text for text in overrides if command in read_by.get(key_of(text).partition(".")[0], (command,))]


def command_hash(command: str, arguments: Sequence[str], root: Path) -> str:
    """Eight digits that name what a command does, wherever its folder `root` is."""
    neutral = [text.replace(str(root), "{study}") for text in arguments]
    return hashlib.sha256("\0".join([command, *neutral]).encode()).hexdigest()[:8]


def is_done(job: Job) -> bool:
    return (job.folder / "job.json").exists()


def seconds_of(job: Job) -> float:
    return read_record(job.folder / "job.json")["seconds"]


def check_keys(jobs: Sequence[Job], compose: Compose) -> None:
    """Compose each kind of job once, of any amount and seed, so that a wrong override ends the command at once."""
    checked = set()
    for job in jobs:
        kind = re.sub(r"(-x[\d.e+-]+)?-s\d+-\w+$", "", job.name)
        if kind not in checked and not is_done(job):
            compose(job.command, job.arguments)
            checked.add(kind)


def print_jobs(jobs: Sequence[Job]) -> None:
    for job in jobs:
        print(f"{'done' if is_done(job) else 'to do'}  {job.name}\n       {job.line()}")


def count_jobs(jobs: Sequence[Job], kinds: Sequence[str]) -> str:
    counts = {kind: sum(job.kind == kind for job in jobs) for kind in kinds}
    parts = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    return f"{len(jobs)} jobs ({parts}), {sum(map(is_done, jobs))} done"


def delete_checkpoints(job: Job) -> None:
    for checkpoint in [*job.results.rglob("checkpoint-*")]:
        if checkpoint.is_dir():
            shutil.rmtree(checkpoint)


@dataclass
class JobOutcomes:
    """Names of jobs in their order; `failed` has the reason of each, `skipped` are those that need a failed one."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def job_outcomes(jobs: Sequence[Job]) -> JobOutcomes:
    outcomes = JobOutcomes()
    for job in jobs:
        if is_done(job):
            outcomes.done.append(job.name)
        elif (job.folder / FAILED).exists():
            outcomes.failed[job.name] = read_record(job.folder / FAILED)["fault"]
        elif not {*outcomes.failed, *outcomes.skipped}.isdisjoint(job.needs):
            outcomes.skipped.append(job.name)
    return outcomes


def run_jobs(
    jobs: Sequence[Job],
    devices: Sequence[str],
    on_done: OnDone,
    *,
    program: str = "rl_qg",
    title: str = "study",
    threads: int | None = None,
) -> JobOutcomes:
    """Run what is not done, each job after those it needs; return when nothing is left that can be run.

    When this process is interrupted or told to end, so are its jobs; when it is killed, its jobs end themselves.
    In `jobs` each stands after those it needs. One runs at a time on each of the `devices`, `cpu` (jobs there share
    its cores) or the number of a GPU, with `threads` on the CPU (None: the cores divided by the jobs that run at a
    time). `program`: the module that is run with a job's command and arguments.
    """
    seconds = {job.name: seconds_of(job) for job in jobs if is_done(job)}  # of what is done
    waiting = [job for job in jobs if job.name not in seconds]
    threads = threads or max(1, available_cores() // max(1, [*devices].count(CPU)))
    idle, running = [*devices], dict[Future[int], _RunningJob]()
    with (
        ThreadPoolExecutor(len(devices)) as waiters,
        ProgressBar(total=len(jobs), initial=len(seconds), desc=title, unit="job", smoothing=0) as bar,
    ):
        try:
            while True:
                while idle and (job := _next_job(waiting, seconds, running.values())):
                    waiting.remove(job)
                    started = _RunningJob(job, idle.pop(0), threads, program)
                    running[waiters.submit(started.wait)] = started
                if not running:
                    break
                names = ", ".join(item.job.name.rpartition("-")[0] for item in running.values())
                left = [*waiting, *(item.job for item in running.values())]
                bar.set_postfix_str(names + _time_left(jobs, left, seconds, len(devices)))
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    finished = running.pop(future)
                    idle.append(finished.device)
                    if finished.record(future.result(), on_done):
                        seconds[finished.job.name] = seconds_of(finished.job)
                    bar.update()
        finally:  # each has time for a checkpoint, unless a second signal comes
            for item in running.values():
                item.process.terminate()
            try:
                wait(running, timeout=GRACE)
            finally:
                for item in running.values():
                    item.process.kill()
    return job_outcomes(jobs)


class _RunningJob:
    def __init__(self, job: Job, device: str, threads: int, program: str) -> None:
        self.job, self.device, self.started = job, device, time.monotonic()
        self.threads = threads if device == CPU else 0  # on a GPU the libraries' own number
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / FAILED).unlink(missing_ok=True)
        write_text(job.folder / "command.txt", f"{job.line()}\n")
        own = {"CUDA_VISIBLE_DEVICES": "" if device == CPU else device, "TQDM_MININTERVAL": "10"}
        own |= {"OMP_NUM_THREADS": str(threads)} if device == CPU else {}
        self.log = job.folder / "log.txt"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rl_qg.studies.job_process", program, job.command, *job.arguments],
                env={**os.environ, **own},
                stdin=subprocess.PIPE,  # closed by the end of this process, which ends the job
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this process, which ends the job
            )

    def wait(self) -> int:
        with self.process as process:
            return process.wait()

    def record(self, exit_code: int, on_done: OnDone) -> bool:
        job, seconds = self.job, round(time.monotonic() - self.started, 2)
        if exit_code:
            fault = f"its process ended with exit code {exit_code}"
            if exit_code > 0:  # below 0, a signal ended it without a word
                lines = self.log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
                fault = next((line.strip() for line in reversed(lines) if line.strip()), fault)
            write_json(job.folder / FAILED, {"fault": fault})
            ProgressBar.write(f"failed: {job.name}: {fault} (log: {self.log})", file=sys.stderr)
            return False
        on_done(job)
        record = {"command": job.line(), "kind": job.kind, "needs": list(job.needs), "seconds": seconds}
        write_json(job.folder / "job.json", {**record, "device": self.device, "threads": self.threads})
        return True


def _next_job(waiting: Sequence[Job], done: Collection[str], running: Iterable[_RunningJob]) -> Job | None:
    exclusive = {item.job.exclusive for item in running} - {""}
    ready = (job for job in waiting if all(name in done for name in job.needs))
    return next((job for job in ready if job.exclusive not in exclusive), None)


def _time_left(jobs: Sequence[Job], left: Sequence[Job], seconds: Mapping[str, float], devices: int) -> str:
    """If each other job takes the mean time of its kind."""
    if not seconds:
        return ""
    by_kind = by_key((job.kind, seconds[job.name]) for job in jobs if job.name in seconds)
    minutes = sum(fmean(by_kind.get(job.kind, seconds.values())) for job in left) / devices / 60
    return f"; about {minutes:.0f} min left"


def run_on_cluster(
    jobs: Sequence[Job],
    on_done: OnDone,
    *,
    kind: str,
    parameters: Mapping[str, Any],
    folder: Path,
    device: str,
    threads: int | None = None,
    program: str = "rl_qg",
) -> JobOutcomes:
    """Submit what is not done with submitit, wait, and return what the folders of the jobs say.

    All nodes must see these folders. A search that was killed waits for the jobs that its scheduler still runs.

    Jobs with the same `exclusive` are one job of the cluster, on the `device` of its node (`cpu`, or the number of a
    GPU). `kind` is `slurm`, or `local` for processes of this machine; `parameters` are those of
    `submitit.AutoExecutor.update_parameters`, such as `timeout_min`, and `folder` is for submitit's files.
    """
    groups = by_key((job.exclusive or job.name, job) for job in jobs)
    work = partial(run_jobs, devices=[device], on_done=on_done, program=program, threads=threads)
    waiting = {}
    with cluster_executor(kind, parameters, folder) as executor:
        for name, group in groups.items():
            if all(is_done(job) for job in group):
                continue
            note = folder / f"{name}.json"
            submitted = _still_there(note, kind) or executor.submit(work, group)
            write_json(note, {"job": str(submitted.job_id), "folder": str(submitted.paths.folder)})
            waiting[name] = submitted
    with ProgressBar(total=len(groups), initial=len(groups) - len(waiting), desc="search", unit="run") as bar:
        for submitted in waiting.values():
            submitted.wait()
            bar.update()
    return job_outcomes(jobs)


@contextmanager
def cluster_executor(kind: str, parameters: Mapping[str, Any], folder: Path) -> Iterator[Any]:
    """Submitit's executor, whose files are in `folder`; what it or the scheduler refuses is an `InputError`."""
    try:
        import submitit

        executor = submitit.AutoExecutor(folder=folder / "%j", cluster=kind)
        executor.update_parameters(name="rl-qg", **{"timeout_min": MINUTES, **parameters})
        yield executor
    except InputError:  # of what runs within, not of the scheduler
        raise
    except ImportError:
        raise InputError("cluster: submitit is not installed; pip install 'rl-qg[cluster]'") from None
    except Exception as error:  # submitit's own kinds: a parameter, a partition, a scheduler that is not there
        raise InputError(f"cluster: {' '.join(str(error).split())}") from None


def _still_there(note: Path, kind: str) -> Any:
    """The job of the cluster that an earlier search submitted and that has not ended; else None."""
    if kind != "slurm" or not note.exists():
        return None
    import submitit

    earlier = read_record(note)
    job = submitit.SlurmJob(folder=earlier["folder"], job_id=earlier["job"])
    return None if job.done(force_check=True) else job


# --- files of jobs: a dataclass over `JobFile` is the form of a file. OmegaConf checks keys and types against it, and
# its fields say what their short forms and their limits are (`item`).

WriteOut = Callable[[Any, str], Any]  # a short form, and its place in the file, to the whole form


def item(
    default: Any = MISSING,
    *,
    form: WriteOut | None = None,
    required: bool = False,
    least: float | None = None,
    choices: Sequence[str] = (),
    fault: Callable[[Any], str] | None = None,
) -> Any:
    """A key of a file; the limits of a list are those of each of its values, and null has none.

    `default` is its value, or the dataclass of its keys; `MISSING`: the file must give it. `form` writes out what may
    be given in short, `required` lists and mappings need a value, `least` is the smallest number, `choices` are the
    only texts, and `fault` says what is wrong with a value, or "".
    """
    limits = {"form": form, "required": required, "least": least, "choices": choices, "fault": fault}
    if isinstance(default, type):
        return field(default_factory=default, metadata=limits)
    if isinstance(default, list | dict):
        return field(default_factory=partial(copy, default), metadata=limits)
    return field(default=default, metadata=limits)


class JobFile:
    """What a kind of file has beside its keys, which are what has a type."""

    kind, page, shown_keys = "", "", ""  # its name, the document about it, and keys for a message
    renamed: ClassVar[Sequence[tuple[str, str]]] = ()  # fields, and what they are called in the file
    whole: ClassVar[Sequence[str]] = ()  # keys below which names may have dots
    file, output_dir = "", Path()  # where it was read from, and the folder of all results
    set_itself = ""  # of a key that no override may set

    def own_keys(self) -> Sequence[str]:
        """What no override may set."""
        return ()

    def overrides(self) -> Sequence[str]:
        return ()

    def complete(self) -> None:
        """Fill in what follows from other keys."""

    def conflicts(self) -> Iterator[str]:
        """What is wrong where keys depend on one another."""
        yield from ()


Spec = TypeVar("Spec", bound=JobFile)


def read_job_file(
    kind: type[Spec],
    file: Path | str,
    overrides: Sequence[str] = (),
    content: dict[str, Any] | None = None,
    *,
    allow_imports: bool = False,
) -> Spec:
    """Read a file; `overrides` (`key=value`, nested keys with dots, values in YAML) replace its values.

    `content`: its keys, where they have been read. Raises `InputError`, one line with everything that is wrong.
    """
    if content is None:
        content = file_content(kind, Path(file), allow_imports)
    for text in overrides:
        override(content, text, kind.kind, whole=kind.whole)
    spec = typed(written_out(kind, content, f"{file}: "), kind, str(file), kind.page, renamed=kind.renamed)
    spec.file, spec.output_dir = str(file), Path(os.path.expanduser(spec.output_dir))
    spec.complete()
    own = [key for key in dict.fromkeys(map(key_of, spec.overrides())) if key in spec.own_keys()]
    if errors := [*_faults(spec), *spec.conflicts(), *map(spec.set_itself.format, own)]:
        raise InputError(f"{file}: " + "; ".join(errors))
    return spec


def file_content(kind: type[JobFile], path: Path, allow_imports: bool) -> dict[str, Any]:
    return read_content(path, kind.kind, keys=kind.shown_keys, page=kind.page, allow_imports=allow_imports)


def written_out(form: type, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content with every short form in full; `where` is what its keys stand below."""
    full = dict(content)
    for entry in fields(form):
        if entry.name in full:
            value, write_out = full[entry.name], entry.metadata.get("form")
            if write_out:
                full[entry.name] = write_out(value, where + entry.name)
            elif isinstance(value, dict) and isinstance(entry.type, type) and is_dataclass(entry.type):
                full[entry.name] = written_out(entry.type, value, f"{where}{entry.name}.")
    return full


def by_name(write_out: WriteOut, what: str) -> WriteOut:
    """The form of names with `what` each of them has."""

    def write_all(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected names with their {what}")
        return {name: write_out(options, f"{where}.{name}") for name, options in value.items()}

    return write_all


def _faults(spec: Any, where: str = "") -> Iterator[str]:
    for entry in fields(spec):
        name, value, limits = where + entry.name, getattr(spec, entry.name), entry.metadata
        if limits.get("required") and not value:
            yield f"{name}: give at least one"
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            if limits.get("choices") and one not in limits["choices"]:
                yield f"{name}: {one!r} is not one of {', '.join(limits['choices'])}"
            if limits.get("least") is not None and one < limits["least"]:
                yield f"{name}: {one} is less than {limits['least']}"
            if limits.get("fault") and (fault := limits["fault"](one)):
                yield f"{name}: {fault}"
        if is_dataclass(value):
            yield from _faults(value, f"{name}.")
        for key, part in value.items() if isinstance(value, dict) else ():
            if is_dataclass(part):
                yield from _faults(part, f"{name}.{key}.")


def name_faults(*mappings: Mapping[str, Any]) -> Iterator[str]:
    for name in (name for mapping in mappings for name in mapping):
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            yield f"{name!r} becomes part of a file name: use letters, digits, _ and ."


def device_fault(name: str) -> str:
    return "" if name == "cpu" or name.isdecimal() else f"{name} is neither cpu nor the number of a GPU"


def key_of(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]
