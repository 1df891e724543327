"""Collectives and seconds of a self-critical update, of two processes on a CPU (gloo), under ZeRO-3 and FSDP.

    PYTHONPATH=. OMP_NUM_THREADS=1 python experiments/equivalence/collectives.py --name now  # into collectives.json

A BART of three layers and width 128 with a divergence from the reference; evaluations have greedy questions.
From the folder of another tree, with `--output`, it measures that one. About four minutes.
"""

import argparse
import json
import statistics
import tempfile
import time
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import TrainerCallback

from tests.processes import accelerate_environment, together
from tests.rl_qg.training.test_equivalence import use_cpus_as_gpus
from tests.rl_qg.training.word_task import WORDS, data, trainer
from tests.tiny_models import tiny_bart, word_tokenizer

HERE = Path(__file__).parent
UPDATES = 24  # of a run; the first quarter is left out


class Collectives(TorchDispatchMode):
    count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += function.namespace in ("c10d", "_c10d_functional") and "wait" not in str(function)
        return function(*args, **(kwargs or {}))


class Watch(TrainerCallback):
    """Seconds and collectives of each update, and of each evaluation."""

    def __init__(self, collectives: Collectives) -> None:
        self.collectives = collectives
        self.seconds: dict[str, list[float]] = {"update": [], "evaluation": []}
        self.counts: dict[str, list[int]] = {"update": [], "evaluation": []}

    def begin(self, *_: Any, **__: Any) -> None:
        self._since, self._count = time.perf_counter(), self.collectives.count

    def _note(self, kind: str) -> None:
        self.seconds[kind].append(time.perf_counter() - self._since)
        self.counts[kind].append(self.collectives.count - self._count)
        self.begin()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self._note("update")

    def on_evaluate(self, *_: Any, **__: Any) -> None:
        self._note("evaluation")

    on_train_begin = on_step_begin = begin


def one_run(folder: Path, accumulation: int, collectives: Collectives) -> Watch:
    model = tiny_bart(len(word_tokenizer(WORDS)), seed=1, hidden=128, layers=3, heads=4)
    watch = Watch(collectives)
    subject = trainer(
        folder,
        model,
        train_dataset=data(64),
        eval_dataset=data(16),
        per_device_train_batch_size=2,
        per_device_eval_batch_size=2,
        gradient_accumulation_steps=accumulation,
        ce_epochs=0,
        scst_epochs=99,
        max_steps=UPDATES,
        kl_coefficient=0.1,
        eval_strategy="steps",
        eval_steps=6,
        logging_steps=UPDATES,
        learning_rate=1e-5,
        scst_learning_rate=1e-5,
    )
    subject.add_callback(watch)
    subject.train()
    return watch


def worker(sharding: str, accumulation: int, counts: bool, output: str) -> None:
    """One run; to count takes time, so that a run is timed or counted."""
    if sharding == "fsdp":
        use_cpus_as_gpus()
    collectives = Collectives()
    with tempfile.TemporaryDirectory() as folder, collectives if counts else nullcontext():
        watch = one_run(Path(folder), accumulation, collectives)
    found = watch.counts if counts else watch.seconds
    if torch.distributed.get_rank() == 0:
        medians = {kind: statistics.median(values[len(values) // 4 :]) for kind, values in found.items()}
        Path(output).write_text(json.dumps(medians))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True, help="of the tree, such as before or now")
    parser.add_argument("--output", type=Path, default=HERE / "collectives.json")
    options = parser.parse_args()
    results = json.loads(options.output.read_text()) if options.output.exists() else {}
    for sharding, accumulation, (what, counts) in product(
        ("zero3", "fsdp"), (1, 2), {"collectives": True, "seconds": False}.items()
    ):
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder, "found.json")
            environment = accelerate_environment(sharding)
            together(worker, sharding, accumulation, counts, str(output), environment=environment)
            of_tree = results.setdefault(f"{sharding}, accumulation {accumulation}", {})
            of_tree.setdefault(options.name, {})[what] = json.loads(output.read_text())
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
