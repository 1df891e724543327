"""Candidates of an answer ordered by a reward instead of by their probability: the first is the best of n."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rl_qg.data.examples import QAExample
from rl_qg.generation.generator import Candidate
from rl_qg.runtime.errors import InputError

DIGITS = 6  # significant ones of a reward in the file; rewards that are equal then keep the order of their probability


@dataclass(frozen=True)
class RankedCandidate:
    """A candidate, its reward (None if the reward failed on it), and the mean reward of all candidates of its answer
    (None if it failed on all of them).
    """

    candidate: Candidate
    reward: float | None
    reward_mean: float | None


@dataclass(frozen=True)
class Reranker:
    """Orders candidates by a reward.

    Args:
        signature: of the reward; a file of questions names it, and is not continued with another one.
        scores: the reward of question i about example i, NaN where it failed.
        reset: called before each batch, so that what the reward has cached of earlier batches cannot change a score.
        sign: 1 if higher rewards are better, -1 if lower ones are.
        needs_references: whether the reward compares with the human question of the example.
    """

    signature: str
    scores: Callable[[Sequence[QAExample], Sequence[str]], Sequence[float]]
    reset: Callable[[], None] = lambda: None
    sign: int = 1
    needs_references: bool = False

    @property
    def name(self) -> str:
        """Of the reward: the first part of its signature."""
        return self.signature.partition("|")[0]

    def ranked(
        self, examples: Sequence[QAExample], groups: Sequence[Sequence[Candidate]]
    ) -> list[list[RankedCandidate]]:
        """The candidates of each example, best first; those without a reward come last.

        Raises:
            InputError: the reward needs a human question that an example does not have.
        """
        self._check(examples)
        self.reset()
        pairs = [(example, item) for example, group in zip(examples, groups, strict=True) for item in group]
        values = self.scores([example for example, _ in pairs], [item.question for _, item in pairs])
        rewards = iter(_rounded(value) if math.isfinite(value) else None for value in values)
        return [self._ordered(group, [next(rewards) for _ in group]) for group in groups]

    def strict(self) -> "Reranker":
        """The same; a reward that fails raises `InputError` (`scst.on_bad_reward=stop`)."""

        def scores(examples: Sequence[QAExample], questions: Sequence[str]) -> Sequence[float]:
            values = self.scores(examples, questions)
            for example, question, value in zip(examples, questions, values, strict=True):
                if not math.isfinite(value):
                    raise InputError(
                        f"example {example.id}: no reward for {question!r}; correct the reward, or skip such "
                        "questions with scst.on_bad_reward=skip"
                    )
            return values

        return replace(self, scores=scores)

    def _ordered(self, group: Sequence[Candidate], rewards: Sequence[float | None]) -> list[RankedCandidate]:
        known = [reward for reward in rewards if reward is not None]
        mean = _rounded(sum(known) / len(known)) if known else None
        ranked = [RankedCandidate(item, reward, mean) for item, reward in zip(group, rewards, strict=True)]
        return sorted(ranked, key=lambda item: math.inf if item.reward is None else -self.sign * item.reward)

    def _check(self, examples: Sequence[QAExample]) -> None:
        if not self.needs_references:
            return
        for example in examples:
            if not example.question:
                raise InputError(
                    f"reward {self.signature}: compares with human questions, and example {example.id} has none; "
                    "choose a reward without references"
                )


def _rounded(reward: float) -> float:
    """To significant digits: rewards have any unit, so decimals would erase the order of small ones."""
    return float(f"{reward:.{DIGITS}g}")


def failed_rewards(lines: Iterable[bytes]) -> int:
    """The number of lines of a file of questions whose reward failed."""
    return sum(json.loads(line)["reward"] is None for line in lines)
