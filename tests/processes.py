"""Processes that tests start, forked from one that has imported the libraries.

Starting from nothing takes seconds, nearly all of them for imports. A forked process has its own environment, folder,
output, signals and exit code. It does not show what imports print, and all forks share one seed of string hashes: a
run that others are compared with is started from nothing (`fresh`), and so is one whose output must be free of noise.
"""

import atexit
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from threading import Lock
from typing import Any
from unittest.mock import patch

from rl_qg.commands.catalogue import COMMANDS

ROOT = Path(__file__).parent.parent
RL_QG = (sys.executable, "-c", "from rl_qg.commands.cli import main; main()")
PRELOADED = (
    *sorted({f"rl_qg.commands.{command.module}" for command in COMMANDS.values()}),
    *("rl_qg.training.stages", "rl_qg.training.trl_trainers", "rl_qg.readers.train_reader"),
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bart", "bert", "distilbert", "gpt2", "t5")),
    *("matplotlib.pyplot", "torch.utils.tensorboard", "rewards.relevance.qrelscore", "tests.preloaded"),
)
_CACHE = tempfile.TemporaryDirectory()  # empty: nothing is found that a user of this machine has loaded before
# Read by the libraries when they are imported; the command line sets the last three.
AT_IMPORT = {
    "HF_HOME": _CACHE.name,
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "DS_ACCELERATOR": "cpu",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
}
LIMIT = 300  # seconds
_LOCK = Lock()  # multiprocessing reads an exit code once: two threads must not do it together


class Forked:
    """A forked process, used as `subprocess.Popen` is."""

    def __init__(self, process: ForkServerProcess) -> None:
        self._process = process
        assert process.pid is not None
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        """The exit code (negative: the signal), or nothing while it runs."""
        return self.poll()

    def poll(self) -> int | None:
        with _LOCK:
            return self._process.exitcode

    def wait(self, timeout: float = LIMIT) -> int:
        limit = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > limit:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL for the process and for those it started."""
        if self.poll() is None:
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:  # it has not begun its session yet
                os.kill(self.pid, signal.SIGKILL)
        self.wait()


def start(
    function: Callable[..., None],
    *arguments: Any,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
    stdout: Path | None = None,
    stderr: Path | None = None,
) -> Forked:
    """Call a function of a module in a forked process, the first of a new session.

    Args:
        function: What to call.
        arguments: Its arguments, which are pickled.
        environment: The whole environment; that of this process by default. What is in `AT_IMPORT` has no effect.
        folder: The working directory.
        stdout: The file of its output, nothing by default.
        stderr: The file of its errors, nothing by default.
    """
    context = get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED])
    files = [str(path or os.devnull) for path in (stdout, stderr)]
    process = context.Process(
        target=_forked, args=(function, arguments, dict(environment or os.environ), str(folder), files)
    )
    with _LOCK, patch.dict(os.environ, AT_IMPORT):
        process.start()  # the first one starts the server, which takes the environment
    return Forked(process)


def _forked(
    function: Callable[..., None],
    arguments: Sequence[Any],
    environment: Mapping[str, str],
    folder: str,
    files: Sequence[str],
) -> None:
    os.setsid()
    for number, path in enumerate(files, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), number)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    try:
        function(*arguments)
    finally:
        atexit._run_exitfuncs()


def script(path: str, arguments: Sequence[str]) -> None:
    """`python PATH ARGUMENTS`, in this process."""
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).parent))
    runpy.run_path(path, run_name="__main__")


def command_line(*arguments: str) -> None:
    """`rl-qg ARGUMENTS`, in this process."""
    from rl_qg.commands.cli import main

    sys.argv = ["rl-qg", *arguments]
    main()


def user_environment(home: Path) -> dict[str, str]:
    """That of a user with an empty home and no hub, on one core."""
    return {**os.environ, "HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def rl_qg(
    environment: Mapping[str, str], *arguments: str, cwd: Path = ROOT, fresh: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run `rl-qg ARGUMENTS` to its end; `fresh`: in a process that is started from nothing."""
    if fresh:
        command = [*RL_QG, *arguments]
        return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=LIMIT)
    with tempfile.TemporaryDirectory() as work:
        out, err = Path(work, "out"), Path(work, "err")
        process = start(command_line, *arguments, environment=environment, folder=cwd, stdout=out, stderr=err)
        try:
            code = process.wait()
        finally:
            process.kill()
        return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())


def together(
    function: Callable[..., None], *arguments: Any, count: int = 2, environment: Mapping[str, str] | None = None
) -> None:
    """Call a function in the processes of one group, as torchrun does; when one fails, the others are ended."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    group |= {"LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as work:
        errors = [Path(work, str(rank)) for rank in range(count)]
        processes = [
            start(
                _member,
                function,
                arguments,
                environment={**os.environ, **(environment or {}), **group, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stderr=errors[rank],
            )
            for rank in range(count)
        ]
        limit = time.monotonic() + LIMIT
        while None in (codes := [process.poll() for process in processes]) and time.monotonic() < limit:
            if any(codes):
                break
            time.sleep(0.02)
        for process in processes:
            process.kill()
        assert not any(codes), f"exit codes {codes}\n" + "\n".join(path.read_text()[-3000:] for path in errors)


def accelerate_environment(config: str) -> dict[str, str]:
    """What `accelerate launch` adds to the environment under a launch configuration that we ship."""
    from accelerate.commands.launch import launch_command, launch_command_parser

    seen: dict[str, str] = {}
    file = str(ROOT / "configs" / "accelerate" / f"{config}.yaml")
    arguments = launch_command_parser().parse_args(["--num_processes", "2", "--config_file", file, "script.py"])
    with patch.dict(os.environ), patch("torch.distributed.run.run", lambda _: seen.update(os.environ)):
        launch_command(arguments)
    assert seen
    return {key: value for key, value in seen.items() if os.environ.get(key) != value}


def _member(function: Callable[..., None], arguments: Sequence[Any]) -> None:
    """One process of a group; nobody leaves while another still talks to it."""
    import torch

    function(*arguments)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
    sys.stderr.flush()
    os._exit(0)  # gloo's threads now and then abort the interpreter's shutdown of a run that is complete
