"""How large the project is, a line a room: `make size`."""

import ast
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from xml.etree import ElementTree

from rl_qg.commands.catalogue import COMMANDS
from rl_qg.settings import Settings

ROOT = Path(__file__).parent.parent
TOP = "rl_qg/*.py"


def rooms() -> dict[str, list[Path]]:
    """The Python files of each room of the package, of `rewards` with its parts, and of the tests."""
    found = {TOP: sorted((ROOT / "rl_qg").glob("*.py"))}
    for folder in sorted((ROOT / "rl_qg").iterdir()):
        found[f"rl_qg/{folder.name}"] = sorted(folder.rglob("*.py"))
    return {name: paths for name, paths in found.items() if paths} | {
        "rewards": sorted((ROOT / "rewards").rglob("*.py"))
    }


def measure(paths: list[Path]) -> tuple[int, int, int, int]:
    """Files, lines, functions and classes."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    nodes = [node for text in texts for node in ast.walk(ast.parse(text))]
    functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
    classes = sum(isinstance(node, ast.ClassDef) for node in nodes)
    return len(texts), sum(text.count("\n") for text in texts), functions, classes


def keys(settings: type) -> int:
    """The settings keys of a dataclass and of those in it."""
    return sum(keys(item.type) if is_dataclass(item.type) else 1 for item in fields(settings))  # type: ignore[arg-type]


def minutes(record: Path) -> str:
    """The time of the tests of the last `make test`, from pytest's record."""
    if not record.is_file():
        return "not run yet"
    suite = ElementTree.parse(record).getroot().find("testsuite")
    assert suite is not None
    return f"{float(suite.attrib['time']) / 60:.1f} minutes, {suite.attrib['tests']} tests"


def main(record: str) -> None:
    """Print the table. `record` is the XML file that `make test` writes."""
    print(f"{'room':<20}{'files':>8}{'lines':>8}{'functions':>11}{'classes':>9}")
    package = {name: measure(paths) for name, paths in rooms().items()}
    total = tuple(map(sum, zip(*package.values(), strict=True)))
    tests = {"tests": measure(sorted((ROOT / "tests").rglob("*.py")))}
    for name, (files, lines, functions, classes) in {**package, "the package": total, **tests}.items():
        print(f"{name:<20}{files:>8}{lines:>8}{functions:>11}{classes:>9}")
    print(f"settings keys       {keys(Settings):>8}")
    print(f"commands            {len(COMMANDS):>8}")
    print(f"last make test      {minutes(Path(record))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
