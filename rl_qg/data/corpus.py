"""The facts of a passage of the embedded corpus, read back from its text.

A passage is read by the sentence templates of `rl_qg.data.corpus`, one sentence at a time, so the facts are
known for every passage of the corpus, also where it comes from a file and nothing but its text is left.
"""

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from rl_qg.data.examples import Answer, QAExample

# The embedded corpus: seeded synthetic passages and questions in SQuAD format, in any number.
#
# Every passage introduces two subjects of the same kind (two people, two towns, two novels, two companies) and states
# the same kinds of fact about both, so a question must name its subject and relation. Sentences and questions vary in
# wording; a question may contain extra detail from the passage (where a person is from, who wrote a book), so the
# generator has alternatives between which a reward can distinguish.


FIRST_NAMES = (
    "Ada Albin Berta Carlo Celia Dario Edda Elias Fiona Gregor Hanna Hugo Ines Ivan Jonas Judit Karin Lars "
    "Leona Lukas Marta Milo "
    "Nadia Nils Olga Oskar Paula Petra Rafael Rosa Silas Sonja Tomas Ursula Viktor Vera Walter Xenia Yara Zeno"
).split()
STEMS = (
    "Alder Bram Cald Dorn Elm Falk Garn Hart Isen Jarn Kell Lind Marn Nord Oster Pell Quill Ravn Stor Thorn "
    "Ulm Vald Wend Yarr Zell "
    "Arn Birk Corv Dahl Ekl Fenn Grim Holt Irm Jess Krag Lorn Mold Nev Orl Prim Rusk Sorn Tarn Umb Vess Wick Zorn"
).split()
SURNAME_ENDINGS = "sen berg mann ley ova ini escu ford well ström".split()
TOWN_ENDINGS = "ville burg mouth haven stad field dorf minster grad ton".split()
COMPANY_ENDINGS = "Brothers Works Mills Trust Sons Foundry".split()
ADJECTIVES = (
    "Silent Crimson Broken Golden Hidden Distant Burning Frozen Hollow Restless Silver Wandering Faithful "
    "Bitter Quiet Stolen"
).split()
NOUNS = (
    "Harbor Garden Mirror Orchard Lantern River Bridge Winter Voyage Tower Island Letter Crown Forest Window Journey"
).split()
PROFESSIONS = "painter composer chemist carpenter novelist physician geologist sculptor botanist philosopher".split()
PRODUCTS = "bicycles clocks pianos lamps carpets cameras tractors glassware telescopes shoes".split()
CROPS = "apples cheese wool honey wine timber salt barley tea linen".split()
LANDMARKS = "cathedral lighthouse castle library harbour bridge market theatre".split()
SETTINGS = (
    "a fishing village;a mountain hotel;a royal court;a desert fortress;a border town;a coal mine;a sailing ship;"
    "a boarding school"
).split(";")
GENRES = "novel play sonata film poem ballad".split()
INDUSTRIES = "family trading private public".split()


@dataclass(frozen=True)
class Relation:
    """One kind of fact. In the templates `{s}` is the subject, `{v}` the answer, `{d}` the subject with detail."""

    name: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]


@dataclass(frozen=True)
class Kind:
    """One kind of subject: how it is introduced (`{s}`, `{t}` trade or type, `{o}` origin), and its facts."""

    name: str
    intros: tuple[str, ...]
    seconds: tuple[str, ...]
    detail: str
    pronoun: str
    relations: tuple[Relation, ...]


