"""Rewards of sets of questions for the texts that generators of sets write (`rl_qg.generation.question_units`)."""

import math
from collections.abc import Sequence
from typing import Any

from rewards.contract import WrongReward, is_set_reward
from rewards.set_rewards import SetResult, SetReward
from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_scorer import Reward, RewardScorer, ScoredBatch, signature_of
from rl_qg.generation.question_units import question_parts
from rl_qg.generation.tasks import TaskRow
from rl_qg.runtime.errors import InputError


class SetScorer(RewardScorer):
    """Scores texts of rows of the task `sets`: the questions between its separators are one set.

    The references of a row are the questions of its sources; the sentences to cover, for rewards that ask for them,
    those of its unit. The parts of a result are those of the reward, `written`, the number of questions, and `valid`,
    the share of them that are neither empty nor repeated.

    Args:
        reward: a reward of sets.
        name: what it is, for the log.
        credit: what to compute for each question, one of `rewards.set_rewards.CREDITS`.
    """

    def __init__(self, reward: Any, name: str = "reward", *, credit: str = "whole") -> None:
        super().__init__(reward, name)
        self.credit = credit

    def check(self, reward: Any) -> None:
        """Raise `InputError` for a reward of single questions."""
        check_set_reward(reward)

    def of(self, reward: Reward, name: str) -> "SetScorer":
        """A scorer of another reward of sets; it computes no credits."""
        return SetScorer(reward, name)

    def _score(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        result = self._result(examples, [question_parts(text) for text in questions])
        faults = [None if math.isfinite(score) else f"the reward is {score}" for score in result.scores]
        return ScoredBatch(result.scores, result.parts, faults, None if self.credit == "whole" else result.credits)

    def _result(self, examples: Sequence[QAExample], sets: list[list[str]]) -> SetResult:
        reward: Any = self.reward
        references = [_references(example) for example in examples]
        result: SetResult = reward.result(
            sets,
            [example.context for example in examples],
            references if "references" in reward.needs else None,
            sentences=[_sentences(example) for example in examples],
            credit=self.credit,
        )
        if len(result.scores) != len(sets):
            raise WrongReward(f"reward {signature_of(reward)}: {len(result.scores)} scores for {len(sets)} sets")
        return result


def check_set_reward(reward: Any, name: str = "reward") -> None:
    """Check that a reward scores sets of questions.

    Raises:
        InputError: it scores single questions, or has nothing but `score_sets`.
    """
    if not is_set_reward(reward):
        raise InputError(
            f"{name} {signature_of(reward)}: scores single questions, and the model writes sets of them; use "
            "multi_set (any metric with references as its metric), or question_set (any without as its quality)"
        )
    if not isinstance(reward, SetReward):
        raise InputError(f"{name} {signature_of(reward)}: is no subclass of rewards.SetReward; make it one")


def _references(example: QAExample) -> list[str]:
    sources = example.sources if isinstance(example, TaskRow) else (example,)
    return [source.question for source in sources if source.question]


def _sentences(example: QAExample) -> list[str]:
    """The sentence of a row's unit; none where that is the whole passage, of which all are to be covered."""
    unit = example.unit if isinstance(example, TaskRow) else None
    if unit is None or (unit.start, unit.end) == (0, len(unit.context)):
        return []
    return [unit.context[unit.start : unit.end]]
