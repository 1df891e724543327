"""English without a tagger: classes of words, forms of verbs, and which word of a question is its verb.

The lists are in `english.yaml`, in lower case.
"""

import re
from collections.abc import Iterable, Sequence

from rl_qg.runtime.files import packaged_yaml
from rl_qg.text.words import normalised_words

_WORDS: dict[str, str] = packaged_yaml(__file__, "english.yaml")


def _words(name: str) -> frozenset[str]:
    return frozenset(_WORDS[name].split())


# Closed word classes: without a tagger they bound what may be an answer.
DETERMINERS, PREPOSITIONS, CONJUNCTIONS = _words("determiners"), _words("prepositions"), _words("conjunctions")
PRONOUNS, AUXILIARIES, ADVERBS, VERBS = _words("pronouns"), _words("auxiliaries"), _words("adverbs"), _words("verbs")
CLOSED = DETERMINERS | PREPOSITIONS | CONJUNCTIONS | PRONOUNS | AUXILIARIES | ADVERBS
NOT_AFTER_NAMES = DETERMINERS | PRONOUNS | {":"}  # at the start of a sentence: Wipe the lid
LOWER_AT_START = _words("lower_at_start")  # words that begin sentences with a capital and are no names
# Within names, of several languages, and those of them that may stand alone between capitals.
PARTICLES, JOINING = _words("particles"), _words("joining")
MONTHS, WEEKDAYS, NUMBERS, UNITS = _words("months"), _words("weekdays"), _words("numbers"), _words("units")
ASKING, ASKED_FOR = _words("asking"), _words("asked_for")
ENGLISH = 0.2  # from this fraction of closed-class words on, a passage counts as English


def is_english(words: Iterable[str]) -> bool:
    """Whether the words of a text are English; numbers and signs do not count."""
    texts = [word.casefold() for word in words if word[:1].isalpha()]
    return bool(texts) and sum(text in CLOSED for text in texts) / len(texts) >= ENGLISH


def topic_words(question: str) -> list[str]:
    """The words of an English question that say what it is about: neither grammar nor what is asked for."""
    return [word for word in normalised_words(question) if word not in CLOSED | ASKING | ASKED_FOR]


# Forms of verbs by spelling rules and a list of irregular verbs. Rules rather than a dictionary that some machines
# have and others lack: a text always gets the same form.
#
# The past tense and the participle of each irregular verb, and the base form of each of its forms.
_PAST_FORMS = {base: forms for base, *forms in (verb.split("/") for verb in _WORDS["irregular_verbs"].split())}
_BASES = {form: base for base, forms in _PAST_FORMS.items() for form in forms if form != base}
_BASES |= dict(pair.split("/") for pair in _WORDS["other_forms"].split())


def _ends(name: str) -> re.Pattern[str]:
    return re.compile(f"(?:{'|'.join(_WORDS[name].split())})$")


_COMPLETE, _LACKS_E, _NOT_DOUBLED = _ends("complete_stems"), _ends("stems_without_e"), _ends("double_stems")
_PAST_OF_EE = frozenset("agreed decreed disagreed freed guaranteed kneed refereed teed".split())
_DOUBLED = re.compile(r"(?:[^aeiou]|^|qu)[aeiouy]([bdgklmnprtv])\1$")  # as in `planned`


def base_form(word: str) -> str:
    """The base form of a verb, lower case: `wrote`, `writes` and `writing` give `write`; a base form gives itself."""
    word = word.casefold()
    if word in _BASES:
        return _BASES[word]
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if re.search(r"(?:ss|sh|ch|x|zz|[^aeiou]o)es$", word):
        return word[:-2]
    if re.search(r"[^s]s$", word):
        return word[:-1]
    if word.endswith("eed"):
        return word[:-1] if word in _PAST_OF_EE else word
    stem = word[:-2] if word.endswith("ed") and len(word) > 3 else word
    stem = word[:-3] if word.endswith("ing") and re.search("[aeiouy]", word[:-3]) else stem
    if stem == word:
        return word
    # What is left of a regular form without -ed or -ing: `limit`, `argu`, `plann`.
    if _DOUBLED.search(stem) and not _NOT_DOUBLED.search(stem):
        return stem[:-1]
    return stem + "e" if _LACKS_E.search(stem) and not _COMPLETE.search(stem) else stem


