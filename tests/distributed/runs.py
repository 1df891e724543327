"""The real commands, run under watch and struck by a fault."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.processes import Forked, script, start

PROJECT = Path(__file__).resolve().parents[2]
WATCHED = Path(__file__).parent / "watched"
LIMIT = 300  # seconds after which a run is taken to hang
LAUNCHERS_PATIENCE = 45  # a launcher gives its processes 30 seconds to end


@dataclass(frozen=True)
class Launch:
    """How a command is started."""

    name: str
    processes: int = 1
    arguments: tuple[str, ...] = ()

    def start(
        self, path: str, settings: list[str], plan: dict[str, Any], log: Path, *, fresh: bool
    ) -> subprocess.Popen[bytes] | Forked:
        """Start a command. A single process is forked from one that has imported the libraries, unless `fresh`."""
        if self.processes == 1 and not fresh:
            return start(watched, path, settings, environment=environment(plan), stdout=log, stderr=log)
        command = [sys.executable, *self.arguments, path, *settings]
        with log.open("w") as stream:
            return subprocess.Popen(
                command, cwd=PROJECT, env=environment(plan), stdout=stream, stderr=stream, start_new_session=True
            )


def watched(path: str, settings: list[str]) -> None:
    """Run a script under watch, in this process."""
    import_module("tests.distributed.watched.sitecustomize")
    script(path, settings)


def accelerate(config: str) -> Launch:
    """Two processes under a shipped launch configuration."""
    start = "-m accelerate.commands.launch --num_processes 2 --main_process_port 0 --config_file".split()
    return Launch(config, 2, (*start, str(PROJECT / f"configs/accelerate/{config}.yaml")))


ELASTIC = (
    "-m torch.distributed.run --max-restarts 2 --nproc_per_node 2 --rdzv_backend c10d --rdzv_endpoint localhost:0"
)
LAUNCHES = {
    "python": Launch("python"),
    **{name: accelerate(name) for name in ("cpu2", "zero2", "zero3")},
    "torchrun": Launch("torchrun", 2, tuple(ELASTIC.split())),
}


@dataclass(frozen=True)
class Write:
    """A change below the run's folder: when, what, and where."""

    time: float
    event: str
    path: str


@dataclass(frozen=True)
class Moment:
    """A signal, `seconds` after the main process has written so many times. To a rank, or (None) to the launcher."""

    writes: int
    seconds: float
    signal: signal.Signals
    rank: int | None = 0


@dataclass(frozen=True)
class Ended:
    """A run that ended: its exit code (negative: the signal), its log, and for each rank what it wrote."""

    code: int
    log: str
    writes: dict[int, list[Write]]
    ended: float
    sent: float | None = None  # when the signal of a moment was

    @property
    def last_line(self) -> str:
        lines = [line for line in self.log.replace("\r", "\n").splitlines() if line.strip()]
        return lines[-1] if lines else ""


def run(
    launch: Launch,
    path: str,
    settings: list[str],
    folder: Path,
    *,
    fault: dict[str, Any],
    moment: Moment | None,
    fresh: bool = False,
) -> Ended:
    """Run a command that writes below `folder`, struck by `fault` (see `watched/sitecustomize.py`) or at `moment`."""
    number = 1 + len([*folder.parent.glob(f"{folder.name}.trace-*")])
    trace = folder.with_name(f"{folder.name}.trace-{number}")
    trace.mkdir(parents=True)
    plan = {"folder": str(folder), "trace": str(trace), "launched": launch.processes > 1, **fault}
    log = trace.with_suffix(trace.suffix + ".log")
    sent = None
    process = launch.start(path, settings, plan, log, fresh=fresh)
    try:
        sent = _wait(process, trace, moment)
    finally:
        _end(process, trace)
    ended = time.time()
    text = log.read_text(errors="replace")
    writes = {rank: _writes(trace, rank) for rank in range(launch.processes)}
    assert process.returncode is not None
    return Ended(process.returncode, text, writes, ended, sent)


def environment(plan: dict[str, Any]) -> dict[str, str]:
    """That of a user on a quiet machine without a hub, with the watch in front."""
    path = os.pathsep.join([str(WATCHED), str(PROJECT)])
    own = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    return {**os.environ, **own, "FAULT": json.dumps(plan)}


def _wait(process: subprocess.Popen[bytes] | Forked, trace: Path, moment: Moment | None) -> float | None:
    """Until the process ends; send the signal of `moment` on the way and say when."""
    limit, reached, sent = time.monotonic() + LIMIT, None, None
    while process.poll() is None and time.monotonic() < limit:
        if moment is not None and sent is None:
            if reached is None and len(_writes(trace, 0)) >= moment.writes:
                reached = time.monotonic()
            if reached is not None and time.monotonic() >= reached + moment.seconds:
                _send(process, trace, moment)
                sent = time.time()
        time.sleep(0.05 if moment is None else 0.005)
    return sent


def _end(process: subprocess.Popen[bytes] | Forked, trace: Path) -> None:
    """End a run that hangs: the launcher, which ends its processes, and whatever of them is still there."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(LAUNCHERS_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for file in trace.iterdir():
        number = file.name.rpartition(".")[2]
        with suppress(OSError):
            if str(trace).encode() in Path(f"/proc/{number}/environ").read_bytes():  # not another of that number
                os.kill(int(number), signal.SIGKILL)


def _send(process: subprocess.Popen[bytes] | Forked, trace: Path, moment: Moment) -> None:
    if moment.rank is None:
        process.send_signal(moment.signal)
    elif files := _traces(trace, moment.rank):
        os.kill(int(files[-1].name.rpartition(".")[2]), moment.signal)


def _traces(trace: Path, rank: int) -> list[Path]:
    """The notes of one rank, those of its last start last."""
    return sorted(trace.glob(f"{rank}.*"), key=lambda path: float(path.name.split(".", 1)[1].rpartition(".")[0]))


def _writes(trace: Path, rank: int) -> list[Write]:
    return [write for file in _traces(trace, rank) for write in _lines(file)]


def _lines(file: Path) -> list[Write]:
    lines = (json.loads(line) for line in file.read_text().splitlines())
    return [Write(**line) for line in lines if line["event"] != "start"]
