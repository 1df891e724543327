"""Wrong questions about an answer, made by rule from right ones: what a reward should score below them.

The kinds differ in what a reward must know to tell. `ANSWER_KINDS` are well-formed questions about the same passage
that ask for something else; the others are about other passages, or badly formed.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from rewards.overlap.word_classes import looks_english
from rewards.words import split_question_mark
from rl_qg.data.corpus_facts import answered_fact, read_facts
from rl_qg.data.examples import QAExample
from rl_qg.data.synthetic_corpus import KINDS as SUBJECT_KINDS
from rl_qg.evaluation.meta.perturbations import entities_by_kind, rule_finder, swap_entity
from rl_qg.readers.unanswerable import with_other_word
from rl_qg.text.spans import sentences

KINDS: Mapping[str, str] = {
    "other_answer": "another answer's question of the same passage",
    "wrong_entity": "the question with another name",
    "wrong_attribute": "a question about something else of the same subject",
    "other_passage": "another passage's question",
    "shuffled": "its words in random order",
    "fragment": "its first half",
    "repeated": "with its second half repeated",
    "other_word": "one of its words, no name, replaced",
    "copied": "the passage's sentence with the answer, as a question",
    "template": "a question that fits every passage",
}
"""The kinds of wrong questions, with what they are in words."""
ANSWER_KINDS = ("other_answer", "wrong_entity", "wrong_attribute")
TEMPLATE = "What does the passage say?"
_TRIES = 20  # random orders or passages, until one differs


def wrong_questions(
    examples: Sequence[QAExample], pool: Sequence[QAExample], seed: int
) -> dict[str, list[str | None]]:
    """For each of `KINDS` one wrong question for each example, None where there is none.

    On the embedded corpus `wrong_entity` is the same question about the passage's other subject, and
    `wrong_attribute` one about another relation of the same subject. On other English text `wrong_entity` replaces a
    name, number or date by rule (`rl_qg.evaluation.meta.perturbations.swap_entity`), and there is no
    `wrong_attribute`. `template` is for English alone, and questions in scripts without spaces, which are one word
    here, are neither shuffled nor cut. The seed, an example's id and the pool decide.

    Args:
        examples: with a question and an answer each.
        pool: where questions of other passages and other answers come from; the examples are added to it.
        seed: of all choices.
    """
    known = list(dict.fromkeys(item for item in (*examples, *pool) if item.question))
    by_passage: dict[str, list[QAExample]] = {}
    for item in known:
        by_passage.setdefault(item.context, []).append(item)
    others = entities_by_kind(list(dict.fromkeys(item.context for item in examples)), rule_finder)
    made: dict[str, list[str | None]] = {kind: [] for kind in KINDS}
    for example in examples:
        chance = random.Random(f"{seed} {example.id}")
        entity, attribute = _of_other_facts(example, chance)
        if read_facts(example.context) is None and looks_english(example.question):
            answer = example.answers[0].text
            swapped = swap_entity(example.question, example.context, answer, rule_finder, others, chance)
            entity = swapped.question if swapped else None
        questions = {
            "other_answer": _of_other_answer(example, by_passage[example.context], chance),
            "wrong_entity": entity,
            "wrong_attribute": attribute,
            "other_passage": _of_other_passage(example, known, chance),
            "copied": _copied(example),
            "template": TEMPLATE if looks_english(example.question) else None,
            **{kind: change(example.question, chance) for kind, change in _CHANGES.items()},
            "other_word": _with_other_word(example, known, chance),
        }
        for kind, question in questions.items():
            made[kind].append(None if question == example.question else question)
    return made


def _of_other_answer(example: QAExample, about: Sequence[QAExample], chance: random.Random) -> str | None:
    """A question about the same passage that has none of the example's answers."""
    mine = {answer.text.casefold() for answer in example.answers}
    questions = [one.question for one in about if mine.isdisjoint(answer.text.casefold() for answer in one.answers)]
    return chance.choice(questions) if questions else None


def _of_other_passage(example: QAExample, known: Sequence[QAExample], chance: random.Random) -> str | None:
    drawn = (chance.choice(known) for _ in range(_TRIES))
    return next((one.question for one in drawn if one.context != example.context), None)


def _of_other_facts(example: QAExample, chance: random.Random) -> tuple[str | None, str | None]:
    """The same question about the other subject, and one about another relation of its own subject; None and None
    where passage or question are not of the embedded corpus.
    """
    facts = read_facts(example.context)
    fact = None if facts is None else answered_fact(facts, example)
    if facts is None or fact is None:
        return None, None
    kind = next(kind for kind in SUBJECT_KINDS if kind.name == facts.kind)
    relation = next(relation for relation in kind.relations if relation.name == fact.relation)
    slots = []
    for subject in (facts.subjects[fact.subject], facts.subjects[1 - fact.subject]):
        detail = kind.detail.format(s=subject.name, t=subject.trade, o=subject.origin)
        slots.append({"s": subject.name, "d": detail})
    own, other = slots
    used = [number for number, form in enumerate(relation.questions) if form.format(**own) == example.question]
    if not used:
        return None, None
    another = chance.choice([one for one in kind.relations if one is not relation])
    entity = relation.questions[used[0]].format(**other) if own["s"] != other["s"] else None
    return entity, another.questions[used[0]].format(**own)


def _shuffled(question: str, chance: random.Random) -> str | None:
    words, mark = _words(question)
    orders = (chance.sample(words, len(words)) for _ in range(_TRIES))
    return next((" ".join(order) + mark for order in orders if order != words), None)


def _fragment(question: str, chance: random.Random) -> str | None:
    words, mark = _words(question)
    return " ".join(words[: len(words) // 2]) + mark if len(words) > 1 else None


def _repeated(question: str, chance: random.Random) -> str | None:
    words, mark = _words(question)
    return " ".join([*words, *words[len(words) // 2 :]]) + mark if words else None


def _with_other_word(example: QAExample, known: Sequence[QAExample], chance: random.Random) -> str | None:
    """With a word of another passage's question, which is no name either."""
    other = _of_other_passage(example, known, chance)
    if other is None:
        return None
    words, mark = _words(example.question)
    return " ".join(with_other_word(words, _words(other)[0], chance)) + mark


def _copied(example: QAExample) -> str | None:
    """The sentence that the answer begins in, with a question mark."""
    start = example.answers[0].start
    for begin, end in sentences(example.context):
        if begin <= start < end:
            return example.context[begin:end].strip().rstrip(".!。！…") + "?"
    return None


def _words(question: str) -> tuple[list[str], str]:
    """The words of a question without its question mark, and the mark."""
    text, mark = split_question_mark(question)
    return text.split(), mark


_CHANGES: Mapping[str, Callable[[str, random.Random], str | None]] = {
    "shuffled": _shuffled,
    "fragment": _fragment,
    "repeated": _repeated,
}
