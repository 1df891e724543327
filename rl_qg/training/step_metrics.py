"""The metrics of training between two log lines: means over samples, seconds of each part, samples per second."""

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import gather_object
from torch import Tensor

from rl_qg.data.examples import QAExample
from rl_qg.generation.decoding import Rollout
from rl_qg.generation.tasks import shown
from rl_qg.scoring.held_out import held_out_measures
from rl_qg.scoring.reward_scorer import RewardScorer, finite_or_none
from rl_qg.training.set_credit import ScoredRollout


class StepMetrics:
    """Sums since the last log line. Means are over the samples of all processes, not over processes. Seconds are those
    of the device: a GPU works on while the host goes on to the next part, and its events are read when all is done.
    """

    def __init__(self) -> None:
        self._begin_line()

    def _begin_line(self) -> None:
        self._sums: dict[str, list[Tensor | float]] = defaultdict(lambda: [0.0, 0.0])  # name -> total, weight
        self._parts: list[tuple[str, Any, Any]] = []  # name, begin, end
        self._samples = 0
        self._since = time.perf_counter()

    def add(self, **sums: tuple[Tensor | float, Tensor | float]) -> None:
        """Add (total, weight) to the mean of each name."""
        for name, (total, weight) in sums.items():
            # Tensors stay on their device and are read only when they are logged, so training does not wait for it.
            self._sums[name][0] += total.double() if isinstance(total, Tensor) else total
            self._sums[name][1] += weight.double() if isinstance(weight, Tensor) else weight

    def add_rollout(
        self, scored: ScoredRollout, advantage: Tensor, rollout: Rollout, logprobs: Tensor, labels: Tensor
    ) -> None:
        """Add a batch of the self-critical stage: rewards, lengths in tokens, and the policy's entropy in nats,
        estimated by minus the mean log-probability of the sampled tokens, which is unbiased over samples.
        """
        assert rollout.samples is not None
        mask, gold = rollout.samples.mask, labels.ne(-100)
        if rollout.greedy is not None:
            self.add(length_greedy=(rollout.greedy.mask.sum(), len(rollout.greedy.mask)))
        self.add(
            length_gold=(gold.sum(), gold.any(-1).sum()),
            length_sample=(mask.sum(), len(mask)),
            entropy=(-(logprobs * mask).sum(), mask.sum()),
            **reward_metrics(scored, advantage),
        )

    def count(self, samples: int) -> None:
        self._samples += samples

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        start = _now()
        yield
        self._parts.append((part, start, _now()))

    def seconds(self) -> dict[str, float]:
        """Of each part since the last log line, once the GPU has done all that was asked of it."""
        found: dict[str, float] = defaultdict(float)
        for part, start, end in self._parts:
            found[part] += end - start if isinstance(start, float) else start.elapsed_time(end) / 1000
        return found

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
        metrics |= {f"seconds_{part}": seconds for part, seconds in self.seconds().items()}
        metrics["samples_per_second"] = samples / max(1e-9, time.perf_counter() - self._since)
        self._begin_line()
        return metrics

    def gather_on_main(self, accelerator: Accelerator) -> None:
        """Move the sums of all processes to the main one, whose `sums` a checkpoint stores."""
        sums = self._global_sums(accelerator)
        self._sums.clear()
        if accelerator.is_main_process:
            self.sums = sums

    @property
    def sums(self) -> dict[str, list[float]]:
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


