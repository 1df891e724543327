"""Products of few rows, as decoding has them: PyTorch's against those of `FewRowsLinear`, and what a rollout gains.

    python experiments/speed/few_rows.py --threads 2 --output experiments/speed/results/few-rows-2.json

With one thread both are the same. Layers have random weights, several copies of the small ones, so that no cache holds
them all; seconds of the wall, so nothing else should run. A rollout has greedy and sampled questions of 20 tokens
about passages of 192 tokens, by models of published sizes with random weights; both ways in turn, and the tokens are
compared.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measurements import Measurements
from metrics import best
from step import generator
from torch import nn
from transformers import T5Config, T5ForConditionalGeneration

from rewards.arithmetic import FewRowsLinear
from rl_qg.generation.decoding import DecodingRules, decode, encode, uniform_draws

SIZES = [(384, 384), (384, 1536), (768, 768), (768, 3072), (3072, 768), (384, 30522), (768, 50265)]
ROWS = (2, 4, 8, 16, 32)
CACHED = 15_000_000  # weights, 60 MB
TOKENS, READ = 20, 192


def _use(layers: list[nn.Module], kind: type[nn.Module]) -> None:
    for layer in layers:
        layer.__class__ = kind


def _each(layers: list[nn.Module], x: torch.Tensor) -> None:
    for layer in layers:
        layer(x)


@torch.inference_mode()
def of_layer(inputs: int, outputs: int) -> dict[str, float]:
    """By number of rows, how many times as long PyTorch's product takes as the other one."""
    layers: list[nn.Module] = [nn.Linear(inputs, outputs) for _ in range(max(1, CACHED // (inputs * outputs)))]
    ratios = {}
    for count in ROWS:
        seconds = []
        for kind in (nn.Linear, FewRowsLinear):
            _use(layers, kind)
            seconds.append(best(partial(_each, layers, torch.randn(count, inputs))))
        ratios[f"{count} rows"] = seconds[0] / seconds[1]
    return ratios


@torch.inference_mode()
def of_rollout(name: str, batch: int, pairs: int) -> dict[str, Any]:
    """Seconds of decoding, medians of `pairs` runs of each way in turn, after one that does not count."""
    torch.manual_seed(0)
    if name == "bart-base":
        model = generator("base").eval()
    else:
        model = T5ForConditionalGeneration(T5Config(d_model=768, d_ff=3072, num_layers=12, num_heads=12)).eval()
        model.generation_config.decoder_start_token_id = 0
    layers = [one for one in model.modules() if isinstance(one, nn.Linear)]
    ids = torch.randint(5, 30000, (batch, READ))
    mask = torch.ones_like(ids)
    rules = DecodingRules(max_new_tokens=TOKENS, min_new_tokens=TOKENS)
    draws = uniform_draws([str(row) for row in range(batch)], 1, TOKENS, seed=0, step=0)
    states = encode(model, ids, mask)
    runs: dict[type[nn.Module], list[float]] = {nn.Linear: [], FewRowsLinear: []}
    tokens = []
    for _ in range(pairs + 1):
        for kind, seconds in runs.items():
            _use(layers, kind)
            start = time.perf_counter()
            found = decode(model, states, mask, rules, draws=draws)
            seconds.append(time.perf_counter() - start)
            assert found.greedy is not None and found.samples is not None
            tokens.append(torch.cat((found.greedy.tokens, found.samples.tokens)))
    plain, ours = (seconds[1:] for seconds in runs.values())
    return {
        "plain": statistics.median(plain),
        "ours": statistics.median(ours),
        "times": statistics.median(one / other for one, other in zip(plain, ours, strict=True)),
        "same_tokens": all(torch.equal(tokens[0], one) for one in tokens),
        "runs": {"plain": plain, "ours": ours},
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
    for model, batch in (("bart-base", 4), ("bart-base", 16), ("t5-base", 4)):
        name = f"{model}, batch {batch}"
        print(name, results.measure(name, lambda of=(model, batch): of_rollout(*of, options.pairs)), flush=True)


if __name__ == "__main__":
    main()
