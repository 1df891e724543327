"""Rewards for rollouts: every distinct question judged once, and a reward that fails kept away from the weights."""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rl_qg.data.examples import QAExample
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry, is_out_of_memory

log = logging.getLogger(__name__)


class Reward(Protocol):
    """What the trainer asks of a reward; every metric of `rewards` is one, and so is any object of this shape."""

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        *,
        answers: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
    ) -> Any:
        """Return an object whose `scores` holds one number for each question."""


def signature_of(reward: Reward) -> str:
    """What a reward prints of itself, or its class."""
    return str(getattr(reward, "signature", type(reward).__name__))


@dataclass(frozen=True)
class ScoredBatch:
    """What became of n questions: `scores` (n numbers, NaN where there is none), `parts` of them by name, and
    `faults`, which says for each question what went wrong, or None.
    """

    scores: list[float]
    parts: Mapping[str, list[float]]
    faults: list[str | None]


class RewardScorer:
    """Calls a reward and survives it: a question whose reward is None, not finite, or raises has no score."""

    def __init__(self, reward: Reward, name: str = "reward") -> None:
        self.reward = reward
        self.batches = OutOfMemoryRetry(name, "lower the reward's batch_size, or set training.reward_placement=cpu")
        self._said: set[str] = set()

    def reset_cache(self) -> None:
        """Make the reward forget what it remembers of earlier questions, if it can."""
        if hasattr(self.reward, "reset_cache"):
            self.reward.reset_cache()

    def __call__(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        """Judge question i as one about example i.

        Raises:
            ValueError: the reward returns another number of scores than it got questions.
        """
        # A policy that is sure of itself samples its greedy question: the same text is judged once.
        order: dict[tuple[QAExample, str], int] = {}
        places = [
            order.setdefault((example, text), len(order)) for example, text in zip(examples, questions, strict=True)
        ]
        first = {place: row for row, place in reversed(list(enumerate(places)))}
        rows = [first[place] for place in range(len(order))]
        once = _joined(
            self.batches(
                lambda some: self._judge([examples[row] for row in some], [questions[row] for row in some]), rows
            )
        )
        return ScoredBatch(
            [once.scores[place] for place in places],
            {name: [values[place] for place in places] for name, values in once.parts.items()},
            [once.faults[place] for place in places],
        )

    def _judge(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        try:
            return self._score(examples, questions)
        except _WrongShape as error:
            raise ValueError(str(error)) from None
        except Exception as error:
            if is_out_of_memory(error):
                raise
            if len(questions) == 1:
                return ScoredBatch([math.nan], {}, [f"{type(error).__name__}: {error}".strip()])
            fault = f"{type(error).__name__}: {error}".strip()
            if type(error).__name__ not in self._said:
                self._said.add(type(error).__name__)
                log.warning("the reward failed on %d questions (%s); each is judged by itself", len(questions), fault)
        # One text spoils the batch: each by itself shows which.
        return _joined([self._judge([example], [text]) for example, text in zip(examples, questions, strict=True)])

    def _score(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        result = self.reward.score(
            questions,
            [example.context for example in examples],
            answers=[example.answers[0].text for example in examples],
            references=[[example.question] for example in examples],
        )
        if len(result.scores) != len(questions):
            raise _WrongShape(f"the reward returned {len(result.scores)} scores for {len(questions)} questions")
        scores = [math.nan if score is None else float(score) for score in result.scores]
        parts = {
            name: [math.nan if value is None else float(value) for value in values]
            for name, values in (getattr(result, "parts", None) or {}).items()
            if len(values) == len(questions) and all(isinstance(value, int | float | None) for value in values)
        }
        faults = [
            None if math.isfinite(score) else f"the reward is {given}"
            for score, given in zip(scores, result.scores, strict=True)
        ]
        return ScoredBatch(scores, parts, faults)


def _joined(verdicts: Sequence[ScoredBatch]) -> ScoredBatch:
    """The verdicts on consecutive questions as one; a part that only some have is NaN for the others."""
    if len(verdicts) == 1:
        return verdicts[0]
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.parts)
    parts: dict[str, list[float]] = {name: [] for name in names}
    for verdict in verdicts:
        for name in names:
            parts[name] += verdict.parts.get(name, [math.nan] * len(verdict.scores))
    return ScoredBatch(
        [score for verdict in verdicts for score in verdict.scores],
        parts,
        [fault for verdict in verdicts for fault in verdict.faults],
    )


@dataclass(frozen=True)
class ScoredRollout:
    """Texts of a rollout with their rewards (float32, NaN where there is none).

    Shapes: `sampled` b · k texts, the k of a context side by side; `rewards` (b, k); `parts` (b · k,) each; `greedy`
    (b,) with its texts, None without greedy questions.
    """

    sampled: list[str]
    greedy_texts: list[str]
    rewards: Tensor
    greedy: Tensor | None
    parts: Mapping[str, Tensor]

    @classmethod
    def of(
        cls, verdict: ScoredBatch, sampled: list[str], greedy: list[str], *, copies: int, device: torch.device
    ) -> "ScoredRollout":
        """Take apart the verdict on the sampled and then the greedy questions."""
        scores = torch.tensor(verdict.scores, device=device)
        count = len(sampled)
        return cls(
            sampled,
            greedy,
            scores[:count].view(-1, copies),
            scores[count:] if greedy else None,
            {name: torch.tensor(values[:count]) for name, values in verdict.parts.items()},
        )

    def measures(self, advantage: Tensor) -> dict[str, tuple[Tensor, Tensor | int]]:
        """Totals and weights for the log, given the advantages (b, k) before they are shaped."""
        usable = torch.isfinite(self.rewards)
        if self.greedy is not None:
            usable &= torch.isfinite(self.greedy).unsqueeze(-1)
        count, values = usable.sum(), advantage[usable]
        found: dict[str, tuple[Tensor, Tensor | int]] = {
            "reward_sample": (self.rewards[usable].sum(), count),
            "advantage": (values.sum(), count),
            "advantage_abs": (values.abs().sum(), count),
            "rewards_failed": ((~usable).sum(), usable.numel()),
        }
        if self.greedy is not None:
            found["reward_greedy"] = (self.greedy.unsqueeze(-1).expand_as(usable)[usable].sum(), count)
        for name, values in self.parts.items():
            finite = torch.isfinite(values)
            found[f"reward_sample_{name}"] = (values[finite].sum(), finite.sum())
        return found

    def rows(self, examples: Sequence[QAExample]) -> list[dict[str, Any]]:
        """One record for `samples.jsonl` per context: the greedy question and the first of the sampled ones."""
        copies = self.rewards.shape[1]
        found = []
        for row, example in enumerate(examples):
            record: dict[str, Any] = {"id": example.id, "sample": self.sampled[row * copies]}
            record["reward_sample"] = _or_none(self.rewards[row, 0])
            if self.greedy is not None:
                record |= {"greedy": self.greedy_texts[row], "reward_greedy": _or_none(self.greedy[row])}
            record |= {f"{name}_sample": _or_none(values[row * copies]) for name, values in self.parts.items()}
            found.append(record)
        return found


def _or_none(value: Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


class _WrongShape(Exception):
    """The reward does not keep its contract at all: nothing to survive."""
