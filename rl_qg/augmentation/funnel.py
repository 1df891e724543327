"""What a filter of candidate questions is, and the funnel that puts filters one behind the other.

A filter decides either about each candidate by itself (`RuleFilter`) or when it has seen all that came to it
(`ChoiceFilter`). It may ask for a measure that a model takes (`rl_qg.augmentation.measures`). Options are the fields
of its dataclass. Filters compare texts by their `words`: this expects a script that writes spaces.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from rl_qg.augmentation.candidates import Candidates
from rl_qg.augmentation.measures import CandidateMeasure
from rl_qg.augmentation.ranking import Record
from rl_qg.data.examples import passage_hash
from rl_qg.data.streaming import Examples
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError
from rl_qg.text.words import normalised_words


def question_key(context: str, question: str) -> bytes:
    """Return 16 bytes that are equal for the same words asked of the same passage."""
    return hashlib.sha256(f"{passage_hash(context)} {' '.join(normalised_words(question))}".encode()).digest()[:16]


@dataclass(frozen=True)
class Rule:
    """One reason to drop a record, and the test for it."""

    reason: str
    rejects: Callable[[Record], bool]


def no_metric(options: Mapping[str, Any]) -> Reward:
    """Stand in for the loader of metrics where there is none."""
    raise InputError("a metric is asked for, and nothing here can load one; use rl-qg augment")


@dataclass(frozen=True)
class Work:
    """What filters are given to work with: the human questions, the seed, this process's device, and a function that
    loads the metric that some options describe.
    """

    gold: Examples | Sequence[Any] = ()
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    load_metric: Callable[[Mapping[str, Any]], Reward] = no_metric


class Filter:
    """One step of the funnel. Subclasses are dataclasses whose fields are the options.

    `name` is the key under which it stands in the settings; with a key of its own choice, its reasons begin with
    `prefix`.
    """

    name: str = ""
    prefix: str = ""
    reasons: ClassVar[tuple[str, ...]] = ()

    def faults(self) -> list[tuple[bool, str]]:
        """Pairs of whether an option cannot be, and what is wrong with it."""
        return []

    def measure(self, work: Work) -> CandidateMeasure | None:
        """The measure that the filter reads under its own name, if it reads one; asked of every process."""
        return None

    def begin(self, work: Work) -> None:
        """Before the first candidate comes."""

    def listed(self) -> tuple[str, ...]:
        """The reasons for which this filter, with its options, may drop a candidate."""
        return self.reasons


class RuleFilter(Filter):
    """Decides about each candidate by itself."""

    def rules(self) -> list[Rule]:
        """The rules, asked for once, after `begin`; the first that rejects a candidate gives the reason."""
        raise NotImplementedError

    def listed(self) -> tuple[str, ...]:
        """The reasons of the rules."""
        return tuple(rule.reason for rule in self.rules())


class ChoiceFilter(Filter):
    """Decides when it has seen every candidate that came to it; remembers numbers and hashes alone."""

    def see(self, place: int, record: Record) -> None:
        """Take note of one candidate."""
        raise NotImplementedError

    def dropped(self) -> Iterator[tuple[int, str]]:
        """Yield place and reason of each candidate to drop."""
        raise NotImplementedError


class Funnel:
    """Sends candidates through filters, in order; each is asked about what the ones before have left.

    `counts` holds for each reason, in the order of the filters, how many candidates it has dropped; `seen` and `kept`
    the candidates before and after.
    """

    def __init__(self, filters: Sequence[Filter], candidates: Candidates, work: Work) -> None:
        self.filters, self.candidates, self.work = list(filters), candidates, work
        self.counts: dict[str, int] = {}
        self._waiting: list[RuleFilter] = []  # rules that the next reading asks
        for one in self.filters:
            self.counts |= {one.prefix + reason: 0 for reason in one.listed()}

    @property
    def seen(self) -> int:
        """How many candidates came in."""
        return len(self.candidates)

    @property
    def kept(self) -> int:
        """How many are left so far."""
        return self.seen - sum(self.counts.values())

    def add(self, one: Filter) -> None:
        """Let the next filter decide: a rule at the next reading, a choice at once."""
        one.begin(self.work)
        if isinstance(one, RuleFilter):
            self._waiting.append(one)
        elif isinstance(one, ChoiceFilter):
            self.settle(one.see)
            for place, reason in one.dropped():
                self._drop(place, one.prefix + reason)

    def marks(self) -> bytes:
        """One byte for each candidate: 1 for those that are left when the waiting rules have decided."""
        self.settle()
        return self.candidates.marks()

    def settle(self, see: Callable[[int, Record], None] | None = None) -> None:
        """Read what is left, drop what the waiting rules reject, and show the others to `see`.

        Raises:
            InputError: with file and line, for a line that is no candidate, or lacks what a filter asks of it.
        """
        if see is None and not self._waiting and self.seen:
            return
        rules = [(one.prefix + rule.reason, rule.rejects) for one in self._waiting for rule in one.rules()]
        self._waiting = []
        for place, where, record in self.candidates.read("filter"):
            try:
                reason = next((reason for reason, rejects in rules if rejects(record)), None)
                if reason is not None:
                    self._drop(place, reason)
                elif see is not None:
                    see(place, record)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None

    def _drop(self, place: int, reason: str) -> None:
        self.candidates.drop(place)
        self.counts[reason] += 1
