"""Sentences of a text: the one rule that the project splits by."""

import re
from itertools import pairwise

ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr fr prof rev hon st sr jr gen col lt capt sgt gov sen rep vs v no vol pp p fig al etc e.g i.e c ca
    cf approx inc ltd co corp dept est jan feb mar apr jun jul aug sep sept oct nov dec bros mt ft u.s u.k d.c
    """.split()
)
"""In lower case, without the full stop at the end: it ends no sentence."""

# Possessive, and tried at the first mark of a row alone: each character is looked at once. Tried at every mark, a row
# of n marks that nothing follows would take n² steps.
_END = re.compile(r"""(?<![.!?…])[.!?…]++["'”’)\]»]*+(?=\s)|[。！？।॥؟]+["'”’)\]」』»]*|\n\s*\n""")

_GERMAN_DATE = re.compile(
    r"\.\s+(?:Jan|Febr|März|April|Mai|Jun|Jul|August|Sept|Okto|Novem|Dezem)(?:uar|i|ember|ber)?\b"
)
"""The full stop after a day, and the month: no sentence ends there."""


def sentences(text: str) -> list[tuple[int, int]]:
    """Return start and end of each sentence; they cover the text. Abbreviations and initials end no sentence.

    A full stop before a small letter ends none, unless the text has no capital, as that of Du et al.'s files. There
    words are tokens, so that only a full stop which stands alone ends a sentence.
    """
    lower_cased = text.lower() == text
    tokens = lower_cased and (" . " in text or text.endswith(" ."))
    ends = [match.end() for match in _END.finditer(text) if _ends(text, match, lower_cased, tokens)]
    bounds = sorted({0, *ends, len(text)})
    return list(pairwise(bounds))


def sentence_texts(text: str) -> list[str]:
    """Return the sentences of a text without white space around them; a blank text is one empty sentence."""
    return [part for start, end in sentences(text) if (part := text[start:end].strip())] or [""]


def _ends(text: str, match: re.Match[str], lower_cased: bool, tokens: bool) -> bool:
    index = match.end()
    while index < len(text) and text[index].isspace():  # slicing the rest at each sentence would take quadratic time
        index += 1
    after = text[index : index + 1]
    if match.group()[0] in ".!?…" and ((after.islower() and not lower_cased) or after in tuple(",;")):
        return False
    if tokens and match.group()[0] == "." and not text[match.start() - 1].isspace():
        return False
    if len(match.group().strip("\"'”’)]»")) > 1 or match.group()[0] != ".":
        return True
    index = match.start()
    while index and (text[index - 1].isalnum() or text[index - 1] in "._"):
        index -= 1
    before = text[index : match.start()]
    if before.isdigit() and len(before) <= 2 and _GERMAN_DATE.match(text, match.start()):
        return False
    single = len(before) == 1 and (before.isupper() or (lower_cased and before.isalpha()))  # as in John F. Kennedy
    return not single and before.casefold() not in ABBREVIATIONS
