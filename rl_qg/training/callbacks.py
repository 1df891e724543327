"""What keeps a run healthy: failed rewards set apart, updates that are not finite left out, β held to its target, an
end when a held-out measure no longer improves.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import reduce
from torch import Tensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_scorer import Verdict
from rl_qg.evaluation.text_measures import improves
from rl_qg.runtime.errors import LocalError
from rl_qg.runtime.json_files import append_json_line
from rl_qg.runtime.sharded_weights import gather
from rl_qg.training.objectives import adapted_coefficient

log = logging.getLogger(__name__)


class FailedRewards:
    """Writes every question whose reward failed to `samples.jsonl`, then goes on without it or ends the run.

    Args:
        path: `samples.jsonl` of the run.
        policy: `skip` or `stop` (`scst.on_bad_reward`).
    """

    def __init__(self, path: Path, policy: str) -> None:
        self.path = path
        self.policy = policy
        self._said: set[str] = set()

    def settle(self, step: int, examples: Sequence[QAExample], questions: Sequence[str], verdict: Verdict) -> None:
        """Look through the verdict on one rollout of update `step`.

        Raises:
            LocalError: a reward failed and the policy is `stop`.
        """
        failed = [
            (example.id, text, fault)
            for example, text, fault in zip(examples, questions, verdict.faults, strict=True)
            if fault is not None
        ]
        for key, text, fault in failed:
            append_json_line(
                self.path, {"step": step, "id": key, "sample": text, "reward_sample": None, "fault": fault}
            )
        for key, text, fault in failed:
            what = f"step {step}, example {key}: no reward for {text!r}: {fault}"
            if self.policy == "stop":
                raise LocalError(f"{what}; mend the reward, or skip such rows with scst.on_bad_reward=skip")
            if fault not in self._said:  # those that repeat are counted, not told again
                self._said.add(fault)
                log.warning("%s; the row is skipped, see rewards_failed in metrics.jsonl", what)


class FiniteUpdates(TrainerCallback, ExportableState):
    """Leaves out an update whose gradient is not finite, and counts it: one such step would end every weight.

    fp16 and DeepSpeed have their own; there gradients are not visible here and nothing is done.
    """

    def __init__(self) -> None:
        self.skipped = 0

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"args": {}, "attributes": {"skipped": self.skipped}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Go on counting where the checkpoint stood."""
        stored = stored_state(state, self)
        self.skipped = stored["attributes"]["skipped"] if stored else 0

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Drop the gradients, which the optimiser takes for nothing to do."""
        if args.fp16:
            return
        gradients = [value.grad for value in kwargs["model"].parameters() if value.grad is not None]
        if gradients and not math.isfinite(float(gather(torch.nn.utils.get_total_norm(gradients)))):
            kwargs["optimizer"].zero_grad(set_to_none=True)
            self.skipped += 1
            log.warning("step %d: the gradient is not finite; this update is left out", state.global_step + 1)


def stored_state(state: TrainerState, callback: TrainerCallback) -> dict[str, Any] | None:
    """What the checkpoint that a run resumes from keeps of a callback; None for a run from the start."""
    kept: Any = state.stateful_callbacks
    return kept.get(type(callback).__name__) if state.global_step and isinstance(kept, dict) else None


class KLCoefficient(TrainerCallback, ExportableState):
    """β: fixed, or adapted after each update so that the divergence comes to a target (kept in checkpoints)."""

    def __init__(self, value: float, target: float | None) -> None:
        self.value = value
        self.target = target
        self._sums = [0.0, 0.0]  # of the update under way: divergence, tokens

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"args": {"value": self.value, "target": self.target}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Go on with the value of the checkpoint that the run resumes from."""
        stored = stored_state(state, self)
        if self.target is not None and stored:
            self.value = stored["args"]["value"]

    def add(self, divergence: Tensor, tokens: Tensor) -> None:
        """Take in the summed divergence of a batch, in nats, and the number of its tokens."""
        if self.target is None:
            return
        self._sums[0] += float(divergence)
        self._sums[1] += float(tokens)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Adapt β by the divergence per token of this update, over all processes."""
        if self.target is not None:
            device = PartialState().device
            total, tokens = reduce(torch.tensor(self._sums, dtype=torch.float64, device=device), "sum").tolist()
            if tokens:
                self.value = adapted_coefficient(self.value, total / tokens, self.target)
        self._sums = [0.0, 0.0]


class HeldOutStopping(TrainerCallback):
    """Ends a stage when a held-out measure has not improved for some evaluations.

    Everything is read from the trainer's log history, which checkpoints keep, so a resumed run counts on.

    Args:
        measure: such as `bleu4` (see `rl_qg.evaluation.text_measures`).
        patience: evaluations without improvement.
        boundary: gives the step at which the stage began.
        keep: called when the measure is at its best, to keep the model.
    """

    def __init__(
        self,
        measure: str,
        patience: int,
        *,
        boundary: Callable[[], int] = lambda: 0,
        keep: Callable[[], None] = lambda: None,
    ) -> None:
        improves(measure, 1.0, 0.0)  # an unknown name fails now, not at the first evaluation
        self.measure = measure
        self.patience = patience
        self.boundary = boundary
        self.keep = keep

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Keep the model, or count an evaluation without improvement."""
        lines = lines_with(self.measure, state.log_history, self.boundary())
        if not lines:
            return
        waited = lines[::-1].index(best_of(self.measure, lines))
        if waited == 0:
            self.keep()
        elif waited >= self.patience:
            log.info("%s has not improved for %d evaluations: the stage ends here", self.measure, waited)
            control.should_training_stop = True
            control.should_save = False  # a resumed run begins before this step and stops here too


def lines_with(measure: str, history: Sequence[Mapping[str, Any]], boundary: int) -> list[Mapping[str, Any]]:
    """The evaluations of the self-critical stage that have a measure, from the one at its start on."""
    return [line for line in history if f"eval_{measure}" in line and line["step"] >= max(1, boundary)]


def best_of(measure: str, lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The first of the lines with the best value of a measure."""
    best = lines[0]
    for line in lines:
        if improves(measure, line[f"eval_{measure}"], best[f"eval_{measure}"]):
            best = line
    return best
