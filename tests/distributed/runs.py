"""Run the real commands, observe what they write, and inject faults."""

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
INSTRUMENTED = Path(__file__).parent / "instrumented"
LIMIT = 300  # seconds after which a run is assumed to hang
LAUNCHER_LIMIT = 45  # seconds; a launcher gives its processes 30 seconds to end


@dataclass(frozen=True)
class Launch:
    """How a command is started: `arguments` come between the interpreter and the script."""

    name: str
    processes: int = 1
    arguments: tuple[str, ...] = ()

    def start(
        self, path: str, settings: list[str], plan: dict[str, Any], log: Path, *, fresh: bool
    ) -> subprocess.Popen[bytes] | Forked:
        """Start a command. A single process is forked from one that has imported the libraries, unless `fresh`."""
        if self.processes == 1 and not fresh:
            return start(run_instrumented, path, settings, environment=environment(plan), stdout=log, stderr=log)
        command = [sys.executable, *self.arguments, path, *settings]
        with log.open("w") as stream:
            return subprocess.Popen(
                command, cwd=PROJECT, env=environment(plan), stdout=stream, stderr=stream, start_new_session=True
            )


def run_instrumented(path: str, settings: list[str]) -> None:
    """Run a script in this process, with its writes recorded and the fault injected."""
    import_module("tests.distributed.instrumented.sitecustomize")
    script(path, settings)


def accelerate(config: str) -> Launch:
    """Two processes under a launch configuration of `configs/accelerate/`."""
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
    """A write below the run folder: time, kind of event, and path."""

    time: float
    event: str
    path: str


@dataclass(frozen=True)
class TimedSignal:
    """A signal, `seconds` after the main process has made `writes` writes; to a rank, or (None) to the launcher."""

    writes: int
    seconds: float
    signal: signal.Signals
    rank: int | None = 0


@dataclass(frozen=True)
class FinishedRun:
    """A finished run: its exit code (negative: the signal), its log, and the writes of each rank."""

    code: int
    log: str
    writes: dict[int, list[Write]]
    ended: float
    sent: float | None = None  # when the timed signal was sent

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
    timed_signal: TimedSignal | None,
    fresh: bool = False,
) -> FinishedRun:
    """Run a command that writes below `folder`, with a `fault` (see `instrumented/sitecustomize.py`) or a signal."""
    number = 1 + len([*folder.parent.glob(f"{folder.name}.trace-*")])
    trace = folder.with_name(f"{folder.name}.trace-{number}")
    trace.mkdir(parents=True)
    plan = {"folder": str(folder), "trace": str(trace), "launched": launch.processes > 1, **fault}
    log = trace.with_suffix(trace.suffix + ".log")
    sent = None
    process = launch.start(path, settings, plan, log, fresh=fresh)
    try:
        sent = _wait(process, trace, timed_signal)
    finally:
        _end(process, trace)
    ended = time.time()
    text = log.read_text(errors="replace")
    writes = {rank: _writes(trace, rank) for rank in range(launch.processes)}
    assert process.returncode is not None
    return FinishedRun(process.returncode, text, writes, ended, sent)


def environment(plan: dict[str, Any]) -> dict[str, str]:
    """The environment of a run: one thread, no hub, and the instrumentation first on the path."""
    path = os.pathsep.join([str(INSTRUMENTED), str(PROJECT)])
    changes = {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    return {**os.environ, **changes, "FAULT": json.dumps(plan)}


def _wait(process: subprocess.Popen[bytes] | Forked, trace: Path, timed_signal: TimedSignal | None) -> float | None:
    """Wait until the process ends; return when the timed signal was sent, if it was."""
    limit, reached, sent = time.monotonic() + LIMIT, None, None
    while process.poll() is None and time.monotonic() < limit:
        if timed_signal is not None and sent is None:
            if reached is None and len(_writes(trace, 0)) >= timed_signal.writes:
                reached = time.monotonic()
            if reached is not None and time.monotonic() >= reached + timed_signal.seconds:
                _send(process, trace, timed_signal)
                sent = time.time()
        time.sleep(0.05 if timed_signal is None else 0.005)
    return sent


def _end(process: subprocess.Popen[bytes] | Forked, trace: Path) -> None:
    """End a run that hangs: the launcher, which ends its processes, and then any process that is still running."""
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(LAUNCHER_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for file in trace.iterdir():
        number = file.name.rpartition(".")[2]
        with suppress(OSError):
            # The process number may have been reused by another program.
            if str(trace).encode() in Path(f"/proc/{number}/environ").read_bytes():
                os.kill(int(number), signal.SIGKILL)


def _send(process: subprocess.Popen[bytes] | Forked, trace: Path, timed_signal: TimedSignal) -> None:
    if timed_signal.rank is None:
        process.send_signal(timed_signal.signal)
    elif files := _traces(trace, timed_signal.rank):
        os.kill(int(files[-1].name.rpartition(".")[2]), timed_signal.signal)


def _traces(trace: Path, rank: int) -> list[Path]:
    """The files of writes of one rank, that of its last start last."""
    return sorted(trace.glob(f"{rank}.*"), key=lambda path: float(path.name.split(".", 1)[1].rpartition(".")[0]))


def _writes(trace: Path, rank: int) -> list[Write]:
    return [write for file in _traces(trace, rank) for write in _lines(file)]


def _lines(file: Path) -> list[Write]:
    lines = (json.loads(line) for line in _complete(file.read_text()).splitlines())
    return [Write(**line) for line in lines if line["event"] != "start"]


def _complete(text: str) -> str:
    """What is before the last line feed: a process that still runs may have written a part of a line."""
    return text[: text.rfind("\n") + 1]
