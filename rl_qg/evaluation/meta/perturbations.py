"""Questions made wrong by one change: another entity, another pronoun. Rules for English.

The kinds are those by which QRelScore was attacked (Wang et al., "QRelScore: Better Evaluating Generated Questions
with Deeper Understanding of Context-aware Relevance", EMNLP 2022), which go back to Kryściński et al., "Evaluating the
factual consistency of abstractive text summarization", EMNLP 2020. The rules are new. Most words stay as they were, so
a metric must notice the one that changed.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from rl_qg.generation.answers.rules import rule_spans
from rl_qg.text.english_verbs import ASKING
from rl_qg.text.english_words import AUXILIARIES, CONJUNCTIONS, JOINING, PREPOSITIONS
from rl_qg.text.spans import Span
from rl_qg.text.words import normalised_words

KINDS = ("entity", "pronoun", "negation")
ANY_LANGUAGE = ("entity",)  # where entities are found by a pipeline of the language
EntityFinder = Callable[[str], Sequence[Span]]
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")

_PRONOUNS = {
    **{"he": "she", "she": "he", "him": "her", "his": "her", "hers": "his", "himself": "herself"},
    **{"herself": "himself", "they": "we", "them": "us", "their": "our", "theirs": "ours", "we": "they"},
    **{"us": "them", "our": "their", "it": "he", "its": "his", "itself": "himself", "my": "your"},
    **{"you": "they", "your": "their", "themselves": "ourselves"},
}
_OBJECT = {"it": "him", "you": "them"}
_EMPTY = frozenset(
    "mean means take takes possible common necessary important true".split()
)  # does it take, is it common
_IN = frozenset("across in near outside throughout within".split())
_TELL = frozenset("describe explain give identify list name state tell".split())


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
    before = WORD.findall(text[: span.start].casefold())[-2:]
    article = before[-1:] == ["the"]
    preposition = (before[:-1] if article else before)[-1:]
    return " ".join(
        [*(["in"] if preposition and preposition[0] in _IN else []), *(["the"] if article else []), span.kind]
    )


def _is_other(text: str, replaced: str, known: AbstractSet[str]) -> bool:
    """Whether an entity is another one: none of its words is known, nor is it another form (Amazonian, USA) of the
    replaced one.
    """
    new, old = normalised_words(text), normalised_words(replaced)
    stem = any(a[:4] == b[:4] for a in new for b in old if min(len(a), len(b)) >= 4)
    acronym = any(
        len(name) > 1 and short and "".join(word[0] for word in name)[:2] == short[0][:2]
        for name, short in ((new, old), (old, new))
    )
    return not (known & set(new) or stem or acronym)


def swap_pronoun(question: str, chance: random.Random) -> Perturbation | None:
    """Replace a pronoun by another; None where the question has none."""
    matches = [match for match in WORD.finditer(question) if _other_pronoun(question, match)]
    if not matches:
        return None
    match = chance.choice(matches)
    return replaced(question, match, cased(_other_pronoun(question, match), match.group()), "pronoun")


def _other_pronoun(question: str, match: re.Match[str]) -> str:
    """The pronoun that replaces a word; "" where the word is none. `her` before a noun is `his`, else `him`; `it` that
    is no subject is `him`.
    """
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
    """The question with another text for a matched word."""
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
