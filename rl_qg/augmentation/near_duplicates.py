"""Candidates that say nearly what another one says: Jaccard similarity of word sets, found exactly.

Source: Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (2007), and Chaudhuri, Ganti and Kaushik,
"A primitive operator for similarity joins in data cleaning" (2006): two sets as similar as the threshold share a token
among the rarest few of each (the prefix filter), so only sets that meet there are compared. A question costs eight
bytes a word; MinHash with its customary 128 numbers would cost 512 and more, and miss some pairs.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rl_qg.augmentation.funnel import ChoiceFilter, Record, Work
from rl_qg.augmentation.ranking import Ranking, passage_key
from rl_qg.text.words import normalised_words

WITHIN = ("passage", "all")


class TokenSets:
    """Sets of token hashes in one flat array: eight bytes a token and eight a set."""

    def __init__(self) -> None:
        self.tokens, self.bounds = array("Q"), array("Q", [0])

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def __getitem__(self, index: int) -> "array[int]":
        return self.tokens[self.bounds[index] : self.bounds[index + 1]]

    def size(self, index: int) -> int:
        """How many tokens a set has."""
        return self.bounds[index + 1] - self.bounds[index]

    def add(self, texts: Iterable[str]) -> None:
        """Take in one set."""
        self.tokens.extend({int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) for text in texts})
        self.bounds.append(len(self.tokens))

    def sort_by_rarity(self) -> None:
        """Put the tokens of each set in order, those that few sets have first; for all sets the same order."""
        if not len(self.tokens):
            return
        flat = np.array(self.tokens, dtype=np.uint64)
        _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
        bounds = np.array(self.bounds, dtype=np.int64)
        owners = np.repeat(np.arange(len(self)), bounds[1:] - bounds[:-1])
        order = np.lexsort((inverse, counts[inverse], owners))
        self.tokens = array("Q", flat[order].tobytes())


def shingles(question: str, size: int) -> set[str]:
    """The runs of `size` words of a question, or the whole of one that is shorter."""
    found = normalised_words(question)
    return {" ".join(found[i : i + size]) for i in range(max(1, len(found) - size + 1))}


def similarity(first: Iterable[int], second: Iterable[int]) -> float:
    """Jaccard similarity of two sets, neither of them empty: what they share over all that they have."""
    one, other = set(first), set(second)
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared)


def similar_to_earlier(
    sets: TokenSets, order: Iterable[int], threshold: float, fixed: int = 0
) -> Iterator[tuple[int, int]]:
    """Go through sets in `order`, and yield (number, lowest number of those it is like) of each whose Jaccard
    similarity with one before, which was not yielded itself, is at least `threshold` (above 0).

    `sets` are sorted by rarity. Numbers below `fixed` are never yielded.
    """
    index: dict[int, array[int]] = defaultdict(lambda: array("Q"))
    for number in order:
        tokens = sets[number]
        prefix = tokens[: len(tokens) - math.ceil(threshold * len(tokens) - 1e-9) + 1]
        if number >= fixed:
            met = {other for token in prefix if token in index for other in index[token]}
            least, most = threshold * len(tokens) - 1e-9, len(tokens) / threshold + 1e-9  # sizes that can be alike
            fitting = (other for other in met if least <= sets.size(other) <= most)
            alike = [other for other in fitting if similarity(tokens, sets[other]) >= threshold - 1e-9]
            if alike:
                yield number, min(alike)
                continue
        for token in prefix:
            index[token].append(number)


@dataclass
class NearDuplicates(ChoiceFilter):
    """Drops a question whose words are nearly those of a human one or of a better candidate.

    Args:
        threshold: Jaccard similarity of the word sets (shared words over all words of both) from which two are alike;
            at 1.0 the same words in any order.
        within: compare questions about the same passage, or all.
        gold: compare with the human questions too.
        shingle: compare runs of so many words instead of single ones; order then counts.
        by: what makes a candidate the better of two.
    """

    threshold: float = 0.8
    within: str = "passage"
    gold: bool = True
    shingle: int = 1
    by: str = "logprob"
    reasons: ClassVar[tuple[str, ...]] = ("near duplicate of gold", "near duplicate of candidate")

    def faults(self) -> list[tuple[bool, str]]:
        """Options out of their range."""
        return [
            (not 0 < self.threshold <= 1, f"threshold={self.threshold} is not in (0, 1]"),
            (self.within not in WITHIN, f"within={self.within} is not one of {', '.join(WITHIN)}"),
            (self.shingle < 1, f"shingle={self.shingle} must be at least 1"),
        ]

    def listed(self) -> tuple[str, ...]:
        """Without gold the second alone."""
        return self.reasons if self.gold else self.reasons[1:]

    def begin(self, work: Work) -> None:
        """Remember the words of the human questions, eight bytes each."""
        self._sets, self._groups, self._ranking = TokenSets(), array("Q"), Ranking(self.by, work.seed)
        if self.gold:
            for example in work.gold:
                self._add({"context": example.context, "question": example.question})
        self._gold = len(self._sets)

    def see(self, place: int, record: Record) -> None:
        """Remember eight bytes a word and 40 a candidate."""
        self._ranking.add(place, record)
        self._add(record)

    def dropped(self) -> Iterator[tuple[int, str]]:
        """From the best candidate to the worst, behind the human questions."""
        self._sets.sort_by_rarity()
        for group in self._by_group():
            for number, other in similar_to_earlier(self._sets, group.tolist(), self.threshold, self._gold):
                yield self._ranking.places[number - self._gold], self.reasons[other >= self._gold]

    def _add(self, record: Record) -> None:
        self._sets.add(shingles(record["question"], self.shingle))
        self._groups.append(passage_key(record) if self.within == "passage" else 0)

    def _by_group(self) -> Iterator[NDArray[np.int64]]:
        """The numbers of the sets of each group: human questions, then candidates from best to worst."""
        order = np.concatenate([np.arange(self._gold), self._gold + self._ranking.best_first()])
        groups = np.array(self._groups, dtype=np.uint64)[order]
        order = order[np.argsort(groups, kind="stable")]
        ends = np.flatnonzero(np.diff(np.sort(groups))) + 1
        yield from np.split(order, ends)
