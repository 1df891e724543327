"""Near duplicates of questions: by the Jaccard similarity of their word sets, or by the cosine of their vectors.

Source: Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (2007), and Chaudhuri, Ganti and Kaushik,
"A primitive operator for similarity joins in data cleaning" (2006): two sets as similar as the threshold share a token
among the rarest few of each (the prefix filter), so only sets that share one are compared. Only among millions of
questions about different passages the search is by MinHash (below).
"""

import math
import os
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import combinations
from tempfile import TemporaryFile
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rl_qg.augmentation.candidates import Ranking, Record, grouped, passage_hash64
from rl_qg.augmentation.funnel import FilterResources, SetFilter
from rl_qg.runtime.bars import ProgressBar
from rl_qg.text.words import counted, normalised_words

WITHIN = ("passage", "all")
MINHASH = "compared by MinHash"
HELD = 1 << 22  # tokens in memory: 32 MB
AT_ONCE = 1 << 18  # tokens that are hashed together


class TokenSets:
    """Sets of token hashes, none of them empty: eight bytes a set in memory, and eight a token, in memory the first
    ones, then in a temporary file (in the folder `TMPDIR`).
    """

    def __init__(self) -> None:
        self._tokens, self._bounds = array("Q"), array("Q", [0])
        self._file: Any = None
        self._written = 0  # tokens in the file

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def __getitem__(self, index: int) -> "array[int]":
        return self._between(self._bounds[index], self._bounds[index + 1])

    def add(self, texts: Iterable[str]) -> None:
        self.append({int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) for text in texts})

    def append(self, tokens: Iterable[int]) -> None:
        self._tokens.extend(tokens)
        self._bounds.append(self._written + len(self._tokens))
        if len(self._tokens) >= HELD:
            self._file = self._file or TemporaryFile(buffering=0)  # noqa: SIM115 (as long as the sets)
            self._file.write(self._tokens.tobytes())
            self._written += len(self._tokens)
            self._tokens = array("Q")

    def reduced(self, reduce: Callable[[NDArray[np.uint64], NDArray[np.int64]], NDArray[np.uint64]]) -> Any:
        """A number for each set, (len,): what a function makes of the tokens of many sets, and where each begins."""
        bounds, parts, first = np.asarray(self._bounds).astype(np.int64), [np.empty(0, dtype=np.uint64)], 0
        while first < len(self):
            last = max(first + 1, int(np.searchsorted(bounds, bounds[first] + AT_ONCE, side="right")) - 1)
            tokens = np.asarray(self._between(int(bounds[first]), int(bounds[last])))
            parts.append(reduce(tokens, bounds[first:last] - bounds[first]))
            first = last
        return np.concatenate(parts)

    def _between(self, start: int, end: int) -> "array[int]":
        if start >= self._written:
            return self._tokens[start - self._written : end - self._written]
        from_file = array("Q", os.pread(self._file.fileno(), 8 * (min(end, self._written) - start), 8 * start))
        return from_file + self._tokens[: max(0, end - self._written)]


def shingles(question: str, size: int) -> set[str]:
    """The n-grams of `size` words of a question; all its words if it has fewer."""
    words = normalised_words(question)
    return {" ".join(words[i : i + size]) for i in range(max(1, len(words) - size + 1))}


def similarity(first: Iterable[Hashable], second: Iterable[Hashable]) -> float:
    """Jaccard similarity of two non-empty sets: size of the intersection over size of the union."""
    first, second = set(first), set(second)
    shared = len(first & second)
    return shared / (len(first) + len(second) - shared)


def by_rarity(sets: Iterable[Iterable[Hashable]]) -> list["array[int]"]:
    """Each set as the sorted numbers of its tokens, of which those that occur in few sets have the lowest."""
    sets = [*sets]
    counts = Counter(token for tokens in sets for token in tokens)
    numbers = {token: number for number, token in enumerate(sorted(counts, key=counts.__getitem__))}
    return [array("I", sorted(numbers[token] for token in tokens)) for tokens in sets]


def similar_to_earlier(
    sets: Iterable[Iterable[Hashable]], threshold: float, fixed: int = 0
) -> Iterator[tuple[int, int]]:
    """Yield (number, lowest number of the similar ones) of each set that is similar to an earlier set which was itself
    not yielded. Sets are similar from the Jaccard similarity `threshold` (above 0) on. Those with numbers below
    `fixed` are never yielded.
    """
    index: dict[int, array[int]] = defaultdict(lambda: array("I"))
    ordered = by_rarity(sets)
    for number, tokens in enumerate(ordered):
        prefix = tokens[: len(tokens) - math.ceil(threshold * len(tokens) - 1e-9) + 1]
        if number >= fixed:
            shares_token = {other for token in prefix if token in index for other in index[token]}
            smallest, largest = threshold * len(tokens) - 1e-9, len(tokens) / threshold + 1e-9  # of a similar set
            in_range = (other for other in shares_token if smallest <= len(ordered[other]) <= largest)
            similar = [other for other in in_range if similarity(tokens, ordered[other]) >= threshold - 1e-9]
            if similar:
                yield number, min(similar)
                continue
        for token in prefix:
            index[token].append(number)


