"""How the trainer scores what its model writes, by the task."""

from typing import Any

from rl_qg.evaluation.reward_scorer import RewardScorer
from rl_qg.evaluation.set_scorer import SetScorer
from rl_qg.evaluation.task_rewards import TaskScorer


def scorer_of(reward: Any, task: str, *, credit: str, pair_floor: float | None, answer_weight: float) -> RewardScorer:
    """The scorer of a reward for a task of generators (`rl_qg.generation.tasks`).

    `credit` concerns sets alone, `pair_floor` and `answer_weight` texts with answers.

    Raises:
        InputError: a reward of single questions, and the model writes sets.
        MetricInputError: the reverse.
    """
    if task == "sets":
        return SetScorer(reward, credit=credit)
    if task == "questions":
        return RewardScorer(reward)
    return TaskScorer(reward, floor=pair_floor, answer_weight=answer_weight)
