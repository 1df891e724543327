"""How many small faults the tests notice: `make mutants` (the lines that changed), `make mutants SAMPLE=100 SEED=7`.

Each mutant of `tests/mutations.py` is written into a copy of the tree, and tests run on it until one fails:

1. quick tests of the files that mirror or import the module, those first that reach the changed statement;
2. all other quick tests that reach it;
3. slow tests of these files, then of the room, then of the commands, for at most `--slow` seconds.

Which tests reach what is found by a run of all quick tests on the unchanged tree; a test that fails there is not used.
A failure in a test that does not reach the statement, and of a slow test, counts only if that test passes on the
unchanged tree; a test that is out of time is run again with twice the time.

Outcomes are lines of a file in `runs/mutants/`, so that a run that was ended goes on. A survivor that changes nothing
that can be seen is marked there: its reason in `equivalent`; the same command then gives the rate. The exit code is 1
below 95 %.
"""

import argparse
import ast
import compileall
import ctypes
import hashlib
import importlib
import json
import math
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psutil

from tests.mutations import Mutant, mutants
from tests.reached import record

ROOT = Path(__file__).parent.parent
PACKAGES = ("rl_qg", "rewards")
LEAST = 0.95
SLOW = ("-m", "slow")
PRELOADED = (
    *("torch", "transformers", "pytest", "hypothesis", "datasets", "accelerate", "peft", "hydra", "scipy.stats"),
    *("matplotlib.pyplot", "sacrebleu", "tokenizers", "torch.utils.tensorboard"),
    *(f"transformers.models.{name}.modeling_{name}" for name in ("bart", "bert", "distilbert", "gpt2", "t5")),
)
AT_IMPORT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
MEMORY = 12 << 30  # bytes of a process of a mutant
CHILD_SUBREAPER = 36  # of prctl: what a killed test had started becomes a child of this process


@dataclass
class Quick:
    """What a quick test did on the unchanged tree: its seconds, and the statements it reached, by file."""

    seconds: float
    reached: dict[str, list[int]]


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
                self._child(arguments, math.ceil(factor * (3 * seconds + 90)), list(chosen), record_to)
            finally:
                os._exit(70)
        limit = time.monotonic() + factor * (5 * seconds + 300)
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


