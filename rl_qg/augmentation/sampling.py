"""Which of the kept candidates are added: a uniform sample, the best, or the best that differ from one another.

A sampler observes every kept candidate and keeps only numbers and hashes. What it selects depends on the seed and the
content of the candidates, not on their order in the file. A new sampler is added to `SAMPLERS`.
"""

import heapq
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Protocol

from rl_qg.augmentation.candidates import Ranking, Record, passage_hash64, question_key
from rl_qg.augmentation.near_duplicates import TokenSets, shingles, similarity
from rl_qg.data.examples import seeded_rank

INDEX_BITS = 64


class Sampler(Protocol):
    """Observes candidates, then selects."""

    def observe(self, index: int, record: Record) -> None:
        """Called for each candidate."""

    def selected(self) -> list[int]:
        """The indices of the selected candidates, at most the requested number."""


class UniformSampler:
    """The `count` candidates of lowest `seeded_rank`: a uniform sample; smaller samples are part of larger ones.

    The rank is that of passage and question, so it does not matter which of several equal candidates comes first. At
    most `count` candidates are held, each as one integer of rank and index, which needs a fifth of a tuple's memory.
    """

    def __init__(self, count: int, seed: int, by: str = "", relevance: float = 1.0) -> None:
        self.count, self.seed = count, seed
        self._heap: list[int] = []

    def observe(self, index: int, record: Record) -> None:
        """Keep the candidate while it is among the lowest."""
        rank = seeded_rank(self.seed, question_key(record["context"], record["question"]).hex())
        number = -(int.from_bytes(rank[:16]) << INDEX_BITS | index)
        if len(self._heap) < self.count:
            heapq.heappush(self._heap, number)
        elif self._heap:
            heapq.heappushpop(self._heap, number)

    def selected(self) -> list[int]:
        """The indices, in ascending order."""
        return sorted(-number & (1 << INDEX_BITS) - 1 for number in self._heap)


class BestSampler:
    """The `count` candidates with the highest measure or field `by`."""

    def __init__(self, count: int, seed: int, by: str = "logprob", relevance: float = 1.0) -> None:
        self.count = count
        self._ranking = Ranking(by, seed)

    def observe(self, index: int, record: Record) -> None:
        """Keeps 24 bytes."""
        self._ranking.add(index, record)

    def selected(self) -> list[int]:
        """The indices, in ascending order."""
        return sorted(self._ranking.indices[row] for row in self._ranking.best_first()[: self.count])


class DiverseSampler:
    """Maximal marginal relevance: repeatedly select the candidate of highest `relevance · r − (1 − relevance) · s`.

    r is its rank by `by` among all candidates, from 1 (best) down to 0; s is the highest Jaccard similarity of its
    words to a question about the same passage that is already selected. Questions about different passages have
    similarity 0. Source: Carbonell and Goldstein, "The use of MMR, diversity-based reranking for reordering documents
    and producing summaries" (1998).

    A selection changes only the scores of its passage, and only downwards. So a heap yields the next candidate, whose
    score is updated when it reaches the top: the result is that of comparing all candidates each time. Time: n log n,
    and the square of a passage's candidates; memory: about 200 bytes a candidate and eight a word.
    """

    def __init__(self, count: int, seed: int, by: str = "logprob", relevance: float = 0.5) -> None:
        self.count, self.relevance = count, relevance
        self._ranking, self._passages, self._sets = Ranking(by, seed), array("Q"), TokenSets()

    def observe(self, index: int, record: Record) -> None:
        """Keeps 40 bytes and eight a word."""
        self._ranking.add(index, record)
        self._passages.append(passage_hash64(record))
        self._sets.add(shingles(record["question"], 1))

    def selected(self) -> list[int]:
        """The indices, in ascending order."""
        return sorted(self._ranking.indices[row] for row in self._selected_rows())

    def _selected_rows(self) -> Iterator[int]:
        """Rows of the ranking in the order in which they are selected."""
        order = self._ranking.best_first().tolist()
        last = max(1, len(order) - 1)
        # The rank decides between equal scores.
        heap = [(-self.relevance * (1 - rank / last), rank) for rank in range(len(order))]
        selected: dict[int, list[int]] = defaultdict(list)
        compared, max_similarity = array("I", bytes(4 * len(order))), array("d", bytes(8 * len(order)))
        remaining = self.count
        while heap and remaining > 0:
            _, rank = heap[0]
            row = order[rank]
            same_passage = selected[self._passages[row]]
            if compared[rank] < len(same_passage):
                tokens = self._sets[row]
                added = (similarity(tokens, self._sets[other]) for other in same_passage[compared[rank] :])
                max_similarity[rank] = max(max_similarity[rank], *added)
                compared[rank] = len(same_passage)
                relevance = self.relevance * (1 - rank / last)
                heapq.heapreplace(heap, ((1 - self.relevance) * max_similarity[rank] - relevance, rank))
                continue
            heapq.heappop(heap)
            same_passage.append(row)
            remaining -= 1
            yield row


SAMPLERS: dict[str, Callable[[int, int, str, float], Sampler]] = {
    "uniform": UniformSampler,
    "reward": BestSampler,
    "diverse": DiverseSampler,
}
