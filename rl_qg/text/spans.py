"""Spans of a passage that may be answers, from rules, a parser or a trained extractor: their ends are trimmed as in
human answers, those that cross a sentence or overlap a better one are removed, and each text is kept once.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rewards.words import UNSPACED_LETTERS, combining_marks, sentence_texts as sentence_texts, sentences as sentences

MAX_WORDS = 10  # 97 % of the answers of SQuAD are not longer
MAX_CHARACTERS, MAX_UNSPACED = 120, 20  # the second of a script without spaces

_LETTERS = rf"(?:(?![{UNSPACED_LETTERS}])[^\W_][{combining_marks()}]*)+"  # and digits
PARAGRAPH_END = re.compile(r"(?:\n[^\S\n]*\n|\u2029)\s*")  # a blank line, or Unicode's separator
_TOKEN = re.compile(
    rf"[{UNSPACED_LETTERS}]+"  # a run of a script without spaces: rules search inside it
    r"|(?:[^\W\d_]\.){2,}"  # U.S.
    r"|\d+(?:[.,:/]\d+)*"  # 1,000.5 10:30
    rf"|{_LETTERS}(?:['’](?!s\b)(?!\d){_LETTERS})*(?:-{_LETTERS})*"  # O'Neill, so-called
    r"|['’]s\b|\S"
)
_LEADING = re.compile(r"(?:a|an|the|its|his|her|their|our)\s+", re.IGNORECASE)
_SPACES = "".join(filter(str.isspace, map(chr, range(0x3001))))
_EDGES = _SPACES + ",;:.!?…、。，；：！？।—–-_/*|~'’‘\"“”„«»「」『』《》〈〉"
_PAIRS = {")": "(", "]": "[", "}": "{", "）": "（", "】": "【"}


@dataclass(frozen=True)
class Span:
    """Characters `start` to `end` (one past the last) of a passage; `kind` is its type, a higher `score` is better."""

    start: int
    end: int
    kind: str
    score: float


@dataclass(frozen=True)
class Token:
    """A word, number or sign and its position."""

    text: str
    start: int
    end: int


def tokens(text: str, start: int = 0, end: int | None = None) -> list[Token]:
    """Return words, numbers and signs of a part of a text; a run of a script without spaces is one token."""
    matches = _TOKEN.finditer(text, start, len(text) if end is None else end)
    return [Token(match.group(), match.start(), match.end()) for match in matches]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Start and end of each sentence without the white space around it; blank ones are left out."""
    return list(stripped(text, sentences(text)))


def sentence_at(spans: Sequence[tuple[int, int]], place: int) -> int:
    """The number of the sentence that holds a character, or follows it; of all after the last sentence the last."""
    return next((number for number, (_, end) in enumerate(spans) if place < end), len(spans) - 1)


def stripped(text: str, parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Start and end of each part without the white space around it; blank ones are left out."""
    for start, end in parts:
        if part := text[start:end].lstrip():
            yield end - len(part), end - len(part) + len(part.rstrip())


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the span without white space, punctuation and brackets at its ends, and without an article before it. A
    bracket is kept if its partner is inside; so is the full stop of an abbreviation (`U.S.`).
    """
    while True:
        part = text[start:end]
        left = len(part) - len(part.lstrip(_EDGES))
        right = len(part.rstrip(_EDGES))
        if re.search(r"\b[^\W\d_]\.[^\W\d_]\.\Z", part[-5:]):
            right = len(part)
        left += left < right and _is_unpaired(part[left:right], 0)
        right -= left < right and _is_unpaired(part[left:right], -1)
        if article := _LEADING.match(part, left, max(left, right)):
            left = article.end()
        if left >= right:
            return start, start
        if (left, right) == (0, len(part)):
            return start, end
        start, end = start + left, start + right


def _is_unpaired(part: str, end: int) -> bool:
    sign = part[end]
    if sign in _PAIRS:
        return end == 0 or _PAIRS[sign] not in part or part[0] == _PAIRS[sign]
    if sign in _PAIRS.values():
        partner = next(close for close, opened in _PAIRS.items() if opened == sign)
        return end == -1 or partner not in part or part[-1] == partner
    return False


def select_spans(text: str, spans: Iterable[Span], limit: int | None) -> list[Span]:
    """Return the usable ones of proposed spans, trimmed, best first: at most `limit` (None: all). Of spans that
    overlap the one with the higher score is kept, then the longer, then the earlier; of equal texts the best one.
    """
    starts = [start for start, _ in sentences(text)]
    usable = set()
    for span in spans:
        start, end = trimmed(text, span.start, span.end)
        part = text[start:end]
        short = len(part) <= MAX_CHARACTERS and len(part.split()) <= MAX_WORDS
        short = short and len(re.findall(f"[{UNSPACED_LETTERS}]", part)) <= MAX_UNSPACED
        if short and any(map(str.isalnum, part)) and bisect_right(starts, start) == bisect_right(starts, end - 1):
            usable.add(replace(span, start=start, end=end))
    chosen: list[Span] = []
    texts: set[str] = set()
    taken = bytearray(len(text))
    for span in sorted(usable, key=lambda span: (-span.score, span.start - span.end, span.start, span.kind)):
        key = text[span.start : span.end].casefold()
        if key not in texts and not any(taken[span.start : span.end]):
            texts.add(key)
            taken[span.start : span.end] = b"\1" * (span.end - span.start)
            chosen.append(span)
    return chosen[:limit]
