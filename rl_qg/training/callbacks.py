"""Callbacks of training: rewards that teach nothing or are hacked, adaptive β, and early stopping."""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import gather_object, reduce
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import ExportableState

from rl_qg.runtime.trainer_base import stored_state
from rl_qg.scoring.held_out import DIRECTION, SeriesChange, divergences, improves
from rl_qg.training.objectives import adapted_coefficient

log = logging.getLogger(__name__)
DECAY = 0.99  # of the weight of earlier updates in `AdvantageScale`: about the last hundred count


class KLCoefficient(TrainerCallback, ExportableState):
    """β: fixed, or adapted after each update so that the divergence approaches a target (stored in checkpoints)."""

    def __init__(self, value: float, target: float | None) -> None:
        self._value, self.target = value, target
        self._sums: Tensor | float = 0.0  # of the current update: divergence, tokens
        self._ended: Tensor | None = None  # of the last one, over all processes; read where β is needed

    @property
    def value(self) -> float:
        if self.target is not None and self._ended is not None:
            (total, tokens), self._ended = self._ended.tolist(), None
            self._value = adapted_coefficient(self._value, total / tokens, self.target) if tokens else self._value
        return self._value

    def state(self) -> dict[str, Any]:
        return {"args": {"value": self.value, "target": self.target}, "attributes": {}}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.target is not None and (stored := stored_state(state, self)):
            self._value = stored["args"]["value"]

    def add(self, divergence: Tensor, tokens: Tensor) -> None:
        """Add the summed divergence of a batch, in nats, and the number of its tokens."""
        if self.target is not None:
            self._sums = self._sums + torch.stack((divergence.double(), tokens.double()))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if isinstance(self._sums, Tensor):  # in all processes, or in none
            self._value, self._ended, self._sums = self.value, reduce(self._sums, "sum"), 0.0


class EqualRewards(TrainerCallback, ExportableState):
    """Warns once when all rewards of the first updates of the self-critical stage are equal: they teach nothing.
    `boundary` returns the step at which the stage starts. Checkpoints store the lowest and the highest so far.
    """

    UPDATES = 10

    def __init__(self, boundary: Callable[[], int]) -> None:
        self.boundary = boundary
        self._limits = (math.inf, -math.inf)

    def state(self) -> dict[str, Any]:
        lowest, highest = self._limits
        return {"args": {"limits": [lowest, highest] if lowest <= highest else None}, "attributes": {}}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if (stored := stored_state(state, self)) and stored["args"]["limits"]:
            self._limits = tuple(stored["args"]["limits"])
        state.stateful_callbacks.setdefault(type(self).__name__, {})  # checkpoints of earlier versions have none

    def add(self, *rewards: Tensor | None) -> None:
        for values in [values for values in rewards if values is not None]:
            if len(finite := values[values.isfinite()]):
                lowest, highest = self._limits
                self._limits = min(lowest, float(finite.min())), max(highest, float(finite.max()))

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        last = min(self.boundary() + self.UPDATES, state.max_steps)
        if not self.boundary() < state.global_step <= last:
            return
        lowest, highest = zip(*gather_object([self._limits]), strict=True)
        self._limits = min(lowest), max(highest)
        if state.global_step == last and min(lowest) == max(highest):
            log.warning(
                "every reward of the first %d updates is %g: there is nothing to learn from it; rl-qg score shows the "
                "rewards of any questions",
                state.global_step - self.boundary(),
                min(lowest),
            )


