"""Decoding against the library's `generate`: eager, with a static cache, compiled; and the search with eight beams.

Names of measurements: `GENERATOR | BATCH | PRECISION | WAY`. Every way decodes the same encoded contexts to the same
number of tokens; passes of the encoder are not counted. `bf16` are weights in bf16, `autocast` is what the trainer
does. Tokens are those of all rows. In the rollout a context has a greedy row and a sampled one.
"""

import argparse
import copy
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
from generation import Bench, measure, peak_memory
from part import DEVICE, IS_GPU, Part, arguments, dtype_of, memory_watched, seconds_of, wait
from random_models import Generator, generators
from step import examples
from torch import Tensor
from transformers import CompileConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.generation.decoding import DecodingRules, decode, uniform_draws
from rl_qg.generation.generator import GREEDY

TOKENS = {"full": (192, 32), "tiny": (16, 6)}
PLANNED = {  # generators and batches
    "full": (("bart-base", 16), ("bart-base", 64), ("bart-base", 128), ("t5-base", 64)),
    "tiny": (("bart-base", 2),),
}
COMPILED = {
    "full": (("bart-base", 64, "bf16"), ("bart-base", 64, "float32"), ("t5-base", 64, "bf16")),
    "tiny": (("bart-base", 2, "bf16"),),
}
BEAMS = {"full": (64, 16, 8, 32), "tiny": (4, 2, 2, 6)}  # examples, batch, beams, longest question


@dataclass(frozen=True)
class Task:
    """Encoded contexts, and how many tokens to decode from each."""

    model: PreTrainedModel
    states: Tensor
    mask: Tensor
    tokens: int

    @property
    def rules(self) -> DecodingRules:
        return DecodingRules(self.tokens, min_new_tokens=self.tokens)

    def ours(self) -> Tensor:
        found = decode(self.model, self.states, self.mask, self.rules).greedy
        assert found is not None
        return found.tokens

    def ours_rollout(self) -> None:
        draws = uniform_draws([str(row) for row in range(len(self.states))], 1, self.tokens, seed=0, step=0)
        decode(self.model, self.states, self.mask, self.rules, draws=draws)

    def library(self, **options: Any) -> Tensor:
        encoded = BaseModelOutput(last_hidden_state=self.states)
        length = {"min_new_tokens": self.tokens, "max_new_tokens": self.tokens}
        rules = {**GREEDY, **length, **options}
        return self.model.generate(encoder_outputs=encoded, attention_mask=self.mask, **rules)[:, 1:]

    def library_rollout(self) -> None:
        self.library()
        self.library(do_sample=True, top_k=0)


WAYS: dict[str, Callable[[Task], Any]] = {
    "ours": Task.ours,
    "library": Task.library,
    "library, static cache": lambda task: task.library(cache_implementation="static", disable_compile=True),
    "ours, rollout": Task.ours_rollout,
    "library, rollout": Task.library_rollout,
}


@lru_cache(2)
def model_of(generator: Generator, dtype: torch.dtype) -> PreTrainedModel:
    return generator.build().eval().to(DEVICE, dtype)


@contextmanager
def prepared(size: str, generator: Generator, batch: int, precision: str) -> Iterator[Task]:
    """The task of a batch; within the block the model computes in that number type."""
    context, new = TOKENS[size]
    model = model_of(generator, dtype_of(precision))
    ids = generator.words()([one.context for one in examples(batch, context, new)], return_tensors="pt")["input_ids"]
    mask = torch.ones_like(ids).to(DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE.type, torch.bfloat16, enabled=precision == "autocast"):
        states = model.get_encoder()(input_ids=ids.to(DEVICE), attention_mask=mask).last_hidden_state
        yield Task(model, states, mask, new)


def rate(task: Task, decoded: Callable[[], Any], rows: int = 1) -> dict[str, float]:
    found: dict[str, Any] = {}
    with memory_watched(found):
        seconds = seconds_of(decoded, repetitions=2)
    return found | {"seconds": seconds, "tokens_per_second": rows * len(task.states) * task.tokens / seconds}


