"""Which tests are run on a mutant, and what comes of it."""

import ast
import hashlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.mutants.mutations import Mutant
from tests.mutants.tree import PACKAGES, Tree


@dataclass
class Quick:
    """What a quick test did on the unchanged tree: its seconds, and the statements it reached, by file."""

    seconds: float
    reached: dict[str, list[int]]


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
    """Tries mutants on a tree, of which the quick tests with what they reach, and the slow tests are known."""

    def __init__(self, tree: Tree, quick: dict[str, Quick], slow: list[str], seconds: float) -> None:
        self._tree, self._quick, self._slow, self._seconds = tree, quick, slow, seconds
        self._number = 0

    def outcome(self, file: str, mutant: Mutant) -> dict[str, Any]:
        """`caught`, `timeout` or `survived`; by which test, and how many quick tests reach the statement."""
        source = (self._tree.path / file).read_bytes()
        self._number += 1
        before = time.monotonic()
        reaching = sorted(
            (name for name in self._quick if self._reaches(name, file, mutant)),
            key=lambda name: self._quick[name].seconds,
        )
        answer = {"outcome": "survived", "by": "", "reaching": len(reaching)}
        try:
            for names in self._order(file, reaching):
                if by := self._failure(file, source, mutant, names, reaching):
                    break
            else:
                by = self._slow_failure(file, source, mutant)
        finally:
            self._tree.write(file, source)
        if by:
            answer |= {"outcome": "timeout" if by.startswith("timeout") else "caught", "by": by}
        return answer | {"seconds": round(time.monotonic() - before, 1)}

    def _reaches(self, name: str, file: str, mutant: Mutant) -> bool:
        """Outside of functions, a statement is reached where any of its file is."""
        lines = self._quick[name].reached.get(file, [])
        return mutant.statement in lines if mutant.statement else bool(lines)

    def _order(self, file: str, reaching: list[str]) -> Iterator[list[str]]:
        """Tests that are run together: of files that are near, then of others.

        Where a fixture has reached the statement, the test that asked first has it: the others of its file follow. All
        near tests are taken where none is known to reach it.
        """
        files = near(self._tree.path, file)
        close = [name for name in reaching if _file(name) in files]
        known = {*map(_file, close)} or {*files}
        yield close + [name for name in self._quick if _file(name) in known and name not in set(close)]
        yield [name for name in reaching if _file(name) not in known]

    def _failure(self, file: str, source: bytes, mutant: Mutant, names: list[str], reaching: list[str]) -> str:
        """What failed on the mutant and, where it does not reach the statement, passes on the unchanged tree."""
        if not names:
            return ""
        self._tree.write(file, mutant.apply(source), self._number)
        files = list(dict.fromkeys(map(_file, names)))
        seconds = sum(self._quick[name].seconds if name in self._quick else 10 for name in names)
        by = self._tree.fork(["-x", *files], seconds, names)
        if by == "timeout":  # of the mutant, or of a machine that is busy
            by = self._tree.fork(["-x", *files], seconds, names, factor=2)
        if by in reaching or "::" not in by:
            return by
        self._tree.write(file, source)
        if not self._tree.fork([_file(by)], seconds, [by]):
            return by
        return self._failure(file, source, mutant, [name for name in names if name != by], reaching)

    def _slow_failure(self, file: str, source: bytes, mutant: Mutant) -> str:
        limit = time.monotonic() + self._seconds
        for path in dict.fromkeys([*near(self._tree.path, file), *room(self._tree.path, file)]):
            names = [name for name in self._slow if _file(name) == path]
            if names and time.monotonic() < limit:
                by = self._failure(file, source, mutant, names, [])
                if by:
                    return f"{by} {path}" if by == "timeout" else by
        return ""


def _file(test: str) -> str:
    return test.partition("::")[0]


def known_tests(tree: Tree, folder: Path, tests: list[str]) -> tuple[dict[str, Quick], list[str]]:
    """Run the quick tests on the unchanged tree: those that pass, and the names of the slow ones.

    It is kept in the folder until a file of source or tests changes.
    """
    state = hashlib.sha256()
    for path in sorted(path for part in (*PACKAGES, "tests") for path in (tree.path / part).rglob("*.py")):
        state.update(str(path.relative_to(tree.path)).encode() + path.read_bytes())
    kept = folder / f"reached-{state.hexdigest()[:12]}.json"
    if not kept.exists():
        print("running the quick tests on the unchanged tree, to see what they reach", flush=True)
        new = kept.with_suffix(".new")
        tree.fork(["-m", "not slow", *tests], 1200, record_to=new)
        if not new.exists():
            sys.exit(f"the quick tests did not end: {tree.log.read_text()[-2000:]}")
        new.rename(kept)
    found = json.loads(kept.read_text())
    return {name: Quick(**test) for name, test in found["quick"].items()}, found["slow"]