# --- MinHash, for more sets than the exact search can compare
#
# Sources: Broder, "On the resemblance and containment of documents" (1997): under a random hash two sets have the same
# lowest hash with the probability of their Jaccard similarity s. Indyk and Motwani, "Approximate nearest neighbors"
# (1998): two sets whose lowest hashes are equal in all `rows` of one of `BANDS` bands are compared, which is the case
# with probability 1 - (1 - s^rows)^BANDS. They are compared exactly: pairs are missed, but none is wrong.

BANDS, MISSED, MOST_ROWS = 64, 1e-3, 16
PAIR = 32  # bits of each number of a pair


def rows_of_bands(threshold: float) -> tuple[int, float]:
    """The most rows (at least 1) with which at most `MISSED` of pairs at the threshold are missed, and the share."""
    rows = MOST_ROWS
    while rows > 1 and (1 - threshold**rows) ** BANDS > MISSED:
        rows -= 1
    return rows, (1 - threshold**rows) ** BANDS


def similar_by_minhash(sets: TokenSets, threshold: float, fixed: int = 0) -> Iterator[tuple[int, int]]:
    """As `similar_to_earlier`, but for the pairs that are missed; of similar sets below `fixed` it names any.

    Memory: 40 bytes a set and 16 for each similar pair.
    """
    # Of equal sets the first stands for the others: what is similar to one is similar to all.
    _, first, inverse = np.unique(sets.reduced(np.add.reduceat), return_index=True, return_inverse=True)
    first_of = first[inverse]
    different = np.sort(first)
    pairs = np.empty(0, dtype=np.uint64)
    rng = np.random.default_rng(0)
    for _ in ProgressBar(range(BANDS), desc="near duplicates", unit="band"):
        hashes = rng.integers(1 << 63, size=(rows_of_bands(threshold)[0], 2), dtype=np.uint64) * 2 + 1

        def band(tokens: NDArray[np.uint64], starts: NDArray[np.int64], hashes: Any = hashes) -> NDArray[np.uint64]:
            key = np.zeros(len(starts), dtype=np.uint64)
            for factor, added in hashes:
                key = key * factor + np.minimum.reduceat(tokens * factor + added, starts)
            return key

        found = array("Q")
        for group in grouped(sets.reduced(band)[different], smallest=2):
            found.extend(b << PAIR | a for a, b in combinations(different[group].tolist(), 2))
        new = np.setdiff1d(np.asarray(found), pairs, assume_unique=True)
        both = ((sets[pair >> PAIR], sets[pair & (1 << PAIR) - 1]) for pair in new.tolist())
        similar = [similarity(*tokens) >= threshold - 1e-9 for tokens in both]
        pairs = np.union1d(pairs, new[np.array(similar, dtype=bool)])
    witness: dict[int, int] = {}  # of each set that is yielded, in ascending order of pairs: by the later, the earlier
    for pair in pairs.tolist():
        later, earlier = pair >> PAIR, pair & (1 << PAIR) - 1
        if later >= fixed and later not in witness and earlier not in witness:
            witness[later] = earlier
    for number in range(fixed, len(sets)):
        one = int(first_of[number])
        if one in witness or one != number:
            yield number, witness.get(one, one)


class ComparesQuestions(SetFilter):
    """Drops a question that is similar to a human one, or to one that is better `by` a measure or field."""

    gold: bool
    by: str

    def active_reasons(self) -> tuple[str, ...]:
        return self.reasons if self.gold else self.reasons[1:]

    def prepare(self, resources: FilterResources) -> None:
        self._groups, self._ranking = array("Q"), Ranking(self.by, resources.seed)
        if self.gold:
            for example in resources.gold:
                self._add({"context": example.context, "question": example.question})
        self._gold = len(self._groups)

    def observe(self, index: int, record: Record) -> None:
        self._ranking.add(index, record)
        self._add(record)

    def dropped(self) -> Iterator[tuple[int, str]]:
        # The questions of each group: human ones, then candidates from best to worst.
        order = np.concatenate([np.arange(self._gold), self._gold + self._ranking.best_first()])
        for group in ProgressBar([*grouped(np.asarray(self._groups)[order], 2)], desc=self.name, unit="passage"):
            numbers = order[group]
            gold = int((numbers < self._gold).sum())
            if gold == len(numbers):
                continue
            for number, other in self._similar(numbers.tolist(), gold):
                yield self._ranking.indices[numbers[number] - self._gold], self.reasons[other >= gold]

    def _add(self, record: Record) -> None:
        """Keep a question, and the number of its group."""
        raise NotImplementedError

    def _similar(self, numbers: Sequence[int], gold: int) -> Iterator[tuple[int, int]]:
        """As `similar_to_earlier`, of the questions with these numbers, the first `gold` of which are human."""
        raise NotImplementedError


