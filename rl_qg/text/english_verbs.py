"""Where the verb stands in a question whose subject is its question word, as in `Who wrote it?`.

English, without a tagger: of words that are verbs at times, those are passed over that may be a noun or an adjective
where they stand.
"""

from collections.abc import Sequence

from rl_qg.text.english_words import CLOSED, DETERMINERS, PREPOSITIONS, PRONOUNS, VERBS

ASKING = frozenset("who what which when where why how whom whose".split())
_WINDOW = 4  # words behind the question word
_THIRD = frozenset(word for word in VERBS if word.endswith("s") and not word.endswith("ss"))
_BASE = frozenset(
    "cut decide develop ensure enter fight gain learn maintain reach read reduce rely see seek sell send spread teach"
    " go do".split()
) | {word for word in VERBS if {word + "s", word + "es", word[:-1] + "ies"} & _THIRD}
_PARTICIPLES = frozenset("begun borne drawn forced given gone known seen shown taken written".split())
PAST = VERBS - _THIRD - _BASE - _PARTICIPLES
_NO_VERBS = frozenset(
    "advanced aged alleged armed beloved bleed breed combined crooked deed embed exceed feed greed hatred hundred"
    " indeed kindred limited naked need proceed ragged red rugged sacred seed shed so-called speed succeed supposed"
    " united unprecedented weed wicked".split()
)


def is_past(word: str) -> bool:
    """Whether a word is the past tense of a frequent verb (`wrote`, `caused`), and nothing else."""
    if word in PAST:
        return True
    return word.endswith("ed") and bool({word[:-1], word[:-2], word[:-3] + "y"} & _BASE)


def subject_verb(words: Sequence[str]) -> int | None:
    """The place of the verb among the words of a question, four behind the question word at most; None where none is
    sure.
    """
    start = next((place for place, word in enumerate(words) if word.casefold() in ASKING), None)
    if start is None:
        return None
    asked = words[start].casefold()
    for place in range(start + 1, min(start + 1 + _WINDOW, len(words))):
        before = words[place - 1].casefold() if place > start + 1 else ""
        behind = words[place + 1] if place + 1 < len(words) else ""
        if _is_verb(words[place], asked, before, behind):
            return place
    return None


def _is_verb(word: str, asked: str, before: str, behind: str) -> bool:
    """Whether a word is the verb; `before` is "" where the question word stands there."""
    if word != word.casefold() or word in _NO_VERBS or behind == "of" or before in DETERMINERS | PREPOSITIONS:
        return False
    if is_past(word):
        return not (asked == "how" and not before)
    first = not before
    if word.endswith("ed") and len(word) > 4:
        if before in ("many", "much", "most", "more") or (first and asked not in ("who", "what")):
            return False
        return not first or asked == "who" or _begins_an_object(behind)
    if word in _THIRD:
        return (not first or asked in ("who", "what")) and not (behind in VERBS or behind.endswith("ed"))
    plural = before.endswith("s") or before in ("people", "men", "women", "children")
    return word in _BASE and plural and behind not in VERBS


def _begins_an_object(word: str) -> bool:
    """Whether what stands behind a verb, not an adjective, is to be expected: an article, a name."""
    return word.casefold() in DETERMINERS | PREPOSITIONS | PRONOUNS or word[:1].isupper() or word[:1].isdigit()


def is_noun(word: str) -> bool:
    """Whether a word behind `what` is a noun for all that these lists know."""
    return not (word in CLOSED or word in VERBS or word.endswith(("ed", "ly")))