def eager(size: str, generator: Generator, batch: int, precision: str, way: str) -> dict[str, Any]:
    with prepared(size, generator, batch, precision) as task:
        decoded = partial(WAYS[way], task)
        found: dict[str, Any] = rate(task, decoded, rows=2 if "rollout" in way else 1)
        if way.startswith("library") and "rollout" not in way:
            found["same_as_ours"] = (decoded() == task.ours()).float().mean().item()
        return found


# --- compiled


def library_compiled(task: Task) -> Callable[[], Any]:
    """The library compiles the forward pass by itself if the cache is static."""
    config = CompileConfig() if IS_GPU else CompileConfig(backend="eager", mode=None)  # type: ignore[arg-type]
    config._compile_all_devices = True
    return partial(task.library, cache_implementation="static", compile_config=config)


def ours_compiled(task: Task) -> Callable[[], Any]:
    """The forward pass compiled for all lengths of the cache, which grows."""
    model = copy.copy(task.model)
    compiler = {"backend": "inductor" if IS_GPU else "eager"}
    model.forward = torch.compile(task.model.forward, dynamic=True, **compiler)  # type: ignore[method-assign]
    return Task(model, task.states, task.mask, task.tokens).ours


COMPILERS = {"library, static cache, compiled": library_compiled, "ours, compiled": ours_compiled}


def compiled(size: str, generator: Generator, batch: int, precision: str, way: str) -> dict[str, Any]:
    """The first call, which compiles, is counted alone."""
    torch.compiler.reset()
    with prepared(size, generator, batch, precision) as task:
        expected = task.ours()
        decoded = COMPILERS[way](task)
        start = time.perf_counter()
        tokens = decoded()
        wait()
        first = time.perf_counter() - start
        found: dict[str, Any] = rate(task, decoded)
        same = (tokens == expected).float().mean().item()
        return found | {"compile_seconds": first - found["seconds"], "same_as_ours": same}


# --- beams


def beams(size: str, generator: Generator, precision: str) -> dict[str, Any]:
    """`rl-qg generate` against the library's search: passages a second, the same candidates, and memory."""
    count, batch, width, longest = BEAMS[size]
    context, new = TOKENS[size]
    args = argparse.Namespace(
        precision="bf16" if precision == "bf16" else "no",
        batch=batch,
        beams=width,
        max_new_tokens=longest,
        ways=["plain", "ours"],
        memory_of=None,
    )
    data = examples(count, context, new)
    with tempfile.TemporaryDirectory() as folder:
        generator.build().save_pretrained(folder)
        generator.words().save_pretrained(folder)
        bench = Bench(folder, args)
        *_, found = measure(bench, data, args)
        for way in args.ways:
            if IS_GPU:
                mebibytes = peak_memory(bench, data, argparse.Namespace(**vars(args) | {"memory_of": way}))
                found["ways"][way]["peak_gib"] = mebibytes / 1024
    return found


def main() -> None:
    options = arguments(__doc__)
    size = options.size
    part = Part(options, {"tokens": TOKENS[size], "beams": BEAMS[size]})
    known = generators(size)
    for name, batch in PLANNED[size]:
        for precision in ("float32", "autocast", "bf16"):
            for way in (way for way in WAYS if precision != "autocast" or way.startswith("ours")):
                part.measure(
                    f"{name} | {batch} | {precision} | {way}",
                    partial(eager, size, known[name], batch, precision, way),
                )
    for precision in ("float32", "bf16"):
        part.measure(f"beams | {precision}", partial(beams, size, known["bart-base"], precision))
    for name, batch, precision in COMPILED[size]:  # last, because nobody knows how long it takes
        for way in COMPILERS:
            part.measure(
                f"{name} | {batch} | {precision} | {way}",
                partial(compiled, size, known[name], batch, precision, way),
            )
    part.finish()


if __name__ == "__main__":
    main()
