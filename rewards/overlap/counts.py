"""Counting what candidates and references share, for many rows at once.

N-grams get numbers, so that a block of rows is counted by a few sorts of integer arrays instead of a dictionary per
text. Every distinct text is counted once, however many rows it belongs to.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Tokens = Sequence[Hashable]
Counts = NDArray[np.int64]

LARGEST = 1 << 62
"""Bound on the numbers of n-grams."""

KEPT_MASKS = 1 << 13
"""How many references `lcs_length` remembers."""

KEPT_WORDS = 256
"""Words of the longest one of them: its table has an integer of a bit a word for each distinct word."""


@dataclass(frozen=True)
class Overlap:
    """What rows have in common with their references, for n = 1 .. order."""

    matches: Counts
    """N-grams of the candidate that are in a reference, [rows, order]; each counts at most as often as in the
    reference that has it most often (Papineni et al. 2002)."""
    candidate: Counts
    """N-grams of the candidate, [rows, order]."""
    lengths: Counts
    """Tokens of the candidate, [rows]."""
    closest: Counts
    """Tokens of the reference whose length is closest to the candidate's, [rows]; of two as close, the shorter."""


def ngram_overlap(candidates: Sequence[Tokens], references: Sequence[Sequence[Tokens]], order: int) -> Overlap:
    """Count the n-grams that each candidate shares with its references.

    Args:
        candidates: the tokens of each row's candidate, hashable sequences (tuples or strings).
        references: the tokens of each row's references, at least one for each row.
        order: largest n.
    """
    number: dict[Tokens, int] = {}
    own = np.array([number.setdefault(text, len(number)) for text in candidates], dtype=np.int64)
    given = np.array([number.setdefault(text, len(number)) for group in references for text in group], dtype=np.int64)
    sizes = [len(group) for group in references]
    rows = np.arange(len(own))
    row_of_given = np.repeat(rows, sizes)
    lengths = np.array([len(text) for text in number], dtype=np.int64)
    matches = np.zeros((len(own), order), dtype=np.int64)
    for n, table in enumerate(_tables(list(number), lengths, order, len(own))):
        keys, most = _largest(*table.of(given, row_of_given))
        wanted, counts = table.of(own, rows)
        at = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
        if len(keys):
            shared = np.where(keys[at] == wanted, np.minimum(most[at], counts), 0)
            matches[:, n] = np.bincount(wanted // table.ngrams, weights=shared, minlength=len(own))
    candidate = np.maximum(lengths[own][:, None] - np.arange(order), 0)
    return Overlap(matches, candidate, lengths[own], _closest(lengths[own], lengths[given], row_of_given))


@dataclass(frozen=True)
class _Table:
    """The n-grams of one length, text by text: those of text i are ``numbers[starts[i]:starts[i + 1]]``."""

    starts: Counts
    numbers: Counts
    counts: Counts
    ngrams: int
    """How many different ones there are."""

    def of(self, texts: Counts, rows: Counts) -> tuple[Counts, Counts]:
        """Return ``row * ngrams + n-gram`` and the count, of each n-gram of each (text, row)."""
        sizes = self.starts[texts + 1] - self.starts[texts]
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        at = np.repeat(self.starts[texts], sizes) + within
        return np.repeat(rows, sizes) * self.ngrams + self.numbers[at], self.counts[at]


def _tables(texts: Sequence[Tokens], lengths: Counts, order: int, rows: int) -> list[_Table]:
    """Return the table of each n = 1 .. order.

    An n-gram's number is made of that of its first n-1 tokens and that of the last one. Before such numbers, times the
    number of texts or rows, would no longer fit into an integer, they are dealt out anew.
    """
    room = LARGEST // max(len(texts), rows, 1)
    tokens, words = _token_numbers(texts)
    text = np.repeat(np.arange(len(texts)), lengths)
    last = np.repeat(np.cumsum(lengths), lengths)  # one behind the last token of the text
    position = np.arange(len(tokens))
    ngram, found, tables = tokens, words, []
    for n in range(1, order + 1):
        if n > 1:
            whole = position + n <= last
            position, ngram, last, text = position[whole], ngram[whole], last[whole], text[whole]
            if found * words > room:
                distinct, ngram = np.unique(ngram, return_inverse=True)
                found = max(len(distinct), 1)
            ngram, found = ngram * words + tokens[position + n - 1], found * words
        keys, counts = np.unique(text * found + ngram, return_counts=True)
        starts = np.searchsorted(keys, np.arange(len(texts) + 1) * found)
        tables.append(_Table(starts, keys % found, counts, found))
    return tables


def _token_numbers(texts: Sequence[Tokens]) -> tuple[Counts, int]:
    """Return a number for each token of all texts, one text after the other, and how many numbers there are."""
    if all(isinstance(text, str) for text in texts):  # characters: no need to look at them one by one
        codes = np.frombuffer("".join(map(str, texts)).encode("utf-32-le"), dtype=np.uint32)
        distinct, numbers = np.unique(codes, return_inverse=True)
        return numbers.astype(np.int64), max(len(distinct), 1)
    word: dict[Hashable, int] = {}
    found = [word.setdefault(token, len(word)) for token in chain.from_iterable(texts)]
    return np.array(found, dtype=np.int64), max(len(word), 1)


def _largest(keys: Counts, counts: Counts) -> tuple[Counts, Counts]:
    """Return the distinct keys in order, and the largest count of each."""
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    return keys[first], np.maximum.reduceat(counts, first) if len(first) else counts


def _closest(candidate: Counts, reference: Counts, row: Counts) -> Counts:
    """Return the length of the closest reference of each row; of two as close, the shorter one."""
    order = np.lexsort((reference, np.abs(reference - candidate[row]), row))
    first = np.flatnonzero(np.diff(row[order], prepend=-1))
    return reference[order][first]


def lcs_length(first: Tokens, second: Tokens) -> int:
    """Return the length of the longest common subsequence, by bit-parallel dynamic programming.

    Source: Hyyrö, "Bit-parallel LCS-length computation revisited", 2004. One addition and a few logical operations on
    integers of ``len(first)`` bits for each token of ``second``; the table of ``first`` is remembered unless it is
    long; then the table of the shorter of the two is made.
    """
    if len(first) > KEPT_WORDS and len(second) < len(first):
        first, second = second, first
    places = (_places if len(first) <= KEPT_WORDS else _places.__wrapped__)(first)
    everywhere = (1 << len(first)) - 1
    free = everywhere  # a 1 at i: extending the prefix of length i by its last token gains nothing
    for token in second:
        if token in places:
            met = free & places[token]
            free = ((free + met) | (free - met)) & everywhere
    return len(first) - free.bit_count()


@lru_cache(KEPT_MASKS)
def _places(text: Tokens) -> dict[Hashable, int]:
    """Where each token stands, as the bits of an integer."""
    places: dict[Hashable, int] = {}
    for at, token in enumerate(text):
        places[token] = places.get(token, 0) | 1 << at
    return places
