"""The scripts of a text: Latin, Cyrillic, Arabic, Han and so on."""

import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator
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


def share_in(text: str, allowed: Collection[str], known: str = "") -> float:
    """The share of a text's letters that are in allowed scripts or in words of the text `known`; 1 without letters.

    >>> share_in("Кто основал NASA?", {"CYRILLIC"}, "НАСА (NASA) существует с 1958 года.")
    1.0
    """
    runs = list(script_runs(text))
    foreign = [run for run in runs if run[0] not in allowed]
    if foreign and known:
        of_known = set(script_runs(known))
        foreign = [run for run in foreign if run not in of_known]
    total = sum(len(letters) for _, letters in runs)
    return 1.0 if not total else (total - sum(len(letters) for _, letters in foreign)) / total


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
