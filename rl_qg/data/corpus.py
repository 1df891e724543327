"""The embedded corpus: seeded synthetic passages and questions in any number, and the facts of a passage, read back.

Every passage introduces two subjects of the same kind (two people, two towns, two novels, two companies) and states
the same kinds of fact about both, so a question must name its subject and relation. Sentences and questions vary in
wording (`corpus.yaml`); a question may contain extra detail from the passage (where a person is from, who wrote a
book), so the generator has alternatives between which a reward can distinguish.
"""

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from rl_qg.data.examples import Answer, QAExample
from rl_qg.runtime.files import packaged_yaml

_WORDS: dict[str, Any] = packaged_yaml(__file__, "corpus.yaml")
_LISTS: dict[str, list[str]] = {name: words.split() for name, words in _WORDS.items() if isinstance(words, str)}
FIRST_NAMES, STEMS = _LISTS["first_names"], _LISTS["stems"]
ADJECTIVES, NOUNS, COMPANY_ENDINGS = _LISTS["adjectives"], _LISTS["nouns"], _LISTS["company_endings"]
SUBJECTS = 2  # of each passage
_SENTENCE = re.compile(r"[^.]+\.")


@dataclass(frozen=True)
class Relation:
    """One kind of fact. In the templates `{s}` is the subject, `{v}` the answer, `{d}` the subject with detail.

    `values` is what the answer is: a key of `_MAKERS`.
    """

    name: str
    values: str
    sentences: Sequence[str]
    questions: Sequence[str]


@dataclass(frozen=True)
class Kind:
    """One kind of subject: what its name and its origin are (keys of `_MAKERS`), the trades or types it may have, how
    the first and the second subject of a passage are introduced (`{s}`, `{t}` trade, `{o}` origin), and its facts.
    """

    name: str
    named: str
    origins: str
    trades: Sequence[str]
    intros: tuple[Sequence[str], Sequence[str]]
    detail: str
    pronoun: str
    relations: Sequence[Relation]


def _kind(name: str, entry: Mapping[str, Any]) -> Kind:
    relations = [Relation(relation, **parts) for relation, parts in entry["relations"].items()]
    intros, trades = (entry["first"], entry["second"]), entry["trades"].split()
    return Kind(name, entry["named"], entry["origins"], trades, intros, entry["detail"], entry["pronoun"], relations)


KINDS = [_kind(name, entry) for name, entry in _WORDS["kinds"].items()]
Wordings = Literal["all", "training", "held_out"]
QUESTION_WEIGHTS: Mapping[Wordings, tuple[float, float, float]] = {
    "all": (0.6, 0.25, 0.15),  # mostly the plain wording; a reward may prefer one of the others
    "training": (0.6, 0.25, 0.0),
    "held_out": (0.0, 0.0, 1.0),
}
PRONOUN_RATE = 0.25


def synthetic_examples(
    passages: int, *, seed: int, prefix: str = "world", shared_facts: float = 0.0, wordings: Wordings = "all"
) -> Iterator[QAExample]:
    """Yield the questions about so many passages. The same arguments give the same text.

    `prefix` begins the ids, and changes the text as the seed does. `shared_facts` is the probability that the second
    subject of a passage has the same relations as the first, so that each fact has one like it. `wordings`: the
    question forms, all three of each relation, those of `training` (two), or `held_out` (one); passages do not change.
    """
    rng = random.Random(f"{prefix}-{seed}")
    for number in range(passages):
        yield from _passage(rng, f"{prefix}-{seed}-{number}", shared_facts, QUESTION_WEIGHTS[wordings])


def _passage(
    rng: random.Random, key: str, shared_facts: float, weights: tuple[float, float, float]
) -> list[QAExample]:
    kind = rng.choice(KINDS)
    text = title = ""
    relations: Sequence[Relation] = ()
    facts: list[tuple[Relation, str, str, Answer]] = []
    for intros in kind.intros:
        subject, trade, origin = _MAKERS[kind.named](rng), rng.choice(kind.trades), _MAKERS[kind.origins](rng)
        title = title or subject
        text += ("" if not text else " ") + rng.choice(intros).format(s=subject, t=trade, o=origin)
        detail = kind.detail.format(s=subject, t=trade, o=origin)
        if relations and shared_facts > 0 and rng.random() < shared_facts:
            relations = rng.sample(relations, k=len(relations))
        else:
            relations = rng.sample(kind.relations, k=rng.randint(2, 3))
        for relation in relations:
            value = _MAKERS[relation.values](rng)
            template = rng.choice(relation.sentences)
            mention = kind.pronoun if template.startswith("{s}") and rng.random() < PRONOUN_RATE else subject
            before, after = template.split("{v}")
            start = len(text) + 1 + len(before.format(s=mention))
            text += " " + before.format(s=mention) + value + after.format(s=mention)
            facts.append((relation, subject, detail, Answer(value, start)))
    return [
        QAExample(
            id=f"{key}-{index}",
            title=title,
            context=text,
            question=rng.choices(relation.questions, weights)[0].format(s=subject, d=detail),
            answers=(answer,),
        )
        for index, (relation, subject, detail, answer) in enumerate(facts)
    ]


_MAKERS: Mapping[str, Callable[[random.Random], str]] = {
    "year": lambda rng: str(rng.randint(1402, 1998)),
    "number": lambda rng: f"{rng.randint(2, 98)},{rng.randint(100, 999)}",
    "stem": lambda rng: rng.choice(STEMS),
    "province": lambda rng: rng.choice(STEMS) + "ia",
    "town": lambda rng: rng.choice(STEMS) + rng.choice(_LISTS["town_endings"]),
    "surname": lambda rng: rng.choice(STEMS) + rng.choice(_LISTS["surname_endings"]),
    "person": lambda rng: f"{rng.choice(FIRST_NAMES)} {_MAKERS['surname'](rng)}",
    "company": lambda rng: f"{_MAKERS['surname'](rng)} {rng.choice(COMPANY_ENDINGS)}",
    "title": lambda rng: f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}",
    "crops": lambda rng: rng.choice(_LISTS["crops"]),
    "products": lambda rng: rng.choice(_LISTS["products"]),
    "settings": lambda rng: rng.choice(_WORDS["settings"]),
}


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
            if fact := _fact(kind, subjects, sentence, end - len(sentence)):
                facts.append(fact)
            elif subject := _introduced(kind, len(subjects), sentence):
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
    for relation, pattern in _FACTS[kind.name] if subjects else ():
        if (match := pattern.fullmatch(sentence)) and match["s"] in (subjects[-1].name, kind.pronoun):
            return CorpusFact(relation, len(subjects) - 1, match["v"], offset + match.start("v"))
    return None


def _introduced(kind: Kind, number: int, sentence: str) -> CorpusSubject | None:
    for pattern in _INTROS[kind.name][number] if number < SUBJECTS else ():
        if match := pattern.fullmatch(sentence):
            return CorpusSubject(match["s"], match["t"], match["o"])
    return None


def _patterns(templates: Sequence[str], trades: str = "") -> Iterator[re.Pattern[str]]:
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
    kind.name: [list(_patterns(templates, "|".join(kind.trades))) for templates in kind.intros] for kind in KINDS
}