def in_the_form_of(base: str, word: str, *, participle: bool) -> str:
    """A base form put into the form of another verb's `word`: `fall` like `rose` is `fell`. Both are lower case; a
    past `word` is a `participle` (`was lost`) or not, where the form does not tell.
    """
    word = word.casefold()
    if word == base_form(word):
        return base
    if word.endswith("ing"):
        if base.endswith("ie"):
            return base[:-2] + "ying"
        return (base if base.endswith(("ee", "oe", "ye")) else _stem(base)) + "ing"
    if word.endswith("s"):
        if re.search("[^aeiou]y$", base):
            return base[:-1] + "ies"
        return base + ("es" if re.search(r"(?:s|sh|ch|x|z|[^aeiou]o)$", base) else "s")
    if base in _PAST_FORMS:
        return _PAST_FORMS[base][participle]
    return base[:-1] + "ied" if re.search("[^aeiou]y$", base) else _stem(base) + "ed"


def _stem(base: str) -> str:
    """What -ed and -ing are added to: without a final e, the last consonant of a short verb doubled."""
    if base.endswith("e"):
        return base[:-1]
    short = re.search(r"^[^aeiou]*[aeiou][bdgklmnprt]$|(?:mit|cur|fer|pel|trol|cel|gin|get)$", base)
    return base + base[-1] if short else base


_THIRD = frozenset(word for word in VERBS if word.endswith("s") and not word.endswith("ss"))
_BASE = _words("base_forms") | {word for word in VERBS if {word + "s", word + "es", word[:-1] + "ies"} & _THIRD}
PAST = VERBS - _THIRD - _BASE - _words("participles")
_NOT_VERBS = _words("not_verbs")


def is_past(word: str) -> bool:
    """Return whether a word is the past tense of a frequent verb (`wrote`, `caused`), and nothing else."""
    if word in PAST:
        return True
    return word.endswith("ed") and bool({word[:-1], word[:-2], word[:-3] + "y"} & _BASE)


def subject_verb(words: Sequence[str]) -> int | None:
    """The position of the verb in a question whose subject is its question word, as in `Who wrote it?`, at most four
    words after that; None where it is uncertain. Words that may be a noun or an adjective there are skipped.
    """
    start = next((index for index, word in enumerate(words) if word.casefold() in ASKING), None)
    if start is None:
        return None
    question_word = words[start].casefold()
    for index in range(start + 1, min(start + 5, len(words))):
        before = words[index - 1].casefold() if index > start + 1 else ""
        after = words[index + 1] if index + 1 < len(words) else ""
        if _is_verb(words[index], question_word, before, after):
            return index
    # The first word after `who` or `what` is the verb (`controls wages in a state`) if it ends in -s, the words are
    # not too few, and none of the others can be a verb.
    first, *others = words[start + 1 :] or [""]
    if (question_word != "who" and (question_word != "what" or start)) or len(others) < 2 - (question_word == "who"):
        return None
    if not re.fullmatch("[a-z]+[^siu’']s", first) or others[0] == "of":
        return None
    folded = [word.casefold() for word in others]
    other_verb = any(word in AUXILIARIES | VERBS or word.endswith("ed") or is_past(word) for word in folded)
    return None if other_verb else start + 1


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
        begins_an_object = after.casefold() in DETERMINERS | PREPOSITIONS | PRONOUNS or after[:1].isupper()
        return not first or question_word == "who" or begins_an_object or after[:1].isdigit()
    if word in _THIRD:
        return (not first or question_word in ("who", "what")) and not (after in VERBS or after.endswith("ed"))
    plural = before.endswith("s") or before in ("people", "men", "women", "children")
    return word in _BASE and plural and after not in VERBS


def is_noun(word: str) -> bool:
    return not (word in CLOSED or word in VERBS or word.endswith(("ed", "ly")))
