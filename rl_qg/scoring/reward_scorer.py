"""Rewards of generated questions: each distinct question is scored once, and a reward that fails on a question leaves
it without a score.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rewards.contract import Result, WrongReward, check_row_by_row, failure, scored
from rewards.errors import MetricInputError
from rl_qg.data.examples import QAExample
from rl_qg.generation.generate import Reranker
from rl_qg.runtime.errors import InputError, LocalError
from rl_qg.runtime.processes import OutOfMemoryRetry, is_out_of_memory

log = logging.getLogger(__name__)


class Reward(Protocol):
    """What the trainer needs of a reward; every metric of `rewards` and any object of this shape is one."""

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        *,
        answers: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
    ) -> Any:
        """Return one number for each question: a list, or an object whose `scores` holds them (`rewards.contract`)."""


def signature_of(reward: Reward) -> str:
    return str(getattr(reward, "signature", type(reward).__name__))


def score_or_refuse(reward: Reward, where: str, questions: Sequence[str], *columns: Any, **named: Any) -> Result:
    """The scores of one call."""
    try:
        return scored(reward, questions, *columns, **named)
    except MetricInputError as error:
        raise InputError(f"{where}: {error}") from None
    except Exception as error:
        if is_out_of_memory(error) or isinstance(error, InputError):
            raise
        raise InputError(f"{where}: the reward fails: {failure(error, reward)}") from error


def try_reward(
    reward: Reward, examples: Sequence[QAExample], name: str, kind: "type[RewardScorer] | None" = None
) -> None:
    """Score a few human questions by a kind of scorer, before anything is trained with it."""
    scorer = (kind or RewardScorer)(reward, f"{name} on human questions")
    batch = scorer(examples, [example.question for example in examples])
    scorer.reset_cache()
    if examples and all(batch.faults):
        raise InputError(
            f"{name} {signature_of(reward)}: no number for any of {len(examples)} human questions "
            f"({batch.faults[0]}); correct it, or check what it needs"
        )


@dataclass(frozen=True)
class ScoredBatch:
    """Scores of n questions: `scores` (n numbers, NaN where there is none), their `parts` by name, and `faults`: for
    each question an error message, or None. Of n texts of sets of questions also `credits`, a number for each question
    (`rewards.set_rewards.SetReward.result`); else None.
    """

    scores: list[float]
    parts: Mapping[str, list[float]]
    faults: list[str | None]
    credits: list[list[float]] | None = None


class RewardScorer:
    """Calls a reward and handles its failures: a question whose reward is None, not finite, or raises has no score.

    Args:
        reward: any reward (`rewards.contract`).
        name: what it is, for the log.
        references: whether it gets the human questions, where there are any. A reward without an attribute `needs`
            may compare with them, which would make it useless on questions that nobody has asked.
    """

    def __init__(self, reward: Reward, name: str = "reward", *, references: bool = True) -> None:
        self.check(reward)
        self.reward, self._with_references = reward, references
        self._retry = OutOfMemoryRetry(name, "lower the reward's batch_size, or set training.reward_placement=cpu")
        self._logged: set[str] = set()  # types of errors

    def check(self, reward: Reward) -> None:
        check_row_by_row(reward)

    def of(self, reward: Reward, name: str) -> "RewardScorer":
        return RewardScorer(reward, name, references=self._with_references)

    def reset_cache(self) -> None:
        if hasattr(self.reward, "reset_cache"):
            self.reward.reset_cache()

    def __call__(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        """Score question i as one about example i."""
        # A policy with little entropy samples its greedy question: equal texts are scored once.
        distinct = list(dict.fromkeys(zip(examples, questions, strict=True)))
        batches = self._retry(
            lambda pairs: self._score_or_split([e for e, _ in pairs], [q for _, q in pairs]), distinct
        )
        scored = _concatenated(batches)
        row_of = {pair: row for row, pair in enumerate(distinct)}
        rows = [row_of[pair] for pair in zip(examples, questions, strict=True)]
        return ScoredBatch(
            [scored.scores[row] for row in rows],
            {name: [values[row] for row in rows] for name, values in scored.parts.items()},
            [scored.faults[row] for row in rows],
            None if scored.credits is None else [scored.credits[row] for row in rows],
        )

    def _score_or_split(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        """Score a batch, and where that fails each question alone, which shows the one that made it fail."""
        try:
            return self._score(examples, questions)
        except WrongReward as error:
            raise LocalError(str(error)) from None
        except Exception as error:
            if is_out_of_memory(error):
                raise
            kind, fault = type(error).__name__, failure(error, self.reward)
            if len(questions) == 1:
                return ScoredBatch([math.nan], {}, [fault])
            if kind not in self._logged:
                self._logged.add(kind)
                log.warning("the reward failed on %d questions (%s); each is scored alone", len(questions), fault)
        pairs = zip(examples, questions, strict=True)
        return _concatenated([self._score_or_split([example], [question]) for example, question in pairs])

    def _score(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        """Score a batch. A reward that does not say what it needs gets the human question of each passage that has
        one, whatever else is in the batch.
        """
        if hasattr(self.reward, "needs"):
            return self._call(examples, questions, references=self._with_references)
        asked = [self._with_references and bool(example.question) for example in examples]
        if len(set(asked)) == 1:
            return self._call(examples, questions, references=asked[0])
        parts, rows = [], []
        for given in (True, False):
            chosen = [row for row, has in enumerate(asked) if has is given]
            parts.append(self._call([examples[k] for k in chosen], [questions[k] for k in chosen], references=given))
            rows += chosen
        both, order = _concatenated(parts), sorted(range(len(rows)), key=rows.__getitem__)
        return ScoredBatch(
            [both.scores[k] for k in order],
            {name: [values[k] for k in order] for name, values in both.parts.items()},
            [both.faults[k] for k in order],
        )

    def _call(self, examples: Sequence[QAExample], questions: Sequence[str], *, references: bool) -> ScoredBatch:
        result = scored(
            self.reward,
            questions,
            [example.context for example in examples],
            answers=[example.answers[0].text for example in examples],
            references=[[example.question] for example in examples] if references else None,
            titles=[example.title for example in examples],
        )
        scores = [math.nan if score is None else score for score in result.scores]
        parts = {
            name: [math.nan if value is None else float(value) for value in values]
            for name, values in result.parts.items()
            if all(isinstance(value, int | float | None) for value in values)
        }
        faults = [
            None if math.isfinite(score) else f"the reward is {given}"
            for score, given in zip(scores, result.scores, strict=True)
        ]
        return ScoredBatch(scores, parts, faults)


def _concatenated(batches: Sequence[ScoredBatch]) -> ScoredBatch:
    """The scores of consecutive batches as one batch; a part that only some have is NaN in the others."""
    if len(batches) == 1:
        return batches[0]
    names = dict.fromkeys(name for batch in batches for name in batch.parts)
    parts: dict[str, list[float]] = {name: [] for name in names}
    for batch in batches:
        for name in names:
            parts[name] += batch.parts.get(name, [math.nan] * len(batch.scores))
    return ScoredBatch(
        [score for batch in batches for score in batch.scores],
        parts,
        [fault for batch in batches for fault in batch.faults],
        None
        if all(batch.credits is None for batch in batches)
        else [row for batch in batches for row in batch.credits or [[] for _ in batch.scores]],
    )


@dataclass(frozen=True)
class ScoredRollout:
    """Texts of a rollout with their rewards (float32, NaN where there is none).

    Shapes: `sampled` b · k texts, the k of a context next to each other; `rewards` (b, k); `parts` (b · k,) each;
    `greedy` (b,) with its texts, None without greedy questions. `credits` b · k and
    `greedy_credits` b lists, a number for each question of a set; None for other texts.
    """

    sampled: list[str]
    greedy_texts: list[str]
    rewards: Tensor
    greedy: Tensor | None
    parts: Mapping[str, Tensor]
    credits: list[list[float]] | None = None
    greedy_credits: list[list[float]] | None = None

    @classmethod
    def of(
        cls, scored: ScoredBatch, sampled: list[str], greedy: list[str], *, copies: int, device: torch.device
    ) -> "ScoredRollout":
        scores = torch.tensor(scored.scores, device=device)
        count = len(sampled)
        return cls(
            sampled,
            greedy,
            scores[:count].view(-1, copies),
            scores[count:] if greedy else None,
            {name: torch.tensor(values[:count]) for name, values in scored.parts.items()},
            None if scored.credits is None else scored.credits[:count],
            None if scored.credits is None else scored.credits[count:],
        )


def reranker_of(reward: Reward) -> Reranker:
    """A reward as what `rl_qg.generation.generate` orders candidates by."""
    scorer = RewardScorer(reward)
    return Reranker(
        signature_of(reward),
        lambda examples, questions: scorer(examples, questions).scores,
        scorer.reset_cache,
        sign=1 if getattr(reward, "higher_is_better", True) else -1,
        needs_references="references" in getattr(reward, "needs", ()),
    )
