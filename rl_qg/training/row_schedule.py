"""Which examples each update takes, where a stage mixes gold examples with passages without questions, or makes
several updates from one batch. Two pools are then read in one stage, and a pass has another length in each stage, so
the rows of the whole run are one schedule, and the library sees a single epoch.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import chain, count, islice, pairwise
from random import Random

import torch
from torch.utils.data import Sampler

from rl_qg.data.examples import seeded_rank
from rl_qg.runtime.errors import InputError

GROUP = 50  # updates, within which examples are sorted by length


def exact_share(share: float | None, gold: int, unlabelled: int) -> Fraction:
    """The share of the self-critical stage's examples that have no question, from `scst.unlabelled_share` (None: by
    the numbers of examples with a question and without one).
    """
    if share is None:
        return Fraction(unlabelled, max(1, gold + unlabelled))
    if share > 0 and not unlabelled:
        raise InputError(
            f"scst.unlabelled_share={share}: there are no passages without questions; name some by data.unlabelled or "
            "data.labelled_fraction, or leave the share null"
        )
    if 0 < share < 1 and not gold:
        raise InputError(f"scst.unlabelled_share={share}: there are no gold questions; set it to 1 or null")
    return Fraction(str(share))


@dataclass(frozen=True)
class RowSchedule:
    """The rows of every update of a run. Rows below `gold` are gold examples, the next `unlabelled` ones have no
    question. Every update has `update_size` rows, whatever the batches and processes are.

    The cross-entropy stage reads the gold examples in seeded permutations, and so does the self-critical stage with
    each pool. There `share` of the rows, evenly spread, have no question: of the first n rows, the whole part of
    n · share. A pass of this stage is one over the passages without questions, or over gold if the share is 0.
    """

    gold: int  # size of the pool
    unlabelled: int
    share: Fraction  # from `exact_share`
    update_size: int  # examples of one update, over all accumulated batches and processes
    ce_epochs: float  # passes
    scst_epochs: float
    max_steps: int  # updates of both stages; 0 or less: as many as the passes need
    updates_per_rollout: int  # consecutive updates of the self-critical stage with the same rows
    seed: int  # of the permutations
    lengths: Sequence[int] = ()  # of the gold examples; given, updates of the first stage have similar ones

    @cached_property
    def boundary(self) -> int:
        if self.max_steps > 0:
            return round(self.max_steps * self.ce_epochs / (self.ce_epochs + self.scst_epochs))
        return math.ceil(Fraction(str(self.ce_epochs)) * self.gold / self.update_size)

    @cached_property
    def updates(self) -> int:
        if self.max_steps > 0:
            return self.max_steps
        rollouts = math.ceil(Fraction(str(self.scst_epochs)) * self._rows_of_a_pass / self.update_size)
        repeats = self.updates_per_rollout
        return (self.boundary // repeats + rollouts) * repeats if rollouts else self.boundary

    @property
    def _rows_of_a_pass(self) -> Fraction:
        """Rows of the self-critical stage in which one pass is made."""
        return self.unlabelled / self.share if self.share else Fraction(self.gold)

    def rollout_of(self, step: int) -> int:
        """The number of the rollout, from 0, that the update completing `step` of the self-critical stage learns from.

        New rollouts are made after steps that are multiples of `updates_per_rollout`, and at the stage's start.
        """
        return (step - 1) // self.updates_per_rollout - self.boundary // self.updates_per_rollout

    def ends_rollout(self, step: int) -> bool:
        """Whether the update after `step` learns from other rows."""
        return step <= self.boundary or step == self.updates or self.rollout_of(step) != self.rollout_of(step + 1)

    def passes(self, step: int) -> float:
        """Passes made after `step` updates: over the gold examples, then those of the self-critical stage."""
        size, repeats = self.update_size, self.updates_per_rollout
        ce, scst = self.ce_epochs, self.scst_epochs
        if self.max_steps > 0:
            ce = self.boundary * size / max(1, self.gold)
            scst = (self.updates - self.boundary) * size / repeats / float(self._rows_of_a_pass)
        if step <= self.boundary:
            return ce * step / max(1, self.boundary)
        return ce + scst * (step - self.boundary) / (self.updates - self.boundary)

    def _cross_entropy_updates(self, gold: Iterator[int]) -> Iterator[list[int]]:
        size, done = self.update_size, 0
        while done < self.boundary:
            # Sorted are the rows of a group of updates within one pass: none has an example twice.
            whole = (self.gold - done * size % self.gold) // size
            number = max(1, min(GROUP, whole, self.boundary - done)) if self.lengths else 1
            rows = list(islice(gold, number * size))
            if self.lengths:
                rows.sort(key=self.lengths.__getitem__)
            updates = [rows[first : first + size] for first in range(0, len(rows), size)]
            Random(f"{self.seed} {done}").shuffle(updates)
            yield from updates
            done += number

    def __iter__(self) -> Iterator[list[int]]:
        size = self.update_size
        gold = _endless(self.gold, 0, self.seed, "gold")
        unlabelled = _endless(self.unlabelled, self.gold, self.seed, "unlabelled")
        yield from self._cross_entropy_updates(gold)
        rows, last = list[int](), -1
        for step in range(self.boundary + 1, self.updates + 1):
            if (rollout := self.rollout_of(step)) != last:
                last, first = rollout, rollout * size
                # Of the first n rows of the stage, floor(n · share) have no question.
                without = [math.floor(n * self.share) for n in range(first, first + size + 1)]
                rows = [next(unlabelled if after > before else gold) for before, after in pairwise(without)]
            yield rows


class ScheduleSampler(Sampler[int]):
    """The rows of a schedule one by one. The library's batches of them are the same for any number of processes."""

    def __init__(self, schedule: RowSchedule) -> None:
        self.schedule = schedule

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.schedule)

    def __len__(self) -> int:
        return self.schedule.updates * self.schedule.update_size


def _endless(size: int, first: int, seed: int, name: str) -> Iterator[int]:
    """The numbers from `first` to `first + size - 1` in a new seeded order in each pass, without end."""
    for number in count(1) if size else ():
        generator = torch.Generator().manual_seed(int.from_bytes(seeded_rank(seed, f"{name} {number}")[:7], "big"))
        yield from (torch.randperm(size, generator=generator) + first).tolist()
