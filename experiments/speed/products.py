"""Which product is faster, PyTorch's or oneDNN's packed one, for layers and for QRelScore; and what the rule takes.

    python experiments/speed/products.py --shared ../shared --output experiments/speed/results/products.json
    ONEDNN_MAX_CPU_ISA=AVX2 python experiments/speed/products.py --output experiments/speed/results/products-avx2.json

The rule is that of `rewards/arithmetic.py`; what is measured here was used to set it, and decides nothing in a run.
QRelScore has BERT-base and GPT-2 with random weights, and the miniatures of the package; all ways in turn on the same
rows. Seconds are the processor's, of one thread, so that other work on the machine matters little.
"""

import argparse
import os
import statistics
from functools import partial
from pathlib import Path

import torch
from measurements import Measurements, count_cpu_seconds
from metrics import best
from models import build, rows
from reader import seconds_of
from torch import nn

from rewards import QRelScore
from rewards.arithmetic import VARIABLE, PackedLinear, arithmetic, packs
from rl_qg.miniatures.cache import SHIPPED

WAYS = {"plain": "never", "packed": "always", "rule": "rule"}
SIZES = [
    (128, 128),
    (128, 512),
    (512, 128),
    (192, 768),
    (128, 2000),
    (768, 768),
    (768, 3072),
    (3072, 768),
    (384, 8000),
    (384, 30522),
    (768, 50257),
]
ROWS = (64, 256, 1000)


def _several(layer: nn.Module, x: torch.Tensor, calls: int) -> None:
    for _ in range(calls):
        layer(x)


@torch.inference_mode()
def of_layer(inputs: int, outputs: int) -> dict[str, object]:
    """By number of rows, how many times as long PyTorch's product takes as the packed one; best of five rounds."""
    layer = nn.Linear(inputs, outputs)
    packed = PackedLinear(layer.weight, layer.bias)
    ratios = {}
    for count in ROWS:
        x, calls = torch.randn(count, inputs), max(1, 10**8 // (count * inputs * outputs))
        plain, other = (best(partial(_several, one, x, calls)) for one in (layer, packed))
        ratios[f"{count} rows"] = plain / other
    return {"plain_over_packed": ratios, "rule_packs": packs(outputs, inputs)}


def of_metric(folders: list[str], data: dict[str, list[str]], pairs: int) -> dict[str, object]:
    """Seconds a row of QRelScore in each way, medians, and the largest difference of a score between two ways."""
    metrics = {}
    for name, choice in WAYS.items():
        os.environ[VARIABLE] = choice
        metrics[name] = QRelScore(*folders)
    del os.environ[VARIABLE]
    some = {name: data[name][:2] for name in ("questions", *metrics["plain"].needs)}
    scores = [metric.score(**some).scores for metric in metrics.values()]
    runs = []
    for number in range(pairs):
        names = list(metrics) if number % 2 else list(reversed(metrics))
        runs.append({name: seconds_of(metrics[name], data) for name in names})
    return {
        "seconds_per_row": {
            name: statistics.median(run[name] for run in runs) / len(data["questions"]) for name in WAYS
        },
        "plain_over_packed": statistics.median(run["plain"] / run["packed"] for run in runs),
        "plain_over_rule": statistics.median(run["plain"] / run["rule"] for run in runs),
        "largest_difference": max(max(values) - min(values) for values in zip(*scores, strict=True)),
        "runs": runs,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared", help="folder with golden/models and data/squadshifts")
    parser.add_argument("--models", default="/tmp/rl-qg-speed", help="where models of real size are kept")
    parser.add_argument("--contexts", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    count_cpu_seconds()
    shared = Path(options.shared)
    base = [build(name, Path(options.models), shared / "golden" / "models") for name in ("bert-base", "gpt2")]
    data = rows(shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz", options.contexts, options.candidates)
    results = Measurements(options.output, {"rows": len(data["questions"]), "arithmetic": arithmetic()})
    for inputs, outputs in SIZES:
        name = f"layer {inputs} x {outputs}"
        print(name, results.measure(name, lambda size=(inputs, outputs): of_layer(*size)), flush=True)
    for name, folders in (("miniatures", [SHIPPED / "bert", SHIPPED / "gpt2"]), ("base", base)):
        print(
            name,
            results.measure(f"QRelScore, {name}", lambda of=folders: of_metric(of, data, options.pairs)),
            flush=True,
        )


if __name__ == "__main__":
    main()
