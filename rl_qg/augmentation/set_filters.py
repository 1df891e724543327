"""Filters that see every candidate before they decide: caps, a balance of question types, and the best by reward."""

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rl_qg.augmentation.candidates import RANDOM, Ranking, answer_hash64, passage_hash64
from rl_qg.augmentation.funnel import FilterResources, Record, SetFilter
from rl_qg.augmentation.measures import CandidateMeasure, MeasureFunction, model_identity
from rl_qg.data.examples import Answer, QAExample
from rl_qg.evaluation.reward_scorer import RewardScorer, signature_of
from rl_qg.runtime.errors import InputError
from rl_qg.text.question_types import LANGUAGES, TYPES, question_type


@dataclass
class Cap(SetFilter):
    """Keeps at most `per_answer` candidates of an answer span and `per_context` of a passage, the best `by` first.

    Candidates are taken from best to worst wherever they stand, each unless its answer or its passage is full.
    """

    per_answer: int | None = None
    per_context: int | None = None
    by: str = "logprob"
    reasons: ClassVar[tuple[str, ...]] = ("beyond the cap of its answer", "beyond the cap of its passage")

    def faults(self) -> list[tuple[bool, str]]:
        """No cap, or one that leaves nothing."""
        caps = {"per_answer": self.per_answer, "per_context": self.per_context}
        faults = [(cap is not None and cap < 1, f"{name}={cap} must be at least 1") for name, cap in caps.items()]
        return [*faults, (self.per_answer is None and self.per_context is None, "give per_answer or per_context")]

    def listed(self) -> tuple[str, ...]:
        """Those of the caps that are set."""
        caps = (self.per_answer, self.per_context)
        return tuple(reason for cap, reason in zip(caps, self.reasons, strict=True) if cap is not None)

    def begin(self, work: FilterResources) -> None:
        """Start with nothing."""
        self._ranking = Ranking(self.by, work.seed)
        self._answers, self._passages = array("Q"), array("Q")

    def see(self, place: int, record: Record) -> None:
        """Remember 40 bytes."""
        self._ranking.add(place, record)
        self._answers.append(answer_hash64(record))
        self._passages.append(passage_hash64(record))

    def dropped(self) -> Iterator[tuple[int, str]]:
        """Those for which there is no room."""
        answers, passages = Counter[int](), Counter[int]()
        for index in self._ranking.best_first():
            answer, passage = self._answers[index], self._passages[index]
            if self.per_answer is not None and answers[answer] >= self.per_answer:
                yield self._ranking.places[index], self.reasons[0]
            elif self.per_context is not None and passages[passage] >= self.per_context:
                yield self._ranking.places[index], self.reasons[1]
            else:
                answers[answer] += 1
                passages[passage] += 1


@dataclass
class TypeBalance(SetFilter):
    """Keeps question types (`rl_qg.text.question_types`) in balance, and as many candidates as that allows.

    Args:
        max_share: the largest share that a type may have of what is kept; one number for all, or by type.
        shares: instead, the share that each type is to have; types that it does not name are dropped. Where there are
            no candidates of a type at all, the others share its part.
        by: which of a type are kept.
        language: of the questions.
    """

    max_share: float | dict[str, float] | None = None
    shares: dict[str, float] | None = None
    by: str = RANDOM
    language: str = "en"
    reasons: ClassVar[tuple[str, ...]] = ("too many of its question type",)

    def faults(self) -> list[tuple[bool, str]]:
        """Not exactly one of both; unknown types; shares that do not make a whole."""
        caps, shares = self._caps(), self.shares or {}
        given = {**(self.max_share if isinstance(self.max_share, dict) else {}), **shares}
        unknown = sorted(set(given) - set(TYPES))
        return [
            ((self.max_share is None) == (self.shares is None), "give either max_share or shares"),
            (bool(unknown), f"no question type {', '.join(unknown)}; they are {', '.join(TYPES)}"),
            (not all(_is_share(share) for share in caps.values()), f"max_share={self.max_share} is not in (0, 1]"),
            (
                self.shares is not None
                and not (all(map(_is_share, shares.values())) and math.isclose(sum(shares.values()), 1, abs_tol=1e-6)),
                f"shares={self.shares} must be above 0 and make 1",
            ),
            (self.language not in LANGUAGES, f"language={self.language}: there are types for {', '.join(LANGUAGES)}"),
        ]

    def begin(self, work: FilterResources) -> None:
        """Start with nothing."""
        self._ranking = Ranking(self.by, work.seed)
        self._types = array("B")

    def see(self, place: int, record: Record) -> None:
        """Remember 25 bytes."""
        self._ranking.add(place, record)
        self._types.append(TYPES.index(question_type(record["question"], self.language)))

    def dropped(self) -> Iterator[tuple[int, str]]:
        """The worst of each type that has too many."""
        there = {TYPES[number]: count for number, count in Counter(self._types).items()}
        left = self._exact(there) if self.shares is not None else self._capped(there)
        for index in self._ranking.best_first():
            kind = TYPES[self._types[index]]
            if left.get(kind, 0):
                left[kind] -= 1
            else:
                yield self._ranking.places[index], self.reasons[0]

    def _caps(self) -> dict[str, float]:
        if isinstance(self.max_share, dict):
            return self.max_share
        return {} if self.max_share is None else dict.fromkeys(TYPES, self.max_share)

    def _exact(self, there: Mapping[str, int]) -> dict[str, int]:
        """The most candidates that have the wanted shares."""
        wanted = {kind: share for kind, share in (self.shares or {}).items() if there.get(kind)}
        if not wanted:
            return {}
        whole = sum(wanted.values())
        total = min(there[kind] * whole / share for kind, share in wanted.items())
        return {kind: math.floor(total * share / whole + 1e-9) for kind, share in wanted.items()}

    def _capped(self, there: Mapping[str, int]) -> dict[str, int]:
        """The most candidates of which no type has more than its share.

        From all candidates downwards: whatever a total allows each type, a smaller total allows no more, so the first
        total that its own types make up is the largest.
        """
        caps, left = self._caps(), dict(there)
        total = -1
        while total != sum(left.values()):
            total = sum(left.values())
            left = {kind: min(count, math.floor(caps.get(kind, 1.0) * total + 1e-9)) for kind, count in there.items()}
        if there and not total:
            found = ", ".join(f"{kind} {count}" for kind, count in sorted(there.items()))
            raise InputError(
                f"augment.filters.{self.name}: max_share={self.max_share} can be had of no selection of these types "
                f"({found}): raise it"
            )
        return left