@cache
def _imports(path: Path) -> frozenset[str]:
    """`module` and `module.name` of everything that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def near(root: Path, file: str) -> list[str]:
    """The test files that mirror a module or import it; small ones first."""
    module = ".".join(Path(file).with_suffix("").parts).removesuffix(".__init__")
    found = [
        path
        for path in sorted((root / "tests").rglob("test_*.py"))
        if path.stem == f"test_{Path(file).stem}" or module in _imports(path)
    ]
    return [str(path.relative_to(root)) for path in sorted(found, key=lambda path: path.stat().st_size)]


def room(root: Path, file: str) -> list[str]:
    """The test files of the room of a module and of the commands; small ones first within a folder."""
    folders = [root / "tests" / Path(*Path(file).parts[:-1][:2]), root / "tests" / "rl_qg" / "commands"]
    return [
        str(path.relative_to(root))
        for folder in folders
        for path in sorted(folder.rglob("test_*.py"), key=lambda path: path.stat().st_size)
    ]


class Trial:
    """Tries mutants on a tree, whose quick tests and what they reach are known."""

    def __init__(self, root: Path, tree: Tree, quick: dict[str, Quick], slow: float) -> None:
        self.root, self.tree, self.quick, self._slow = root, tree, quick, slow
        self._number = 0

    def outcome(self, file: str, mutant: Mutant) -> dict[str, Any]:
        """`caught`, `timeout` or `survived`; by which test, and how many quick tests reach the statement."""
        source = (self.root / file).read_bytes()
        self._number += 1
        before = time.monotonic()
        close, far = self._order(file, mutant)
        reaching = [name for name in (*close, *far) if self._reaches(name, file, mutant)]
        answer = {"outcome": "survived", "by": "", "reaching": len(reaching)}
        try:
            for names in (close, far):
                if by := self._failure(file, source, mutant, names, reaching):
                    break
            by = by or self._slow_failure(file, source, mutant)
        finally:
            self.tree.write(file, source)
        if by:
            answer |= {"outcome": "timeout" if by.startswith("timeout") else "caught", "by": by}
        return answer | {"seconds": round(time.monotonic() - before, 1)}

    def _reaches(self, name: str, file: str, mutant: Mutant) -> bool:
        """Outside of functions, a statement is reached where any of its file is."""
        lines = self.quick[name].reached.get(file, [])
        return mutant.statement in lines if mutant.statement else bool(lines)

    def _order(self, file: str, mutant: Mutant) -> tuple[list[str], list[str]]:
        """All quick tests of files that are near, the others that reach the statement; the cheapest first."""
        by_cost = sorted(self.quick, key=lambda name: self.quick[name].seconds)
        files = near(self.root, file)
        close = [name for name in by_cost if name.split("::")[0] in files]
        close.sort(key=lambda name: not self._reaches(name, file, mutant))
        return close, [name for name in by_cost if name not in set(close) and self._reaches(name, file, mutant)]

    def _failure(self, file: str, source: bytes, mutant: Mutant, names: list[str], reaching: list[str]) -> str:
        if not names:
            return ""
        self.tree.write(file, mutant.apply(source), self._number)
        files = list(dict.fromkeys(name.split("::")[0] for name in names))
        seconds = sum(self.quick[name].seconds for name in names)
        by = self.tree.fork(["-x", *files], seconds, names)
        if by == "timeout":  # of the mutant, or of a machine that is busy
            by = self.tree.fork(["-x", *files], seconds, names, factor=2)
        trusted = by in reaching or by in ("", "timeout") or "::" not in by
        return by if trusted or self._passes(file, source, by) else ""

    def _slow_failure(self, file: str, source: bytes, mutant: Mutant) -> str:
        limit = time.monotonic() + self._slow
        for path in dict.fromkeys([*near(self.root, file), *room(self.root, file)]):
            if "mark.slow" in (self.root / path).read_text(encoding="utf-8") and time.monotonic() < limit:
                self.tree.write(file, mutant.apply(source), self._number)
                by = self.tree.fork(["-x", *SLOW, path], self._slow / 5)
                if by and self._passes(file, source, by if "::" in by else path):
                    return f"{by} {path}" if by == "timeout" else by
        return ""

    def _passes(self, file: str, source: bytes, name: str) -> bool:
        """Whether a test, or the slow tests of a file, pass on the unchanged tree."""
        self.tree.write(file, source)
        if "::" in name:
            return not self.tree.fork([name.split("::")[0]], self._slow / 5, [name])
        return not self.tree.fork([*SLOW, name], self._slow / 5)


def quick_tests(root: Path, tree: Tree, folder: Path, tests: list[str]) -> dict[str, Quick]:
    """Run the quick tests on the unchanged tree; kept in the folder until a file of source or tests changes."""
    state = hashlib.sha256()
    for path in sorted(path for part in (*PACKAGES, "tests") for path in (root / part).rglob("*.py")):
        state.update(str(path.relative_to(root)).encode() + path.read_bytes())
    kept = folder / f"reached-{state.hexdigest()[:12]}.json"
    if not kept.exists():
        print("running the quick tests on the unchanged tree, to see what they reach", flush=True)
        new = kept.with_suffix(".new")
        tree.fork(["-m", "not slow", *tests], 1200, record_to=new)
        if not new.exists():
            sys.exit(f"the quick tests did not end: {tree.log.read_text()[-2000:]}")
        new.rename(kept)
    return {name: Quick(**test) for name, test in json.loads(kept.read_text()).items()}


def changed_lines(root: Path, revision: str) -> dict[str, set[int]]:
    """The lines of core modules that are other than at a revision."""
    command = ["git", "diff", "-U0", "--no-prefix", revision, "--", *PACKAGES]
    found: dict[str, set[int]] = {}
    for line in subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(start, start + count))
    return {file: lines for file, lines in found.items() if file.endswith(".py")}


def last_revision(root: Path) -> str:
    """Where this branch left main; on main itself the commit before."""
    commands = (["merge-base", "HEAD", "main"], ["rev-parse", "HEAD"], ["rev-parse", "HEAD~1"])
    base, head, before = (
        subprocess.run(["git", *command], cwd=root, capture_output=True, text=True).stdout.strip()
        for command in commands
    )
    return base if base and base != head else before


def drawn(root: Path, lines: dict[str, set[int]] | None, sample: int, seed: int) -> list[tuple[str, Mutant]]:
    """Mutants of the core modules: all on some lines, or a random sample in which all mutants are equally likely."""
    files = sorted(str(path.relative_to(root)) for package in PACKAGES for path in (root / package).rglob("*.py"))
    every = [
        (file, mutant)
        for file in files
        if lines is None or file in lines
        for mutant in mutants((root / file).read_bytes())
        if lines is None or mutant.line in lines[file]
    ]
    if sample:
        random.Random(seed).shuffle(every)
    good = (pair for pair in every if pair[1].is_other_program((root / pair[0]).read_bytes()))
    return [pair for pair, _ in zip(good, range(sample or len(every)), strict=False)]


def described(root: Path, file: str, mutant: Mutant) -> dict[str, Any]:
    """A mutant in the file of outcomes: where, and its lines before and after."""
    source = (root / file).read_bytes()
    start, end = source.rfind(b"\n", 0, mutant.start) + 1, source.find(b"\n", mutant.end)
    new = source[start : mutant.start] + mutant.new.encode() + source[mutant.end : end]
    lines = {"old": source[start:end].decode().strip(), "new": new.decode().strip()}
    return {"file": file, "line": mutant.line, "operator": mutant.operator, **lines, "at": mutant.start}


def summary(outcomes: list[dict[str, Any]]) -> tuple[str, float]:
    """A line, and the part of the mutants that are not equivalent which the tests noticed."""
    counts = {name: sum(one["outcome"] == name for one in outcomes) for name in ("caught", "timeout", "survived")}
    equivalent = sum(bool(one.get("equivalent")) for one in outcomes)
    noticed = counts["caught"] + counts["timeout"]
    rate = noticed / max(1, len(outcomes) - equivalent)
    return (
        f"{len(outcomes)} mutants: {counts['caught']} caught, {counts['timeout']} out of time, {counts['survived']} "
        f"survived, {equivalent} of them equivalent; {rate:.0%} of the others were noticed"
    ), rate


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rev", help="mutate lines that changed since then (default: since main, or the last commit)")
    parser.add_argument("--sample", type=int, default=0, help="how many mutants, of all lines unless --rev is given")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--slow", type=float, default=600, help="seconds of slow tests for a mutant; 0: none")
    parser.add_argument("--again", action="store_true", help="try those that survived again, as when tests were added")
    parser.add_argument("--patience", type=float, default=1, help="a factor of all limits, for a busy machine")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "mutants", help="of outcomes")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="the quick tests to take")
    return parser.parse_args(given)


def main(given: list[str] | None = None, root: Path = ROOT, preloaded: Iterable[str] = PRELOADED) -> int:
    options = arguments(given)
    revision = options.rev or (None if options.sample else last_revision(root))
    lines = changed_lines(root, revision) if revision else None
    every = drawn(root, lines, options.sample, options.seed)
    names = [f"since-{revision[:12]}"] if revision else []
    names += [f"{options.sample}-{options.seed}"] if options.sample else []
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{'-'.join(names)}.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    known = {json.dumps([one[key] for key in ("file", "old", "new", "at")]): one for one in done}
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        trial: Trial | None = None
        for number, (file, mutant) in enumerate(every, 1):
            place = described(root, file, mutant)
            one = known.get(json.dumps([place[key] for key in ("file", "old", "new", "at")]))
            if one is None or (options.again and one["outcome"] == "survived" and not one.get("equivalent")):
                if trial is None:
                    tree = Tree(root, Path(work), options.patience, preloaded)
                    quick = quick_tests(root, tree, options.folder, options.tests)
                    tree.compile()
                    trial = Trial(root, tree, quick, options.slow)
                one = place | trial.outcome(file, mutant)
                with path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(one, ensure_ascii=False) + "\n")
                print(
                    f"{number}/{len(every)} {one['outcome']} {file}:{one['line']} {one['operator']} {one['by']}",
                    flush=True,
                )
            outcomes.append(one)
    for one in outcomes:
        if one["outcome"] == "survived" and not one.get("equivalent"):
            print(f"\n{one['file']}:{one['line']}, which {one['reaching']} quick tests reach")
            print(f"- {one['old']}\n+ {one['new']}")
    line, rate = summary(outcomes)
    print(f"\n{line}; {path}")
    return int(rate < LEAST and bool(outcomes))


if __name__ == "__main__":
    sys.exit(main())
