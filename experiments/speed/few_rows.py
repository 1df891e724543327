"""Products of few rows, as decoding has them: PyTorch's against packed ones, and what a rollout gains.

    python experiments/speed/few_rows.py --threads 2 --pairs 3 --output few-rows-zen4.json

Layers have random weights, several copies of the small ones, so that no cache holds them all; seconds of the wall, so
nothing else should run. A rollout has greedy and sampled questions of 20 tokens about passages of 192 tokens, by
models of published sizes with random weights: encoder, packing and decoding. Both ways in turn, and the tokens are
compared. `RL_QG_PACKED=always` packs where the rule does not.
"""

import argparse
import statistics
import time
from contextlib import nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from measurements import Measurements
from metrics import best
from step import generator
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from rewards.arithmetic import PackedLinear, packed
from rl_qg.generation.decoding import DecodingRules, decode, encode, uniform_draws
from rl_qg.runtime.processes import keep_freed_memory

SIZES = [(384, 384), (384, 1536), (768, 768), (768, 3072), (3072, 768), (384, 30522), (768, 50265)]
ROWS = (2, 4, 8, 16, 32, 64)
CACHED = 15_000_000  # weights, 60 MB
TOKENS, READ = 20, 192


def _each(layers: list[nn.Module], x: torch.Tensor) -> None:
    for layer in layers:
        layer(x)


@torch.inference_mode()
def of_layer(inputs: int, outputs: int) -> dict[str, float]:
    """By number of rows, how many times as long PyTorch's product takes as the packed one."""
    plain = [nn.Linear(inputs, outputs) for _ in range(max(1, CACHED // (inputs * outputs)))]
    ways: tuple[list[nn.Module], ...] = ([*plain], [PackedLinear(layer.weight, layer.bias) for layer in plain])
    seconds = {count: [best(partial(_each, way, torch.randn(count, inputs))) for way in ways] for count in ROWS}
    return {f"{count} rows": one / other for count, (one, other) in seconds.items()}


@torch.no_grad()
def of_rollout(name: str, batch: int, half: bool, pairs: int) -> dict[str, Any]:
    """Seconds of a rollout, medians of `pairs` runs of each way in turn, after one that does not count."""
    torch.manual_seed(0)
    if name == "bart-base":
        model = generator("base").eval()
    else:
        model = T5ForConditionalGeneration(T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12)).eval()
        model.generation_config.decoder_start_token_id = 0
    ids = torch.randint(5, 30000, (batch, READ))
    mask = torch.ones_like(ids)
    rules = DecodingRules(max_new_tokens=TOKENS, min_new_tokens=TOKENS)
    draws = uniform_draws([str(row) for row in range(batch)], 1, TOKENS, seed=0, step=0)
    runs: dict[str, list[float]] = {"plain": [], "packed": []}
    tokens = []
    for _ in range(pairs + 1):
        for way, seconds in runs.items():
            start = time.perf_counter()
            with (
                torch.autocast("cpu", torch.bfloat16, enabled=half),
                nullcontext() if way == "plain" else packed(model),
            ):
                found = decode(model, encode(model, ids, mask), mask, rules, draws=draws)
            seconds.append(time.perf_counter() - start)
            assert found.greedy is not None and found.samples is not None
            tokens.append(torch.cat((found.greedy.tokens, found.samples.tokens)))
    kept = {way: seconds[1:] for way, seconds in runs.items()}
    return {
        **{way: statistics.median(seconds) for way, seconds in kept.items()},
        "times": statistics.median(one / other for one, other in zip(*kept.values(), strict=True)),
        "same_tokens": all(torch.equal(tokens[0], one) for one in tokens),
        "runs": kept,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    results = Measurements(options.output, {"pairs": options.pairs})
    for inputs, outputs in SIZES:
        name = f"layer {inputs} x {outputs}"
        print(name, results.measure(name, lambda size=(inputs, outputs): of_layer(*size)), flush=True)
    keep_freed_memory()  # as the commands do
    halves = (False, True) if torch.cpu._is_avx512_bf16_supported() else (False,)
    for model, batch, half in product(("bart-base", "t5-base"), (4, 16), halves):
        name, of = f"{model}, batch {batch}, {'bf16' if half else 'float32'}", (model, batch, half)
        print(name, results.measure(name, lambda of=of: of_rollout(*of, options.pairs)), flush=True)


if __name__ == "__main__":
    main()
