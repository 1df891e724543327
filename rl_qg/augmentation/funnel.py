"""What a filter of candidate questions is, and the funnel that applies filters one after the other.

A filter decides either about each candidate by itself (`RowFilter`) or after it has seen all candidates that reach it
(`SetFilter`). It may define a measure that a model computes (`rl_qg.augmentation.measures`). Options are the fields of
its dataclass. Filters that compare whole questions do so by their words between spaces; what depends on the language
of a passage is in `rl_qg.augmentation.row_filters.LanguageFilter`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from rl_qg.augmentation.candidates import Candidates, Record
from rl_qg.augmentation.measures import CandidateMeasure
from rl_qg.data.streaming import Examples
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError


@dataclass(frozen=True)
class Rule:
    """One reason to drop a record, and the test for it."""

    reason: str
    rejects: Callable[[Record], bool]


def no_metric(options: Mapping[str, Any]) -> Reward:
    """The default metric loader, which cannot load any."""
    raise InputError("a filter needs a metric, and no metric loader was given; use rl-qg augment")


@dataclass(frozen=True)
class FilterResources:
    """What filters may use: the human questions, the seed, the device of this process, and a metric loader."""

    gold: Examples | Sequence[Any] = ()
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric


class Filter:
    """One step of the funnel. Subclasses are dataclasses whose fields are the options.

    `name` is the filter's key in the settings. If the key is not the name of the kind, reasons begin with `prefix`.
    """

    name: str = ""
    prefix: str = ""
    reasons: ClassVar[tuple[str, ...]] = ()

    def option_errors(self) -> list[tuple[bool, str]]:
        """Pairs of whether an option is invalid, and the error text."""
        return []

    def measure(self, resources: FilterResources) -> CandidateMeasure | None:
        """The measure that the filter reads under its name, if it needs one; called in every process."""
        return None

    def prepare(self, resources: FilterResources) -> None:
        """Called once, before the first candidate."""

    def notes(self) -> list[str]:
        """After the last candidate: a sentence for each rule that could not be applied, and to how many."""
        return []

    def active_reasons(self) -> tuple[str, ...]:
        """The reasons for which this filter, with its options, may drop a candidate."""
        return self.reasons


class RowFilter(Filter):
    """Decides about each candidate by itself."""

    def rules(self) -> list[Rule]:
        """The rules, called once, after `prepare`; the first rule that rejects a candidate gives the reason."""
        raise NotImplementedError

    def active_reasons(self) -> tuple[str, ...]:
        """The reasons of the rules."""
        return tuple(rule.reason for rule in self.rules())


class SetFilter(Filter):
    """Decides after it has seen every candidate that reaches it; keeps only numbers and hashes in memory."""

    def observe(self, index: int, record: Record) -> None:
        """Called for each candidate."""
        raise NotImplementedError

    def dropped(self) -> Iterator[tuple[int, str]]:
        """Yield index and reason of each candidate to drop."""
        raise NotImplementedError


class Funnel:
    """Applies filters to candidates, in order; each filter sees the candidates that the earlier ones have kept.

    `counts` maps each reason, in the order of the filters, to the number of candidates dropped for it.
    """

    def __init__(self, filters: Sequence[Filter], candidates: Candidates, resources: FilterResources) -> None:
        self.filters, self.candidates, self.resources = list(filters), candidates, resources
        self.counts: dict[str, int] = {}
        self._pending: list[RowFilter] = []  # applied during the next reading
        for filter_ in self.filters:
            self.counts |= {filter_.prefix + reason: 0 for reason in filter_.active_reasons()}

    @property
    def seen(self) -> int:
        """The number of candidates before the first filter."""
        return len(self.candidates)

    @property
    def kept(self) -> int:
        """The number of candidates that have not been dropped so far."""
        return self.seen - sum(self.counts.values())

    def apply(self, filter_: Filter) -> None:
        """Apply the next filter: a row filter during the next reading, a set filter at once."""
        filter_.prepare(self.resources)
        if isinstance(filter_, RowFilter):
            self._pending.append(filter_)
        elif isinstance(filter_, SetFilter):
            self.read_through(filter_.observe)
            for index, reason in filter_.dropped():
                self._drop(index, filter_.prefix + reason)

    def marks(self) -> bytes:
        """One byte for each candidate: 1 if all filters so far have kept it, else 0."""
        self.read_through()
        return self.candidates.marks()

    def read_through(self, observe: Callable[[int, Record], None] | None = None) -> None:
        """Read the remaining candidates, drop those that pending row filters reject, and `observe` the others.

        Raises:
            InputError: with file and line, for a line that is not a candidate, or lacks what a filter needs.
        """
        if observe is None and not self._pending and self.seen:
            return
        rules = [(filter_.prefix + rule.reason, rule.rejects) for filter_ in self._pending for rule in filter_.rules()]
        self._pending = []
        for index, where, record in self.candidates.read("filter"):
            try:
                reason = next((reason for reason, rejects in rules if rejects(record)), None)
                if reason is not None:
                    self._drop(index, reason)
                elif observe is not None:
                    observe(index, record)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None

    def _drop(self, index: int, reason: str) -> None:
        self.candidates.drop(index)
        self.counts[reason] += 1
