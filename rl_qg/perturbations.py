"""Questions made wrong by one change: another entity, another pronoun, a negation. Rules for English.

The kinds are those by which QRelScore was attacked (Wang et al., "QRelScore: Better Evaluating Generated Questions
with Deeper Understanding of Context-aware Relevance", EMNLP 2022), which go back to Kryściński et al., "Evaluating the
factual consistency of abstractive text summarization", EMNLP 2020. The rules here are our own. Most of the words stay,
so a metric must look at the one that changed.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from rl_qg.answer_rules import rule_spans
from rl_qg.answer_text import Span
from rl_qg.answer_words import PREPOSITIONS, VERBS
from rl_qg.filters import words

KINDS = ("entity", "pronoun", "negation")
Finder = Callable[[str], Sequence[Span]]
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_ASKING = frozenset("who what which when where why how whom whose".split())

_PRONOUNS = {
    **{"he": "she", "she": "he", "him": "her", "his": "her", "hers": "his", "himself": "herself"},
    **{"herself": "himself", "they": "we", "them": "us", "their": "our", "theirs": "ours", "we": "they"},
    **{"us": "them", "our": "their", "it": "he", "its": "his", "itself": "himself", "i": "you", "my": "your"},
    **{"you": "they", "your": "their", "themselves": "ourselves"},
}
_NEGATED = {
    **{"is": "isn't", "are": "aren't", "was": "wasn't", "were": "weren't", "do": "don't", "does": "doesn't"},
    **{"did": "didn't", "has": "hasn't", "have": "haven't", "had": "hadn't", "can": "can't", "could": "couldn't"},
    **{"will": "won't", "would": "wouldn't", "should": "shouldn't", "must": "mustn't", "may": "may not"},
    **{"might": "might not", "shall": "shall not"},
}
_AFFIRMED = {negated: plain for plain, negated in _NEGATED.items()} | {"cannot": "can"}


@dataclass(frozen=True)
class Change:
    """A question made wrong: its new text, and which words gave way to which."""

    question: str
    before: str
    after: str
    rule: str


def swap_entity(
    question: str,
    context: str,
    answer: str,
    find: Finder,
    others: Mapping[str, Sequence[str]],
    chance: random.Random,
) -> Change | None:
    """Put another entity of the same kind in the place of one: of the passage, where it has one that is neither in
    the question nor the answer; else of `others` (kind -> entities of other passages). None where the question has
    no entity, or nothing can take its place.
    """
    found = [span for span in find(question) if question[span.start : span.end].casefold() not in _ASKING]
    chance.shuffle(found)
    inside = [(span.kind, context[span.start : span.end]) for span in find(context)]
    used = set(words(question)) | set(words(answer))
    for span in found:
        own = question[span.start : span.end]
        here = [text for kind, text in inside if kind == span.kind]
        for rule, texts in (("passage", here), ("other passage", others.get(span.kind, ()))):
            taken = used | set(words(own))
            fresh = sorted({text for text in texts if words(text) and not taken & set(words(text))})
            if fresh:
                new = chance.choice(fresh)
                return Change(question[: span.start] + new + question[span.end :], own, new, rule)
    return None


def swap_pronoun(question: str, chance: random.Random) -> Change | None:
    """Put another pronoun in the place of one; None where the question has none."""
    found = [match for match in _WORD.finditer(question) if _other_pronoun(question, match)]
    if not found:
        return None
    match = chance.choice(found)
    return _replaced(question, match, _cased(_other_pronoun(question, match), match.group()), "pronoun")


def negate(question: str) -> Change | None:
    """Negate the first auxiliary verb, or affirm it where it is negated; without one the first verb behind the
    question word becomes `never …`, or `did not …` where WordNet (through nltk) knows its base form. None where there
    is neither.
    """
    found = list(_WORD.finditer(question))
    for place, match in enumerate(found):
        word = match.group().casefold().replace("’", "'")
        behind = re.match(r"\s+(?:not|n't)\b", question[match.end() :])
        if word in _AFFIRMED:
            return _replaced(question, match, _cased(_AFFIRMED[word], match.group()), "affirmed")
        if word in _NEGATED and behind:
            text = question[: match.end()] + question[match.end() + behind.end() :]
            return Change(text, match.group() + behind.group(), match.group(), "affirmed")
        if word in _NEGATED and not (place and found[place - 1].group().casefold() == "to"):
            return _replaced(question, match, _cased(_NEGATED[word], match.group()), "negated")
    return _negate_verb(question, found)


def _negate_verb(question: str, found: Sequence[re.Match[str]]) -> Change | None:
    start = next((place for place, match in enumerate(found) if match.group().casefold() in _ASKING), None)
    if start is None:
        return None
    for match in found[start + 1 : start + 5]:
        word = match.group().casefold()
        if word in PREPOSITIONS or not (word in VERBS or (word.endswith("ed") and len(word) > 4)):
            continue
        base = _base_form(word)
        form = "does" if word.endswith("s") else "did"
        new = f"{form} not {base}" if base and base != word else f"never {match.group()}"
        return _replaced(question, match, new, "negated verb")
    return None


def _base_form(verb: str) -> str | None:
    """What WordNet says; None without nltk or its data."""
    try:
        from nltk.corpus import wordnet
    except ImportError:
        return None
    try:
        found: str | None = wordnet.morphy(verb, wordnet.VERB)
    except LookupError:
        return None
    return found


def _other_pronoun(question: str, match: re.Match[str]) -> str:
    """The pronoun that takes a word's place; "" where it is none. `her` before a noun is `his`, else `him`."""
    word = match.group().casefold()
    if word == "her":
        following = re.match(r"\s+([^\W_]+)", question[match.end() :])
        return "his" if following and following[1].casefold() not in PREPOSITIONS else "him"
    return "" if match.group() == "IT" else _PRONOUNS.get(word, "")


def _replaced(question: str, match: re.Match[str], new: str, rule: str) -> Change:
    return Change(question[: match.start()] + new + question[match.end() :], match.group(), new, rule)


def _cased(new: str, old: str) -> str:
    return new[0].upper() + new[1:] if old[0].isupper() and old != "I" else new


def rule_finder(text: str) -> list[Span]:
    """Names, numbers, dates and titles that rules find; an acronym is a name."""
    found = (replace(span, kind="name") if span.kind == "acronym" else span for span in rule_spans(text))
    return [span for span in found if span.kind in ("name", "number", "date", "title")]


def entities_by_kind(contexts: Sequence[str], find: Finder) -> dict[str, list[str]]:
    """The entities of all passages by kind, each once, in the order in which they come."""
    found: dict[str, dict[str, None]] = {}
    for context in contexts:
        for span in find(context):
            found.setdefault(span.kind, {})[context[span.start : span.end]] = None
    return {kind: list(texts) for kind, texts in found.items()}
