"""Our rewards as TRL calls them."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerState

from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_scorer import Judge, Reward
from rl_qg.training.callbacks import FailedRewards
from rl_qg.training.step_metrics import Measurements


class RewardFunction:
    """Scores the completions of a rollout by any reward that has `score`.

    The data set's column `row` says which example a completion is about, so the reward sees passage, answer and gold
    question as it does in self-critical training. A reward that fails becomes None, which TRL leaves out.

    Args:
        reward: a metric of `rewards`, or anything of that shape.
        examples: what `row` counts.
        failed: what to do about rewards that fail.
        measured: gets means over samples of all processes.
        first_step: steps of earlier stages.
    """

    __name__ = "reward"  # TRL's name for it in its logs

    def __init__(
        self,
        reward: Reward,
        examples: Sequence[QAExample],
        failed: FailedRewards,
        measured: Measurements,
        *,
        first_step: int = 0,
    ) -> None:
        self.judge = Judge(reward)
        self.examples = examples
        self.failed = failed
        self.measured = measured
        self.first_step = first_step
        self.rollout: list[dict[str, Any]] = []

    def __call__(
        self, *, completions: Sequence[str], row: Sequence[int], trainer_state: TrainerState, **columns: Any
    ) -> list[float | None]:
        """One reward for each completion, or None. The rollout is kept in `rollout` as rows of `samples.jsonl`."""
        about = [self.examples[index] for index in row]
        texts = [text.strip() for text in completions]
        with self.measured.timed("reward"), _full_precision():
            verdict = self.judge(about, texts)
        self.failed.settle(self.first_step + trainer_state.global_step + 1, about, texts, verdict)
        scores = [score if math.isfinite(score) else None for score in verdict.scores]
        self._measure(verdict.scores, "reward_sample")
        for name, values in verdict.parts.items():
            self._measure(values, f"reward_sample_{name}")
        self.measured.add(rewards_failed=(sum(score is None for score in scores), len(scores)))
        self.rollout = [
            {"id": example.id, "sample": text, "reward_sample": score}
            | {f"{name}_sample": _or_none(values[index]) for name, values in verdict.parts.items()}
            for index, (example, text, score) in enumerate(zip(about, texts, scores, strict=True))
        ]
        return scores

    def _measure(self, values: Sequence[float], name: str) -> None:
        finite = [value for value in values if math.isfinite(value)]
        self.measured.add(**{name: (sum(finite), len(finite))})


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _full_precision() -> Any:
    """A metric's precision is its own setting, not that of the training around it."""
    return torch.autocast("cuda" if torch.cuda.is_available() else "cpu", enabled=False)
