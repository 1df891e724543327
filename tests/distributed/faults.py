"""Faults that are injected into a run. After each, the same command must give what an uninterrupted run gives."""

import json
import re
import shutil
import signal
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from tests.distributed.comparison import differences
from tests.distributed.runs import LAUNCHES, FinishedRun, TimedSignal, Write, run
from tests.distributed.stages import STAGES, write_data

NOTICE_LIMIT = 60  # seconds in which a launcher has to notice that a rank died
SECOND_KILL = 3  # in one of this many cases the resumed run is killed too
ROWS = 5  # that fit into memory when it runs out
SHORT = (
    "augment",
    "answers",
    "correlate",
    "separate",
)  # stages that take too little time for a signal to come in between


@dataclass(frozen=True)
class Case:
    """A fault in a stage under a launch configuration; the seed decides when it is injected."""

    fault: str
    stage: str
    launch: str = "python"
    seed: int = 0

    @property
    def name(self) -> str:
        return "-".join((self.fault.replace(" ", "_"), self.stage, self.launch, str(self.seed)))


@dataclass
class FaultResult:
    """What was done to a run, and the result. `problems` is empty when all is as it should be."""

    case: Case
    place: str = ""
    codes: list[int] = field(default_factory=list)
    resumed: str = ""
    equal: str = ""
    problems: list[str] = field(default_factory=list)

    def json(self) -> dict[str, Any]:
        return {
            **vars(self.case),
            "processes": LAUNCHES[self.case.launch].processes,
            **{key: value for key, value in vars(self).items() if key != "case"},
        }

    def require(self, condition: object, problem: str) -> None:
        if not condition:
            self.problems.append(problem)


