"""A pool of worker processes for commands: one worker a device, jobs in their order as far as they are ready.

A worker imports once and runs one command after the other, each from the same state, with what it says going to the
job's log. The pool notes a job as done when its command has ended well. Whatever is killed, and whenever, the same
jobs given again go on: what is done is not run again, and what was begun is run by the same command in its own folder.
"""

import gc
import logging
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from tqdm import tqdm

from rl_qg.runtime.errors import Terminated
from rl_qg.runtime.json_files import atomic_writer, read_json, write_json
from rl_qg.runtime.trackers import finish_trackers
from rl_qg.studies.grid import Job, is_done, outcome

POLL = 1.0  # seconds between looks at the clock
GRACE = 60.0  # seconds that a worker told to stop has to write a checkpoint
CPU = "cpu"
FAILED = "failed.json"  # in the folder of a job that failed when it was last tried
log = logging.getLogger(__name__)
Work = Callable[[str, Sequence[str]], None]


@dataclass
class Outcome:
    """What became of the jobs, by name; `failed` has the last line of each log."""

    done: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


def run_jobs(jobs: Sequence[Job], devices: Sequence[str], work: Work, tidy: Callable[[Job], None]) -> Outcome:
    """Run what is not done; return when nothing is left that can be run.

    Args:
        jobs: each behind those it needs.
        devices: one worker each: `cpu`, or the number of a GPU.
        work: runs one command in a worker, given its name and its arguments; a function of a module. It ends with
            SystemExit where the command fails.
        tidy: called in this process when a job's command has ended well, before the job is noted as done.
    """
    pool = _Pool(jobs, work, tidy)
    try:
        done = len(pool.outcome.done)
        with tqdm(total=len(jobs), initial=done, desc="study", unit="job", smoothing=0) as bar:
            pool.start(devices)
            pool.run(bar)
    finally:
        pool.stop()
    return pool.outcome


def found_outcome(jobs: Sequence[Job]) -> Outcome:
    """What the folders of the jobs say: done, failed when last tried, or waiting for one that failed."""
    found = Outcome(done=[job.name for job in jobs if is_done(job)])
    lost: set[str] = set()
    for job in jobs:
        note = job.folder / FAILED
        if not is_done(job) and note.exists():
            found.failed[job.name] = read_json(note)["fault"]
        elif lost.intersection(job.needs):
            found.skipped.append(job.name)
        else:
            continue
        lost.add(job.name)
    return found


@dataclass
class _Worker:
    """A process, the pipe to it, its device, and the job it has."""

    process: Any
    pipe: Connection
    device: str
    threads: int
    job: Job | None = None
    began: float = 0.0


