"""Which products are chosen on this machine (`rewards/measured_products.py`), and what QRelScore costs with each.

    python experiments/speed/products.py --shared ../shared --pairs 3 --output experiments/speed/results/products.json

BERT-base and GPT-2 with random weights; plain, packed and chosen layers in turn on the same rows. Seconds are the
processor's, of one thread, so that other work on the machine matters little.
"""

import argparse
import json
import os
import statistics
import tempfile
from pathlib import Path

import torch
from measurements import processor
from models import build, rows
from reader import seconds_of

from rewards import QRelScore
from rewards.measured_products import VARIABLE, cache_file

CHOICES = {"plain": "never", "packed": "always", "chosen": "measure"}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared", help="folder with golden/models and data/squadshifts")
    parser.add_argument("--models", default="/tmp/rl-qg-speed", help="where models of real size are kept")
    parser.add_argument("--contexts", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--output", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shared = Path(options.shared)
    folders = [build(name, Path(options.models), shared / "golden" / "models") for name in ("bert-base", "gpt2")]
    data = rows(shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz", options.contexts, options.candidates)
    metrics = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder  # so that this run measures
        for name, choice in CHOICES.items():
            os.environ[VARIABLE] = choice
            metrics[name] = QRelScore(*folders)
        times = json.loads(cache_file().read_text(encoding="utf-8"))
    for metric in metrics.values():
        seconds_of(metric, {name: values[:2] for name, values in data.items()})
    runs = []
    for number in range(options.pairs):
        names = list(metrics) if number % 2 else list(reversed(metrics))
        runs.append({name: seconds_of(metrics[name], data) for name in names})
        print(runs[-1], flush=True)
    some = {name: data[name][:2] for name in ("questions", *metrics["plain"].needs)}
    scores = [metric.score(**some).scores for metric in metrics.values()]
    found = {
        "processor": processor(),
        "rows": len(data["questions"]),
        "milliseconds_of_layers": {key: {"plain": plain, "packed": packed} for key, (plain, packed) in times.items()},
        "seconds_per_row": {
            name: statistics.median(run[name] for run in runs) / len(data["questions"]) for name in metrics
        },
        "plain_over_packed": statistics.median(run["plain"] / run["packed"] for run in runs),
        "plain_over_chosen": statistics.median(run["plain"] / run["chosen"] for run in runs),
        "largest_difference": max(max(values) - min(values) for values in zip(*scores, strict=True)),
        "runs": runs,
    }
    Path(options.output).write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
