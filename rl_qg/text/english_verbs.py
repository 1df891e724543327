"""The position of the verb in a question whose subject is its question word, as in `Who wrote it?`.

English, without a tagger: of words that can be verbs, those that may be a noun or an adjective in their position are
skipped.
"""

import re
from collections.abc import Sequence

from rl_qg.text.english_words import AUXILIARIES, CLOSED, DETERMINERS, PREPOSITIONS, PRONOUNS, VERBS

ASKING = frozenset("who what which when where why how whom whose".split())
_WINDOW = 4  # words after the question word
_THIRD = frozenset(word for word in VERBS if word.endswith("s") and not word.endswith("ss"))
_BASE = frozenset(
    "cut decide develop ensure enter fight gain learn maintain reach read reduce rely see seek sell send spread teach"
    " go do".split()
) | {word for word in VERBS if {word + "s", word + "es", word[:-1] + "ies"} & _THIRD}
_PARTICIPLES = frozenset("begun borne drawn forced given gone known seen shown taken written".split())
PAST = VERBS - _THIRD - _BASE - _PARTICIPLES
_NOT_VERBS = frozenset(
    "advanced aged alleged armed beloved bleed breed combined crooked deed embed exceed feed greed hatred hundred"
    " indeed kindred limited naked need proceed ragged red rugged sacred seed shed so-called speed succeed supposed"
    " united unprecedented weed wicked".split()
)


def is_past(word: str) -> bool:
    """Return whether a word is the past tense of a frequent verb (`wrote`, `caused`), and nothing else."""
    if word in PAST:
        return True
    return word.endswith("ed") and bool({word[:-1], word[:-2], word[:-3] + "y"} & _BASE)


def subject_verb(words: Sequence[str]) -> int | None:
    """Return the position of the verb among the words of a question, at most four after the question word; None where
    it is uncertain.
    """
    start = next((index for index, word in enumerate(words) if word.casefold() in ASKING), None)
    if start is None:
        return None
    question_word = words[start].casefold()
    for index in range(start + 1, min(start + 1 + _WINDOW, len(words))):
        before = words[index - 1].casefold() if index > start + 1 else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        if _is_verb(words[index], question_word, before, after):
            return index
    if (question_word == "what" and start == 0) or question_word == "who":
        return start + 1 if _is_lone_third(words[start + 1 :], 3 - (question_word == "who")) else None
    return None


def _is_lone_third(words: Sequence[str], fewest: int) -> bool:
    """Return whether the first of the words after `who` or `what` is the verb of the question (`controls wages in a
    state`): it ends in -s, the words are not too few, and none of the others can be a verb.
    """
    if len(words) < fewest or not re.fullmatch("[a-z]+[^siu’']s", words[0]) or words[1] == "of":
        return False
    others = [word.casefold() for word in words[1:]]
    return not any(word in AUXILIARIES | VERBS or word.endswith("ed") or is_past(word) for word in others)


def _is_verb(word: str, question_word: str, before: str, after: str) -> bool:
    """Return whether a word is the verb; `before` is "" directly after the question word."""
    if word != word.casefold() or word in _NOT_VERBS or after == "of" or before in DETERMINERS | PREPOSITIONS:
        return False
    if is_past(word):
        return not (question_word == "how" and not before)
    first = not before
    if word.endswith("ed") and len(word) > 4:
        if before in ("many", "much", "most", "more") or (first and question_word not in ("who", "what")):
            return False
        return not first or question_word == "who" or _begins_an_object(after)
    if word in _THIRD:
        return (not first or question_word in ("who", "what")) and not (after in VERBS or after.endswith("ed"))
    plural = before.endswith("s") or before in ("people", "men", "women", "children")
    return word in _BASE and plural and after not in VERBS


def _begins_an_object(word: str) -> bool:
    """Return whether a word may begin an object, so that the word before it is a verb: an article, a name."""
    return word.casefold() in DETERMINERS | PREPOSITIONS | PRONOUNS or word[:1].isupper() or word[:1].isdigit()


def is_noun(word: str) -> bool:
    """Return whether a word after `what` may be a noun according to these lists."""
    return not (word in CLOSED or word in VERBS or word.endswith(("ed", "ly")))