class _Pool:
    def __init__(self, jobs: Sequence[Job], work: Work, tidy: Callable[[Job], None]) -> None:
        self.work, self.tidy = work, tidy
        self.outcome = Outcome(done=[job.name for job in jobs if is_done(job)])
        self.waiting = [job for job in jobs if not is_done(job)]
        self.workers: list[_Worker] = []
        self.seconds: dict[str, list[float]] = {}
        for job in jobs:
            if is_done(job):
                self.seconds.setdefault(job.kind, []).append(outcome(job)["seconds"])

    def start(self, devices: Sequence[str]) -> None:
        """One worker a device, no more than there are jobs; those on the CPU share its cores."""
        on_cpu = sum(device == CPU for device in devices)
        for device in devices[: len(self.waiting)]:
            threads = max(1, (os.cpu_count() or 1) // on_cpu) if device == CPU else 0
            self.workers.append(_started(device, threads, self.work))

    def run(self, bar: tqdm) -> None:
        """Hand out jobs and take back what came of them."""
        said = ""
        while self._hand_out():
            busy = [worker for worker in self.workers if worker.job]
            under_way = self._under_way(busy)
            if sys.stderr.isatty() or under_way != said:  # a log gets a line when something changes
                bar.set_postfix_str(under_way)
                said = under_way
            ready = wait([part for worker in busy for part in (worker.pipe, worker.process.sentinel)], POLL)
            for worker in [worker for worker in busy if worker.pipe in ready or worker.process.sentinel in ready]:
                self._take_back(worker)
                bar.update(len(self.outcome.done) + len(self.outcome.failed) + len(self.outcome.skipped) - bar.n)

    def _hand_out(self) -> bool:
        """Give each idle worker the next job that is ready; return whether any job is under way."""
        self._skip()
        for place, worker in enumerate(self.workers):
            if worker.job is None and (job := self._next()) is not None:
                if not worker.process.is_alive():  # killed while it had nothing to do
                    worker = self.workers[place] = _started(worker.device, worker.threads, self.work)
                self.waiting.remove(job)
                worker.job, worker.began = job, time.monotonic()
                _prepare(job)
                worker.pipe.send(job)
        return any(worker.job for worker in self.workers)

    def _next(self) -> Job | None:
        done = set(self.outcome.done)
        apart = {worker.job.apart for worker in self.workers if worker.job and worker.job.apart}
        ready = (job for job in self.waiting if done.issuperset(job.needs) and job.apart not in apart)
        return next(ready, None)

    def _skip(self) -> None:
        """Give up what waits for a job that failed. Jobs stand behind those they need, so one pass finds all."""
        lost = {*self.outcome.failed, *self.outcome.skipped}
        for job in [*self.waiting]:
            if lost.intersection(job.needs):
                self.waiting.remove(job)
                self.outcome.skipped.append(job.name)
                lost.add(job.name)

    def _take_back(self, worker: _Worker) -> None:
        job, seconds = worker.job, round(time.monotonic() - worker.began, 2)
        assert job is not None
        worker.job = None
        try:
            fault = worker.pipe.recv()
        except (EOFError, OSError):  # it is gone: killed, or out of memory
            worker.process.join()
            fault = f"its process ended with exit code {worker.process.exitcode}"
            place = self.workers.index(worker)
            self.workers[place] = _started(worker.device, worker.threads, self.work)
        if fault:
            self.outcome.failed[job.name] = fault
            write_json(job.folder / FAILED, {"fault": fault})
            tqdm.write(f"failed: {job.name}: {fault} (log: {job.folder / 'log.txt'})", file=sys.stderr)
            return
        self.tidy(job)
        self.seconds.setdefault(job.kind, []).append(seconds)
        self.outcome.done.append(job.name)
        note = {"command": job.line(), "kind": job.kind, "needs": list(job.needs), "seconds": seconds}
        write_json(job.folder / "job.json", {**note, "device": worker.device, "threads": worker.threads})

    def _under_way(self, busy: Sequence[_Worker]) -> str:
        """The jobs that run now, and how long the rest takes if each takes what its kind took so far."""
        names = ", ".join(worker.job.name.rpartition("-")[0] for worker in busy if worker.job)
        means = {kind: sum(values) / len(values) for kind, values in self.seconds.items()}
        left = [job.kind for job in self.waiting] + [worker.job.kind for worker in busy if worker.job]
        if not means or not self.workers:
            return names
        typical = sum(means.values()) / len(means)
        minutes = sum(means.get(kind, typical) for kind in left) / len(self.workers) / 60
        return f"{names}; about {minutes:.0f} min left"

    def stop(self) -> None:
        """End all workers; those with a job are told, and have time for a checkpoint."""
        for worker in self.workers:
            if worker.process.is_alive():
                worker.process.terminate()
        end = time.monotonic() + GRACE
        for worker in self.workers:
            worker.process.join(max(0.1, end - time.monotonic()))
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()


def _prepare(job: Job) -> None:
    job.folder.mkdir(parents=True, exist_ok=True)
    (job.folder / FAILED).unlink(missing_ok=True)
    with atomic_writer(job.folder / "command.txt") as stream:
        stream.write(f"{job.line()}\n")


# --- In the worker ---


def _started(device: str, threads: int, work: Work) -> _Worker:
    """Start a process whose environment says which device it sees, before anything is imported in it."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, threads, work), name=f"study on {device}")
    own = {"CUDA_VISIBLE_DEVICES": "" if device == CPU else device, "TQDM_MININTERVAL": "10"}
    if threads:
        own["OMP_NUM_THREADS"] = str(threads)
    with _environment(own):
        process.start()
    theirs.close()
    return _Worker(process, ours, device, threads)


@contextmanager
def _environment(own: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(own)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(pipe: Connection, threads: int, work: Work) -> None:
    """Run jobs as they come, until the pipe closes; answer each with what went wrong, or with nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool hears it too, and tells us
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    state = _State(threads)
    missing = state.missing_device()
    while True:
        try:
            job = pipe.recv()
        except EOFError:
            return
        pipe.send(missing or _run(job, work, state))


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _die_with_parent() -> None:
    """A worker without its pool would write into folders that the next run writes into."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


class _State:
    """What a command finds when it begins, whatever ran before it: environment, folder, no processes met, no memory
    held, and random numbers from a seed (a fresh process has others each time; commands set their own).
    """

    def __init__(self, threads: int) -> None:
        import torch

        if threads:
            torch.set_num_threads(threads)
        self.environment = dict(os.environ)
        self.folder = Path.cwd()

    def missing_device(self) -> str:
        """What to say when this worker was to have a GPU and sees none: on the CPU it would work without a word."""
        import torch

        wanted = self.environment["CUDA_VISIBLE_DEVICES"]
        return (
            f"there is no GPU {wanted} on this machine; see devices"
            if wanted and not torch.cuda.is_available()
            else ""
        )

    def restore(self) -> None:
        import numpy
        import torch
        from accelerate.state import AcceleratorState

        finish_trackers()
        AcceleratorState._reset_state(reset_partial_state=True)
        os.environ.clear()
        os.environ.update(self.environment)
        os.chdir(self.folder)
        random.seed(0)
        numpy.random.seed(0)
        torch.manual_seed(0)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _run(job: Job, work: Work, state: _State) -> str:
    """Run one command with its output in the job's log; return what went wrong."""
    path = job.folder / "log.txt"
    with path.open("ab") as stream, _into(stream.fileno()):
        state.restore()
        code: Any = 1
        try:
            work(job.command, job.arguments)
            code = 0
        except Terminated:
            raise
        except SystemExit as end:
            code = end.code
            if code == 128 + signal.SIGTERM:
                raise
        except Exception:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
    return "" if code in (0, None) else _last_line(path) or f"exit code {code}"


@contextmanager
def _into(descriptor: int) -> Iterator[None]:
    """Send everything that this process says, its libraries included, to an open file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        for number, copy in enumerate(kept, 1):
            os.dup2(copy, number)
            os.close(copy)


def _last_line(path: Path) -> str:
    lines = path.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
