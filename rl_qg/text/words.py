"""Words of a text, for comparing texts."""

import re
import unicodedata

from rl_qg.text.combining_marks import MARKS

_WORD = re.compile(rf"\d+(?:[.,:]\d+)+|\w+(?:[{MARKS}]+\w*)*")


def words(text: str) -> list[str]:
    """Split a text into words for comparison: case, punctuation and Unicode form do not count.

    A number keeps its inner separators (`1,000`, `5.5`, `10:30`), so that `5` is not a word of `5.5`; a letter keeps
    its marks. Articles stay: without them the answer "The Who" would be a word of every question that begins with
    "who".
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def contains_words(part: str, whole: str) -> bool:
    """Say whether the words of `part` stand next to each other in `whole`; a part without words never does.

    >>> contains_words("art", "Who threw the party?"), contains_words("New York", "Is new york's mayor tall?")
    (False, True)
    """
    wanted, there = words(part), words(whole)
    return bool(wanted) and any(there[i : i + len(wanted)] == wanted for i in range(len(there) - len(wanted) + 1))