def _now() -> Any:
    if PartialState().device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def reward_metrics(scored: ScoredRollout, advantage: Tensor) -> dict[str, tuple[Tensor, Tensor | int]]:
    """Totals and weights of rewards and of advantages before they are shaped: (b, k), or those of questions (b, k, m),
    of which the mean is over the ones that are not 0.
    """
    usable = torch.isfinite(scored.rewards)
    if scored.greedy is not None:
        usable &= torch.isfinite(scored.greedy).unsqueeze(-1)
    count, values = usable.sum(), advantage[usable]
    compared = count if advantage.dim() == usable.dim() else values.ne(0).sum().clamp(min=1)
    totals: dict[str, tuple[Tensor, Tensor | int]] = {
        "reward_sample": (scored.rewards[usable].sum(), count),
        "advantage": (values.sum(), compared),
        "advantage_abs": (values.abs().sum(), compared),
        "rewards_failed": ((~usable).sum(), usable.numel()),
    }
    if scored.greedy is not None:
        totals["reward_greedy"] = (scored.greedy.unsqueeze(-1).expand_as(usable)[usable].sum(), count)
    for name, values in scored.parts.items():
        finite = torch.isfinite(values)
        totals[f"reward_sample_{name}"] = (values[finite].sum(), finite.sum())
    return totals


def sample_rows(scored: ScoredRollout, examples: Sequence[QAExample]) -> list[dict[str, Any]]:
    """One record for `samples.jsonl` per context: the greedy question and the first of the sampled ones."""
    copies = scored.rewards.shape[1]
    records = []
    for row, example in enumerate(examples):
        record: dict[str, Any] = {"id": example.id, "sample": scored.sampled[row * copies]}
        record["reward_sample"] = finite_or_none(scored.rewards[row, 0])
        if scored.greedy is not None:
            record |= {"greedy": scored.greedy_texts[row], "reward_greedy": finite_or_none(scored.greedy[row])}
        record |= {f"{name}_sample": finite_or_none(values[row * copies]) for name, values in scored.parts.items()}
        if scored.credits is not None and scored.credits[row * copies]:
            record["credits_sample"] = scored.credits[row * copies]
        records.append(record)
    return records


class HeldOutQuestions:
    """Collects the greedy questions of one evaluation, batch by batch, and measures them at its end, also by scorers:
    `reward_greedy` is that of the reward that is optimised, and may be shared with training, `held_out` of another.
    """

    def __init__(self, **scorers: RewardScorer | None) -> None:
        self.scorers = {name: scorer for name, scorer in scorers.items() if scorer is not None}
        self._rows: list[tuple[QAExample, str, tuple[float, int] | None]] = []  # with divergence in nats, and tokens

    def add(
        self, examples: Sequence[QAExample], questions: Sequence[str], mask: Tensor, divergence: Tensor | None
    ) -> None:
        """Add a batch: its questions, the mask of their tokens (b, t), and the divergence from the reference policy at
        each token (b, t), if there is one.
        """
        divergences: Sequence[tuple[float, int] | None] = [None] * len(examples)
        if divergence is not None:
            divergences = [*zip((divergence * mask).sum(-1).tolist(), mask.sum(-1).tolist(), strict=True)]
        self._rows += zip(examples, questions, divergences, strict=True)

    def reset_cache(self) -> None:
        for scorer in self.scorers.values():
            scorer.reset_cache()

    def collect(self) -> dict[str, float]:
        """Measure the questions of all processes, and start again with none. Every process gets the same numbers.

        Means of rewards leave out questions whose reward failed; `<name>_failed` counts them when there are any.
        """
        examples, questions = [row[0] for row in self._rows], [row[1] for row in self._rows]
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            scores = {name: scorer(examples, questions).scores for name, scorer in self.scorers.items()}
        own = [(*row, *values) for row, *values in zip(self._rows, *scores.values(), strict=True)]
        self._rows = []
        # By example: the last batch may be filled up with repeats when several processes share the set.
        rows = list({row[0]: row for row in gather_object(own)}.values())
        measures = held_out_measures(
            [shown(row[0], row[1]) for row in rows],
            [shown(row[0], row[0].question) for row in rows],
            [row[0].context for row in rows],
        )
        for column, name in enumerate(scores, start=3):
            values = [row[column] for row in rows if math.isfinite(row[column])]
            measures[name] = sum(values) / len(values) if values else math.nan
            if len(values) < len(rows):
                measures[f"{name}_failed"] = len(rows) - len(values)
        if divergences := [row[2] for row in rows if row[2] is not None]:
            measures["kl"] = sum(total for total, _ in divergences) / sum(length for _, length in divergences)
        return measures
