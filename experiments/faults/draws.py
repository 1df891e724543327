"""Commands that are drawn, run, and counted: `python experiments/faults/draws.py --draws N --runs M`.

The draws are those of `tests/properties`: a valid command of each kind, with settings and data files that a seed
changes. `--draws` stop where the work of a training or a server would begin, `--runs` train with `preset=smoke`. Each
writes a line to `draws.jsonl` in `--folder`; what is there is not run again. The counts go to `draws.json`. The exit
code is 1 if a command broke its promise.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.processes import user_environment
from tests.properties.contract import STOPPED, run_draws
from tests.properties.draws import VALID, commands, drawn
from tests.properties.files import build

HERE = Path(__file__).parent
BLOCK = 100  # draws of one seed
TRAINING = ("pipeline", "train", "qa", "qa-evaluate", "train-answers", "train-kpqa", "train-sentences", "retrieve")
ENDS = {0: "done", STOPPED: "stopped", 1: "nothing learned", 2: "refused"}  # by exit code


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the number of the first draw, a multiple of 100")
    parser.add_argument("--folder", type=Path, default=HERE / "work")
    parser.add_argument("--output", type=Path, default=HERE / "draws.json")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    lines = options.folder / "draws.jsonl"
    done = {(row["kind"], row["number"]) for row in read(lines)}
    with tempfile.TemporaryDirectory() as name:
        root, home = Path(name, "files"), Path(name, "home")
        build(root)
        home.mkdir()
        environment = user_environment(home)
        for kind, number in (("stopped", options.draws), ("run", options.runs)):
            end = options.first + number
            for first in range(options.first, end, BLOCK):
                last = min(first + BLOCK, end)
                wanted = [one for one in range(first, last) if (kind, one) not in done]
                if not wanted:
                    continue
                block = drawn(BLOCK, first // BLOCK, commands(tuple(VALID) if kind == "stopped" else TRAINING))
                draws = [block[one - first] for one in wanted]
                outcomes = run_draws(draws, root, environment, stop=kind == "stopped")
                for one, draw, outcome in zip(wanted, draws, outcomes, strict=True):
                    row = {"kind": kind, "number": one, "command": draw.words, "change": draw.change}
                    with lines.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps({**row, **asdict(outcome)}) + "\n")
                report(lines, options.output)
    report(lines, options.output)
    broken = [row for row in read(lines) if row["faults"]]
    for row in broken:
        print(f"{row['kind']} {row['number']}: {row['faults'][0][:300]}\n  {row['command']} {row['change']}")
    sys.exit(1 if broken else 0)


def report(lines: Path, output: Path) -> None:
    """Write the counts of what is done."""
    rows = read(lines)
    counts = {kind: counted([row for row in rows if row["kind"] == kind]) for kind in ("stopped", "run")}
    output.write_text(json.dumps(counts, indent=2) + "\n", encoding="utf-8")


def read(lines: Path) -> list[dict[str, Any]]:
    """The lines of a file; what a kill left of the last one is cut off."""
    text = lines.read_text(encoding="utf-8") if lines.exists() else ""
    if text and not text.endswith("\n"):
        text = text[: text.rfind("\n") + 1]
        lines.write_text(text, encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def counted(rows: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many draws there were, how they ended, and how many broke a promise."""
    ends = Counter(ENDS.get(row["code"], "ended otherwise") for row in rows)
    faults = sum(bool(row["faults"]) for row in rows)
    return {"draws": len(rows), **{name: ends[name] for name in ENDS.values()}, "faults": faults}


if __name__ == "__main__":
    main()
