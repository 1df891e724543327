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
below 95 %. `--again FILE` tries the survivors of such a file on the tree as it is now.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.long_tests import last_landed
from tests.mutants.mutations import Mutant, mutants
from tests.mutants.tree import PACKAGES, PRELOADED, Tree
from tests.mutants.trial import Trial, known_tests

ROOT = Path(__file__).parents[2]
LEAST = 0.95


def changed_lines(root: Path, revision: str) -> dict[str, set[int]]:
    """The lines of core modules that are other than at a revision; all lines of a file that git does not know yet."""
    found: dict[str, set[int]] = {}
    for line in _git(root, "diff", "-U0", "--no-prefix", revision, "--", *PACKAGES):
        if line.startswith("+++ "):
            file = line.removeprefix("+++ ")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(start, start + count))
    for file in _git(root, "ls-files", "--others", "--exclude-standard", "--", *PACKAGES):
        found[file] = {*range(1, 1 + (root / file).read_bytes().count(b"\n"))}
    return {file: lines for file, lines in found.items() if file.endswith(".py")}


def _git(root: Path, *words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()


def changed(root: Path, revision: str) -> list[tuple[str, Mutant]]:
    """All mutants of the lines that are other than at a revision."""
    lines = changed_lines(root, revision)
    every = [(file, mutant) for file in sorted(lines) for mutant in mutants((root / file).read_bytes())]
    return [pair for pair in every if pair[1].line in lines[pair[0]] and _is_other(root, *pair)]


def drawn(root: Path, sample: int, seed: int) -> list[tuple[str, Mutant]]:
    """A random sample of the mutants of all core modules, each as likely as any other."""
    files = sorted(str(path.relative_to(root)) for package in PACKAGES for path in (root / package).rglob("*.py"))
    every = [(file, mutant) for file in files for mutant in mutants((root / file).read_bytes())]
    random.Random(seed).shuffle(every)
    return list(islice((pair for pair in every if _is_other(root, *pair)), sample))


def survivors(root: Path, outcomes: list[dict[str, Any]]) -> list[tuple[str, Mutant]]:
    """Those of earlier outcomes that survived and are not equivalent, where their line still stands."""
    found = []
    for one in outcomes:
        if one["outcome"] == "survived" and not one.get("equivalent"):
            same = [
                (one["file"], mutant)
                for mutant in mutants((root / one["file"]).read_bytes())
                if _is_same(described(root, one["file"], mutant), one)
            ]
            if not same:
                print(f"{one['file']}:{one['line']}: its line has changed: {one['old']}")
            found += sorted(same, key=lambda pair: abs(pair[1].line - one["line"]))[:1]
    return found


def _is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in ("file", "operator", "old", "new"))


def _is_other(root: Path, file: str, mutant: Mutant) -> bool:
    return mutant.is_other_program((root / file).read_bytes())


def described(root: Path, file: str, mutant: Mutant) -> dict[str, Any]:
    """A mutant in the file of outcomes: where, and its lines before and after."""
    source = (root / file).read_bytes()
    start, end = source.rfind(b"\n", 0, mutant.start) + 1, source.find(b"\n", mutant.end)
    new = source[start : mutant.start] + mutant.new.encode() + source[mutant.end : end]
    lines = {"old": source[start:end].decode().strip(), "new": new.decode().strip()}
    return {"file": file, "line": mutant.line, "operator": mutant.operator, **lines, "at": mutant.start}


def outcomes_in(path: Path) -> list[dict[str, Any]]:
    """What a run has written."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


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
    parser.add_argument("--rev", default="last-landed", help="mutate the lines that changed since this commit")
    parser.add_argument("--sample", type=int, default=0, help="instead so many mutants, of all lines")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--slow", type=float, default=600, help="seconds of slow tests for a mutant; 0: none")
    parser.add_argument("--again", type=Path, help="instead those that survived, by a file of outcomes")
    parser.add_argument("--patience", type=float, default=1, help="a factor of all limits, for a busy machine")
    parser.add_argument("--folder", type=Path, default=ROOT / "runs" / "mutants", help="of outcomes")
    parser.add_argument("--tests", nargs="*", default=["tests"], help="the quick tests to take")
    return parser.parse_args(given)


def tried(
    every: list[tuple[str, Mutant]], path: Path, options: argparse.Namespace, root: Path, preloaded: Iterable[str]
) -> list[dict[str, Any]]:
    """The outcomes of mutants: from a file of outcomes, or found now and added to it."""
    key = itemgetter("file", "old", "new", "at")
    known = {key(one): one for one in (outcomes_in(path) if path.exists() else [])}
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as work:
        trial: Trial | None = None
        for number, (file, mutant) in enumerate(every, 1):
            place = described(root, file, mutant)
            one = known.get(key(place))
            if one is None:
                if trial is None:
                    tree = Tree(root, Path(work), options.patience, preloaded)
                    quick, slow = known_tests(tree, options.folder, options.tests)
                    tree.compile()
                    trial = Trial(tree, quick, slow, options.slow)
                one = place | trial.outcome(file, mutant)
                with path.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(one, ensure_ascii=False) + "\n")
                where = f"{number}/{len(every)} {one['outcome']} {file}:{one['line']}"
                print(f"{where} {one['operator']} {one['by']}", flush=True)
            outcomes.append(one)
    return outcomes


def main(given: list[str] | None = None, root: Path = ROOT, preloaded: Iterable[str] = PRELOADED) -> int:
    options = arguments(given)
    if options.again:
        name, every = f"again-{options.again.stem}", survivors(root, outcomes_in(options.again))
    elif options.sample:
        name, every = f"{options.sample}-{options.seed}", drawn(root, options.sample, options.seed)
    else:
        revision = last_landed() if options.rev == "last-landed" else options.rev
        name, every = f"since-{revision[:12]}", changed(root, revision)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{name}.jsonl"
    outcomes = tried(every, path, options, root, preloaded)
    for one in outcomes:
        if one["outcome"] == "survived" and not one.get("equivalent"):
            print(f"\n{one['file']}:{one['line']}, which {one['reaching']} quick tests reach")
            print(f"- {one['old']}\n+ {one['new']}")
    line, rate = summary(outcomes)
    print(f"\n{line}; {path}")
    return int(rate < LEAST and bool(outcomes))


if __name__ == "__main__":
    sys.exit(main())
