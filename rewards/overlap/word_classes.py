"""The four classes of words of an English question that answerability compares.

Source: Nema and Khapra 2018, section 4, as their released code sorts them: by white space, capital letters and lists.
"""

import re

from rewards.words import Words, cached_by_text, ptb, tokenizer

CLASSES = ("content", "entity", "type", "function")
DATA_TYPES = ("squad", "wikimovies")

_LOWER_QUESTION_WORDS = ("what", "which", "why", "who", "whom", "whose", "where", "when", "how")
QUESTION_WORDS = frozenset([*_LOWER_QUESTION_WORDS, *(word.capitalize() for word in _LOWER_QUESTION_WORDS)])
"""Lower-case or capitalised; "WHAT" is not one."""

FUNCTION_WORDS = frozenset(
    """
    a about above after again against all am an and any are as at be because been before being below between
    both but by can did do does doing don down during each few for from further had has have having he her here
    hers herself him himself his i if in into is it its itself just me more most my myself no nor not now of off
    on once only or other our ours ourselves out over own s same she should so some such t than that the their
    theirs them themselves then there these they this those through to too under until up very was we were while
    will with you your yours yourself yourselves
    """.split()
)
"""A common list of 127 English stop words without its eight question words."""

_OPENING_VERBS = frozenset(
    "am are is was were do does did has have had can could may might must shall should will would".split()
)

_INTRODUCING = frozenset(
    """
    about above according across after against along alongside although amid among and apart around as
    aside at because before behind below beneath beside besides between beyond but by compared concerning contrary
    depending despite due during except excluding exactly following for from given historically if in including
    inside instead into like near of off on onto or other out outside over per prior regarding relative roughly since
    regardless so than then through throughout to today together toward towards under unlike until up upon using versus
    via while with within without
    """.split()
)
"""Words that begin what may stand in front of a question: "In 1204, who ...", "According to Ida, what ..."."""

_CLAUSES = re.compile(r"[,;:\u2013\u2014]+(?!\d)|\s-+\s")

RELATION_WORDS = (
    "act",
    "write",
    "direct",
    "describ",
    "appear",
    "star",
    "genre",
    "language",
    "about",
    "appear",
    "cast",
)
"""Parts of the content words of WikiMovies' questions; "appear" is listed twice, so such a word counts twice."""


@cached_by_text
def class_words(question: str, data_type: str, tokenize: str) -> tuple[Words | None, ...]:
    """Return the words of each of `CLASSES`, split again by a tokeniser; None where a class has no word."""
    split = tokenizer(tokenize)
    return tuple(split(" ".join(group)) if group else None for group in sort_words(question, data_type))


def has_question_word(text: str) -> bool:
    """Return whether a text contains a question word, "what?" and "WHO" included."""
    return not set(_LOWER_QUESTION_WORDS).isdisjoint(ptb(text))


def asks(text: str) -> bool:
    """Return whether a text has a question word, or opens with a verb as yes-no questions do ("Is ...", "Did ...")."""
    return has_question_word(text) or not _OPENING_VERBS.isdisjoint(ptb(text)[:1])


def opens_question(text: str) -> bool:
    """Return whether a question word or an inverted auxiliary verb opens a clause of a text, and more words follow.

    True for "Who built it?", "Did she?", "In what year did ...", "At the end of which war ...", "In 1204, who ...",
    "If so, was it ...". Elsewhere a question word opens a relative clause or stands for a missing phrase: false for
    "The town, which ...?", "The man who ...?", "It was built by whom?", and for "Who?" alone. So the first clause, or
    any other if the text begins with an introducing word ("in", "after", "according", "based", "using", ...), must
    begin with a question word or an auxiliary verb, or with an introducing word and have a question word before any
    auxiliary verb.
    """
    clauses = [words for clause in _CLAUSES.split(text) if (words := ptb(clause))]
    if not clauses:
        return False
    first = clauses[0][0]
    # "Based on it, who …", but not "Beijing, which …"
    participle = first.endswith(("ed", "ing")) and not {*clauses[0][1:2]}.isdisjoint(FUNCTION_WORDS)
    introduced = first in _INTRODUCING or first in _LOWER_QUESTION_WORDS or participle
    return any(map(_opens_question, clauses if introduced else clauses[:1]))


_NEGATED = (("ca", "n't"), ("wo", "n't"), ("sha", "n't"))
"""Verbs that open a question and lose a letter before "n't"."""


def _opens_question(words: Words) -> bool:
    if words[0] in _OPENING_VERBS or words[:2] in _NEGATED:
        return len(words) > 1
    for at, word in enumerate(words):
        if word in _LOWER_QUESTION_WORDS:
            return len(words) > at + 1
        if word in _OPENING_VERBS or words[0] not in _INTRODUCING:
            return False
    return False


def is_empty(text: str) -> bool:
    """Return whether a text has no letter and no digit of any script, hence no word."""
    return not any(map(str.isalnum, text))


def looks_english(text: str) -> bool:
    """Return whether a text has a question word or at least two function words.

    All but 0.3 % of English questions do (SQuAD, XQuAD), and at most 6 % of those in German, Spanish, French, Russian,
    Arabic, Chinese and Japanese. One function word is weaker evidence: "in", "am" and "was" are German too, "a" and
    "no" Spanish.
    """
    return has_question_word(text) or len(FUNCTION_WORDS.intersection(ptb(text))) > 1


def sort_words(question: str, data_type: str = "squad") -> tuple[list[str], list[str], list[str], list[str]]:
    """Return the words of each of `CLASSES` as they are between white space.

    - type: question words wherever they are; the word after "what" and "which" belongs to them.
    - entity: words that begin with a capital letter, except a question word at the very beginning. So "In" or "Is"
      at the beginning is one.
    - content: words that are not of the type (by value), do not begin with a capital letter and are not function words
      with their punctuation ("it?" and "was," are content). For ``wikimovies``: words that contain one of
      `RELATION_WORDS`.
    - function: words of a fixed list, compared in lower case.

    A word may fall into several classes, or into none.
    """
    words = question.split()
    kind: list[str] = []
    for index, word in enumerate(words):
        if word in QUESTION_WORDS:
            kind += words[index : index + 2] if word.lower() in ("what", "which") else [word]
    begins_with_question_word = bool(words) and words[0].lower() in _LOWER_QUESTION_WORDS
    entity = [word for word in words[begins_with_question_word:] if word[0].isupper()]
    if data_type == "wikimovies":
        content = [word for word in words for part in RELATION_WORDS if part in word]
    else:
        of_type = set(kind)
        content = [
            word for word in words if word not in of_type and not word[0].isupper() and word not in FUNCTION_WORDS
        ]
    return content, entity, kind, [word.lower() for word in words if word.lower() in FUNCTION_WORDS]
