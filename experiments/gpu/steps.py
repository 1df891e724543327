"""The trainer's self-critical step beside the straightforward loop and the floor; three sizes, number types, batches.

Names of measurements: `GENERATOR | BATCH | PRECISION | trainer` or `… | straightforward`. Seconds are medians of a
step, its rollout, its reward and its update; `first` is the first epoch, in `second` the reward knows the contexts.
The straightforward loop takes one step for each number: its reward, one question at a time, takes most of it.
`profile | GENERATOR | BATCH | PRECISION | PRECISION OF THE REWARD` is a step of the trainer in PyTorch's profiler,
operation by operation.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from copy import deepcopy
from functools import cache, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from part import DEVICE, IS_GPU, PRECISIONS, Part, arguments, dtype_of, measure_peaks, memory_watched, products, wait
from plain import PlainQRelScore
from plain_step import PlainStep
from random_models import Generator, generators, settings
from step import SIZES, metric, operations, ours, trainer_of
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile
from transformers import TrainerCallback

from rewards import QRelScore

BATCHES = {"full": (16, 64, 128), "tiny": (2,)}
LARGEST = {"full": 256, "tiny": 3}  # of BART-base alone
PROFILED = {"full": (64, 16, 256), "tiny": (2,)}  # of BART-base in bf16
REWARD = {"float32": "float32", "TF32": "tf32", "bf16": "bfloat16"}  # option `dtype` of a metric
OPERATIONS = 20  # of a profile, those that take longest
PLAIN_BATCHES = (2, 16, 64)  # of the straightforward loop
TOKENS = {"full": (192, 20), "tiny": (16, 4)}  # of a context and of a question
METRIC = {"full": "base", "tiny": "tiny"}


class Steps:
    """Trainer and straightforward loop over the same models; `folder` holds the models of the reward."""

    def __init__(self, size: str, folder: Path) -> None:
        self.size, self.folder = size, folder
        # Made once of each number type; a generator is copied, because a trainer changes its weights and its forward.
        self.reward, self.plain_reward = cache(self._reward), cache(self._plain_reward)
        self.generator = lru_cache(1)(Generator.build)

    def _reward(self, precision: str) -> QRelScore:
        return metric(METRIC[self.size], self.folder, REWARD[precision])

    def _plain_reward(self, precision: str) -> PlainQRelScore:
        self.reward(precision)  # writes the folders
        folders = (str(self.folder / name) for name in ("bert", "gpt2"))
        return PlainQRelScore(*folders, device=DEVICE, dtype=dtype_of(precision))

    def args(self, batch: int, precision: str, steps: int = 2) -> argparse.Namespace:
        found = settings(batch, TOKENS[self.size], steps)
        found.precision = "bf16" if precision == "bf16" else "no"
        return found

    def of_trainer(self, generator: Generator, batch: int, precision: str) -> dict[str, Any]:
        args, reward, found = self.args(batch, precision), self.reward(precision), dict[str, Any]()
        with products(precision), memory_watched(found), tempfile.TemporaryDirectory() as runs:
            found |= ours(args, deepcopy(self.generator(generator)), generator.words(), reward, Path(runs))
        shapes = generator.shape, SIZES[METRIC[self.size]]
        return found | {"gflop_needed": operations(*shapes, generator.vocabulary, args)}

    def profiled(self, generator: Generator, batch: int, of_reward: str) -> dict[str, Any]:
        """The last of three steps of an epoch, in bf16 but for the reward."""
        args, reward, step = self.args(batch, "bf16"), self.reward(of_reward), ProfiledStep()
        reward.reset_cache()
        with tempfile.TemporaryDirectory() as folder:
            model = deepcopy(self.generator(generator))
            trainer_of(args, model, generator.words(), reward, Path(folder), [step], scst_epochs=1).train()
        return step.found()

    def of_plain_loop(self, generator: Generator, batch: int, precision: str) -> dict[str, Any]:
        args, reward, found = self.args(batch, precision, steps=1), self.plain_reward(precision), dict[str, Any]()
        with products(precision), memory_watched(found):
            found |= PlainStep(args, deepcopy(self.generator(generator)), generator.words(), reward).medians()
        return found


class ProfiledStep(TrainerCallback):
    """PyTorch's profiler around the last step of a run."""

    def __init__(self) -> None:
        self.profiler = profile(activities=[ProfilerActivity.CPU, *[ProfilerActivity.CUDA] * IS_GPU])
        self.seconds = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == state.max_steps - 1:
            wait()
            self.profiler.start()
            self.seconds -= time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == state.max_steps:
            wait()
            self.seconds += time.perf_counter()
            self.profiler.stop()

    def found(self) -> dict[str, Any]:
        """Milliseconds of the host and of the GPU in each operation itself, without those that it calls."""
        events = self.profiler.key_averages()
        of_host = [event for event in events if event.device_type == DeviceType.CPU]
        rows = [
            [event.key, event.count, event.self_cpu_time_total / 1000, event.self_device_time_total / 1000]
            for event in of_host
        ]
        launches = sum(event.count for event in of_host if event.key.startswith(("cudaLaunch", "cuLaunch")))
        return {
            "seconds": self.seconds,
            "gpu_seconds": sum(row[3] for row in rows) / 1000,
            "launches": launches,
            "operations": sorted(rows, key=lambda row: row[2 + IS_GPU], reverse=True)[:OPERATIONS],
        }


def planned(size: str) -> Iterator[tuple[str, int, str]]:
    """Generators, batches and number types; what would be missed most comes first."""
    pairs = [*product(BATCHES[size], generators(size)), (LARGEST[size], "bart-base")]
    for (batch, name), precision in product(pairs, PRECISIONS):
        yield name, batch, precision


def main() -> None:
    options = arguments(__doc__)
    size = options.size
    part = Part(options, {"tokens": TOKENS[size]})
    measure_peaks(part)
    with tempfile.TemporaryDirectory() as folder:
        steps = Steps(size, Path(folder))
        first, *others = product(PROFILED[size], reversed(REWARD))  # the others come last

        def profile_step(batch: int, of_reward: str) -> None:
            given = generators(size)["bart-base"], batch, of_reward
            part.measure(f"profile | bart-base | {batch} | bf16 | {of_reward}", partial(steps.profiled, *given))

        profile_step(*first)
        for name, batch, precision in planned(size):
            given, begin = (generators(size)[name], batch, precision), f"{name} | {batch} | {precision}"
            part.measure(f"{begin} | trainer", partial(steps.of_trainer, *given))
            if batch in PLAIN_BATCHES and (precision == "float32" or batch == min(BATCHES[size])):
                part.measure(f"{begin} | straightforward", partial(steps.of_plain_loop, *given))
        for batch, of_reward in others:
            profile_step(batch, of_reward)
    part.finish()


if __name__ == "__main__":
    main()
