"""Filters that see every candidate before they decide: caps, balance of question types, rewards.

A new filter of this kind is a `SetFilter` in this file, registered in `rl_qg.augmentation.augment`.
"""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from rl_qg.augmentation import funnel
from rl_qg.augmentation.candidates import RANDOM, Ranking, answer_hash64, grouped, passage_hash64
from rl_qg.data.examples import Answer, QAExample
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import RewardScorer, check_direction, finite_or_none, signature_of
from rl_qg.text.question_types import TYPE_TABLES, TYPES, question_type


@dataclass
class Cap(funnel.SetFilter):
    """Keeps at most `per_answer` candidates of an answer span and `per_context` of a passage, the best `by` first."""

    per_answer: int | None = None
    per_context: int | None = None
    by: str = "logprob"
    reasons: ClassVar[tuple[str, ...]] = ("beyond the cap of its answer", "beyond the cap of its passage")

    def option_errors(self) -> list[tuple[bool, str]]:
        caps = {"per_answer": self.per_answer, "per_context": self.per_context}
        errors = [(cap is not None and cap < 1, f"{name}={cap} must be at least 1") for name, cap in caps.items()]
        return [*errors, (self.per_answer is None and self.per_context is None, "give per_answer or per_context")]

    def active_reasons(self) -> tuple[str, ...]:
        caps = (self.per_answer, self.per_context)
        return tuple(reason for cap, reason in zip(caps, self.reasons, strict=True) if cap is not None)

    def prepare(self, resources: funnel.FilterResources) -> None:
        self._ranking = Ranking(self.by, resources.seed)
        self._answers, self._passages = array("Q"), array("Q")

    def observe(self, index: int, record: funnel.Record) -> None:
        self._ranking.add(index, record)
        self._answers.append(answer_hash64(record))
        self._passages.append(passage_hash64(record))

    def dropped(self) -> Iterator[tuple[int, str]]:
        order = self._ranking.best_first()
        for group in grouped(np.asarray(self._passages)[order]):
            answers = Counter[int]()
            for row in order[group].tolist():
                answer = self._answers[row]
                if self.per_answer is not None and answers[answer] >= self.per_answer:
                    yield self._ranking.indices[row], self.reasons[0]
                elif self.per_context is not None and answers.total() >= self.per_context:
                    yield self._ranking.indices[row], self.reasons[1]
                else:
                    answers[answer] += 1


@dataclass
class TypeBalance(funnel.SetFilter):
    """Balances question types (`rl_qg.text.question_types`), and keeps as many candidates as that allows.

    Args:
        max_share: the largest fraction of the kept candidates that a type may have; one number for all types, or a
            number for each type.
        shares: instead, the fraction of each type; types that are not named are dropped. If a type has no candidates,
            its fraction is divided among the others.
        by: the measure or field by which the best candidates of a type are kept.
        language: of the questions.
    """

    max_share: float | dict[str, float] | None = None
    shares: dict[str, float] | None = None
    by: str = RANDOM
    language: str = "en"
    reasons: ClassVar[tuple[str, ...]] = ("too many of its question type",)
    compares_passages: ClassVar[bool] = True

    def option_errors(self) -> list[tuple[bool, str]]:
        caps, shares = self._caps(), self.shares or {}
        given = {**(self.max_share if isinstance(self.max_share, dict) else {}), **shares}
        unknown, languages = sorted(map(str, set(given) - set(TYPES))), ", ".join(TYPE_TABLES)
        add_up = all(map(_is_fraction, shares.values())) and math.isclose(sum(shares.values()), 1, abs_tol=1e-6)
        are_shares = self.shares is None or add_up
        return [
            ((self.max_share is None) == (self.shares is None), "give either max_share or shares"),
            (bool(unknown), f"no question type {', '.join(unknown)}; they are {', '.join(TYPES)}"),
            (not all(map(_is_fraction, caps.values())), f"max_share={self.max_share} is not in (0, 1]"),
            (not are_shares, f"shares={self.shares} must be above 0 and sum to 1"),
            (self.language not in TYPE_TABLES, f"language={self.language}: there are types for {languages}"),
        ]

    def prepare(self, resources: funnel.FilterResources) -> None:
        self._ranking = Ranking(self.by, resources.seed)
        self._types = array("B")

    def observe(self, index: int, record: funnel.Record) -> None:
        self._ranking.add(index, record)
        self._types.append(TYPES.index(question_type(record["question"], self.language)))

    def dropped(self) -> Iterator[tuple[int, str]]:
        counts = {TYPES[number]: count for number, count in Counter(self._types).items()}
        remaining = self._capped_counts(counts) if self.shares is None else _exact_counts(self.shares, counts)
        for row in self._ranking.best_first():
            kind = TYPES[self._types[row]]
            if remaining.get(kind, 0):
                remaining[kind] -= 1
            else:
                yield self._ranking.indices[row], self.reasons[0]

    def _caps(self) -> dict[str, float]:
        if isinstance(self.max_share, dict):
            return self.max_share
        return {} if self.max_share is None else dict.fromkeys(TYPES, self.max_share)

    def _capped_counts(self, counts: Mapping[str, int]) -> dict[str, int]:
        """The largest counts of each type of which none exceeds its maximal fraction.

        The search goes down from all candidates. A smaller total never allows a type more than a larger one, so the
        first total that equals the sum of the allowed counts is the largest.
        """
        caps, allowed = self._caps(), dict(counts)
        total = -1
        while total != sum(allowed.values()):
            total = sum(allowed.values())
            most = {kind: math.floor(caps.get(kind, 1.0) * total + 1e-9) for kind in counts}
            allowed = {kind: min(count, most[kind]) for kind, count in counts.items()}
        if counts and not total:
            types = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
            raise InputError(
                f"augment.filters.{self.name}: no selection of these types satisfies max_share={self.max_share} "
                f"({types}): increase it"
            )
        return allowed


