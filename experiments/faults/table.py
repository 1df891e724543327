"""Make docs/explanation/faults.md from the lines that the fault injection left.

python experiments/faults/table.py experiments/faults/results.jsonl docs/explanation/faults.md
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

FAULTS = (
    ("SIGKILL", "`kill -9` of any process, before a write or at a moment; every third run twice"),
    ("SIGTERM", "pre-emption: of the command, or of the launcher"),
    ("disk full", "no file may grow beyond half of the largest from some write on (`RLIMIT_FSIZE`)"),
    ("truncated checkpoint", "a file of the newest checkpoint cut in half"),
    ("changed data", "a data file edited between kill and restart"),
    ("elastic restart", "`torchrun --max-restarts 2`, one process killed in the first start"),
    ("out of memory", "generator and metrics fail above 5 rows"),
)
STAGES = ("ce", "scst", "both", "generate", "score", "augment", "qa", "pipeline")
LAUNCHES = ("python", "cpu2", "zero2", "zero3", "torchrun")
NOT_RUN = """
## The others

- `single_gpu`, `multi_gpu`: not run: no GPU was at hand.
- `multi_node`: not run: one machine was at hand.
- `fsdp`, `zero1`, `zero1_offload`, `zero2_offload`, `zero3_offload`: not struck. On CPU accelerate makes plain data
  parallelism of `fsdp`; that all of them train alike is tested in `tests/rl_qg/training/test_equivalence.py`.
"""
HEAD = """# Faults

What was done to each stage under each launch configuration, and what came of it. Made by `experiments/faults/table.py`
from [results.jsonl](../../experiments/faults/results.jsonl), which has one line for each fault: stage, launch,
processes, seed, place, exit codes, where the run went on, and what differed. {count} faults; {bad} left something that
is not as it has to be.

    python -m tests.distributed.long --kills 20 --out experiments/faults/results.jsonl
    python experiments/faults/table.py experiments/faults/results.jsonl docs/explanation/faults.md

**Where.** Two CPU cores, gloo, one thread a process. `python` is one process; `cpu2`, `zero2` and `zero3` are two
under `accelerate launch` with that file of `configs/accelerate/`; `torchrun` is two under
`torchrun --max-restarts 2`.

**How.** The real commands with `preset=smoke` and the shipped miniatures are struck at places that a seed draws from
an uninterrupted run; then the same command runs again, and everything it leaves is compared with that run: weights,
`metrics.jsonl` (all but seconds), `samples.jsonl`, questions, scores, augmented data, predictions, summaries, and the
set of files itself. Left out are `run.json`, the report and the model cards, which say when a command ran, and behind
SIGTERM the set of checkpoints, since the one that is written then takes another's place. A cell reads: faults that
came out right / faults, and how equal the result was. "To the bit" is every byte; "to 1e-5" is relative to the largest
number of a tensor, and leaves out the biases of attention keys, which change nothing and learn from rounding.

**The faults.**

"""


def main() -> None:
    source, target = map(Path, sys.argv[1:])
    rows = [json.loads(line) for line in source.read_text().splitlines()]
    bad = [row for row in rows if row["problems"]]
    text = HEAD.format(count=len(rows), bad=len(bad))
    text += "".join(f"- **{name}**: {what}.\n" for name, what in FAULTS)
    for launch in LAUNCHES:
        text += f"\n## {launch}\n\n" + _table([row for row in rows if row["launch"] == launch])
    text += NOT_RUN
    if bad:
        text += "\n## What was not as it has to be\n\n"
        text += "".join(f"- {_name(row)}: {row['problems'][0][:300].replace('|', '/')}\n" for row in bad)
    target.write_text(text)


def _table(rows: list[dict[str, Any]]) -> str:
    shown = [name for name, _ in FAULTS if any(row["fault"] == name for row in rows)]
    if not shown:
        return "not run\n"
    lines = ["| stage | " + " | ".join(shown) + " |", "| --- " * (len(shown) + 1) + "|"]
    for stage in STAGES:
        cells = [_cell([row for row in rows if (row["stage"], row["fault"]) == (stage, fault)]) for fault in shown]
        if any(cell != "not run" for cell in cells):
            lines.append(f"| {stage} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "not run"
    good = [row for row in rows if not row["problems"]]
    how = Counter(row["equal"] for row in good)
    words = next(iter(how)) if len(how) == 1 else ", ".join(f"{count} {name}" for name, count in how.most_common())
    return f"{len(good)} / {len(rows)}" + (f", {words}" if words else "")


def _name(row: dict[str, Any]) -> str:
    return f"{row['fault']}, {row['stage']}, {row['launch']}, seed {row['seed']} ({row['place']})"


if __name__ == "__main__":
    main()
