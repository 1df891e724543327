"""Seconds and memory of the overlap metrics over many pairs of question and reference; see README.md, "Overlap".

python experiments/speed/overlap.py --output experiments/speed/results/overlap.json
"""

import argparse
import gzip
import json
import multiprocessing
import os
import platform
import random
import time
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from measurements import processor

from rewards import load

NAMES = [
    *(f"bleu{order}" for order in range(1, 5)),
    *(f"coco_bleu{order}" for order in range(1, 5)),
    "rouge_l",
    "coco_rouge_l",
    "meteor",
    "gleu",
    "chrf",
]
ALL = "all of them"
BLOCK = 4096


def questions(shared: Path) -> list[str]:
    """Return people's questions of SQuAD."""
    with gzip.open(shared / "data" / "squad" / "du_test-v1.1.json.gz") as stream:
        data = json.load(stream)["data"]
    return [asked["question"] for article in data for passage in article["paragraphs"] for asked in passage["qas"]]


def pairs(gold: list[str], start: int, end: int):
    """Yield pairs of a question with a fifth of its words exchanged, and the question, all of them different."""
    for row in range(start, end):
        draw = random.Random(row)
        reference = f"{gold[row % len(gold)]} ({row})"
        other = gold[draw.randrange(len(gold))].split()
        words = [draw.choice(other) if draw.random() < 0.2 else word for word in reference.split()]
        yield " ".join(words), reference


def work(task: tuple[list[str], list[str], int, int]) -> dict[str, float]:
    """Score rows ``start`` to ``end`` in blocks; return seconds of the CPU and the peak of memory in MiB."""
    names, gold, start, end = task
    metrics = [load(name) for name in names]
    for metric in metrics:
        metric.score(["Who?"], references=[["Who?"]])  # libraries are imported, WordNet is read
    loaded, spent, started = peak(), 0.0, time.time()
    for at in range(start, end, BLOCK):
        rows = list(pairs(gold, at, min(at + BLOCK, end)))
        candidates, references = [row[0] for row in rows], [[row[1]] for row in rows]
        begun = time.process_time()
        for metric in metrics:
            metric.score(candidates, references=references)
        spent += time.process_time() - begun
    return {"started": started, "ended": time.time(), "cpu": spent, "loaded": loaded, "peak": peak()}


def peak() -> float:
    """Peak of this process's memory in MiB (Linux; `getrusage` would count what the parent held before)."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmHWM"].split()[0]) / 1024


def measure(names: list[str], gold: list[str], rows: int, processes: int) -> dict[str, object]:
    """Score rows with metrics in fresh processes, which share them evenly."""
    edges = [rows * part // processes for part in range(processes + 1)]
    tasks = [(names, gold, start, end) for start, end in pairwise(edges)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        found = pool.map(work, tasks, chunksize=1)
    return {
        "metrics": ALL if len(names) > 1 else names[0],
        "rows": rows,
        "processes": processes,
        "seconds": max(one["ended"] for one in found) - min(one["started"] for one in found),
        "cpu_seconds": sum(one["cpu"] for one in found),
        "loaded_mib": max(one["loaded"] for one in found),
        "peak_mib": max(one["peak"] for one in found),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared", type=Path)
    parser.add_argument("--rows", nargs="+", type=int, default=[10_000, 100_000])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", nargs="*", default=[*NAMES, ALL], help="names of metrics, or 'all of them'")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    gold = questions(options.shared)
    found = {
        "processor": processor(),
        "python": platform.python_version(),
        "signatures": [load(name).signature for name in NAMES],
        "runs": [],
    }
    for name in options.only:
        for rows in options.rows:
            found["runs"].append(measure(NAMES if name == ALL else [name], gold, rows, options.processes))
            found["runs"][-1]["load_before"] = os.getloadavg()[0]
            print(found["runs"][-1], flush=True)
            if options.output:
                options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
