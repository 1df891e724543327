"""How many small faults the tests notice: `make mutants` (the lines that changed), `make mutants SAMPLE=100 SEED=7`.

Each mutant of `tests/mutants/mutations.py` is written into a copy of the tree, and tests run on it until one fails:

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
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.mutants.mutations import Mutant, mutants
from tests.mutants.tree import PACKAGES, PRELOADED, Tree
from tests.mutants.trial import Trial, known_tests

ROOT = Path(__file__).parents[2]
LEAST = 0.95


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
                    quick, slow = known_tests(tree, options.folder, options.tests)
                    tree.compile()
                    trial = Trial(tree, quick, slow, options.slow)
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
