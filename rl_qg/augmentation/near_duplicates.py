"""Near duplicates of questions: exact search for pairs of word sets with high Jaccard similarity.

Source: Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (2007), and Chaudhuri, Ganti and Kaushik,
"A primitive operator for similarity joins in data cleaning" (2006): two sets as similar as the threshold share a token
among the rarest few of each (the prefix filter), so only sets that share one are compared. A question needs eight
bytes a word; MinHash with the usual 128 numbers would need at least 512, and miss some pairs.
"""

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import ClassVar

import numpy as np

from rl_qg.augmentation.candidates import Ranking, Record, passage_hash64
from rl_qg.augmentation.funnel import FilterResources, SetFilter
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
        return self.bounds[index + 1] - self.bounds[index]

    def add(self, texts: Iterable[str]) -> None:
        self.tokens.extend({int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) for text in texts})
        self.bounds.append(len(self.tokens))

    def sort_by_rarity(self) -> None:
        """Sort the tokens of each set, those that occur in few sets first; the order is the same for all sets."""
        if not len(self.tokens):
            return
        flat = np.array(self.tokens, dtype=np.uint64)
        _, inverse, counts = np.unique(flat, return_inverse=True, return_counts=True)
        bounds = np.array(self.bounds, dtype=np.int64)
        owners = np.repeat(np.arange(len(self)), bounds[1:] - bounds[:-1])
        order = np.lexsort((inverse, counts[inverse], owners))
        self.tokens = array("Q", flat[order].tobytes())


def shingles(question: str, size: int) -> set[str]:
    """The n-grams of `size` words of a question; all its words if it has fewer."""
    words = normalised_words(question)
    return {" ".join(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}


def similarity(first: Iterable[int], second: Iterable[int]) -> float:
    """Jaccard similarity of two non-empty sets: size of the intersection over size of the union."""
    first, second = set(first), set(second)
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


def similar_to_earlier(
    sets: TokenSets, order: Iterable[int], threshold: float, fixed: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield (number, lowest number of the similar ones) of each set that is similar to an earlier set which was itself
    not yielded; `order` has the numbers of the sets in the order of comparison. Sets are similar from the Jaccard
    similarity `threshold` (above 0) on; they are sorted by rarity. Those with numbers below `fixed` are never yielded.
    """
    index: dict[int, array[int]] = defaultdict(lambda: array("Q"))
    for number in order:
        tokens = sets[number]
        prefix = tokens[: len(tokens) - math.ceil(threshold * len(tokens) - 1e-9) + 1]
        if number >= fixed:
            shares_token = {other for token in prefix if token in index for other in index[token]}
            smallest, largest = threshold * len(tokens) - 1e-9, len(tokens) / threshold + 1e-9  # of a similar set
            in_range = (other for other in shares_token if smallest <= sets.size(other) <= largest)
            similar = [other for other in in_range if similarity(tokens, sets[other]) >= threshold - 1e-9]
            if similar:
                yield number, min(similar)
                continue
        for token in prefix:
            index[token].append(number)


@dataclass
class NearDuplicates(SetFilter):
    """Drops a question whose words are nearly those of a human question or of a better candidate.

    Args:
        threshold: Jaccard similarity of the word sets (shared words over all words of both) from which two questions
            are near duplicates; at 1.0 they have the same words in any order.
        within: compare questions about the same passage (`passage`), or all questions (`all`).
        gold: compare with the human questions too.
        shingle: compare n-grams of this many words instead of single words; word order then matters.
        by: the measure or field by which the better of two candidates is kept.
    """

    threshold: float = 0.8
    within: str = "passage"
    gold: bool = True
    shingle: int = 1
    by: str = "logprob"
    reasons: ClassVar[tuple[str, ...]] = ("near duplicate of gold", "near duplicate of candidate")

    def option_errors(self) -> list[tuple[bool, str]]:
        return [
            (not 0 < self.threshold <= 1, f"threshold={self.threshold} is not in (0, 1]"),
            (self.within not in WITHIN, f"within={self.within} is not one of {', '.join(WITHIN)}"),
            (self.shingle < 1, f"shingle={self.shingle} must be at least 1"),
        ]

    def active_reasons(self) -> tuple[str, ...]:
        return self.reasons if self.gold else self.reasons[1:]

    def prepare(self, resources: FilterResources) -> None:
        self._sets, self._groups, self._ranking = TokenSets(), array("Q"), Ranking(self.by, resources.seed)
        if self.gold:
            for example in resources.gold:
                self._add({"context": example.context, "question": example.question})
        self._gold = len(self._sets)

    def observe(self, index: int, record: Record) -> None:
        self._ranking.add(index, record)
        self._add(record)

    def dropped(self) -> Iterator[tuple[int, str]]:
        self._sets.sort_by_rarity()
        # The sets of each group: human questions, then candidates from best to worst.
        order = np.concatenate([np.arange(self._gold), self._gold + self._ranking.best_first()])
        groups = np.array(self._groups, dtype=np.uint64)[order]
        order = order[np.argsort(groups, kind="stable")]
        for group in np.split(order, np.flatnonzero(np.diff(np.sort(groups))) + 1):
            for number, other in similar_to_earlier(self._sets, group.tolist(), self.threshold, self._gold):
                yield self._ranking.indices[number - self._gold], self.reasons[other >= self._gold]

    def _add(self, record: Record) -> None:
        self._sets.add(shingles(record["question"], self.shingle))
        self._groups.append(passage_hash64(record) if self.within == "passage" else 0)