PERSON = Kind(
    "person",
    ("{s} was a {t} from {o}.", "A {t} by trade, {s} came from {o}.", "{s}, a {t}, grew up in {o}."),
    (
        "A rival of this circle was {s}, a {t} from {o}.",
        "The {t} {s} from {o} belonged to the same generation.",
        "Often compared with them is {s}, a {t} from {o}.",
    ),
    "the {t} {s} from {o}",
    "They",
    (
        Relation(
            "birth",
            ("{s} was born in {v}.", "The birth of {s} is dated to {v}.", "{s} came into the world in {v}."),
            ("When was {s} born?", "In what year was {d} born?", "What is the year of birth of {s}?"),
        ),
        Relation(
            "work",
            ('The best known work of {s} is "{v}".', '{s} became famous with "{v}".', '{s} is remembered for "{v}".'),
            ("What is the best known work of {s}?", "Which work made {d} famous?", "What is {s} remembered for?"),
        ),
        Relation(
            "teacher",
            ("{s} studied under {v}.", "{v} was the teacher of {s}.", "{s} learned the craft from {v}."),
            ("Who was the teacher of {s}?", "Under whom did {d} study?", "From whom did {s} learn the craft?"),
        ),
        Relation(
            "residence",
            ("Later in life {s} moved to {v}.", "{s} settled in {v} for good.", "{s} spent the last years in {v}."),
            (
                "Where did {s} move later in life?",
                "In which town did {d} settle?",
                "Where did {s} spend the last years?",
            ),
        ),
        Relation(
            "prize",
            (
                "{s} received the {v} Prize.",
                "The {v} Prize was awarded to {s}.",
                "{s} was honoured with the {v} Prize.",
            ),
            ("Which prize did {s} receive?", "Which prize was awarded to {d}?", "What prize was {s} honoured with?"),
        ),
    ),
)
TOWN = Kind(
    "town",
    (
        "{s} is a {t} town in the province of {o}.",
        "In the province of {o} lies the {t} town of {s}.",
        "{s} is known as a {t} town of {o}.",
    ),
    (
        "Its neighbour {s} is a {t} town of {o}.",
        "Not far away is {s}, a {t} town in {o}.",
        "The road leads on to {s}, a {t} town of {o}.",
    ),
    "the {t} town of {s} in {o}",
    "The town",
    (
        Relation(
            "founding",
            (
                "{s} was founded in {v}.",
                "The first houses of {s} were built in {v}.",
                "The charter of {s} dates from {v}.",
            ),
            ("When was {s} founded?", "In what year was {d} founded?", "What year does the charter of {s} date from?"),
        ),
        Relation(
            "population",
            ("{s} has {v} inhabitants.", "The population of {s} is {v}.", "About {v} people live in {s}."),
            ("How many inhabitants does {s} have?", "How many people live in {d}?", "What is the population of {s}?"),
        ),
        Relation(
            "mayor",
            ("The mayor of {s} is {v}.", "{v} governs {s} as mayor.", "{s} elected {v} as its mayor."),
            ("Who is the mayor of {s}?", "Who governs {d} as mayor?", "Whom did {s} elect as its mayor?"),
        ),
        Relation(
            "product",
            ("{s} is famous for its {v}.", "Merchants come to {s} for {v}.", "The people of {s} live from {v}."),
            ("What is {s} famous for?", "What do the people of {d} live from?", "What do merchants come to {s} for?"),
        ),
        Relation(
            "river",
            (
                "{s} lies on the river {v}.",
                "The river {v} flows through {s}.",
                "{s} was built on the banks of the river {v}.",
            ),
            (
                "Which river does {s} lie on?",
                "Which river flows through {d}?",
                "On the banks of which river was {s} built?",
            ),
        ),
    ),
)
WORK = Kind(
    "work",
    ('"{s}" is a {t} by {o}.', 'The {t} "{s}" was written by {o}.', 'Among the works of {o} is the {t} "{s}".'),
    (
        'It is often paired with "{s}", a {t} by {o}.',
        'Critics prefer the {t} "{s}" by {o}.',
        'In the same season came "{s}", a {t} by {o}.',
    ),
    'the {t} "{s}" by {o}',
    "The piece",
    (
        Relation(
            "year",
            (
                '"{s}" appeared in {v}.',
                'The first performance of "{s}" took place in {v}.',
                'The public saw "{s}" first in {v}.',
            ),
            (
                'When did "{s}" appear?',
                "In what year did the public first see {d}?",
                'When did the first performance of "{s}" take place?',
            ),
        ),
        Relation(
            "setting",
            ('"{s}" is set in {v}.', 'The story of "{s}" takes place in {v}.', 'The action of "{s}" unfolds in {v}.'),
            (
                'Where is "{s}" set?',
                "Where does the story of {d} take place?",
                'Where does the action of "{s}" unfold?',
            ),
        ),
        Relation(
            "hero",
            (
                'The hero of "{s}" is called {v}.',
                'At the centre of "{s}" stands {v}.',
                '"{s}" follows the fate of {v}.',
            ),
            ('Who is the hero of "{s}"?', "Who stands at the centre of {d}?", 'Whose fate does "{s}" follow?'),
        ),
        Relation(
            "place",
            (
                '"{s}" was first shown in {v}.',
                'The premiere of "{s}" was held in {v}.',
                'Audiences in {v} were the first to see "{s}".',
            ),
            (
                'Where was "{s}" first shown?',
                "In which town was the premiere of {d} held?",
                'Where were audiences the first to see "{s}"?',
            ),
        ),
    ),
)
COMPANY = Kind(
    "company",
    (
        "{s} is a {t} company from {o}.",
        "The {t} company {s} comes from {o}.",
        "In {o} people know the {t} company {s}.",
    ),
    (
        "Its competitor {s} is a {t} company from {o}.",
        "The market is shared with {s}, a {t} company from {o}.",
        "Another name is {s}, a {t} company from {o}.",
    ),
    "the {t} company {s} from {o}",
    "The firm",
    (
        Relation(
            "founder",
            ("{s} was founded by {v}.", "The founder of {s} was {v}.", "It was {v} who started {s}."),
            ("Who founded {s}?", "Who was the founder of {d}?", "Who started {s}?"),
        ),
        Relation(
            "goods",
            ("{s} makes {v}.", "The workshops of {s} produce {v}.", "{s} earns its money with {v}."),
            ("What does {s} make?", "What do the workshops of {d} produce?", "What does {s} earn its money with?"),
        ),
        Relation(
            "staff",
            ("{s} employs {v} workers.", "A total of {v} people work for {s}.", "The staff of {s} numbers {v}."),
            ("How many workers does {s} employ?", "How many people work for {d}?", "How large is the staff of {s}?"),
        ),
        Relation(
            "start",
            (
                "{s} opened its doors in {v}.",
                "The history of {s} began in {v}.",
                "{s} has been in business since {v}.",
            ),
            (
                "When did {s} open its doors?",
                "In what year did the history of {d} begin?",
                "Since when has {s} been in business?",
            ),
        ),
    ),
)
KINDS = (PERSON, TOWN, WORK, COMPANY)
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
    """Yield the questions about `passages` passages. The same arguments give the same text.

    Args:
        passages: how many.
        seed: of the facts and their wording.
        prefix: of the ids; it also changes the text, as the seed does.
        shared_facts: the probability that the second subject of a passage has the same relations as the first, so
            that each fact has one like it.
        wordings: the question forms: all three of each relation, the two of `training`, or the other, `held_out`.
            The passages are the same.
    """
    rng = random.Random(f"{prefix}-{seed}")
    for number in range(passages):
        yield from _passage(rng, f"{prefix}-{seed}-{number}", shared_facts, QUESTION_WEIGHTS[wordings])