class FaultInjector:
    """Runs cases below the folder `work`. Each uninterrupted run is done once."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.data = work / "data"
        write_data(self.data)
        self._locks: dict[object, Lock] = defaultdict(Lock)
        self._uninterrupted: dict[tuple[str, str], tuple[Path, FinishedRun]] = {}
        self._inputs: Path | None = None

    @property
    def inputs(self) -> Path:
        """Data, models and questions with which later stages start: those of the pipeline."""
        with self._locks["inputs"]:
            if self._inputs is None:
                folder, _ = self.uninterrupted("pipeline", "python")
                inputs = self.work / "inputs"
                shutil.copytree(self.data, inputs)
                for name in ("ce", "scst"):
                    shutil.copytree(folder / name, inputs / name)
                shutil.copy(folder / "questions.jsonl", inputs)
                self._inputs = inputs
            return self._inputs

    def uninterrupted(self, stage: str, launch: str) -> tuple[Path, FinishedRun]:
        """The folder and the record of an uninterrupted run."""
        key = stage, "cpu2" if launch == "torchrun" else launch
        with self._locks[key]:
            if key not in self._uninterrupted:
                folder = self.work / "whole" / "-".join(key) / "run"
                finished = self.start(Case("none", *key), folder)
                if finished.code:
                    log = finished.log[-3000:]
                    raise RuntimeError(f"the uninterrupted run of {key} ended with {finished.code}:\n{log}")
                self._uninterrupted[key] = folder, finished
            return self._uninterrupted[key]

    def start(
        self,
        case: Case,
        folder: Path,
        *more: str,
        fault: dict[str, Any] | None = None,
        timed_signal: TimedSignal | None = None,
        inputs: Path | None = None,
    ) -> FinishedRun:
        """Run the command of a case once."""
        given = inputs or (self.data if case.stage in ("pipeline", "both", "ce", "qa") else self.inputs)
        script, settings = STAGES[case.stage].command(given, folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        return run(
            LAUNCHES[case.launch],
            script,
            [*settings, *more],
            folder,
            fault=fault or {},
            timed_signal=timed_signal,
            fresh=case.fault == "none",  # so that no other run shares its seed of string hashes
        )

    def run_case(self, case: Case) -> FaultResult:
        """Inject the fault of a case, run the command again, and compare."""
        folder = self.work / "faults" / case.name / "run"
        shutil.rmtree(folder.parent, ignore_errors=True)
        result = FaultResult(case)
        FAULTS[case.fault](self, result, folder, Random(case.name))
        if not result.problems:
            shutil.rmtree(folder.parent)
        return result

    def resume(
        self, result: FaultResult, folder: Path, *, fault: dict[str, Any] | None = None, **options: bool
    ) -> FinishedRun:
        """Run the command again to its end, and compare the result with the uninterrupted run."""
        finished = self.start(result.case, folder, fault=fault)
        self.compare(result, finished, folder, **options)
        return finished

    def compare(self, result: FaultResult, finished: FinishedRun, folder: Path, **options: bool) -> None:
        """Record how the run ended, and how it differs from the uninterrupted one (options: see `differences`)."""
        result.codes.append(finished.code)
        result.require(finished.code == 0, f"the resumed run ended with {finished.code}: {finished.last_line}")
        match = re.search(STAGES[result.case.stage].resumes or "(?!)", finished.log)
        result.resumed = match[1] if match else "the start"
        whole, _ = self.uninterrupted(result.case.stage, result.case.launch)
        checkpoints = options.get("checkpoints", True)
        lines = differences(whole, folder, checkpoints=checkpoints)
        if not lines:
            result.equal = "bitwise"
        elif options.get("close") and not differences(whole, folder, close=True, checkpoints=checkpoints):
            result.equal = "to 1e-5"
        else:
            result.problems += lines


# --- when a fault is injected


def random_write(
    injector: FaultInjector, case: Case, rng: Random, low: float = 0.0, high: float = 1.0
) -> dict[str, int]:
    """A write of the uninterrupted run by one of its processes, between two fractions of all its writes."""
    _, finished = injector.uninterrupted(case.stage, case.launch)
    rank = rng.choice([rank for rank, writes in finished.writes.items() if writes])
    count = len(finished.writes[rank])
    return {"rank": rank, "kill": rng.randint(1 + int(low * (count - 1)), max(1, int(high * count)))}


def random_signal(
    injector: FaultInjector,
    case: Case,
    rng: Random,
    number: signal.Signals,
    rank: int | None,
    low: float = 0.0,
    high: float = 1.0,
) -> TimedSignal:
    """A signal at a time of the uninterrupted run, between two fractions of the time from first to last write.

    The time is stored relative to the write before it, since other runs may be slower.
    """
    _, finished = injector.uninterrupted(case.stage, case.launch)
    times = [write.time for write in finished.writes[0]]
    time = times[0] + rng.uniform(low, high) * (times[-1] - times[0])
    before = [earlier for earlier in times if earlier <= time]
    return TimedSignal(len(before), time - before[-1], number, rank)


def last_write(finished: FinishedRun, rank: int) -> str:
    """The last recorded write before the end."""
    writes = finished.writes.get(rank) or [write for writes in finished.writes.values() for write in writes]
    return f"{writes[-1].event} {re.sub(r'[.][0-9]+[.]part', '.part', writes[-1].path)}" if writes else "nothing yet"


# --- the faults: each injects itself, checks what must be seen at once, and resumes


def sigkill(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """SIGKILL of one process, alternately before a write and at a time; in every third case the resumed run is killed
    too.
    """
    case = result.case
    processes = LAUNCHES[case.launch].processes
    places = []
    for number in range(2 if case.seed % SECOND_KILL == SECOND_KILL - 1 else 1):
        high = 1.0 if number == 0 else 0.3  # the resumed run is shorter
        if (case.seed + number) % 2 == 0 or case.stage in SHORT:
            fault = random_write(injector, case, rng, high=high)
            rank, timed_signal, where = fault["rank"], None, "before"
        else:
            rank = rng.randrange(processes)
            fault, where = {}, "after"
            timed_signal = random_signal(injector, case, rng, signal.SIGKILL, rank, high=high)
        finished = injector.start(case, folder, fault=fault, timed_signal=timed_signal)
        result.codes.append(finished.code)
        prefix = f"rank {rank} " if processes > 1 else ""
        suffix = " (had ended)" if finished.code == 0 else ""
        places.append(f"{prefix}{where} {last_write(finished, rank)}{suffix}")
        if finished.code:
            _check_death(result, finished, rank)
    result.place = "; ".join(places)
    injector.resume(result, folder, close=processes > 1)


def _check_death(result: FaultResult, finished: FinishedRun, rank: int) -> None:
    """Check that the process was killed, and that a launcher has noticed it and names the rank."""
    if result.case.launch == "python":
        was_killed = finished.code == -signal.SIGKILL
        result.require(was_killed, f"ended with {finished.code} instead of being killed: {finished.last_line}")
        return
    seconds = finished.ended - (finished.sent or finished.writes[rank][-1].time)
    result.require(seconds < NOTICE_LIMIT, f"the launcher took {seconds:.0f} s to end")
    result.require(re.search(rf"rank\s*:\s*{rank}\b", finished.log), f"the launcher does not name rank {rank}")


def sigterm(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """SIGTERM to the command, or to the launcher of several processes."""
    case = result.case
    is_single = LAUNCHES[case.launch].processes == 1
    timed_signal = random_signal(injector, case, rng, signal.SIGTERM, 0 if is_single else None, 0.4, 0.9)
    finished = injector.start(case, folder, timed_signal=timed_signal)
    result.codes.append(finished.code)
    result.place = f"after {last_write(finished, 0)}"
    if is_single:
        result.require(finished.code == 143, f"ended with {finished.code} instead of 143: {finished.last_line}")
    result.require(finished.code != 0, "the launcher ended with 0")
    if stopped := re.search(r"stopped at step (\d+)", finished.log):
        result.place += f", stopped at step {stopped[1]}"
        complete = [*folder.rglob(f"checkpoint-{stopped[1]}/complete.json")]
        result.require(complete, f"there is no complete checkpoint-{stopped[1]}")
    # The checkpoint at the stop replaces one of the regular ones.
    injector.resume(result, folder, close=True, checkpoints=stopped is None)


def disk_full(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """From one write on, no file may grow beyond half of the largest."""
    case = result.case
    whole, _ = injector.uninterrupted(case.stage, case.launch)
    size = max(path.stat().st_size for path in whole.rglob("*") if path.is_file()) // 2
    first = random_write(injector, case, rng, 0.0, 0.15)["kill"]  # before the last of the large files
    finished = injector.start(case, folder, fault={"rank": 0, "full": first, "bytes": size})
    result.codes.append(finished.code)
    result.place = f"no file above {size:,} bytes, from write {first} on"
    failed = finished.code == 2 if case.launch == "python" else finished.code
    result.require(failed, f"ended with {finished.code}: {finished.last_line}")
    result.require("Traceback" not in finished.log, "a traceback instead of one line")
    message = re.search(r"error: \S+: (the disk is full|cannot be written)", finished.log)
    result.require(message, f"no line about the disk: {finished.last_line}")
    injector.resume(result, folder, close=LAUNCHES[case.launch].processes > 1)


def truncated_checkpoint(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """A kill after a checkpoint, and then one of its files is truncated to half."""
    case = result.case
    _, whole = injector.uninterrupted(case.stage, case.launch)
    completions = [number for number, write in enumerate(whole.writes[0], 1) if _completes_checkpoint(write)]
    kill = rng.choice(completions[1:] or completions) + 1
    finished = injector.start(case, folder, fault={"rank": 0, "kill": kill})
    result.codes.append(finished.code)
    newest = max(folder.rglob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
    path = newest / rng.choice(sorted(json.loads((newest / "complete.json").read_text())["files"]))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    result.place = str(path.relative_to(folder))
    resumed = injector.resume(result, folder, close=LAUNCHES[case.launch].processes > 1)
    result.require(str(path) in resumed.log, f"no warning names {path.name}")


def _completes_checkpoint(write: Write) -> bool:
    return write.event == "rename" and re.search(r"checkpoint-\d+/complete.json$", write.path) is not None


def changed_data(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """A kill, and then a changed data file: the command refuses it, unless it is accepted by a setting."""
    case = result.case
    inputs = folder.parent / "inputs"
    shutil.copytree(injector.inputs, inputs)
    data = inputs / ("questions.jsonl" if case.stage == "score" else "train.json")
    finished = injector.start(case, folder, fault=random_write(injector, case, rng, 0.4, 0.9), inputs=inputs)
    result.codes.append(finished.code)
    result.place = f"before {last_write(finished, 0)}"
    before = sha256(data.read_bytes()).hexdigest()
    _change_last_question(data)
    after = sha256(data.read_bytes()).hexdigest()
    refused = injector.start(case, folder, inputs=inputs)
    result.codes.append(refused.code)
    is_refused = refused.code == (2 if case.launch == "python" else 1)
    result.require(is_refused, f"not refused: {refused.last_line}")
    for part in (data.name, before[:8], after[:8], "accept_changed_data=true"):
        result.require(part in refused.log, f"the refusal does not contain {part}: {refused.last_line}")
    accepted = injector.start(case, folder, "accept_changed_data=true", inputs=inputs)
    result.codes.append(accepted.code)
    result.require(accepted.code == 0, f"not accepted: {accepted.last_line}")
    result.equal = "refused, then accepted" if not result.problems else ""


def _change_last_question(data: Path) -> None:
    text = data.read_text()
    at = text.rindex('"question": "') + len('"question": "')
    data.write_text(text[:at] + "Tell me: " + text[at:])


def elastic_restart(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """SIGKILL of one process in the first start of an elastic run, which restarts by itself."""
    fault = random_write(injector, result.case, rng, 0.3, 0.95)
    finished = injector.start(result.case, folder, fault={**fault, "attempt": 0})
    result.place = f"rank {fault['rank']} before write {fault['kill']}"
    result.require("exitcode: -9" in finished.log, "no process was killed")
    injector.compare(result, finished, folder, close=True)


def out_of_memory(injector: FaultInjector, result: FaultResult, folder: Path, rng: Random) -> None:
    """Generator and metrics run out of memory above a few rows; the run continues, and logs it once."""
    result.place = f"above {ROWS} rows in generator and metrics"
    finished = injector.resume(result, folder, close=True, fault={"memory": ROWS})
    parts = re.findall(r"([a-z- ]+): \d+ rows do not fit", finished.log)  # a progress bar may come before it
    result.require(parts, "no line says that memory ran out")
    result.require(len(parts) == len(set(parts)), f"logged more than once: {', '.join(parts)}")


FAULTS: dict[str, Callable[[FaultInjector, FaultResult, Path, Random], None]] = {
    "SIGKILL": sigkill,
    "SIGTERM": sigterm,
    "disk full": disk_full,
    "truncated checkpoint": truncated_checkpoint,
    "changed data": changed_data,
    "elastic restart": elastic_restart,
    "out of memory": out_of_memory,
}
