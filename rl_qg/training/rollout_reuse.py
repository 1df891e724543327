"""Rollouts that several updates learn from (`scst.updates_per_rollout`)."""

from dataclasses import dataclass

from torch import Tensor

from rl_qg.generation.decoding import Rollout
from rl_qg.scoring.reward_scorer import ScoredRollout


@dataclass
class LearnedRollout:
    """A rollout with its rewards and advantages (b, k), and the log-probabilities (b · k, t) that its first update
    computed, None before it.
    """

    rollout: Rollout
    scored: ScoredRollout
    advantage: Tensor
    logprobs: Tensor | None = None


class RolloutReuse:
    """Keeps the rollouts of the current number, one for each accumulated batch of an update, in their order."""

    def __init__(self) -> None:
        self._number = self._step = -1
        self._batch = 0
        self._kept: dict[int, LearnedRollout] = {}

    def next(self, number: int, step: int) -> LearnedRollout | None:
        """Go to the next batch of the update that completes `step`; return its rollout under this number, if it was
        made.
        """
        self._batch = self._batch + 1 if step == self._step else 0
        self._step = step
        if number != self._number:
            self.clear()
            self._number = number
        return self._kept.get(self._batch)

    def keep(self, learned: LearnedRollout) -> None:
        """Keep the rollout of the batch that `next` went to."""
        self._kept[self._batch] = learned

    def clear(self) -> None:
        """Forget all rollouts: the next update makes new ones."""
        self._kept.clear()
