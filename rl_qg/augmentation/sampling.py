"""Which of the kept candidates are added: a uniform sample, the best, or the best that differ from one another.

A sampler sees every kept candidate and remembers numbers and hashes. What it chooses hangs on the seed and on what the
candidates say, not on where they stand.
"""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Protocol

from rl_qg.augmentation.funnel import question_key
from rl_qg.augmentation.near_duplicates import TokenSets, shingles, similarity
from rl_qg.augmentation.ranking import Ranking, Record, passage_key
from rl_qg.data.examples import seeded_rank

PLACE_BITS = 64


class Sampler(Protocol):
    """Sees candidates, then chooses."""

    def see(self, place: int, record: Record) -> None:
        """Take note of one candidate."""

    def chosen(self) -> list[int]:
        """The places of those that are taken, at most as many as were asked for."""


class Uniform:
    """The `count` candidates of lowest `seeded_rank`: a uniform sample, whose smaller ones are part of larger ones.

    The rank is that of passage and question: it does not matter which of several equal candidates stood first. No
    more than `count` are held, each as one number of rank and place, a fifth of the memory of a tuple.
    """

    def __init__(self, count: int, seed: int, by: str = "", relevance: float = 1.0) -> None:
        self.count, self.seed = count, seed
        self._heap: list[int] = []

    def see(self, place: int, record: Record) -> None:
        """Keep the candidate while it is among the lowest."""
        rank = seeded_rank(self.seed, question_key(record["context"], record["question"]).hex())
        number = -(int.from_bytes(rank[:16]) << PLACE_BITS | place)
        if len(self._heap) < self.count:
            heapq.heappush(self._heap, number)
        elif self._heap:
            heapq.heappushpop(self._heap, number)

    def chosen(self) -> list[int]:
        """The places, in ascending order."""
        return sorted(-number & (1 << PLACE_BITS) - 1 for number in self._heap)


class Best:
    """The `count` candidates with the highest measure or field `by`."""

    def __init__(self, count: int, seed: int, by: str = "logprob", relevance: float = 1.0) -> None:
        self.count = count
        self._ranking = Ranking(by, seed)

    def see(self, place: int, record: Record) -> None:
        """Remember 24 bytes."""
        self._ranking.add(place, record)

    def chosen(self) -> list[int]:
        """The places, in ascending order."""
        return sorted(self._ranking.places[index] for index in self._ranking.best_first()[: self.count])


class Diverse:
    """Maximal marginal relevance: one after the other, the candidate of highest
    `relevance · r − (1 − relevance) · s`.

    r is its place by `by` among all, from 1 (best) down to 0; s the highest Jaccard similarity of its words with a
    question about the same passage that was taken before; questions about different passages count as different.
    Source: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing
    summaries" (1998).

    Taking one changes the scores of its passage alone, and only downwards, so a heap yields the next one and brings it
    up to date when it comes to the top: the outcome is that of comparing all candidates each time. Time: n log n, and
    the square of a passage's candidates; memory: about 200 bytes a candidate and eight a word.
    """

    def __init__(self, count: int, seed: int, by: str = "logprob", relevance: float = 0.5) -> None:
        self.count, self.relevance = count, relevance
        self._ranking, self._passages, self._sets = Ranking(by, seed), array("Q"), TokenSets()

    def see(self, place: int, record: Record) -> None:
        """Remember 40 bytes and eight a word."""
        self._ranking.add(place, record)
        self._passages.append(passage_key(record))
        self._sets.add(shingles(record["question"], 1))

    def chosen(self) -> list[int]:
        """The places, in ascending order."""
        return sorted(self._ranking.places[index] for index in self._in_turn())

    def _in_turn(self) -> Iterator[int]:
        """Indices of the candidates in the order in which they are taken."""
        order = self._ranking.best_first().tolist()
        last = max(1, len(order) - 1)
        # The rank decides between equal scores.
        heap = [(-self.relevance * (1 - rank / last), rank) for rank in range(len(order))]
        taken: dict[int, list[int]] = defaultdict(list)
        compared, likeness = array("I", bytes(4 * len(order))), array("d", bytes(8 * len(order)))
        left = self.count
        while heap and left > 0:
            _, rank = heap[0]
            index = order[rank]
            others = taken[self._passages[index]]
            if compared[rank] < len(others):
                own = self._sets[index]
                news = (similarity(own, self._sets[other]) for other in others[compared[rank] :])
                likeness[rank] = max(likeness[rank], *news)
                compared[rank] = len(others)
                relevant = self.relevance * (1 - rank / last)
                heapq.heapreplace(heap, ((1 - self.relevance) * likeness[rank] - relevant, rank))
                continue
            heapq.heappop(heap)
            others.append(index)
            left -= 1
            yield index


SAMPLERS: dict[str, Callable[[int, int, str, float], Sampler]] = {
    "uniform": Uniform,
    "reward": Best,
    "diverse": Diverse,
}
