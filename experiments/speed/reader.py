"""What the reader reward costs against QRelScore, on the same rows, one after the other.

    python experiments/speed/reader.py --shared ../shared --pairs 5 --output experiments/speed/results/reader.json

DistilBERT of the published size against BERT-base and GPT-2 (random weights; speed does not depend on the values).
The order within a pair alternates; the ratio of each pair is kept, so that other work on the machine, which slows
neighbouring runs alike, matters little.
"""

import argparse
import json
import platform
import statistics
from pathlib import Path

import torch
from metrics import timed
from models import build, rows

from rewards import QRelScore, ReaderScore


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared", help="folder with golden/models and data/squadshifts")
    parser.add_argument("--models", default="/tmp/rl-qg-speed", help="where models of real size are kept")
    parser.add_argument("--contexts", type=int, default=4)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
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
        timed(metric, {name: values[:2] for name, values in data.items()}, set(metric.needs))
    runs = []
    for number in range(options.pairs):
        names = list(metrics) if number % 2 else list(reversed(metrics))
        seconds = {name: timed(metrics[name], data, set(metrics[name].needs))[0] for name in names}
        runs.append({**seconds, "share": seconds["reader"] / seconds["qrelscore"]})
        print(runs[-1], flush=True)
    count = len(data["questions"])
    found = {
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "rows": count,
        "signatures": {name: metric.signature for name, metric in metrics.items()},
        "seconds_per_row": {name: statistics.median(run[name] for run in runs) / count for name in metrics},
        "share": statistics.median(run["share"] for run in runs),
        "pairs": runs,
    }
    Path(options.output).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
