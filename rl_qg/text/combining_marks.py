"""Combining marks: vowel signs of Hindi and Thai, vowels of Arabic, accents that stand by themselves.

Each belongs to the letter before it, and to Python's `re` it is no part of a word.
"""

import unicodedata
from collections.abc import Iterator
from itertools import chain

PLANES = (range(0x300, 0x20000), range(0xE0000, 0xE0200))  # Unicode has none elsewhere


def _runs() -> Iterator[str]:
    """Ranges for a character class, without its brackets."""
    begin = None
    for code in chain(*PLANES):
        if unicodedata.category(chr(code)) in ("Mn", "Mc"):
            begin = code if begin is None else begin
        elif begin is not None:
            yield f"{chr(begin)}-{chr(code - 1)}"
            begin = None


MARKS = "".join(_runs())
"""All of them (Unicode categories Mn and Mc), to be put inside the brackets of a character class."""
