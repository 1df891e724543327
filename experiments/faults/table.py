"""Make docs/explanation/faults.md from the results of the fault injection, and from servers.yaml.

python experiments/faults/table.py experiments/faults/results.jsonl docs/explanation/faults.md
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

SERVERS = Path(__file__).with_name("servers.yaml")
FAULTS = (
    ("SIGKILL", "`kill -9` of any process, before a write or at a random time; every third run twice"),
    ("SIGTERM", "pre-emption, of the command or of the launcher"),
    ("disk full", "from one write on, no file may grow beyond half of the largest (`RLIMIT_FSIZE`)"),
    ("truncated checkpoint", "a file of the newest checkpoint is truncated to half"),
    ("changed data", "a data file is edited between kill and restart"),
    ("elastic restart", "`torchrun --max-restarts 2`, one process is killed in the first start"),
    ("out of memory", "generator and metrics fail above 5 rows"),
)
STAGES = (
    *(
        "ce",
        "scst",
        "both",
        "best-of-n",
        "answers",
        "train-answers",
        "train-kpqa",
        "generate",
        "score",
        "augment",
        "qa",
    ),
    *("pipeline", "evaluate", "correlate", "robustness", "separate"),
)
LAUNCHES = ("python", "cpu2", "zero2", "zero3", "torchrun")
EQUAL = {"to the bit": "bitwise"}
"""Words of earlier results -> those of the table."""
NOT_RUN = """
## Not run

- SIGTERM to `augment`, `answers`, `correlate` and `separate`, which take too little time for a signal to come in
  between, and changed data of those that do not note what they have read. A full disk in `robustness`, whose one large
  file is the first.
- `single_gpu`, `multi_gpu`: there was no GPU.
- `multi_node`: there was only one machine.
- `fsdp`, `zero1`, `zero1_offload`, `zero2_offload`, `zero3_offload`: no faults injected. On CPU accelerate replaces
  `fsdp` by plain data parallelism. `tests/rl_qg/training/test_equivalence.py` tests that all of them train alike.
"""
PARTS = """
## Parts

[Parts](../how-to/parts.md) and `rl-qg merge`, in one process. Tests: [of parts](../../tests/rl_qg/data/test_parts.py),
[of the stages](../../tests/rl_qg/commands/test_parts_of_stages.py),
[of augmentation](../../tests/rl_qg/augmentation/test_augment_in_parts.py), [as SLURM's
jobs](../../tests/rl_qg/commands/test_parts_on_slurm.py), whose `sbatch` is a stand-in, [as local
jobs](../../tests/rl_qg/commands/test_launcher.py) of `launcher=submitit`, [in
Parquet](../../tests/rl_qg/data/test_parquet.py), [by Ray](../../tests/rl_qg/studies/test_ray_data.py).

"""
OF_PARTS = (
    ("a part is cut off at any byte, before or after it was complete", "the same command completes it, bitwise"),
    ("a part is merged that is not complete, cut off or changed", "refused, named"),
    ("a part is missing, or given twice", "refused, named"),
    ("a part of other settings or data, of another command or another n", "refused, with the first difference"),
    ("the questions or human data of `augment` change before its merge", "refused, named"),
    ("a part of `augment` is killed while it measures", "the same command measures what is missing, bitwise"),
    ("a part of `score` has rows of another input than its command", "refused, named"),
    ("the disk is full during the merge", "no output; the same command makes it"),
    ("SIGKILL of each part and of the merge, at drawn times", "the same commands go on, bitwise those of one part"),
    (
        "a part of a SLURM array is killed and queued again",
        "it goes on, and the merge waits: bitwise those of one run",
    ),
    (
        "a part or its merge in Parquet is killed, or finds the disk full",
        "the same command makes the same bytes",
    ),
    (
        "the worker of a part is killed (Ray, on one machine)",
        "it is tried again and goes on: bitwise those of one part",
    ),
    ("a part of a SLURM array fails", "the merge is not run; the same two jobs go on"),
    (
        "a part of `launcher=submitit` is killed (local)",
        "exit code 2, nothing is merged; the same command goes on, bitwise",
    ),
    ("a part of `launcher=submitit` is out of time (local)", "it is started again and goes on, bitwise"),
    (
        "the command `launcher=submitit` gets SIGTERM (local)",
        "its parts end with it; the same command goes on, bitwise",
    ),
)
PROMISES = """
## What servers promise

