"""The scripts of a text: Latin, Cyrillic, Arabic, Han and so on."""

import unicodedata
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import groupby


def scripts(text: str) -> Counter[str]:
    """The number of letters of each script in a text; combining marks do not count."""
    counts = Counter[str]()
    for script, letters in script_runs(text):
        counts[script] += len(letters)
    return counts


def script_runs(text: str) -> Iterator[tuple[str, str]]:
    """Script and letters of each run of letters of one script: the words, in languages that separate words."""
    for script, letters in groupby(unicodedata.normalize("NFC", text).casefold(), _script):
        if script:
            yield script, "".join(letters)


_SHARED = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA", "IDEOGRAPHIC": "CJK"}


@cache
def _script(character: str) -> str:
    """The script of a letter, which is the first word of its Unicode name: LATIN, CYRILLIC, CJK and so on.

    Hiragana, katakana and their length marks are one script; so are CJK characters and their iteration marks.
    """
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")[0]
    return _SHARED.get(name, name)
