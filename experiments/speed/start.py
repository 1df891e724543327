"""Seconds from a command to its first work: help, scores by words, the first update, questions about a page.

    python experiments/speed/start.py --output experiments/speed/results/start.json [--before FOLDER] [--runs 5]

Each command runs in a process of its own, on `--cores`, with the packages of this tree and, for comparison, with
those of `--before`, another checkout; the trees take turns. The least of some runs is kept: other work on the machine
makes the same command take longer, never shorter.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from measurements import Measurements

ROOT = Path(__file__).parents[2]
MAIN = "from rl_qg.commands.cli import main; main()"
# The process ends with the first update of a weight.
FIRST_UPDATE = (
    "import os; from torch.optim.optimizer import register_optimizer_step_post_hook as after; "
    f"after(lambda *_: os._exit(0)); {MAIN}"
)
PAGE = ROOT / "tests/documents/news.txt"
COMMANDS: dict[str, tuple[str, list[str]]] = {
    "rl-qg --help": (MAIN, ["--help"]),
    "rl-qg score by bleu4": (MAIN, ["score", "reward=bleu4", "input=ten.jsonl", "output=scored.jsonl"]),
    "rl-qg evaluate by bleu4 and rouge_l": (
        MAIN,
        ["evaluate", "predictions=ten.jsonl", "metrics=[bleu4,rouge_l]", "output=evaluation"],
    ),
    "import of transformers' Trainer": ("from transformers import Seq2SeqTrainer", []),
    "first update of rl-qg train": (FIRST_UPDATE, ["train", "preset=quickstart", "output_dir=run"]),
    "rl-qg ask by packaged:english": (
        MAIN,
        ["ask", "input=page.txt", "model.path=packaged:english", "output=pairs.jsonl"],
    ),
}


def lay_out(folder: Path) -> None:
    """Ten different questions with references, and a page of text."""
    rows = [
        {
            "question": f"Who {verb} the {name} bridge?",
            "references": [f"Who {verb} the old {name} bridge?", f"By whom was the {name} bridge made?"],
            "context": f"The old {name} bridge was made by Ann Klein.",
        }
        for verb in ("built", "painted")
        for name in ("north", "south", "river", "stone", "long")
    ]
    (folder / "ten.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (folder / "page.txt").write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")


def seconds_of(tree: Path, code: str, arguments: list[str], cores: int) -> dict[str, float]:
    """Of the processor, and of the clock."""
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder))
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": str(cores), "HF_HUB_OFFLINE": "1"}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code, *arguments], cwd=folder, env=environment, check=True, capture_output=True
        )
        after, end = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"cpu_seconds": cpu, "seconds": end - start}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--only", default="", help="what the names of the commands begin with")
    given = parser.parse_args()
    trees = {"now": ROOT, **({"before": given.before.resolve()} if given.before else {})}
    results = Measurements(given.output, {"runs": given.runs, "trees": list(trees), "cores": given.cores})
    found: list[dict[str, Any]] = []
    for name in filter(lambda name: name.startswith(given.only), COMMANDS):
        code, arguments = COMMANDS[name]
        for tree in trees.values():
            seconds_of(tree, code, arguments, given.cores)  # compiles modules, and unpacks the model
        times: dict[str, list[dict[str, float]]] = {label: [] for label in trees}
        for run in range(given.runs):
            for label, tree in trees.items():
                one = (tree, code, arguments, given.cores)
                times[label].append(results.measure(f"{name}, {label}, {run}", lambda: seconds_of(*one)))  # noqa: B023
        least = {label: {key: min(run[key] for run in seen) for key in seen[0]} for label, seen in times.items()}
        found += [{"command": name, "tree": label, **seconds} for label, seconds in least.items()]
        print(least, name, flush=True)
    results.write(starts=found)


if __name__ == "__main__":
    main()
