"""A copy of the repository in which files are changed, and tests run in processes forked from this one."""

import compileall
import ctypes
import importlib
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from tests.mutants.reached import record

PACKAGES = ("rl_qg", "rewards")
# Imported once; the packages themselves are imported anew by every process.
PRELOADED = (
    *("torch", "transformers", "pytest", "hypothesis", "datasets", "accelerate", "peft", "hydra", "scipy.stats"),
    *("matplotlib.pyplot", "sacrebleu", "tokenizers", "torch.utils.tensorboard"),
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bart", "bert", "distilbert", "gpt2", "t5")),
)
AT_IMPORT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
MEMORY = 12 << 30  # bytes of a process of a mutant
# Of prctl: what a killed test had started becomes a child of this process; a forked process ends with it.
CHILD_SUBREAPER, PARENT_DEATH_SIGNAL = 36, 1


class Tree:
    """A copy of the repository in which files are changed, and tests run in processes forked from this one."""

    def __init__(self, root: Path, folder: Path, patience: float, preloaded: Iterable[str] = PRELOADED) -> None:
        self.path, self.log, self.patience = folder / root.name, folder / "log", patience
        self._answer = folder / "answer"
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, check=True
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            if (root / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.path / name)
        if (root.parent / "shared").is_dir():
            (folder / "shared").symlink_to((root.parent / "shared").resolve())
        os.environ.update(AT_IMPORT, PYTHONPATH=str(self.path))
        ctypes.CDLL(None).prctl(CHILD_SUBREAPER, 1)
        for module in preloaded:
            importlib.import_module(module)

    def compile(self) -> None:
        """Compile the packages once: no process writes compiled files."""
        for package in PACKAGES:
            compileall.compile_dir(self.path / package, quiet=2)

    def write(self, file: str, text: bytes, number: int = 0) -> None:
        """Write a file with a time of its own (from its number), since compiled files are told apart by seconds."""
        (self.path / file).write_bytes(text)
        os.utime(self.path / file, (10**9 + number, 10**9 + number))

    def fork(
        self,
        arguments: list[str],
        seconds: float,
        chosen: Iterable[str] = (),
        record_to: Path | None = None,
        factor: float = 1,
    ) -> str:
        """Run pytest: the name of the first test that failed, "" if none did, "timeout".

        Args:
            arguments: Of pytest.
            seconds: Expected; the limits of processor time and of time are far higher.
            chosen: The tests to run, in this order; all if empty.
            record_to: Where to write what each test reached.
            factor: Of the limits.
        """
        self._answer.unlink(missing_ok=True)
        factor *= self.patience
        process = os.fork()
        if not process:
            try:
                self._child(arguments, math.ceil(factor * (3 * seconds + 30)), list(chosen), record_to)
            finally:
                os._exit(70)
        limit = time.monotonic() + factor * (5 * seconds + 200)
        status: int | None = None
        while status is None and time.monotonic() < limit:
            done, code = os.waitpid(process, os.WNOHANG)
            if done:
                status = code
            else:
                time.sleep(0.05)
        for child in psutil.Process().children(recursive=True):
            child.kill()
        while psutil.Process().children():
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                break
        if status is None or (os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)):
            return "timeout"
        failed = self._answer.read_text() if self._answer.exists() else ""
        code = os.waitstatus_to_exitcode(status)
        return failed or ("" if code in (0, 5) else f"pytest ended with {code}")  # 5: no test was chosen

    def _child(self, arguments: list[str], cpu: int, chosen: list[str], record_to: Path | None) -> None:
        os.setsid()
        ctypes.CDLL(None).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
        output = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 5))
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        os.chdir(self.path)
        for name in [name for name in sys.modules if name.split(".")[0] in (*PACKAGES, "tests")]:
            del sys.modules[name]
        sys.path.insert(0, str(self.path))
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        import pytest

        plugins: list[Any] = [_Chosen(chosen, self._answer)]
        if record_to:
            plugins.append(record(self.path, PACKAGES, record_to))
        code = pytest.main(["-p", "no:xdist", "-q", *arguments], plugins=plugins)
        os._exit(int(code))


class _Chosen:
    """A plugin of pytest: runs the chosen tests in their order, writes down the first failure."""

    def __init__(self, chosen: list[str], answer: Path) -> None:
        self._place = {name: place for place, name in enumerate(chosen)}
        self._answer = answer

    def pytest_collection_finish(self, session: Any) -> None:
        if self._place:
            kept = [item for item in session.items if item.nodeid in self._place]
            session.items[:] = sorted(kept, key=lambda item: self._place[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self._answer.exists():
            self._answer.write_text(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and not self._answer.exists():
            self._answer.write_text(f"{report.nodeid} (import)")
