"""The script that counts mutants: each operator on a small module, a catch, a survivor and an endless loop."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.mutants.mutations import mutants

ROOT = Path(__file__).parent.parent
MODULE = '''"""Not 1 changed."""

from typing import TYPE_CHECKING

__all__ = ["larger"]
if TYPE_CHECKING:
    LIMIT = 1


def larger(first: int, second: int = 3) -> int:
    """Not 1 changed."""
    if first < second and not second:
        raise ValueError(f"{first + 1}" + str(1))
    log.append(first)
    for λ in [first]:
        first -= λ
    return max(first, -1)
'''
# what stands there, what stands there instead, the statement that a test must reach
EXPECTED = [
    ("3", "4", 12),
    ("first < second and not second", "(not (first < second and not second))", 12),
    ("<", "<=", 12),
    ("and", "or", 12),
    ("not", "", 12),
    ("log.append(first)", "pass", 14),
    ("-=", "+=", 16),
    ("return max(first, -1)", "return None", 17),
    ("max", "min", 17),
    ("1", "0", 17),
]
BEFORE = """def longest(texts):
    found = 0
    done = False
    while not done:
        for text in texts:
            if found < len(text):
                found = len(text)
        done = len(texts) == len(texts)
    return found or 0
"""
AFTER = """def longest(texts):
    found = 0
    done = False
    while not done:
        for text in texts:
            if len(text) >= found:
                found = len(text)
        done = True
    return found
"""
TEST = """from rewards.words import longest

def test_longest():
    assert longest(["a", "abc", "ab"]) == 3

def test_that_fails():
    assert longest([]) == 7
"""


def test_operators() -> None:
    source = MODULE.encode()
    found = mutants(source)
    assert [(source[one.start : one.end].decode(), one.new, one.statement) for one in found] == EXPECTED
    assert all(one.is_other_program(source) for one in found)
    assert found[6].apply(source).decode() == MODULE.replace("-=", "+=")


def test_changed_lines_of_a_toy_package(tmp_path: Path) -> None:
    root, module = tmp_path / "toy", "rewards/words.py"
    files = {"rewards/__init__.py": "", module: BEFORE, "tests/__init__.py": "", "tests/test_words.py": TEST}
    files["pyproject.toml"] = '[tool.pytest.ini_options]\nmarkers = ["slow"]\n'
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for command in ("init -q", "add .", "-c user.name=me -c user.email=me@example.org commit -q -m toy"):
        subprocess.run(["git", *command.split()], cwd=root, check=True)
    (root / module).write_text(AFTER)
    code = (
        "import sys, pathlib, tests.mutants.__main__ as script\n"
        f"sys.exit(script.main(sys.argv[1:], pathlib.Path({str(root)!r}), preloaded=['pytest']))"
    )
    given = ["--rev", "HEAD", "--patience", "0.05", "--folder", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    first, second = (
        subprocess.run([sys.executable, "-c", code, *given], cwd=ROOT, capture_output=True, text=True, env=environment)
        for _ in range(2)
    )
    lines = [json.loads(line) for line in (tmp_path / "out" / "since-HEAD.jsonl").read_text().splitlines()]
    assert {(one["old"], one["new"]): (one["outcome"], one["by"]) for one in lines} == {
        ("if len(text) >= found:", "if len(text) > found:"): ("survived", ""),
        ("if len(text) >= found:", "if (not (len(text) >= found)):"): (
            "caught",
            "tests/test_words.py::test_longest",
        ),
        ("done = True", "done = False"): ("timeout", "timeout"),
        ("return found", "return None"): ("caught", "tests/test_words.py::test_longest"),
    }, first.stdout + first.stderr
    assert "4 mutants: 2 caught, 1 out of time, 1 survived, 0 of them equivalent; 75%" in first.stdout
    assert first.returncode == second.returncode == 1
    assert second.stdout in first.stdout  # nothing is tried twice
    assert (root / module).read_text() == AFTER
