"""Rewards of `rewards/` as reward functions of TRL."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from transformers import TrainerState

from rl_qg.data.examples import QAExample
from rl_qg.scoring.reward_scorer import Reward, RewardScorer
from rl_qg.training.callbacks import FailedRewards
from rl_qg.training.step_metrics import StepMetrics


class RewardFunction:
    """Scores the completions of a rollout by any reward that has `score`.

    The column `row` of the data set is the index of a completion's example, so the reward gets passage, answer and
    gold question, as in self-critical training. A failed reward becomes None, which TRL leaves out.

    Args:
        reward: a metric of `rewards`, or any object with the same `score`.
        examples: `row` is an index into them.
        failed_rewards: handles rewards that fail.
        step_metrics: collects means over the samples of all processes.
        first_step: number of steps of earlier stages.
    """

    __name__ = "reward"  # TRL's name for it in its logs

    def __init__(
        self,
        reward: Reward,
        examples: Sequence[QAExample],
        failed_rewards: FailedRewards,
        step_metrics: StepMetrics,
        *,
        first_step: int = 0,
    ) -> None:
        self.scorer = RewardScorer(reward)
        self.examples = examples
        self.failed_rewards = failed_rewards
        self.step_metrics = step_metrics
        self.first_step = first_step
        self.rollout: list[dict[str, Any]] = []

    def __call__(
        self, *, completions: Sequence[str], row: Sequence[int], trainer_state: TrainerState, **columns: Any
    ) -> list[float | None]:
        """One reward for each completion, or None. `rollout` then holds the rows for `samples.jsonl`."""
        examples = [self.examples[index] for index in row]
        texts = [text.strip() for text in completions]
        with self.step_metrics.timed("reward"), _full_precision():
            batch = self.scorer(examples, texts)
        self.failed_rewards.handle(self.first_step + trainer_state.global_step + 1, examples, texts, batch)
        scores = [_finite_or_none(score) for score in batch.scores]
        self._add_mean("reward_sample", batch.scores)
        for name, values in batch.parts.items():
            self._add_mean(f"reward_sample_{name}", values)
        self.step_metrics.add(rewards_failed=(sum(score is None for score in scores), len(scores)))
        self.rollout = [
            {"id": example.id, "sample": text, "reward_sample": score}
            | {f"{name}_sample": _finite_or_none(values[index]) for name, values in batch.parts.items()}
            for index, (example, text, score) in enumerate(zip(examples, texts, scores, strict=True))
        ]
        return scores

    def _add_mean(self, name: str, values: Sequence[float]) -> None:
        finite = [value for value in values if math.isfinite(value)]
        self.step_metrics.add(**{name: (sum(finite), len(finite))})


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _full_precision() -> Any:
    """A metric has its own precision setting, independent of mixed precision in training."""
    return torch.autocast("cuda" if torch.cuda.is_available() else "cpu", enabled=False)
