"""Rollouts that several updates learn from (`scst.updates_per_rollout`)."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_scorer import ScoredRollout
from rl_qg.generation.decoding import Rollout


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
    """Keeps the rollouts of the current number, one for each accumulated batch."""

    def __init__(self) -> None:
        self._number = -1
        self._kept: dict[tuple[str, ...], LearnedRollout] = {}

    def get(self, number: int, examples: Sequence[QAExample]) -> LearnedRollout | None:
        """The rollout of these examples under this number, if it was made."""
        if number != self._number:
            self.clear()
            self._number = number
        # Two batches with the same examples have the same rollout: its draws depend on example and step alone.
        return self._kept.get(tuple(example.id for example in examples))

    def keep(self, examples: Sequence[QAExample], learned: LearnedRollout) -> None:
        """Keep a rollout of the current number."""
        self._kept[tuple(example.id for example in examples)] = learned

    def clear(self) -> None:
        """Forget all rollouts: the next update makes new ones."""
        self._kept.clear()