Of `rl-qg serve` and `rl-qg rate serve`, with the setting or constant that each figure stands in, and the tests that
fail where a promise is broken. From [servers.yaml](../../experiments/faults/servers.yaml).
"""
HEAD = """# Injected faults

The faults that were injected into each stage under each launch configuration, and the results. This page is made by
`experiments/faults/table.py` from [results.jsonl](../../experiments/faults/results.jsonl), which has one line for each
fault: stage, launch, processes, seed, time of the fault, exit codes, from where the run resumed, and differences.
{count} faults; {bad} with a wrong result.

    python -m tests.distributed.long --kills 20 --out experiments/faults/results.jsonl
    python experiments/faults/table.py experiments/faults/results.jsonl docs/explanation/faults.md

**Setting.** Two CPU cores, gloo, one thread a process. `python` is one process; `cpu2`, `zero2` and `zero3` are two
under `accelerate launch` with that file of `configs/accelerate/`; `torchrun` is two under
`torchrun --max-restarts 2`.

**Method.** The real commands run with `preset=smoke` and the shipped miniatures. A seed chooses the time of each fault
from an uninterrupted run. After the fault the same command runs again, and all its files are compared with those of
the uninterrupted run: weights, `metrics.jsonl` (without times), `samples.jsonl`, questions, scores, augmented data,
predictions, summaries, and the set of files. Not compared are `run.json`, the report and the model cards, which
contain the time of the command, and after SIGTERM the set of checkpoints, since the checkpoint at the stop replaces
another one. A cell shows right results / faults, and how equal the results are. "Bitwise" means every byte. "To 1e-5"
is relative to the largest number of a tensor, without the biases of attention keys, which have no effect and are
trained by rounding noise only.

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
    text += NOT_RUN + PARTS + "| fault | result |\n| --- | --- |\n"
    text += "".join(f"| {fault} | {result} |\n" for fault, result in OF_PARTS) + PROMISES
    for part, promises in yaml.safe_load(SERVERS.read_text()).items():
        text += f"\n### {part}\n\n| promise | of | set by | tests |\n| --- | --- | --- | --- |\n"
        text += "".join(map(_promise, promises))
    if bad:
        text += "\n## Wrong results\n\n"
        text += "".join(f"- {_name(row)}: {row['problems'][0][:300].replace('|', '/')}\n" for row in bad)
    target.write_text(text)


def _promise(row: dict[str, Any]) -> str:
    """A line of the table of servers."""
    sentence = row["promise"].format(*(f"**{figure}**" for figure in row.get("figures", ())))
    names = ", ".join(f"`{name}`" for name in row.get("kept in", ()))
    places = [test.partition("::") for test in row["tests"]]
    tests = "; ".join(
        f"[{(name or file).removeprefix('test_').replace('_', ' ')}](../../{file})" for file, _, name in places
    )
    of = "both" if row["of"] == "both" else f"`{row['of']}`"
    return f"| {sentence} | {of} | {names} | {tests} |\n"


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
    right = [row for row in rows if not row["problems"]]
    equal = Counter(EQUAL.get(row["equal"], row["equal"]) for row in right)
    words = next(iter(equal)) if len(equal) == 1 else ", ".join(f"{n} {name}" for name, n in equal.most_common())
    return f"{len(right)} / {len(rows)}" + (f", {words}" if words else "")


def _name(row: dict[str, Any]) -> str:
    return f"{row['fault']}, {row['stage']}, {row['launch']}, seed {row['seed']} ({row['place']})"


if __name__ == "__main__":
    main()
