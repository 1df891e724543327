"""The order of generated candidates by a reward of `rewards`."""

from rl_qg.evaluation.reward_scorer import Reward, RewardScorer, signature_of
from rl_qg.generation.reranking import Reranker


def reranker_of(reward: Reward) -> Reranker:
    """A reward as what `rl_qg.generation.stage` orders candidates by."""
    scorer = RewardScorer(reward)
    return Reranker(
        signature_of(reward),
        lambda examples, questions: scorer(examples, questions).scores,
        scorer.reset_cache,
        sign=1 if getattr(reward, "higher_is_better", True) else -1,
        needs_references="references" in getattr(reward, "needs", ()),
    )
