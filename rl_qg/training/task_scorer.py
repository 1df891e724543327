"""How the trainer scores what its model writes, by the task."""

from typing import Any

from rl_qg.evaluation.reward_scorer import RewardScorer
from rl_qg.evaluation.set_scorer import SetScorer
from rl_qg.evaluation.task_rewards import TaskScorer
from rl_qg.training.config import SelfCriticalConfig


def scorer_of(reward: Any, args: SelfCriticalConfig) -> RewardScorer:
    """The scorer of a reward for the task of the training arguments.

    Raises:
        InputError: a reward of single questions, and the model writes sets.
        MetricInputError: the reverse.
    """
    if args.task == "sets":
        return SetScorer(reward, credit=args.credit)
    if args.task == "questions":
        return RewardScorer(reward)
    return TaskScorer(reward, floor=args.pair_floor, answer_weight=args.answer_weight)
