"""What a question asks for: who, what, when, where, why, how, how many, which, yes/no, or other.

Rules over question words, with a table for each language. A question of a language without a table is `other`, and so
is one without a question word ("Name the river."). A clause at the beginning can mislead: "When the war ended, who
won?" is `when`. A word with an apostrophe that is not in the table is two: "d'où" contains "où", "who'd" is "who".
"""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rl_qg.runtime.files import packaged_yaml
from rl_qg.text.languages import has_question_word

TYPES = ("what", "who", "when", "where", "why", "how", "how many", "which", "yes/no", "other")
OTHER = "other"

_TOKEN = re.compile(r"\w+(?:['’]\w+)?")


@dataclass(frozen=True)
class TypeTable:
    """`phrases`: question words to types; `verbs` begin yes/no questions; `inverted`: a verb before its subject."""

    phrases: Mapping[str, str]
    verbs: frozenset[str]
    inverted: re.Pattern[str] | None = None

    @cached_property
    def longest(self) -> int:
        return max(len(phrase.split()) for phrase in self.phrases)

    @cached_property
    def words(self) -> frozenset[str]:
        return self.verbs.union(*(phrase.split() for phrase in self.phrases))


TYPE_TABLES = {
    code: TypeTable(
        {phrase.strip().casefold(): kind for kind in TYPES if kind in entry for phrase in entry[kind].split(",")},
        frozenset(entry["verbs"].split()),
        re.compile(entry["inverted"]) if "inverted" in entry else None,
    )
    for code, entry in packaged_yaml(__file__, "question_types.yaml").items()
}


def language_fault(language: str) -> str:
    """Return why questions of a language cannot be sorted into types; "" where it has a table, or is `other`.

    >>> language_fault("english")
    'english has no table of question words: give one of en, de, fr, es, or other (all questions are of type other)'
    """
    if language.casefold() in (*TYPE_TABLES, OTHER):
        return ""
    known = ", ".join(TYPE_TABLES)
    return (
        f"{language} has no table of question words: give one of {known}, or other (all questions are of type other)"
    )


def question_type(question: str, language: str = "en") -> str:
    """Return one of `TYPES`; the case of the language's code does not matter.

    A verb at the beginning asks for yes or no. Otherwise the first question word decides, and of phrases that begin at
    the same word the longest: "how many" before "how". Without one, a verb after a comma asks for yes or no.

    >>> question_type("In what year did it end?"), question_type("Did it end?"), question_type("Name the river.")
    ('when', 'yes/no', 'other')
    """
    table = TYPE_TABLES.get(language.casefold())
    if table is None:
        return OTHER
    clauses = list[list[str]]()
    for clause in question.split(","):
        found = _TOKEN.findall(_plain(clause))
        clauses.append([part for word in found for part in ([word] if word in table.words else word.split("'"))])
    words = [word for clause in clauses for word in clause]
    if words and words[0] in table.verbs:
        return "yes/no"
    for start in range(len(words)):
        for length in range(table.longest, 0, -1):
            kind = table.phrases.get(" ".join(words[start : start + length]))
            if kind is not None:
                return kind
    begins = any(clause[0] in table.verbs for clause in clauses if clause)
    inverted = table.inverted is not None and table.inverted.search(_plain(question))
    return "yes/no" if begins or inverted else OTHER


def asks(question: str, language: str) -> bool:
    """Return whether a question has a question word (`has_question_word`) or, in a language with a table of types,
    begins with a verb that asks for yes or no; True in languages whose question words are not known.
    """
    language = language.casefold()
    return has_question_word(question, language) or question_type(question, language) != OTHER


def _plain(question: str) -> str:
    return unicodedata.normalize("NFKC", question).casefold().replace("’", "'")


# --- the nine types of Ray Chowdhury et al. 2022, "On the Evaluation of Answer-Agnostic Paragraph-level Multi-Question
# Generation" (section 6.2), for that paper's models and tables; the rest of the project reports those above

NINE_TYPES = ("who", "when", "where", "what", "quantity", "how", "why", "which", "other")

# What is looked for, in the order in which the authors' released code looks: the first that occurs decides.
_OTHER_CUES = {"who": r"\b(?:who|whom|whose)\b", "quantity": "how many|how much"}
_CUES = {kind: _OTHER_CUES.get(kind, rf"\b{kind}\b") for kind in NINE_TYPES[:-1]}


def nine_type(question: str, answer: str = "") -> str:
    """The type of a question, one of `NINE_TYPES`, by the paper's rule: `other` if it is answered by yes or no, else
    the first word of the list that stands anywhere in it (`In which city, and when?` is `when`).

    >>> nine_type("By whom was it built?"), nine_type("In what year, and how many?"), nine_type("Is it?", "Yes")
    ('who', 'what', 'other')
    """
    if answer.strip().casefold() in ("yes", "no"):
        return "other"
    text = " ".join(question.casefold().split())
    return next((kind for kind, cue in _CUES.items() if re.search(cue, text)), "other")