class HackingReport(TrainerCallback):
    """Says in one line at the end that the reward rose while held-out measures fell, by the rule of the report
    (`rl_qg.scoring.held_out`). `boundary` returns the step at which the self-critical stage starts.
    """

    def __init__(self, boundary: Callable[[], int]) -> None:
        self.boundary = boundary

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        lines = [line for line in state.log_history if "eval_loss" in line and line["step"] >= self.boundary()]
        series = {name: [line[f"eval_{name}"] for line in lines if f"eval_{name}" in line] for name in DIRECTION}
        reward = series.pop("reward_greedy")
        fell = divergences(reward, series)
        change = SeriesChange.of(reward)
        if fell and change is not None and state.is_world_process_zero:
            log.warning(
                "the reward rose (%.4g -> %.4g) while held-out measures got worse (%s): read samples.jsonl and the "
                "report; scst.kl_target and scst.stop_on hold a generator near its start",
                change.start,
                change.end,
                ", ".join(f"{name} {value.start:.4g} -> {value.end:.4g}" for name, value in fell.items()),
            )


class HeldOutStopping(TrainerCallback):
    """Ends a stage when a held-out measure has not improved for `patience` evaluations, and calls `keep`, which saves
    the model, at each new best value. It reads only the trainer's log history, which checkpoints store, so a resumed
    run continues the count. `boundary` returns the step at which the stage started.
    """

    def __init__(
        self,
        measure: str,
        patience: int,
        *,
        boundary: Callable[[], int] = lambda: 0,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        improves(measure, 1.0, 0.0)  # raises for an unknown name now, not at the first evaluation
        self.measure, self.patience, self.boundary, self.keep = measure, patience, boundary, keep

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        lines = lines_with(self.measure, state.log_history, self.boundary())
        best = best_of(self.measure, lines) if lines else {}
        if not math.isfinite(best.get(f"eval_{self.measure}", math.nan)):
            return  # it has never been a number
        waited = lines[::-1].index(best)
        if waited == 0:
            self.keep()
        elif waited >= self.patience:
            log.info("%s has not improved for %d evaluations: the stage ends here", self.measure, waited)
            control.should_training_stop = True
            control.should_save = False  # a resumed run starts before this step and stops at it too


def lines_with(measure: str, history: Sequence[Mapping[str, Any]], boundary: int) -> list[Mapping[str, Any]]:
    """The evaluations of the self-critical stage that have a measure, including the one at its start."""
    return [line for line in history if f"eval_{measure}" in line and line["step"] >= boundary]


def best_of(measure: str, lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    key, sign = f"eval_{measure}", DIRECTION[measure]
    return max(lines, key=lambda line: sign * line[key] if math.isfinite(line[key]) else -math.inf)


class AdvantageScale(TrainerCallback, ExportableState):
    """The root of an exponential moving mean of the squared advantages that are not 0 (stored in checkpoints): divided
    by it, rewards of any unit take steps of the same size.

    The mean is over the samples of all processes and accumulated batches of earlier updates. Sums and counts decay
    alike, and their ratio has no bias towards the value at the start (as in Adam, Kingma & Ba 2015, section 3).
    """

    def __init__(self) -> None:
        self._squares = self._count = 0.0
        self._sums = [0.0, 0.0]  # of the current update

    @property
    def value(self) -> float:
        """In units of the reward; 0 before the first update with an advantage that is not 0."""
        return float((self._squares / self._count) ** 0.5) if self._count else 0.0

    def state(self) -> dict[str, Any]:
        return {"args": {}, "attributes": {"_squares": self._squares, "_count": self._count}}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        stored = stored_state(state, self)
        attributes = stored["attributes"] if stored else {}
        self._squares, self._count = attributes.get("_squares", 0.0), attributes.get("_count", 0.0)

    def add(self, advantage: Tensor) -> None:
        self._sums[0] += float(advantage.double().square().sum())
        self._sums[1] += float(advantage.ne(0).sum())

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        device = PartialState().device if PartialState().num_processes > 1 else None
        squares, count = reduce(torch.tensor(self._sums, dtype=torch.float64, device=device), "sum").tolist()
        if count:
            self._squares = DECAY * self._squares + (1 - DECAY) * squares
            self._count = DECAY * self._count + (1 - DECAY) * count
        self._sums = [0.0, 0.0]
