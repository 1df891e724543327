"""Where a text stands in another."""

import re


def occurrences(text: str, part: str) -> list[tuple[int, int]]:
    """Return start and end of each place where `part` stands in `text`, from the first to the last.

    Every run of white space counts as one space. Places where it stands as whole words are preferred: those inside
    other words are returned only if there are no others, as in scripts without spaces. Nothing for a blank part.
    """
    words = part.split()
    if not words:
        return []
    pattern = r"\s+".join(map(re.escape, words))
    places = [match.span() for match in re.finditer(f"(?={pattern})", text)]
    places = [(start, re.compile(pattern).match(text, start).end()) for start, _ in places]  # type: ignore[union-attr]
    whole = [place for place in places if _is_whole(text, *place)]
    return whole or places


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether no word goes on at either end."""
    return not _joined(text, start) and not _joined(text, end)


def _joined(text: str, index: int) -> bool:
    return 0 < index < len(text) and text[index - 1].isalnum() and text[index].isalnum()
