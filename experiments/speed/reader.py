"""What the reader reward costs against QRelScore, on the same rows, one after the other.

    python experiments/speed/reader.py --shared ../shared --pairs 5 --output experiments/speed/results/reader.json

DistilBERT of the published size against BERT-base and GPT-2 (random weights; speed does not depend on the values).
Seconds are the processor's, of one thread, so that other work on the machine matters little; the order within a pair
alternates, and the ratio of each pair is kept.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from measurements import processor
from models import build, rows

from rewards import QRelScore, ReaderScore


def seconds_of(metric, data: dict[str, list[str]]) -> float:
    """Seconds of the processor for all rows; nothing is remembered from an earlier call."""
    metric.reset_cache()
    start = time.process_time()
    metric.score(data["questions"], **{name: data[name] for name in metric.needs})
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared", help="folder with golden/models and data/squadshifts")
    parser.add_argument("--models", default="/tmp/rl-qg-speed", help="where models of real size are kept")
    parser.add_argument("--contexts", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shared = Path(options.shared)
    folders = {
        name: build(name, Path(options.models), shared / "golden" / "models")
        for name in ("distilbert-base", "bert-base", "gpt2")
    }
    data = rows(shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz", options.contexts, options.candidates)
    metrics = {
        "reader": ReaderScore(folders["distilbert-base"]),
        "qrelscore": QRelScore(folders["bert-base"], folders["gpt2"]),
    }
    for metric in metrics.values():
        seconds_of(metric, {name: values[:2] for name, values in data.items()})
    runs = []
    for number in range(options.pairs):
        names = list(metrics) if number % 2 else list(reversed(metrics))
        seconds = {name: seconds_of(metrics[name], data) for name in names}
        runs.append({**seconds, "share": seconds["reader"] / seconds["qrelscore"]})
        print(runs[-1], flush=True)
    count = len(data["questions"])
    found = {
        "processor": processor(),
        "rows": count,
        "signatures": {name: metric.signature for name, metric in metrics.items()},
        "seconds_per_row": {name: statistics.median(run[name] for run in runs) / count for name in metrics},
        "share": statistics.median(run["share"] for run in runs),
        "pairs": runs,
    }
    Path(options.output).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