@dataclass
class NearDuplicates(ComparesQuestions):
    """Drops a question whose words are nearly those of a human question or of a better candidate.

    Args:
        threshold: Jaccard similarity of the word sets (shared words over all words of both) from which two questions
            are near duplicates; at 1.0 they have the same words in any order.
        within: compare questions about the same passage (`passage`), or all questions (`all`).
        gold: compare with the human questions too.
        shingle: compare n-grams of this many words instead of single words; word order then matters.
        by: the measure or field by which the better of two candidates is kept.
        exact_up_to: among more questions than that (of one passage, or of all) near duplicates are searched by
            MinHash, which misses some (at most 0.1 % of the pairs at the threshold, from 0.1 on; fewer above).
    """

    threshold: float = 0.8
    within: str = "passage"
    gold: bool = True
    shingle: int = 1
    by: str = "logprob"
    exact_up_to: int = 1_000_000
    reasons: ClassVar[tuple[str, ...]] = ("near duplicate of gold", "near duplicate of candidate")

    def option_errors(self) -> list[tuple[bool, str]]:
        return [
            (not 0 < self.threshold <= 1, f"threshold={self.threshold} is not in (0, 1]"),
            (self.within not in WITHIN, f"within={self.within} is not one of {', '.join(WITHIN)}"),
            (self.shingle < 1, f"shingle={self.shingle} must be at least 1"),
            (self.exact_up_to < 0, f"exact_up_to={self.exact_up_to} must not be negative"),
        ]

    @property
    def compares_passages(self) -> bool:
        return self.within == "all"

    def prepare(self, resources: FilterResources) -> None:
        self._sets = TokenSets()
        super().prepare(resources)

    def notes(self) -> list[str]:
        if not self.noted[MINHASH]:
            return []
        rows, missed = rows_of_bands(self.threshold)
        return [
            f"{self.name or 'near_duplicates'}: {counted(self.noted[MINHASH], 'question')} were compared by MinHash "
            f"({BANDS} bands of {rows}): of the pairs just at the threshold {missed:.2%} were missed, as expected, of "
            "more similar ones fewer, and no other pair counts; a higher exact_up_to compares all, with more memory"
        ]

    def _similar(self, numbers: Sequence[int], gold: int) -> Iterator[tuple[int, int]]:
        if len(numbers) <= self.exact_up_to:
            return similar_to_earlier(map(self._sets.__getitem__, numbers), self.threshold, gold)
        self.noted[MINHASH] += len(numbers)
        in_order = TokenSets()
        for number in numbers:
            in_order.append(self._sets[number])
        return similar_by_minhash(in_order, self.threshold, gold)

    def _add(self, record: Record) -> None:
        self._sets.add(shingles(record["question"], self.shingle))
        self._groups.append(passage_hash64(record) if self.within == "passage" else 0)


@dataclass
class SameMeaning(ComparesQuestions):
    """Drops a question that means nearly what a human one about its passage does, or a better candidate: by the cosine
    of their vectors, the means of an encoder's last states (Reimers and Gurevych, "Sentence-BERT", EMNLP 2019). The
    questions of a passage are embedded by themselves, so that what is dropped does not depend on other passages.

    Args:
        encoder: folder or Hub name of an encoder that was trained on sentences.
        threshold: cosine from which two questions mean the same.
        gold, by: as in `NearDuplicates`.
    """

    encoder: str = "sentence-transformers/all-MiniLM-L6-v2"
    threshold: float = 0.9
    gold: bool = True
    by: str = "logprob"
    reasons: ClassVar[tuple[str, ...]] = ("means what gold means", "means what a candidate means")

    def option_errors(self) -> list[tuple[bool, str]]:
        return [(not 0 < self.threshold <= 1, f"threshold={self.threshold} is not in (0, 1]")]

    def prepare(self, resources: FilterResources) -> None:
        from rewards.embedding.token_embeddings import SentenceEncoder  # late: PyTorch and transformers
        from rewards.frozen import FrozenModel

        model = FrozenModel(self.encoder, "encoder", device=resources.device, dtype="float32")
        self._encoder = SentenceEncoder(model, batch_size=32, name=self.name)
        self._texts = list[str]()
        super().prepare(resources)

    def _similar(self, numbers: Sequence[int], gold: int) -> Iterator[tuple[int, int]]:
        vectors, kept = self._encoder.vectors([self._texts[number] for number in numbers]).numpy(), list[int]()
        for number, vector in enumerate(vectors):
            cosines = vectors[kept] @ vector
            if number >= gold and len(kept) and cosines.max() >= self.threshold - 1e-6:  # float32
                yield number, kept[int(cosines.argmax())]
            else:
                kept.append(number)

    def _add(self, record: Record) -> None:
        self._texts.append(record["question"])
        self._groups.append(passage_hash64(record))