def _is_share(share: float) -> bool:
    return 0 < share <= 1


@dataclass
class RewardFilter(SetFilter):
    """Keeps what a metric of `rewards/` finds good; without a threshold it measures and drops only what has no reward.

    Args:
        metric: its options with `_target_`, as in `configs/reward/`; or a metric's short name; null: the `reward` of
            the settings.
        field: instead of a metric, a field of the questions file that holds the reward, such as `score`.
        min: the lowest reward that is kept.
        top_fraction: of each passage this share is kept, the best ones, at least one.
        batch_size: candidates at a time.

    Thresholds are the user's, chosen on training passages; validation passages have no part in them.
    """

    metric: Any = None
    field: str | None = None
    min: float | None = None
    top_fraction: float | None = None
    batch_size: int = 256
    reasons: ClassVar[tuple[str, ...]] = ("no reward", "reward too low", "not among the best of its passage")

    def faults(self) -> list[tuple[bool, str]]:
        """A share beyond 0 and 1; two sources."""
        share = self.top_fraction
        return [
            (share is not None and not _is_share(share), f"top_fraction={share} is not in (0, 1]"),
            (self.field is not None and self.metric is not None, "give either metric or field"),
            (self.batch_size < 1, f"batch_size={self.batch_size} must be at least 1"),
        ]

    def listed(self) -> tuple[str, ...]:
        """Those of the thresholds that are set, and failure."""
        limits = (0, self.min, self.top_fraction)
        return tuple(reason for limit, reason in zip(limits, self.reasons, strict=True) if limit is not None)

    def measure(self, work: FilterResources) -> CandidateMeasure | None:
        """The metric's scores; a metric that fails on a candidate gives it none."""
        if self.field is not None:
            return None
        if not isinstance(self.metric, Mapping):
            raise InputError(f"augment.filters.{self.name}: metric={self.metric} has no options; use rl-qg augment")
        options = dict(self.metric)

        def load() -> tuple[MeasureFunction, dict[str, Any]]:
            reward = work.load_metric(options)
            if "references" in getattr(reward, "needs", ()):
                raise InputError(
                    f"augment.filters.{self.name}: the metric compares with references, and candidates have none"
                )
            said = {"signature": signature_of(reward), "metric": options}
            scorer = RewardScorer(reward, f"filter {self.name}")
            return lambda records: _judged(scorer, records), said

        return CandidateMeasure("reward", {"metric": model_identity(options)}, load, self.batch_size)

    def begin(self, work: FilterResources) -> None:
        """Start with nothing."""
        self._ranking = Ranking(self.field or self.name, work.seed)
        self._passages = array("Q")

    def see(self, place: int, record: Record) -> None:
        """Remember 32 bytes."""
        self._ranking.add(place, record)
        self._passages.append(passage_hash64(record))

    def dropped(self) -> Iterator[tuple[int, str]]:
        """First what has no reward or too little; then, of what is left of each passage, the worse part."""
        values, places = self._ranking.values, self._ranking.places
        good = []
        for index in self._ranking.best_first():
            if math.isnan(values[index]):
                yield places[index], self.reasons[0]
            elif self.min is not None and values[index] < self.min:
                yield places[index], self.reasons[1]
            else:
                good.append(index)
        if self.top_fraction is None:
            return
        sizes = Counter(self._passages[index] for index in good)
        taken = Counter[int]()
        for index in good:
            passage = self._passages[index]
            if taken[passage] < math.ceil(self.top_fraction * sizes[passage] - 1e-9):
                taken[passage] += 1
            else:
                yield places[index], self.reasons[2]


def _judged(scorer: RewardScorer, records: Any) -> list[dict[str, Any]]:
    scorer.reset_cache()  # or what is measured would hang on what was measured before, in the last digits
    examples = [
        QAExample(r["id"], r["title"], r["context"], "", (Answer(r["answer"], r["answer_start"]),)) for r in records
    ]
    verdict = scorer(examples, [record["question"] for record in records])
    parts = {name: [None if math.isnan(v) else v for v in values] for name, values in verdict.parts.items()}
    return [
        {"value": score, "parts": {name: values[row] for name, values in parts.items()}}
        for row, score in enumerate(verdict.scores)
    ]
