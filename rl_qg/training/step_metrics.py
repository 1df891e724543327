"""The metrics of training between two log lines: means over samples, seconds of each part, samples per second."""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor

from rl_qg.generation.decoding import Rollout


class StepMetrics:
    """Sums since the last log line. Means are over the samples of all processes, not over processes."""

    def __init__(self) -> None:
        self._sums: dict[str, list[Tensor | float]] = defaultdict(lambda: [0.0, 0.0])  # name -> total, weight
        self._seconds: dict[str, float] = defaultdict(float)
        self._samples = 0
        self._since = time.perf_counter()

    def add(self, **sums: tuple[Tensor | float, Tensor | float]) -> None:
        """Add (total, weight) to the mean of each name."""
        for name, (total, weight) in sums.items():
            # Tensors stay on their device and are read only when they are logged, so training does not wait for it.
            self._sums[name][0] += total.double() if isinstance(total, Tensor) else total
            self._sums[name][1] += weight.double() if isinstance(weight, Tensor) else weight

    def count(self, samples: int) -> None:
        """Count training samples."""
        self._samples += samples

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the wall time of the block to a part."""
        start = time.perf_counter()
        yield
        self._seconds[part] += time.perf_counter() - start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the block (an evaluation) from the samples per second."""
        start = time.perf_counter()
        yield
        self._since += time.perf_counter() - start

    def collect(self, accelerator: Accelerator) -> dict[str, float]:
        """Return means, seconds and rate since the last call, and reset; the means are the same in every process."""
        sums = self._global_sums(accelerator)
        metrics = {name: total / weight if weight else float("nan") for name, (total, weight) in sums.items()}
        samples = float(accelerator.reduce(torch.tensor(float(self._samples), device=accelerator.device), "sum"))
        metrics |= {f"seconds_{part}": seconds for part, seconds in self._seconds.items()}
        metrics["samples_per_second"] = samples / max(1e-9, time.perf_counter() - self._since)
        self.__init__()  # type: ignore[misc]
        return metrics

    def gather_on_main(self, accelerator: Accelerator) -> None:
        """Move the sums of all processes to the main one, whose `sums` a checkpoint stores."""
        sums = self._global_sums(accelerator)
        self._sums.clear()
        if accelerator.is_main_process:
            self.sums = sums

    @property
    def sums(self) -> dict[str, list[float]]:
        """Total and weight of each mean since the last log line."""
        return {name: [float(number) for number in pair] for name, pair in self._sums.items()}

    @sums.setter
    def sums(self, values: Mapping[str, Sequence[float]]) -> None:
        self._sums.update({name: list(pair) for name, pair in values.items()})

    def _global_sums(self, accelerator: Accelerator) -> dict[str, list[float]]:
        # A process whose rewards all failed has fewer names than the others, so names are gathered too.
        names = sorted({name for local in gather_object([list(self._sums)]) for name in local})
        values = [float(number) for name in names for number in self._sums[name]]
        reduced = accelerator.reduce(torch.tensor(values, dtype=torch.float64, device=accelerator.device), "sum")
        flat = reduced.tolist()
        return {name: [total, weight] for name, total, weight in zip(names, flat[::2], flat[1::2], strict=True)}


def rollout_metrics(rollout: Rollout, logprobs: Tensor) -> dict[str, tuple[Tensor, Tensor | int]]:
    """Totals and weights of lengths in tokens, and of the policy's entropy at the sampled tokens, in nats.

    The entropy is estimated by minus the mean log-probability of the sampled tokens, which is unbiased over samples.
    """
    assert rollout.samples is not None
    mask = rollout.samples.mask
    metrics: dict[str, tuple[Tensor, Tensor | int]] = {
        "length_sample": (mask.sum(), len(mask)),
        "entropy": (-(logprobs * mask).sum(), mask.sum()),
    }
    if rollout.greedy is not None:
        metrics["length_greedy"] = (rollout.greedy.mask.sum(), len(rollout.greedy.mask))
    return metrics
