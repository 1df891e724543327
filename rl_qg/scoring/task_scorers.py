"""How the trainer scores what its model writes, by the task."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from rewards.contract import WrongReward, bounds_of, is_set_reward
from rewards.set_rewards import SetResult, SetReward
from rewards.words import answer_f1
from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.sets import question_parts
from rl_qg.generation.tasks import TaskRow, pair_key, pair_parts, parse_answers, task_of
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import (
    Pairs,
    Reward,
    RewardScorer,
    ScoredBatch,
    ScoredText,
    scored_texts,
    signature_of,
)
from rl_qg.text.words import occurrences

# From a reward r of one question about a passage and an answer, with the floor f:
#
# - A text of `pairs` has n = max(number of gold pairs, number of written pairs) places, at least 1. A written pair
#   takes its place with max(r, f) if it has a question, and an answer that stands in the passage, and was not written
#   before; every other place has f. The reward of the text is the mean over its places. So a single good pair does not
#   win where people asked for five, and neither do many bad ones.
# - A text of `answers` is compared with the human answers of its sentence, because r needs a question: 2 Σ F1 /
#   (written answers + human answers), summed over the best one-to-one assignment, where F1 is that of SQuAD on words.
#   An answer that does not stand in the sentence, or that was written before, matches nothing.
# - A text of `questions` has r.


class TaskScorer(RewardScorer):
    """Scores texts of rows of any task; those of examples exactly as `RewardScorer` does.

    The parts of a result are those of the reward (of a text of pairs their means over its valid pairs), and for
    rows of other tasks than `questions` two more: `written`, the number of pairs or answers in a text, and `valid`,
    the share of them that is scored. `floor` is the value of a pair that is not valid (None: `floor_of` the reward),
    `answer_weight` a factor on the reward of answers beside that of questions (`multitask`).
    """

    def __init__(
        self, reward: Reward, name: str = "reward", *, floor: float | None = None, answer_weight: float = 1.0
    ) -> None:
        super().__init__(reward, name)
        self.floor, self.answer_weight = floor, answer_weight

    def __call__(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        if not any(isinstance(example, TaskRow) for example in examples):
            return super().__call__(examples, questions)
        if any(task_of(example) == "pairs" for example in examples):
            self.floor = pair_floor(self.reward, self.floor)
        rows = list(zip(examples, questions, strict=True))
        asked = [self._questions(example, text) for example, text in rows]
        flat = [pair for pairs in asked for pair in pairs]
        scored = iter(super().__call__([example for example, _ in flat], [text for _, text in flat]).rows)
        texts = zip(rows, asked, strict=True)
        return ScoredBatch([self._text(*row, list(islice(scored, len(pairs)))) for row, pairs in texts])

    def _questions(self, example: QAExample, text: str) -> list[tuple[QAExample, str]]:
        match task_of(example):
            case "questions":
                return [(example, text)]
            case "pairs":
                return [
                    (QAExample(example.id, example.title, example.context, "", (answer,)), question)
                    for question, answer in valid_pairs(example.context, text)
                ]
            case _:
                return []

    def _text(self, example: QAExample, text: str, scored: list[ScoredText]) -> ScoredText:
        task = task_of(example)
        if task == "questions":
            return scored[0]
        assert isinstance(example, TaskRow)
        if task == "answers":
            return self._answers(example, text)
        batch, fault = ScoredBatch(scored), next((row.fault for row in scored if row.fault is not None), None)
        written = len(pair_parts(text))
        places = max(1, written, len(example.sources))
        floor = self.floor
        assert floor is not None
        score = floor + sum(max(value, floor) - floor for value in batch.scores) / places
        parts = {name: float(np.mean(values)) for name, values in batch.parts.items()}
        parts |= {"written": float(written), "valid": len(scored) / written if written else math.nan}
        return ScoredText(math.nan if fault else score, parts, fault)

    def _answers(self, row: TaskRow, text: str) -> ScoredText:
        written, gold = parse_answers(text), list(dict.fromkeys(source.answers[0].text for source in row.sources))
        valid = [
            answer for answer in dict.fromkeys(written) if occurrences(row.answers[0].text, answer)
        ]  # of those written twice the first
        overlap = np.array([[answer_f1(answer, other) for other in gold] for answer in valid]).reshape(-1, len(gold))
        matched = overlap[linear_sum_assignment(overlap, maximize=True)].sum()
        score = self.answer_weight * 2 * float(matched) / max(1, len(written) + len(gold))
        share = len(valid) / len(written) if written else math.nan
        return ScoredText(score, {"written": float(len(written)), "valid": share})


def valid_pairs(context: str, text: str) -> list[tuple[str, Answer]]:
    """The pairs that a text of `pairs` contains: those with a question, and with an answer that stands in the
    context, at its first place. A pair that was written before is left out; case and white space make no difference.
    """
    pairs: dict[tuple[str, str], tuple[str, Answer]] = {}
    for question, answer in pair_parts(text):
        places = occurrences(context, answer) if question else []
        if places:
            start, end = places[0]
            pairs.setdefault(pair_key(question, answer), (question, Answer(context[start:end], start)))
    return list(pairs.values())


def pair_floor(reward: Any, floor: float | None) -> float:
    if "references" in getattr(reward, "needs", ()):
        raise InputError(
            f"model.task=pairs: the reward {signature_of(reward)} compares with gold questions, and nobody has asked "
            "what the model asks; choose another reward, such as qrelscore, qascore or reader"
        )
    if floor is None:
        floor = floor_of(reward)
    if floor is None:
        raise InputError(
            f"scst.pair_floor: the reward {signature_of(reward)} is never above 0 and has no smallest value; give the "
            "value of a pair whose answer is not in the passage, below that of poor questions, such as -20"
        )
    return floor


def floor_of(reward: Any) -> float | None:
    """The smallest value of a reward; 0 if it states no bounds, None if it has an upper bound of at most 0 alone."""
    low, high = bounds_of(reward)
    return low if math.isfinite(low) else 0.0 if high > 0 else None


class SetScorer(RewardScorer):
    """Scores texts of rows of the task `sets`: the questions between its separators are one set.

    The references of a row are the questions of its sources; the sentences to cover, for rewards that ask for them,
    those of its unit. The parts of a result are those of the reward, `written`, the number of questions, and `valid`,
    the share of them that are neither empty nor repeated.
    `credit`: what to compute for each question, one of `rewards.set_rewards.CREDITS`.
    """

    def __init__(self, reward: Any, name: str = "reward", *, credit: str = "whole") -> None:
        super().__init__(reward, name)
        self.credit = credit

    def check(self, reward: Any) -> None:
        check_set_reward(reward)

    def _score(self, pairs: Pairs) -> list[ScoredText]:
        reward: Any = self.reward
        examples, sets = [example for example, _ in pairs], [question_parts(text) for _, text in pairs]
        result: SetResult = reward.result(
            sets,
            [example.context for example in examples],
            [_references(example) for example in examples] if "references" in reward.needs else None,
            sentences=[_sentences(example) for example in examples],
            credit=self.credit,
        )
        if len(result.scores) != len(sets):
            raise WrongReward(f"reward {signature_of(reward)}: {len(result.scores)} scores for {len(sets)} sets")
        texts = scored_texts(result.scores, result.parts)
        if self.credit == "whole":
            return texts
        return [replace(row, credits=credits) for row, credits in zip(texts, result.credits, strict=True)]


def check_set_reward(reward: Any, name: str = "reward") -> None:
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


def scorer_of(
    reward: Any, task: str, name: str = "reward", *, credit: str, pair_floor: float | None, answer_weight: float
) -> RewardScorer:
    """The scorer of a reward for a task of generators (`rl_qg.generation.tasks`).

    `credit` concerns sets alone, `pair_floor` and `answer_weight` texts with answers.
    """
    if task == "sets":
        return SetScorer(reward, name, credit=credit)
    if task == "questions":
        return RewardScorer(reward, name)
    return TaskScorer(reward, name, floor=pair_floor, answer_weight=answer_weight)
