"""Case, accents and spaces of a text that an uncased model wrote about a passage, restored from the passage."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from rl_qg.text.english import AUXILIARIES, LOWER_AT_START, NOT_AFTER_NAMES, VERBS, is_english

TOKEN = re.compile(r"\w+|[^\w\s]")
IN_CAPITALS = re.compile(r"(?<![^\W\d_a-z])[^\W\d_a-z]{2,}+(?:[ \t]++[^\W\d_a-z]++(?![^\W\d_])){2,}")  # three words
CLOSING = frozenset(".,;:?!%)]}”’")  # no space before
OPENING = frozenset("([{“$£€#")  # no space after
JOINING_SIGNS = frozenset("-–/'")  # neither
SENTENCE_END = frozenset('.?!:”"“(')
SUBJECTS = frozenset(("you", "he", "she", "we", "they"))  # no name after them: What do you cover?
SHORTEST_FORM = 6  # letters of a word with a verb's ending; shorter ones are names as well (Fred)


@dataclass(frozen=True)
class _Token:
    plain: str  # lower case, without accents
    start: int
    end: int
    starts_sentence: bool
    in_capitals: bool  # of a heading in capitals, which does not tell how its words are written elsewhere


def restore_case(text: str, passage: str) -> str:
    """`text` with the longest runs of words that it shares with the passage as the passage writes them, a capital at
    its beginning, and no spaces that English does not write. Words that are not in the passage stay as they are.
    """
    there, places = _tokens(passage), dict[str, list[int]]()
    for place, token in enumerate(there):
        if not token.in_capitals:
            places.setdefault(token.plain, []).append(place)
    asked, index, pieces = [token.plain for token in _tokens(text)], 0, list[str]()
    while index < len(asked):
        before = asked[index - 1] if index else ""
        place, length = _longest_run(asked[index:], there, places.get(asked[index], []))
        if length == 0 or (length == 1 and before == "'"):  # the s of 's is not that of U.S.
            pieces.append(asked[index])
        else:
            run = " ".join(passage[there[place].start : there[place + length - 1].end].split())
            first = there[place]
            may_be_small = first.starts_sentence or (length == 1 and first.plain in LOWER_AT_START)
            small = may_be_small and (before in SUBJECTS or _is_small(place, there, places[first.plain], passage))
            small &= not any(map(str.isupper, passage[first.start + 1 : first.end]))  # an acronym stays one
            pieces.append(run[0].lower() + run[1:] if small else run)
        index += max(length, 1)
    joined = _joined(pieces)
    return joined[:1].upper() + joined[1:]


def _tokens(text: str) -> list[_Token]:
    found, last = list[_Token](), "."
    headings = [match.span() for match in IN_CAPITALS.finditer(text) if match[0].isupper()]
    for match in TOKEN.finditer(text):
        plain = "".join(c for c in unicodedata.normalize("NFD", match[0].lower()) if unicodedata.category(c) != "Mn")
        is_first = last in SENTENCE_END or "\n" in text[found[-1].end if found else 0 : match.start()]
        if found and not last[1:].isalpha() and not (last.isalpha() and match[0].isalnum()):
            is_first |= found[-1].starts_sentence  # after the sign or number of an item: `• Do`, `(12) The`, `a) The`
        in_capitals = any(start <= match.start() < end for start, end in headings)
        if plain:  # no mark on its own, such as one that makes a sign an emoji
            found.append(_Token(plain, *match.span(), is_first, in_capitals))
            last = match[0]
    return found


def _longest_run(asked: Sequence[str], there: Sequence[_Token], places: Sequence[int]) -> tuple[int, int]:
    """Where in the passage the longest run of the `asked` words begins, rather inside a sentence than at its start,
    and its length. It begins and ends with a word; 0 for punctuation.
    """
    best = (0, False, 0)
    for place in places if asked[0].isalnum() else ():
        length = 0
        while length < min(len(asked), len(there) - place) and there[place + length].plain == asked[length]:
            length += 1
        while not asked[length - 1].isalnum():
            length -= 1
        best = max(best, (length, not there[place].starts_sentence, -place))
    return -best[2], best[0]


def _is_small(place: int, there: Sequence[_Token], same: Sequence[int], passage: str) -> bool:
    """Whether a word that begins a sentence of the passage is no name: yes if the `same` word has a small first letter
    anywhere, else no if it stands inside a sentence. If it stands only at starts, in English by the words after it
    (`Cover the bowl`, `Referee: Anna Berg`, `Smallest fill: 2 litres`) or its ending (`Published in`).
    """
    is_lower = any(passage[there[other].start].islower() for other in same)
    if is_lower or not all(there[other].starts_sentence for other in same):
        return is_lower
    word, after = there[place].plain, there[place + 1 : place + 4]
    if word in LOWER_AT_START or not after or not is_english(token.plain for token in there):
        return word in LOWER_AT_START
    has_ending = len(word) >= SHORTEST_FORM and word.endswith(("ed", "ing", "ly"))
    is_name = passage[after[0].start].isupper() and not after[0].starts_sentence
    if after[0].plain in NOT_AFTER_NAMES or (has_ending and not is_name and after[0].plain not in AUXILIARIES | VERBS):
        return True
    return any(token.plain == ":" and passage[after[0].start : token.start].islower() for token in after)


def _joined(pieces: Sequence[str]) -> str:
    text, is_open = "", False
    for piece in pieces:
        glued = not text or text[-1] in OPENING | JOINING_SIGNS or piece[0] in CLOSING | JOINING_SIGNS
        if piece == '"':
            glued, is_open = (is_open or not text), not is_open
        elif is_open and text.endswith('"'):
            glued = True
        text += piece if glued else f" {piece}"
    return text
