"""Pools of questions about a passage, written by hand."""

import math

import numpy as np

from rl_qg.asking.set_pool import PassagePool
from rl_qg.generation.sets import PooledQuestion
from rl_qg.text.spans import sentence_spans

CONTEXT = "Ada built the mill in 1204. It burned in 1340. Otto sold the field to Rome."
SENTENCES = sentence_spans(CONTEXT)


def asked(sentence: int, question: str, probability: float, rank: int = 0) -> PooledQuestion:
    """A question of two tokens, about a sentence."""
    return PooledQuestion(question, *SENTENCES[sentence], None, 2 * math.log(probability), 2, rank)


MILL, WHEN, AGAIN, FIRE, OTTO = (
    asked(0, "Who built the mill?", 0.9),
    asked(0, "When was the mill built?", 0.6, 1),
    asked(0, "Who built a mill?", 0.5, 2),
    asked(1, "When did it burn?", 0.8),
    asked(2, "What did Otto sell to Rome?", 0.45),
)
GROUPS = ([MILL, WHEN, AGAIN], [FIRE], [OTTO])


def pool(answerability: list[float] | None = None, worthy: list[bool] | None = None) -> PassagePool:
    found = PassagePool.of(CONTEXT, GROUPS, worthy=worthy)
    values = None if answerability is None else np.array(answerability)
    return PassagePool(CONTEXT, found.questions, found.worthy, values)