def _passage(
    rng: random.Random, key: str, shared_facts: float, weights: tuple[float, float, float]
) -> list[QAExample]:
    kind = rng.choice(KINDS)
    text = ""
    relations: list[Relation] = []
    facts: list[tuple[Relation, str, str, Answer]] = []
    title = ""
    for intros in (kind.intros, kind.seconds):
        subject, trade, origin = _subject(rng, kind)
        title = title or subject
        text += ("" if not text else " ") + rng.choice(intros).format(s=subject, t=trade, o=origin)
        detail = kind.detail.format(s=subject, t=trade, o=origin)
        relations = _relations(rng, kind, relations, shared_facts)
        for relation in relations:
            value = _value(rng, relation.name)
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


def _relations(rng: random.Random, kind: Kind, first: list[Relation], shared_facts: float) -> list[Relation]:
    """Two or three relations of a new subject; those of the `first` one, in another order, with this probability."""
    if first and shared_facts > 0 and rng.random() < shared_facts:
        return rng.sample(first, k=len(first))
    return rng.sample(kind.relations, k=rng.randint(2, 3))


def _subject(rng: random.Random, kind: Kind) -> tuple[str, str, str]:
    """Name, trade and origin of a new subject."""
    if kind is PERSON:
        return _person(rng), rng.choice(PROFESSIONS), _town(rng)
    if kind is TOWN:
        return _town(rng), rng.choice(LANDMARKS), _stem(rng) + "ia"
    if kind is WORK:
        return _title(rng), rng.choice(GENRES), _person(rng)
    return f"{_surname(rng)} {rng.choice(COMPANY_ENDINGS)}", rng.choice(INDUSTRIES), _town(rng)


def _value(rng: random.Random, relation: str) -> str:
    if relation in ("birth", "founding", "year", "start"):
        return str(rng.randint(1402, 1998))
    if relation in ("population", "staff"):
        return f"{rng.randint(2, 98)},{rng.randint(100, 999)}"
    if relation in ("teacher", "mayor", "hero", "founder"):
        return _person(rng)
    if relation in ("residence", "place"):
        return _town(rng)
    if relation == "work":
        return _title(rng)
    if relation in ("prize", "river"):
        return _stem(rng)
    return rng.choice({"product": CROPS, "goods": PRODUCTS, "setting": SETTINGS}[relation])


def _stem(rng: random.Random) -> str:
    return rng.choice(STEMS)


def _surname(rng: random.Random) -> str:
    return rng.choice(STEMS) + rng.choice(SURNAME_ENDINGS)


def _person(rng: random.Random) -> str:
    return f"{rng.choice(FIRST_NAMES)} {_surname(rng)}"


def _town(rng: random.Random) -> str:
    return rng.choice(STEMS) + rng.choice(TOWN_ENDINGS)


def _title(rng: random.Random) -> str:
    return f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"


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
            subject = _introduced(kind, len(subjects), sentence) if fact is None else None
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


def _introduced(kind: Kind, number: int, sentence: str) -> CorpusSubject | None:
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
