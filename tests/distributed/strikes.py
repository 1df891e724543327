"""Faults that strike a run, and what has to hold behind each: the same command, once more, leaves what an
uninterrupted run leaves.
"""

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
from tests.distributed.runs import LAUNCHES, Ended, Moment, Write, run
from tests.distributed.stages import STAGES, write_data

WITHIN = 60  # seconds in which a launcher has to notice that a rank died
AGAIN = 3  # every so many kills the run that goes on is killed too
ROWS = 5  # that fit into memory where it runs out


@dataclass(frozen=True)
class Case:
    """A fault at a stage under a launch configuration; the seed says where it strikes."""

    fault: str
    stage: str
    launch: str = "python"
    seed: int = 0

    @property
    def name(self) -> str:
        return "-".join((self.fault.replace(" ", "_"), self.stage, self.launch, str(self.seed)))


@dataclass
class Row:
    """What was done to a run and what came of it. `problems` is empty when all is as it has to be."""

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

    def need(self, holds: object, problem: str) -> None:
        if not holds:
            self.problems.append(problem)


class Bench:
    """Runs cases below `work`. Each uninterrupted run is done once."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.data = work / "data"
        write_data(self.data)
        self._locks: dict[object, Lock] = defaultdict(Lock)
        self._whole: dict[tuple[str, str], tuple[Path, Ended]] = {}
        self._inputs: Path | None = None

    @property
    def inputs(self) -> Path:
        """Data, models and questions that stages begin with: those of the pipeline."""
        with self._locks["inputs"]:
            if self._inputs is None:
                folder, _ = self.whole("pipeline", "python")
                inputs = self.work / "inputs"
                shutil.copytree(self.data, inputs)
                for name in ("ce", "scst"):
                    shutil.copytree(folder / name, inputs / name)
                shutil.copy(folder / "questions.jsonl", inputs)
                self._inputs = inputs
            return self._inputs

    def whole(self, stage: str, launch: str) -> tuple[Path, Ended]:
        """The folder and the course of an uninterrupted run."""
        key = stage, "cpu2" if launch == "torchrun" else launch
        with self._locks[key]:
            if key not in self._whole:
                folder = self.work / "whole" / "-".join(key) / "run"
                ended = self.start(Case("none", *key), folder)
                if ended.code:
                    raise RuntimeError(f"the uninterrupted run of {key} ended with {ended.code}:\n{ended.log[-3000:]}")
                self._whole[key] = folder, ended
            return self._whole[key]

    def start(
        self,
        case: Case,
        folder: Path,
        *more: str,
        fault: dict[str, Any] | None = None,
        moment: Moment | None = None,
        inputs: Path | None = None,
    ) -> Ended:
        """Run the command of a case, once."""
        launch = LAUNCHES[case.launch]
        given = inputs or (self.data if case.stage in ("pipeline", "both", "ce", "qa") else self.inputs)
        script, settings = STAGES[case.stage].command(given, folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = case.fault == "none"  # so that no other run shares its seed of string hashes
        return run(launch, script, [*settings, *more], folder, fault=fault or {}, moment=moment, fresh=fresh)

    def strike(self, case: Case) -> Row:
        """Let the fault of a case strike, run the command again, and compare."""
        folder = self.work / "struck" / case.name / "run"
        shutil.rmtree(folder.parent, ignore_errors=True)
        row = Row(case)
        FAULTS[case.fault](self, row, folder, Random(case.name))
        if not row.problems:
            shutil.rmtree(folder.parent)
        return row

    def go_on(self, row: Row, folder: Path, *, fault: dict[str, Any] | None = None, **options: bool) -> Ended:
        """Run the command again, to its end, and compare what is there then with the uninterrupted run."""
        ended = self.start(row.case, folder, fault=fault)
        self.compare(row, ended, folder, **options)
        return ended

    def compare(self, row: Row, ended: Ended, folder: Path, **options: bool) -> None:
        """Note how the run ended, and what differs from the uninterrupted one (see `differences` for the options)."""
        row.codes.append(ended.code)
        row.need(ended.code == 0, f"the run that goes on ended with {ended.code}: {ended.last_line}")
        found = re.search(STAGES[row.case.stage].resumes or "(?!)", ended.log)
        row.resumed = found[1] if found else "the start"
        whole, _ = self.whole(row.case.stage, row.case.launch)
        checkpoints = options.get("checkpoints", True)
        found_different = differences(whole, folder, checkpoints=checkpoints)
        if not found_different:
            row.equal = "to the bit"
        elif options.get("close") and not differences(whole, folder, close=True, checkpoints=checkpoints):
            row.equal = "to 1e-5"
        else:
            row.problems += found_different


# --- where a fault strikes


def some_write(bench: Bench, case: Case, rng: Random, low: float = 0.0, high: float = 1.0) -> dict[str, int]:
    """A write of the uninterrupted run by one of its processes, between two shares of all of them."""
    _, ended = bench.whole(case.stage, case.launch)
    rank = rng.choice([rank for rank, writes in ended.writes.items() if writes])
    count = len(ended.writes[rank])
    return {"rank": rank, "kill": rng.randint(1 + int(low * (count - 1)), max(1, int(high * count)))}


def some_moment(
    bench: Bench,
    case: Case,
    rng: Random,
    number: signal.Signals,
    rank: int | None,
    low: float = 0.0,
    high: float = 1.0,
) -> Moment:
    """A moment of the uninterrupted run, between two shares of the time from its first write to its last.

    It is found again by the writes before it: machines are now and then slower.
    """
    _, ended = bench.whole(case.stage, case.launch)
    times = [write.time for write in ended.writes[0]]
    moment = times[0] + rng.uniform(low, high) * (times[-1] - times[0])
    before = [time for time in times if time <= moment]
    return Moment(len(before), moment - before[-1], number, rank)


def last_place(ended: Ended, rank: int) -> str:
    """The last write that was seen before the end."""
    writes = ended.writes.get(rank) or [write for writes in ended.writes.values() for write in writes]
    return f"{writes[-1].event} {re.sub(r'[.][0-9]+[.]part', '.part', writes[-1].path)}" if writes else "nothing yet"


# --- the faults: each strikes, says what has to be seen at once, and goes on


def sigkill(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """SIGKILL of one process, by turns at a write and at a moment; every third time the run that goes on is killed
    too.
    """
    case = row.case
    places = []
    for number in range(2 if case.seed % AGAIN == AGAIN - 1 else 1):
        high = 1.0 if number == 0 else 0.3  # there is less left to do
        if (case.seed + number) % 2 == 0 or case.stage == "augment":  # which is done within a moment
            fault = some_write(bench, case, rng, high=high)
            rank, moment, where = fault["rank"], None, "before"
        else:
            rank = rng.randrange(LAUNCHES[case.launch].processes)
            fault, moment, where = {}, some_moment(bench, case, rng, signal.SIGKILL, rank, high=high), "behind"
        ended = bench.start(case, folder, fault=fault, moment=moment)
        row.codes.append(ended.code)
        place = f"rank {rank} " if LAUNCHES[case.launch].processes > 1 else ""
        places.append(f"{place}{where} {last_place(ended, rank)}" + (" (had ended)" if ended.code == 0 else ""))
        if ended.code:
            _check_death(row, ended, rank)
    row.place = "; ".join(places)
    bench.go_on(row, folder, close=LAUNCHES[case.launch].processes > 1)


def _check_death(row: Row, ended: Ended, rank: int) -> None:
    """The process is dead; a launcher has noticed, and says which."""
    if row.case.launch == "python":
        row.need(ended.code == -signal.SIGKILL, f"ended with {ended.code} instead of being killed: {ended.last_line}")
        return
    took = ended.ended - (ended.sent or ended.writes[rank][-1].time)
    row.need(took < WITHIN, f"the launcher took {took:.0f} s to end")
    row.need(re.search(rf"rank\s*:\s*{rank}\b", ended.log), f"the launcher does not name rank {rank}")


def sigterm(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """SIGTERM to the command, or to the launcher of several processes."""
    case = row.case
    alone = LAUNCHES[case.launch].processes == 1
    moment = some_moment(bench, case, rng, signal.SIGTERM, 0 if alone else None, 0.4, 0.9)
    ended = bench.start(case, folder, moment=moment)
    row.codes.append(ended.code)
    row.place = f"behind {last_place(ended, 0)}"
    if alone:
        row.need(ended.code == 143, f"ended with {ended.code} instead of 143: {ended.last_line}")
    row.need(ended.code != 0, "the launcher ended with 0")
    if stopped := re.search(r"stopped at step (\d+)", ended.log):
        row.place += f", stopped at step {stopped[1]}"
        sealed = [*folder.rglob(f"checkpoint-{stopped[1]}/complete.json")]
        row.need(sealed, f"there is no complete checkpoint-{stopped[1]}")
    # A checkpoint off the grid takes the place of one on it.
    bench.go_on(row, folder, close=True, checkpoints=stopped is None)


def disk_full(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """From some write on no file may grow beyond half of the largest."""
    case = row.case
    whole, _ = bench.whole(case.stage, case.launch)
    size = max(path.stat().st_size for path in whole.rglob("*") if path.is_file()) // 2
    place = some_write(bench, case, rng, 0.0, 0.15)  # before the last of the large files
    ended = bench.start(case, folder, fault={"rank": 0, "full": place["kill"], "bytes": size})
    row.codes.append(ended.code)
    row.place = f"no file above {size:,} bytes, from write {place['kill']} on"
    row.need(ended.code == 2 if case.launch == "python" else ended.code, f"ended with {ended.code}: {ended.last_line}")
    row.need("Traceback" not in ended.log, "a traceback instead of one line")
    told = re.search(r"error: \S+: (the disk is full|cannot be written)", ended.log)
    row.need(told, f"no line about the disk: {ended.last_line}")
    bench.go_on(row, folder, close=LAUNCHES[case.launch].processes > 1)


def truncated_checkpoint(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """A kill behind a checkpoint, of which a file is then cut in half."""
    case = row.case
    _, whole = bench.whole(case.stage, case.launch)
    sealed = [at for at, write in enumerate(whole.writes[0], 1) if _seals(write)]
    ended = bench.start(case, folder, fault={"rank": 0, "kill": rng.choice(sealed[1:] or sealed) + 1})
    row.codes.append(ended.code)
    newest = max(folder.rglob("checkpoint-*"), key=lambda path: path.stat().st_mtime)
    victim = rng.choice(sorted(json.loads((newest / "complete.json").read_text())["files"]))
    path = newest / victim
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    row.place = str(path.relative_to(folder))
    again = bench.go_on(row, folder, close=LAUNCHES[case.launch].processes > 1)
    row.need(str(path) in again.log, f"no warning names {path.name}")


def _seals(write: Write) -> bool:
    return write.event == "rename" and re.search(r"checkpoint-\d+/complete.json$", write.path) is not None


def changed_data(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """A kill, and behind it a data file with one question less: refused, and accepted when told."""
    case = row.case
    inputs = folder.parent / "inputs"
    shutil.copytree(bench.inputs, inputs)
    data = inputs / ("questions.jsonl" if case.stage == "score" else "train.json")
    ended = bench.start(case, folder, fault=some_write(bench, case, rng, 0.4, 0.9), inputs=inputs)
    row.codes.append(ended.code)
    row.place = f"before {last_place(ended, 0)}"
    before = sha256(data.read_bytes()).hexdigest()
    _change(data)
    after = sha256(data.read_bytes()).hexdigest()
    refused = bench.start(case, folder, inputs=inputs)
    row.codes.append(refused.code)
    row.need(refused.code == (2 if case.launch == "python" else 1), f"not refused: {refused.last_line}")
    for said in (data.name, before[:8], after[:8], "accept_changed_data=true"):
        row.need(said in refused.log, f"the refusal does not say {said}: {refused.last_line}")
    accepted = bench.start(case, folder, "accept_changed_data=true", inputs=inputs)
    row.codes.append(accepted.code)
    row.need(accepted.code == 0, f"not accepted when told: {accepted.last_line}")
    row.equal = "refused, then accepted" if not row.problems else ""


def _change(data: Path) -> None:
    """Another word in the last question."""
    text = data.read_text()
    at = text.rindex('"question": "') + len('"question": "')
    data.write_text(text[:at] + "Tell me: " + text[at:])


def elastic_restart(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """SIGKILL of one process in the first start of an elastic run, which goes on by itself."""
    fault = some_write(bench, row.case, rng, 0.3, 0.95)
    ended = bench.start(row.case, folder, fault={**fault, "attempt": 0})
    row.place = f"rank {fault['rank']} before write {fault['kill']}"
    row.need("exitcode: -9" in ended.log, "no process was killed")
    bench.compare(row, ended, folder, close=True)


def out_of_memory(bench: Bench, row: Row, folder: Path, rng: Random) -> None:
    """Generator and metrics run out of memory above a few rows; the run goes on, and says so once."""
    row.place = f"above {ROWS} rows in generator and metrics"
    ended = bench.go_on(row, folder, close=True, fault={"memory": ROWS})
    parts = re.findall(r"([a-z- ]+): \d+ rows do not fit", ended.log)  # a bar may stand before it
    row.need(parts, "no line says that memory ran out")
    row.need(len(parts) == len(set(parts)), f"said more than once: {', '.join(parts)}")


FAULTS: dict[str, Callable[[Bench, Row, Path, Random], None]] = {
    "SIGKILL": sigkill,
    "SIGTERM": sigterm,
    "disk full": disk_full,
    "truncated checkpoint": truncated_checkpoint,
    "changed data": changed_data,
    "elastic restart": elastic_restart,
    "out of memory": out_of_memory,
}
