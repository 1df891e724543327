"""Which statements of some packages each test reaches: a note is compiled in before every statement of a function."""

import ast
import builtins
import json
from collections import defaultdict
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

NOTE = "_reached_"
Documented = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class _Notes(ast.NodeTransformer):
    """`_reached_((file, line))` before every statement of a function."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._depth = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self._depth += 1
        self.generic_visit(node)
        self._depth -= 1
        return node

    visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name in ("body", "orelse", "finalbody") if self._depth else ():
            block = getattr(node, name, None)
            if isinstance(block, list):
                start = isinstance(node, Documented) and ast.get_docstring(node) is not None
                setattr(node, name, block[:start] + [new for old in block[start:] for new in (self._note(old), old)])
        return node

    def _note(self, statement: ast.stmt) -> ast.stmt:
        note = ast.parse(f"{NOTE}(({self._file!r}, {statement.lineno}))").body[0]
        for part in ast.walk(note):
            ast.copy_location(part, statement)
        return note


class Reached:
    """A plugin of pytest that writes, for each test that passed, its seconds and what it reached.

    The tests that were left out are named too. What threads do after their test counts for the next one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: set[tuple[str, int]] = set()
        self._seconds = 0.0
        self._failed = False
        self._tests: dict[str, dict[str, Any]] = {}
        self._slow: list[str] = []
        setattr(builtins, NOTE, self._seen.add)

    def pytest_deselected(self, items: list[Any]) -> None:
        self._slow += [item.nodeid for item in items]

    def pytest_runtest_logstart(self) -> None:
        self._seen.clear()
        self._seconds, self._failed = 0.0, False

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._seconds += report.duration
        self._failed |= not report.passed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if not self._failed:
            files = defaultdict(list)
            for file, line in sorted(self._seen.copy()):
                files[file].append(line)
            self._tests[nodeid] = {"seconds": round(self._seconds, 3), "reached": files}

    def pytest_sessionfinish(self) -> None:
        self._path.write_text(json.dumps({"quick": self._tests, "slow": self._slow}))


def record(root: Path, packages: tuple[str, ...], path: Path) -> Reached:
    """Compile notes into the packages below a folder that are imported from now on; the plugin that writes `path`."""
    compiled = SourceFileLoader.source_to_code

    def source_to_code(self: SourceFileLoader, data: Any, path: Any, **more: Any) -> CodeType:
        file = Path(str(path))
        if file.is_relative_to(root) and file.relative_to(root).parts[0] in packages:
            data = ast.fix_missing_locations(_Notes(str(file.relative_to(root))).visit(ast.parse(bytes(data))))
        return compiled(self, data, path, **more)

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign, assignment]
    return Reached(path)
