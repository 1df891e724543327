"""Rewards of generated questions, each distinct one scored once; where a reward fails there is no score."""

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Protocol, SupportsFloat

from rewards.contract import LARGEST, Result, WrongReward, check_row_by_row, failure, scored
from rewards.endpoint import EndpointError
from rewards.errors import MetricInputError
from rewards.signature import own_signature
from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError, LocalError
from rl_qg.runtime.files import append_json_line, file_hash
from rl_qg.runtime.ranks import OutOfMemoryRetry, is_out_of_memory
from rl_qg.settings.yaml_files import foreign_imports

log = logging.getLogger(__name__)
QUESTIONS_IN_VAIN = 64
Pairs = Sequence[tuple[QAExample, str]]


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
    """The reward's own, else its class with a hash of its file."""
    kind = type(reward)
    return str(getattr(reward, "signature", own_signature(kind.__name__, {}, kind)))


def is_signed(reward: Any) -> bool:
    """Whether its signature is its own, and so is that of every metric that it is computed of."""
    parts = getattr(reward, "metrics", None)
    return hasattr(reward, "signature") and all(map(is_signed, parts if isinstance(parts, list) else ()))


def code_files(options: Any) -> dict[str, str]:
    """SHA-256 of the files of the classes that options name and that are not of this package."""
    found = {}
    for _, path in foreign_imports(options):
        with suppress(ImportError, ValueError, OSError, TypeError):  # it is refused where it is loaded
            file = Path(find_spec(path.rpartition(".")[0]).origin)  # type: ignore[union-attr, arg-type]
            found[str(file)] = file_hash(file)
    return found


def direction_of(reward: Reward) -> int:
    """1 where more is better, -1 where less is."""
    return 1 if getattr(reward, "higher_is_better", True) else -1


def check_direction(reward: Reward, name: str) -> None:
    """`InputError` for one of which less is better, where the highest is taken for the best."""
    if direction_of(reward) < 0:
        way = "make it a part of the metric weighted, with a weight below 0"
        raise InputError(f"{name} {signature_of(reward)}: is better when lower, and higher is taken for better; {way}")


def finite_or_none(value: SupportsFloat) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def score_or_refuse(reward: Reward, where: str, columns: Mapping[str, Sequence[Any]]) -> Result:
    """The scores of one call, of columns by their names in data: `question` and those of `rewards.contract.COLUMN`."""
    get = columns.get
    named: Any = {"answers": get("answer"), "references": get("references"), "titles": get("title")}
    try:
        return scored(reward, columns["question"], get("context"), **named)
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
class ScoredText:
    """A text's score, NaN where there is none, with its parts by name and, or None, why the reward failed; of a set of
    questions also a number for each of them (`rewards.set_rewards.SetReward.result`).
    """

    score: float
    parts: Mapping[str, float]
    fault: str | None = None
    credits: list[float] | None = None


@dataclass(frozen=True)
class ScoredBatch:
    """Scored texts, and the columns of their values; a part that only some have is NaN in the others."""

    rows: Sequence[ScoredText]

    @property
    def scores(self) -> list[float]:
        return [row.score for row in self.rows]

    @property
    def parts(self) -> dict[str, list[float]]:
        names = dict.fromkeys(name for row in self.rows for name in row.parts)
        return {name: [row.parts.get(name, math.nan) for row in self.rows] for name in names}

    @property
    def faults(self) -> list[str | None]:
        return [row.fault for row in self.rows]

    @property
    def credits(self) -> list[list[float]] | None:
        given = any(row.credits is not None for row in self.rows)
        return [row.credits or [] for row in self.rows] if given else None


