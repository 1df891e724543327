"""What `torch.compile` gives on a CPU: the reward's models and an update of BART-base, compiled and not.

    python experiments/speed/compiled.py --shared ../shared --dtypes float32 --output compiled.json

Random weights of the published sizes, one thread, processor time, the best of three passes after the first two, whose
texts have two lengths, so that what is compiled holds for all. The seconds to compile are those of the clock on the
wall, of both first passes. Frozen models are compared with the product's own (`FrozenModel`, with packed weights);
`freezing` packs the weights of a compiled one.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config as inductor
from measurements import Measurements, count_cpu_seconds
from models import build
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

from rewards.frozen import FrozenModel

ROWS, LENGTHS = 8, (192, 210)  # rows of a reward's batch; tokens of passage and question
CONTEXTS, SAMPLES, QUESTION = 4, 8, 20  # of an update, with tokens of a question
DTYPES = ("float32", "bfloat16")
AUTO = {"bert-base": AutoModelForMaskedLM, "gpt2": AutoModelForCausalLM}
wall = time.perf_counter


def measured(run: Callable[[int], Any]) -> dict[str, float]:
    """`run` takes a number of tokens."""
    start = wall()
    for length in LENGTHS:
        run(length)
    first = wall() - start
    seconds = []
    for _ in range(3):
        start = time.thread_time()
        run(LENGTHS[-1])
        seconds.append(time.thread_time() - start)
    return {"seconds": min(seconds), "first_passes": first}


@contextmanager
def freezing(is_on: bool) -> Iterator[None]:
    torch.compiler.reset()
    with inductor.patch(freezing=is_on):
        yield


def frozen(name: str, folder: str, dtype: str, way: str) -> dict[str, float]:
    """One forward pass of a reward's model."""
    kind = {"bert-base": "encoder", "gpt2": "causal"}[name]
    if way == "ours":
        model: Any = FrozenModel(folder, kind, device="cpu", dtype=dtype).model
    else:
        plain = AUTO[name].from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
        model = {"bert-base": lambda: plain.bert, "gpt2": lambda: plain}[name]()
    if way.startswith("compiled"):
        model.forward = torch.compile(model.forward)

    def run(length: int) -> None:
        ids = torch.arange(5, 5 + length).repeat(ROWS, 1)
        with torch.no_grad():
            model(input_ids=ids, attention_mask=torch.ones_like(ids))

    with freezing(way.endswith("freezing")):
        return measured(run)


def update(folder: str, dtype: str, way: str) -> dict[str, float]:
    """Forward and backward pass of BART-base, autocast in bf16, without an optimiser."""
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="sdpa").train()
    if way == "compiled":
        model.forward = torch.compile(model.forward)

    def run(length: int) -> None:
        ids = torch.arange(5, 5 + length).repeat(CONTEXTS, 1)
        labels = torch.arange(5, 5 + QUESTION + length % 7).repeat(CONTEXTS, 1)
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels).loss
        loss.backward()
        model.zero_grad()

    with freezing(False):
        return measured(run)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with golden/models")
    parser.add_argument("--models", type=Path, default=Path("/tmp/rl-qg-speed"), help="where the models are kept")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    count_cpu_seconds()
    settings = {"rows": ROWS, "tokens": LENGTHS, "contexts": CONTEXTS, "question": QUESTION}
    results = Measurements(options.output, settings)
    folders = {
        name: build(name, options.models, options.shared / "golden" / "models") for name in (*AUTO, "bart-base")
    }
    for dtype in options.dtypes:
        for name in AUTO:
            for way in ("ours", "plain", "compiled", "compiled, freezing"):
                found = results.measure(f"{name}, {dtype}, {way}", partial(frozen, name, folders[name], dtype, way))
                print(name, dtype, way, found, flush=True)
        for way in ("plain", "compiled"):
            found = results.measure(f"update, {dtype}, {way}", partial(update, folders["bart-base"], dtype, way))
            print("update", dtype, way, found, flush=True)


if __name__ == "__main__":
    main()
