"""A program in place of `rl_qg` for the tests of searches: it "trains" by a formula, in little time and in any order.

The value after e epochs is that of the learning rate, `rate`, plus e up to the rate's best epoch, minus what is after
it. With `training.batch_size=13` it fails; `training.weight_decay` has no effect.
"""

import json
import os
import sys
import time
from pathlib import Path

PROGRAM = "tests.search_work"


def value(rate: float, smoothing: float, seed: int, epochs: float) -> float:
    best = 2 if rate < 1e-3 else 3
    return 1000 * rate + smoothing + seed / 1000 + min(epochs, best) - max(0.0, epochs - best)


def train(keys: dict[str, str]) -> None:
    run, epochs = Path(keys["output_dir"]), float(keys["training.stop_after"])
    with (run.parent.parent / "calls.txt").open("a") as stream:
        stream.write(f"{run.name} {epochs:g}\n")
    if keys.get("training.batch_size") == "13":
        print("an update\nno room for 13", file=sys.stderr)
        sys.exit(2)
    if wait := os.environ.get("SEARCH_WAIT"):
        time.sleep(float(wait))
    rate, smoothing = float(keys["ce.learning_rate"]), float(keys.get("ce.label_smoothing", 0))
    folder = run / f"epoch-{epochs:g}"
    folder.mkdir(parents=True, exist_ok=True)
    (run / "checkpoint-1").mkdir(exist_ok=True)
    (run / "config.yaml").write_text("made: by a test\n")
    (folder / "model.safetensors").write_bytes(f"{rate} {smoothing} {keys['seed']} {epochs}".encode())
    measured = value(rate, smoothing, int(keys["seed"]), epochs)
    (folder / "measures.json").write_text(json.dumps({"measures": {"bleu4": measured, "loss": 10 - measured}}))


def evaluate(keys: dict[str, str]) -> None:
    measures = json.loads((Path(keys["predictions"]) / "measures.json").read_text())["measures"]
    output = Path(keys["output"])
    output.mkdir(parents=True, exist_ok=True)
    rows = [{"metric": "other", "value": 0}, {"metric": "mine", "value": -measures["bleu4"]}]
    (output / "evaluate.json").write_text(json.dumps({"scores": rows}))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    globals()[command](dict(text.split("=", 1) for text in arguments))