class RewardScorer:
    """Calls a reward and handles its failures: a question whose reward is None, not finite, or raises has no score.

    `references`: whether it gets the human questions, where there are any. A reward without an attribute `needs` may
    compare with them, which would make it useless on questions that nobody has asked.
    """

    def __init__(self, reward: Reward, name: str = "reward", *, references: bool = True) -> None:
        self.check(reward)
        self.reward, self._with_references = reward, references
        self._retry = OutOfMemoryRetry(name, "lower the reward's batch_size, or set training.reward_placement=cpu")
        self._logged: set[str] = set()  # types of errors

    def check(self, reward: Reward) -> None:
        check_row_by_row(reward)

    def reset_cache(self) -> None:
        if hasattr(self.reward, "reset_cache"):
            self.reward.reset_cache()

    def __call__(self, examples: Sequence[QAExample], questions: Sequence[str]) -> ScoredBatch:
        pairs = list(zip(examples, questions, strict=True))
        # A policy with little entropy samples its greedy question: equal texts are scored once.
        distinct = list(dict.fromkeys(pairs))
        row_of = dict(zip(distinct, chain.from_iterable(self._retry(self._score_or_split, distinct)), strict=True))
        return ScoredBatch([row_of[pair] for pair in pairs])

    def _score_or_split(self, pairs: Pairs) -> list[ScoredText]:
        """Score a batch, and where that fails each question alone, which shows the one that made it fail."""
        try:
            return self._score(pairs)
        except (WrongReward, EndpointError) as error:
            raise LocalError(str(error)) from None
        except Exception as error:
            if is_out_of_memory(error):
                raise
            kind, fault = type(error).__name__, failure(error, self.reward)
            if len(pairs) == 1:
                return [ScoredText(math.nan, {}, fault)]
            if kind not in self._logged:
                self._logged.add(kind)
                log.warning("the reward failed on %d questions (%s); each is scored alone", len(pairs), fault)
        return [row for pair in pairs for row in self._score_or_split([pair])]

    def _score(self, pairs: Pairs) -> list[ScoredText]:
        """Score a batch. A reward that does not say what it needs gets the human question of each passage that has
        one, whatever else is in the batch.
        """
        says = hasattr(self.reward, "needs")
        rows: dict[int, ScoredText] = {}
        for references in (True, False):
            chosen = [
                number
                for number, (example, _) in enumerate(pairs)
                if (self._with_references and (says or bool(example.question))) is references
            ]
            if chosen:
                rows |= zip(chosen, self._call([pairs[number] for number in chosen], references), strict=True)
        return [rows[number] for number in range(len(pairs))]

    def _call(self, pairs: Pairs, references: bool) -> list[ScoredText]:
        result = scored(
            self.reward,
            [question for _, question in pairs],
            [example.context for example, _ in pairs],
            answers=[example.answers[0].text for example, _ in pairs],
            references=[[example.question] for example, _ in pairs] if references else None,
            titles=[example.title for example, _ in pairs],
        )
        parts = {
            name: [math.nan if value is None else float(value) for value in values]
            for name, values in result.parts.items()
            if all(isinstance(value, int | float | None) for value in values)
        }
        return scored_texts(result.scores, parts)


def scored_texts(scores: Sequence[float | None], parts: Mapping[str, Sequence[float]]) -> list[ScoredText]:
    """Texts by the columns of their values; a score that is None or no finite number of float32 is a fault."""
    return [
        ScoredText(
            math.nan if score is None else score,
            {name: values[row] for name, values in parts.items()},
            None if score is not None and abs(score) <= LARGEST else f"the reward is {score}",
        )
        for row, score in enumerate(scores)
    ]


class FailedRewards:
    """Writes every question whose reward failed to `samples.jsonl`, then skips it or ends the run.

    A run ends if none of its first questions has a reward: it would learn nothing from them. `policy` is `skip` or
    `stop` (`scst.on_bad_reward`).
    """

    def __init__(self, path: Path, policy: str) -> None:
        self.path = path
        self.policy = policy
        self._logged: set[str] = set()
        self._in_vain: int | None = 0  # questions so far, while none had a reward

    def handle(self, step: int, examples: Sequence[QAExample], questions: Sequence[str], batch: ScoredBatch) -> None:
        failed = [
            (example.id, text, row.fault)
            for example, text, row in zip(examples, questions, batch.rows, strict=True)
            if row.fault is not None
        ]
        for key, text, fault in failed:
            line = {"step": step, "id": key, "sample": text, "reward_sample": None, "fault": fault}
            append_json_line(self.path, line)
        for key, text, fault in failed:
            message = f"step {step}, example {key}: no reward for {text!r}: {fault}"
            if self.policy == "stop":
                raise LocalError(f"{message}; correct the reward, or skip such rows with scst.on_bad_reward=skip")
            if fault not in self._logged:  # repeated ones are only counted
                self._logged.add(fault)
                log.warning("%s; the row is skipped, see rewards_failed in metrics.jsonl", message)
        if self._in_vain is None or len(failed) < len(batch.rows):
            self._in_vain = None
            return
        self._in_vain += len(failed)
        if self._in_vain >= QUESTIONS_IN_VAIN:
            raise LocalError(
                f"none of the first {self._in_vain} sampled questions has a reward ({batch.rows[0].fault}); correct "
                "the reward"
            )