def _is_fraction(value: float) -> bool:
    return 0 < value <= 1


def _exact_counts(shares: Mapping[str, float], counts: Mapping[str, int]) -> dict[str, int]:
    """The largest counts of each type that have the given fractions."""
    fractions = {kind: fraction for kind, fraction in shares.items() if counts.get(kind)}
    whole = sum(fractions.values())
    total = min((counts[kind] * whole / fraction for kind, fraction in fractions.items()), default=0)
    return {kind: math.floor(total * fraction / whole + 1e-9) for kind, fraction in fractions.items()}


@dataclass
class RewardFilter(funnel.SetFilter):
    """Keeps candidates with a high reward; without a threshold it measures, and drops only those without a reward.

    Args:
        metric: options with `_target_`, as in `configs/reward/`; or the name of a metric; null: the `reward` of the
            settings.
        field: instead of a metric, a field of the questions file that holds the reward, such as `score`.
        min: the lowest reward that is kept.
        top_fraction: the fraction of each passage's candidates that is kept, the best ones, at least one.
        batch_size: candidates at a time.

    Choose thresholds on training passages, never on validation passages.
    """

    metric: Any = None
    field: str | None = None
    min: float | None = None
    top_fraction: float | None = None
    batch_size: int = 256
    reasons: ClassVar[tuple[str, ...]] = ("no reward", "reward too low", "not among the best of its passage")

    def option_errors(self) -> list[tuple[bool, str]]:
        fraction = self.top_fraction
        return [
            (fraction is not None and not _is_fraction(fraction), f"top_fraction={fraction} is not in (0, 1]"),
            (self.field is not None and self.metric is not None, "give either metric or field"),
            (self.batch_size < 1, f"batch_size={self.batch_size} must be at least 1"),
        ]

    def active_reasons(self) -> tuple[str, ...]:
        limits = (0, self.min, self.top_fraction)
        return tuple(reason for limit, reason in zip(limits, self.reasons, strict=True) if limit is not None)

    def measure(self, resources: funnel.FilterResources) -> funnel.CandidateMeasure | None:
        if self.field is not None:
            return None
        if not isinstance(self.metric, Mapping):
            raise InputError(f"augment.filters.{self.name}: metric={self.metric} has no options; use rl-qg augment")
        options = dict(self.metric)

        def load() -> tuple[funnel.MeasureFunction, dict[str, Any]]:
            reward = resources.load_metric(options)
            if "references" in getattr(reward, "needs", ()):
                raise InputError(
                    f"augment.filters.{self.name}: the metric compares with references, and candidates have none"
                )
            check_direction(reward, f"augment.filters.{self.name}:")
            description = {"signature": signature_of(reward), "metric": options}
            scorer = RewardScorer(reward, f"filter {self.name}")
            return lambda records: _scores(scorer, records), description

        return funnel.CandidateMeasure("reward", {"metric": funnel.model_identity(options)}, load, self.batch_size)

    def prepare(self, resources: funnel.FilterResources) -> None:
        self._ranking = Ranking(self.field or self.name, resources.seed)
        self._passages = array("Q")

    def observe(self, index: int, record: funnel.Record) -> None:
        self._ranking.add(index, record)
        self._passages.append(passage_hash64(record))

    def dropped(self) -> Iterator[tuple[int, str]]:
        indices, order = self._ranking.indices, self._ranking.best_first()
        values = np.asarray(self._ranking.values)[order]
        unknown = np.isnan(values)
        low = values < (-math.inf if self.min is None else self.min)
        for reason, rejected in zip(self.reasons, (unknown, low), strict=False):
            yield from ((indices[row], reason) for row in order[rejected])
        if self.top_fraction is None:
            return
        good = order[~(unknown | low)]
        for group in grouped(np.asarray(self._passages)[good]):
            kept = math.ceil(self.top_fraction * len(group) - 1e-9)
            yield from ((indices[row], self.reasons[2]) for row in good[group[kept:]])


def _scores(scorer: RewardScorer, records: Any) -> list[dict[str, Any]]:
    scorer.reset_cache()  # otherwise the last digits would depend on what was scored before
    answers = [(Answer(record["answer"], record["answer_start"]),) for record in records]
    examples = [
        QAExample(record["id"], record["title"], record["context"], "", answer)
        for record, answer in zip(records, answers, strict=True)
    ]
    batch = scorer(examples, [record["question"] for record in records])
    parts = {name: [*map(finite_or_none, values)] for name, values in batch.parts.items()}
    return [
        {"value": score, "parts": {name: values[row] for name, values in parts.items()}}
        for row, score in enumerate(batch.scores)
    ]
