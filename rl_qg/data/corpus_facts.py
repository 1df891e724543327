"""The facts of a passage of the embedded corpus, read back from its text.

A passage is read by the sentence templates of `rl_qg.data.synthetic_corpus`, one sentence at a time, so the facts are
known for every passage of the corpus, also where it comes from a file and nothing but its text is left.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from rl_qg.data.examples import QAExample
from rl_qg.data.synthetic_corpus import (
    COMPANY,
    GENRES,
    INDUSTRIES,
    KINDS,
    LANDMARKS,
    PERSON,
    PROFESSIONS,
    TOWN,
    WORK,
    Kind,
)

TRADES: Mapping[str, tuple[str, ...]] = {
    PERSON.name: tuple(PROFESSIONS),
    TOWN.name: tuple(LANDMARKS),
    WORK.name: tuple(GENRES),
    COMPANY.name: tuple(INDUSTRIES),
}
"""The trades (types, genres) that subjects of each kind are introduced with."""
SUBJECTS = 2  # of each passage
_SENTENCE = re.compile(r"[^.]+\.")


@dataclass(frozen=True)
class CorpusSubject:
    """What a passage is about: its name, and the detail that introduces it (`Ada Elmford`, `painter`, `Ulmville`)."""

    name: str
    trade: str
    origin: str


@dataclass(frozen=True)
class CorpusFact:
    """One statement: which relation of which subject (its index) has which value; `start` counts characters."""

    relation: str
    subject: int
    value: str
    start: int


@dataclass(frozen=True)
class CorpusFacts:
    """All that a passage states: the name of the kind of its subjects, both subjects, and its facts in order."""

    kind: str
    subjects: tuple[CorpusSubject, ...]
    facts: tuple[CorpusFact, ...]


@lru_cache(maxsize=8192)
def read_facts(context: str) -> CorpusFacts | None:
    """Read the facts of a passage; None for a text that is not a whole passage of the embedded corpus.

    A sentence with a pronoun (`They`, `The town`, `The firm`) is about the subject that was introduced last.
    """
    sentences = [(match.group().lstrip(), match.end()) for match in _SENTENCE.finditer(context)]
    if not sentences or sentences[-1][1] != len(context):
        return None
    for kind in KINDS:
        subjects: list[CorpusSubject] = []
        facts: list[CorpusFact] = []
        for sentence, end in sentences:
            fact = _fact(kind, subjects, sentence, end - len(sentence))
            subject = _subject(kind, len(subjects), sentence) if fact is None else None
            if fact is not None:
                facts.append(fact)
            elif subject is not None:
                subjects.append(subject)
            else:
                break
        else:
            return CorpusFacts(kind.name, tuple(subjects), tuple(facts)) if len(subjects) == SUBJECTS else None
    return None


def answered_fact(facts: CorpusFacts, example: QAExample) -> CorpusFact | None:
    """The fact whose value is one of the example's answers, at its place; None where there is none."""
    answers = {(answer.text, answer.start) for answer in example.answers}
    return next((fact for fact in facts.facts if (fact.value, fact.start) in answers), None)


def _fact(kind: Kind, subjects: list[CorpusSubject], sentence: str, offset: int) -> CorpusFact | None:
    """The fact that a sentence states about the last of the subjects; None where it states none."""
    if not subjects:
        return None
    names = (subjects[-1].name, kind.pronoun)
    for relation, pattern in _FACTS[kind.name]:
        if (match := pattern.fullmatch(sentence)) and match["s"] in names:
            return CorpusFact(relation, len(subjects) - 1, match["v"], offset + match.start("v"))
    return None


def _subject(kind: Kind, number: int, sentence: str) -> CorpusSubject | None:
    """The subject that a sentence introduces as the first (0) or second (1); None where it introduces none."""
    for pattern in _INTROS[kind.name][number] if number < SUBJECTS else ():
        if match := pattern.fullmatch(sentence):
            return CorpusSubject(match["s"], match["t"], match["o"])
    return None


def _patterns(templates: tuple[str, ...], trades: str = "") -> Iterator[re.Pattern[str]]:
    """The templates as patterns with the groups s (subject), v (value), t (trade) and o (origin)."""
    slots = {"s": ".+?", "v": ".+", "t": trades, "o": ".+"}
    for template in templates:
        parts = re.split(r"\{([svto])\}", template)
        slot_or_text = (
            f"(?P<{part}>{slots[part]})" if index % 2 else re.escape(part) for index, part in enumerate(parts)
        )
        yield re.compile("".join(slot_or_text))


_FACTS = {
    kind.name: [(relation.name, pattern) for relation in kind.relations for pattern in _patterns(relation.sentences)]
    for kind in KINDS
}
_INTROS = {
    kind.name: [list(_patterns(templates, "|".join(TRADES[kind.name]))) for templates in (kind.intros, kind.seconds)]
    for kind in KINDS
}
