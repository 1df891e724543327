"""Long texts cut into passages that a model can read, at ends of paragraphs or sentences where there are any."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rl_qg.text.spans import sentences, stripped

_PARAGRAPH_END = re.compile(r"\n[^\S\n]*\n\s*")
_SENTENCE_ENDS = ".!?…。！？।؟\"'”’»)]」』"
_WORD_END = re.compile(r"\s+")


@dataclass(frozen=True)
class TextPassage:
    """A part of a text: `text` stands at character `start` of it."""

    text: str
    start: int

    @property
    def end(self) -> int:
        """One past the last character."""
        return self.start + len(self.text)


def paragraphs(text: str) -> list[TextPassage]:
    """The paragraphs of a text, which end with blank lines; one that ends as no sentence does, such as a heading, is
    part of the next.
    """
    found, begin = [], 0
    for _, end in _between(_PARAGRAPH_END, text):
        first, last = stripped(text, begin, end)
        if first < last and (text[last - 1] in _SENTENCE_ENDS or end == len(text)):
            found.append(TextPassage(text[first:last], first))
            begin = end
    return found


def cut_text(text: str, size_of: Callable[[Sequence[str]], list[int]], limit: int) -> list[TextPassage]:
    """The passages of a text, in order, none of them blank: the whole text if it fits, else as many whole paragraphs
    as fit, of a paragraph that is too long as many whole sentences, and of such a sentence as many words.

    Passages do not overlap, hold all but white space of the text, and neither begin nor end with white space.

    Args:
        text: of any length.
        size_of: the sizes of several texts, such as their numbers of tokens; the size of a text is taken as the sum of
            those of its parts.
        limit: the largest size of a passage. A single word may be larger.
    """
    parts = (stripped(text, start, end) for start, end in _cut(text, 0, len(text), size_of, limit, 0))
    return [TextPassage(text[start:end], start) for start, end in parts if start < end]


def _cut(
    text: str, start: int, end: int, size_of: Callable[[Sequence[str]], list[int]], limit: int, level: int
) -> Iterator[tuple[int, int]]:
    """Neighbouring parts of one level (paragraphs, sentences, words) joined up to the limit."""
    if size_of([text[start:end]])[0] <= limit or level == len(_LEVELS):
        yield start, end
        return
    parts = [(start + first, start + last) for first, last in _LEVELS[level](text[start:end])]
    sizes = size_of([text[first:last] for first, last in parts])
    begin, filled = start, 0
    for (first, last), size in zip(parts, sizes, strict=True):
        if begin < first and filled + size > limit:
            yield begin, first
            begin, filled = first, 0
        if size > limit:
            yield from _cut(text, first, last, size_of, limit, level + 1)
            begin, filled = last, 0
        else:
            filled += size
    if begin < end:
        yield begin, end


def _between(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    """The parts of a text between ends that a pattern finds; they cover it."""
    return list(pairwise(sorted({0, *(match.end() for match in pattern.finditer(text)), len(text)})))


_LEVELS: tuple[Callable[[str], list[tuple[int, int]]], ...] = (
    lambda text: _between(_PARAGRAPH_END, text),
    sentences,
    lambda text: _between(_WORD_END, text),
)
