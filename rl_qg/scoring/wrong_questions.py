"""Wrong questions about an answer, made by rule from right ones: what a reward should score below them.

The kinds differ in what a reward must know to tell. `ANSWER_KINDS` are well-formed questions about the same passage
that ask for something else; the others are about other passages, or badly formed.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence, Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

from rewards.overlap.answerability import looks_english
from rewards.words import split_question_mark
from rl_qg.data.corpus import KINDS as SUBJECT_KINDS, answered_fact, read_facts
from rl_qg.data.examples import QAExample, by_key, sentence_of
from rl_qg.generation.answer_rules import rule_spans
from rl_qg.readers.train_reader import with_other_word
from rl_qg.runtime.files import packaged_yaml
from rl_qg.text.english import ASKING, AUXILIARIES, CONJUNCTIONS, JOINING, PREPOSITIONS
from rl_qg.text.spans import Span
from rl_qg.text.words import normalised_words

# One change, by rules for English: another entity, another pronoun, so that a metric must notice the word that
# changed. The kinds are those by which QRelScore was attacked (Wang et al., EMNLP 2022), after Kryściński et al.,
# "Evaluating the factual consistency of abstractive text summarization", EMNLP 2020; the rules are new.


CHANGES = ("entity", "pronoun", "negation")
ANY_LANGUAGE = ("entity",)  # where entities are found by a pipeline of the language
EntityFinder = Callable[[str], Sequence[Span]]
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

_WORDS: Mapping[str, Any] = packaged_yaml(__file__, "separation.yaml")
_PRONOUNS: Mapping[str, str] = _WORDS["pronouns"]
_OBJECT = {"it": "him", "you": "them"}
_EMPTY = frozenset("mean means take takes possible common necessary important true".split())  # does it take
_IN = frozenset("across in near outside throughout within".split())
_TELL = frozenset("describe explain give identify list name state tell".split())
KINDS: Mapping[str, str] = _WORDS["kinds"]
"""The kinds of wrong questions, with what they are in words."""
ANSWER_KINDS = ("other_answer", "wrong_entity", "wrong_attribute")
TEMPLATE = "What does the passage say?"
_TRIES = 20  # random orders or passages, until one differs


@dataclass(frozen=True)
class Perturbation:
    """A question made wrong: its new text, which words were replaced, and by which."""

    question: str
    before: str
    after: str
    rule: str


def swap_entity(
    question: str,
    context: str,
    answer: str,
    find: EntityFinder,
    others: Mapping[str, Sequence[str]],
    chance: random.Random,
) -> Perturbation | None:
    """Replace an entity by another of the same kind: of the passage, where it has one that is neither in the question
    nor the answer; else of `others` (kind -> entities of other passages). None where the question has no entity, or
    nothing can replace it.
    """
    spans = [span for span in find(question) if _is_replaceable(question, span)]
    chance.shuffle(spans)
    inside = [(_slot(context, span), context[span.start : span.end]) for span in find(context)]
    used = set(normalised_words(question)) | set(normalised_words(answer))
    for span in spans:
        old, slot = question[span.start : span.end], _slot(question, span)
        known = used | set(normalised_words(old))
        of_passage = [text for kind, text in inside if kind == slot]
        for rule, texts in (("passage", of_passage), ("other passage", others.get(slot, ()))):
            usable = sorted({text for text in texts if normalised_words(text) and _is_other(text, old, known)})
            if usable:
                new = chance.choice(usable)
                return Perturbation(question[: span.start] + new + question[span.end :], old, new, rule)
    return None


def _is_replaceable(question: str, span: Span) -> bool:
    """Whether a span is a whole entity: no part of a compound (`973–1048`, `UK-wide`) or of a longer name (`du Pont`),
    and no word that asks (`Name a river`).
    """
    text, before, after = question[span.start : span.end].casefold(), question[: span.start], question[span.end :]
    joined = re.search(r"[\w–—-]$", before) or re.match(r"[\w–—-]", after)
    word = WORD.findall(before)[-1:]
    return not (joined or text in ASKING | _TELL or (word and word[0] in JOINING - {"of"}))


def _slot(text: str, span: Span) -> str:
    """What can replace an entity: its kind; a name after `in` is a place, and one after `the` keeps the article; of
    numbers the form, so that a number word does not replace a percentage.
    """
    if span.kind in ("number", "date"):
        return re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", text[span.start : span.end])) + f" {span.kind}"
    before = ["", "", *WORD.findall(text[: span.start].casefold())]
    article = before[-1] == "the"
    place = before[-2 if article else -1] in _IN
    return "in " * place + "the " * article + span.kind


def _is_other(text: str, replaced: str, known: AbstractSet[str]) -> bool:
    """Whether an entity is another one: no word is known, nor is it another form (Amazonian, USA) of the other."""
    new, old = normalised_words(text), normalised_words(replaced)
    stem = any(a[:4] == b[:4] for a in new for b in old if min(len(a), len(b)) >= 4)
    acronym = any(
        len(name) > 1 and short and "".join(word[0] for word in name)[:2] == short[0][:2]
        for name, short in ((new, old), (old, new))
    )
    return not (known & set(new) or stem or acronym)


def swap_pronoun(question: str, chance: random.Random) -> Perturbation | None:
    matches = [match for match in WORD.finditer(question) if _other_pronoun(question, match)]
    if not matches:
        return None
    match = chance.choice(matches)
    return replaced(question, match, cased(_other_pronoun(question, match), match.group()), "pronoun")


def _other_pronoun(question: str, match: re.Match[str]) -> str:
    """The pronoun of a word; "" if none. `her` before a noun is `his`, else `him`; `it` that is no subject `him`."""
    word = match.group().casefold()
    before = (WORD.findall(question[: match.start()].casefold()) or [""])[-1]
    after = (WORD.findall(question[match.end() :]) or [""])[0]
    if word == "i":  # not of World War I, Elizabeth I
        asks = not before or before in (AUXILIARIES | CONJUNCTIONS) - {"am", "was"}
        return "you" if asks and match.group() == "I" and after.islower() else ""
    if not match.group().islower() and (before or match.group().isupper()):
        return ""  # the US, an IT firm, the film It
    after = after.casefold()
    if word == "her":
        return "him" if not after or after in PREPOSITIONS | CONJUNCTIONS | AUXILIARIES else "his"
    if word in _OBJECT:
        if after in _EMPTY:
            return ""
        subject = before in AUXILIARIES | CONJUNCTIONS or after in AUXILIARIES
        return _PRONOUNS[word] if not before or (subject and before not in PREPOSITIONS) else _OBJECT[word]
    return _PRONOUNS.get(word, "")


def replaced(question: str, match: re.Match[str], new: str, rule: str) -> Perturbation:
    return Perturbation(question[: match.start()] + new + question[match.end() :], match.group(), new, rule)


def cased(new: str, old: str) -> str:
    """A word with the capital that another begins with."""
    return new[0].upper() + new[1:] if old[0].isupper() and old != "I" else new


def rule_finder(text: str) -> list[Span]:
    """Names, numbers, dates and titles that rules find; an acronym is a name."""
    spans = (replace(span, kind="name") if span.kind == "acronym" else span for span in rule_spans(text))
    return [span for span in spans if span.kind in ("name", "number", "date", "title")]


def entities_by_kind(contexts: Sequence[str], find: EntityFinder) -> dict[str, list[str]]:
    """The entities of all passages by what they can replace (`_slot`), each once, in the order of the finder."""
    entities: dict[str, dict[str, None]] = {}
    for context in contexts:
        for span in find(context):
            entities.setdefault(_slot(context, span), {})[context[span.start : span.end]] = None
    return {kind: list(texts) for kind, texts in entities.items()}


def wrong_questions(
    examples: Sequence[QAExample], pool: Sequence[QAExample], seed: int
) -> dict[str, list[str | None]]:
    """For each of `KINDS` one wrong question for each example, None where there is none. The seed, an example's id and
    the pool decide.

    On the embedded corpus `wrong_entity` is the same question about the passage's other subject, and `wrong_attribute`
    one about another relation of the same subject. On other English text `wrong_entity` replaces a name, number or
    date by `swap_entity`, and there is no `wrong_attribute`. `template` is for English alone, and questions in scripts
    without spaces, which are one word here, are neither shuffled nor cut. Each example has a question and an answer.
    `pool`: where questions of other passages and other answers come from; the examples are added to it.
    """
    known = list(dict.fromkeys(item for item in (*examples, *pool) if item.question))
    by_passage = by_key((item.context, item) for item in known)
    others = entities_by_kind(list(dict.fromkeys(item.context for item in examples)), rule_finder)
    made: dict[str, list[str | None]] = {kind: [] for kind in KINDS}
    for example in examples:
        question, chance = example.question, random.Random(f"{seed} {example.id}")
        is_english = looks_english(question)
        entity, attribute = _of_other_facts(example, chance)
        if is_english and read_facts(example.context) is None:
            swapped = swap_entity(question, example.context, example.answers[0].text, rule_finder, others, chance)
            entity = swapped.question if swapped else None
        words, mark = _words(question)
        half = len(words) // 2
        orders = (chance.sample(words, len(words)) for _ in range(_TRIES))
        questions = {
            "other_answer": _of_other_answer(example, by_passage[example.context], chance),
            "wrong_entity": entity,
            "wrong_attribute": attribute,
            "other_passage": _of_other_passage(example, known, chance),
            "copied": _copied(example),
            "template": TEMPLATE if is_english else None,
        }
        changed = {
            "shuffled": next((order for order in orders if order != words), None),
            "fragment": words[:half] if half else None,
            "repeated": [*words, *words[half:]],
        }
        if (other := _of_other_passage(example, known, chance)) is not None:
            changed["other_word"] = with_other_word(words, _words(other)[0], chance)
        questions |= {kind: " ".join(new) + mark if new else None for kind, new in changed.items()}
        for kind, texts in made.items():
            texts.append(None if questions.get(kind) == question else questions.get(kind))
    return made


def _of_other_answer(example: QAExample, about: Sequence[QAExample], chance: random.Random) -> str | None:
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
    own, other = (
        {"s": one.name, "d": kind.detail.format(s=one.name, t=one.trade, o=one.origin)}
        for one in (facts.subjects[fact.subject], facts.subjects[1 - fact.subject])
    )
    forms = (number for number, form in enumerate(relation.questions) if form.format(**own) == example.question)
    form = next(forms, None)
    if form is None:
        return None, None
    another = chance.choice([one for one in kind.relations if one is not relation])
    entity = relation.questions[form].format(**other) if own["s"] != other["s"] else None
    return entity, another.questions[form].format(**own)


def _copied(example: QAExample) -> str:
    start = example.answers[0].start
    begin, end = sentence_of(example.context, start, start + 1)
    return example.context[begin:end].strip().rstrip(".!。！…") + "?"


def _words(question: str) -> tuple[list[str], str]:
    text, mark = split_question_mark(question)
    return text.split(), mark
