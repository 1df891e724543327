"""Questions made worse on purpose, to test raters: a run of their words is replaced by words of another passage.

How many words depends on the length of the question, by one of three published tables: that of the QAScore paper
(section 4), that of Appraise (its script for WMT17, which takes twice as many characters in Chinese and Japanese), and
that of crowd-alone, which leaves the words out instead. In scripts without spaces each character counts as a word. The
first and the last word stay where there are more than two (crowd-alone: the first), and so do the marks around a
question.
"""

import random
from collections.abc import Mapping, Sequence

from rewards.words import QUESTION_MARKS, is_unspaced, separate_unspaced
from rl_qg.text.words import normalised_words

DRAWS = 100  # before a question counts as one that cannot be degraded
_OPENING = "¿¡ \t\r\n\u00a0\u3000"
_CLOSING = QUESTION_MARKS + " \t\r\n\u00a0\u3000"
_UP_TO = ((3, 1), (5, 2), (8, 3), (15, 4), (20, 5))  # words of the question, words replaced


def replaced_words(count: int, table: str) -> int:
    """How many of the words of a question are replaced (crowd_alone: left out).

    Args:
        count: words of the question.
        table: qascore, appraise or crowd_alone.
    """
    if table == "appraise" and count in (2, 3):
        return 2
    if table == "crowd_alone" and count < 2:
        return 0
    for longest, replaced in _UP_TO:
        if count <= longest:
            return replaced
    return {"qascore": count // 5, "appraise": count // 4, "crowd_alone": -(-count // 5)}[table]


class Degrader:
    """Degrades questions with words of the passages of a study.

    Args:
        passages: texts by the name of the passage.
        table: qascore, appraise or crowd_alone.
    """

    def __init__(self, passages: Mapping[str, str], table: str) -> None:
        self._passages = passages
        self._names = sorted(passages)
        self._table = table

    def degraded(self, question: str, passage: str, rng: random.Random) -> str | None:
        """The question made worse, or None where that cannot be done in `DRAWS` draws.

        Its words differ from those of the question, case and punctuation aside.

        Args:
            question: as asked.
            passage: the name of its own passage, from which no words are taken.
            rng: draws the run and the words.
        """
        start = len(question) - len(question.lstrip(_OPENING))
        end = max(start, len(question.rstrip(_CLOSING)))
        body = question[start:end]
        characters = _is_unspaced(body)
        places = _pieces(body, characters)
        first, last = self._changeable(len(places))
        count = replaced_words(len(places), self._table) * (2 if characters and self._table == "appraise" else 1)
        count = min(count, last - first)
        if count < 1:
            return None
        for _ in range(DRAWS):
            at = rng.randint(first, last - count)
            left, right = places[at][0], places[at + count - 1][1]
            words = "" if self._table == "crowd_alone" else self._words(count, passage, characters, rng)
            if words is None:
                continue
            text = _joined(body[:left], words, body[right:])
            if normalised_words(text) != normalised_words(body):
                return question[:start] + text + question[end:]
        return None

    def _changeable(self, count: int) -> tuple[int, int]:
        """The first word that may change, and one past the last."""
        if self._table == "crowd_alone":
            return 1, count
        return (1, count - 1) if count > 2 else (0, count)

    def _words(self, count: int, passage: str, characters: bool, rng: random.Random) -> str | None:
        """So many words in a row of another passage; None where the one that is drawn will not do."""
        name = rng.choice(self._names)
        text = self._passages[name]
        places = _pieces(text, characters)
        if name == passage or len(places) < count:
            return None
        at = rng.randint(0, len(places) - count)
        return " ".join(text[places[at][0] : places[at + count - 1][1]].split())


def _is_unspaced(text: str) -> bool:
    """Whether most of a text is in a script without spaces."""
    pieces = separate_unspaced(text).split()
    return 2 * sum(map(is_unspaced, pieces)) > len(pieces)


def _pieces(text: str, characters: bool) -> Sequence[tuple[int, int]]:
    """Start and end of each word between white space, or of each character of a script without spaces."""
    places, end = [], 0
    for piece in (separate_unspaced(text) if characters else text).split():
        start = text.index(piece, end)
        end = start + len(piece)
        places.append((start, end))
    return places


def _joined(before: str, words: str, after: str) -> str:
    """The three parts; where nothing is put in, with one space less."""
    if words:
        return before + words + after
    return before.rstrip() + after if before[-1:].isspace() and (not after or after[0].isspace()) else before + after
