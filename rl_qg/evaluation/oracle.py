"""The oracle of the embedded corpus: whether a question asks for the fact of its answer.

The passage's facts are read back from its text (`rl_qg.data.corpus_facts`) and the question is matched with the forms
of `rl_qg.evaluation.oracle_wordings`, so the verdict does not depend on any model. It is for evaluation; no reward
uses it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import DIFFERENCE, SHARE, Floats, PassageDraws, mean_interval, paired_interval
from rl_qg.data.corpus_facts import TRADES, CorpusFact, CorpusFacts, CorpusSubject, answered_fact, read_facts
from rl_qg.data.examples import QAExample
from rl_qg.data.synthetic_corpus import ADJECTIVES, COMPANY_ENDINGS, FIRST_NAMES, NOUNS
from rl_qg.evaluation.oracle_wordings import FORMS, LEXICON, PARAPHRASES, normalised, words_of

VERDICTS = ("right", "wrong_entity", "wrong_attribute", "ambiguous", "ill_formed")
NOUNS_OF_KINDS = {
    "person": "they|them|he|him|she|her|(?:person|man|woman|artist)",
    "town": "it|(?:town|city|place)",
    "work": "it|(?:piece|work|story|book)",
    "company": "it|(?:company|firm|business)",
}
"""Words for a subject that do not say which one: pronouns, and nouns, which may stand before a name."""
_GLUED = re.compile(r"[a-zà-ÿ][A-ZÀ-Ý]")  # two words without their space


@dataclass(frozen=True)
class _Reference:
    """How a question names its subject, in normalised words; empty for what it does not say."""

    name: str
    trade: str
    origin: str

    def fits(self, subject: CorpusSubject) -> bool:
        """Whether nothing that the question says contradicts the subject; a part of a name fits the name."""
        return (
            self.trade in ("", subject.trade)
            and _is_part(self.name, normalised(subject.name))
            and _is_part(self.origin, normalised(subject.origin))
        )


def judge(question: str, example: QAExample) -> str | None:
    """Say whether a question about the example's passage asks for the example's answer: one of `VERDICTS`.

    - right: the fact asked for has the answer, at the place of the answer;
    - wrong_entity: the right relation, of the other subject, of none of the passage, or with a contradicting detail;
    - wrong_attribute: another relation, also one that the passage does not state;
    - ambiguous: the right relation, but no subject is named, or what is named fits more than one;
    - ill_formed: no question that the corpus's forms and their paraphrases explain: unfinished, repeated, scrambled,
      or with a question word that does not suit the relation (`What is the mayor of …`).

    Case, quotes, articles, spaces and the question mark make no difference. A part of a name counts as the name where
    no other name of the passage has it. None for a passage that is not of the embedded corpus, and for an answer that
    is not one of its facts.
    """
    facts = read_facts(example.context)
    target = None if facts is None else answered_fact(facts, example)
    if facts is None or target is None:
        return None
    asked = _parse(question, facts.kind)
    if not asked:
        return "ill_formed"
    references = [reference for relation, reference in asked if relation == (facts.kind, target.relation)]
    if not references:
        return "wrong_attribute"
    found = [_verdict_on_subject(reference, facts, target) for reference in references]
    return "right" if "right" in found else found[0]  # a question that can be read in several ways


def _verdict_on_subject(reference: _Reference, facts: CorpusFacts, target: CorpusFact) -> str:
    """The verdict on a question of the right relation."""
    if reference == _Reference("", "", ""):
        return "ambiguous"
    fitting = {number for number, subject in enumerate(facts.subjects) if reference.fits(subject)}
    asked_for = [fact for fact in facts.facts if fact.relation == target.relation and fact.subject in fitting]
    if target not in asked_for:
        return "wrong_entity"
    return "right" if len(asked_for) == 1 and not _is_shared_part(reference, facts, target) else "ambiguous"


def _is_shared_part(reference: _Reference, facts: CorpusFacts, target: CorpusFact) -> bool:
    """Whether the question has only a part of the subject's name, which is also a part of another name or value."""
    name = normalised(facts.subjects[target.subject].name)
    if reference.name in ("", name):
        return False
    subjects = [text for subject in facts.subjects for text in (subject.name, subject.origin)]
    names = {normalised(text) for text in [*subjects, *(fact.value for fact in facts.facts)]} - {name}
    return any(_is_part(reference.name, other) for other in names)


def _is_part(part: str, name: str) -> bool:
    """Whether some neighbouring words of a name, or all of them, are `part`; the empty text is a part of each."""
    return f" {part} " in f" {name} " if part else True


# --- parsing


@lru_cache(maxsize=65536)
def _parse(question: str, kind: str) -> tuple[tuple[tuple[str, str], _Reference], ...]:
    """What a question may ask for: (kind, relation) and the reference to its subject; empty where it is ill-formed.

    Forms of the passage's own kind come first: `When was Alder Works founded?` asks for the start of a company.
    """
    plain = words_of(question).split()
    if _GLUED.search(question) or any(word == following for word, following in pairwise(plain)):
        return ()
    words = normalised(question)
    for name in (kind, *(other for other in FORMS if other != kind)):
        matches = [(relation, form.fullmatch(words)) for relation, form in FORMS[name]]
        asked = [
            ((name, relation), reference)
            for relation, match in matches
            if match is not None and (reference := _reference(match["s"], name)) is not None
        ]
        if asked:
            return tuple(asked)
    return ()


def _reference(words: str, kind: str) -> _Reference | None:
    """How a slot names a subject, first as one of this kind; None where it is no name and no description."""
    for name in (kind, *(other for other in FORMS if other != kind)):
        if (match := _REFERENCES[name].fullmatch(words)) and (not match["n"] or match["n"] != match["o"]):
            trade, after = match["t"] or "", match["t2"] or ""
            return _Reference(match["n"] or "", trade or after, match["o"] or "")
    return None


def _reference_pattern(kind: str) -> re.Pattern[str]:
    """`painter Ada Elmford from Ulmville` in normalised words: trade, name and origin may each be missing."""
    trades, nouns = "|".join(TRADES[kind]), NOUNS_OF_KINDS[kind]
    is_noun = kind in ("person", "work")  # a painter is a person, a harbour is no town: `harbour town`
    then = "(?: |$)" if is_noun else rf" (?={nouns})"
    word = rf"(?!(?:{'|'.join(_NO_NAME)})(?: |$))[^\W\d_]+(?:-[^\W\d_]+)*"
    return re.compile(
        rf"(?=.)(?:this |that )?(?:(?P<t>{trades}){then})?(?:(?:{nouns})(?: (?:of |called |named )?|$))?"
        rf"(?P<n>{word}(?: {word}){{0,2}})?(?: ?\b(?P<t2>{trades}){'' if is_noun else f' (?:{nouns})'})?"
        rf"(?: ?(?<= )(?:from|in|of|by)(?: province of)? (?P<o>{word}(?: {word})?))?"
    )


def _words_of_no_name() -> list[str]:
    """The words of question forms and the trades, without those that names consist of."""
    own = [pattern.pattern for forms in FORMS.values() for _, pattern in forms]
    paraphrases = [form for by_relation in PARAPHRASES.values() for forms in by_relation.values() for form in forms]
    words = {word for text in [*own, *paraphrases, *LEXICON.values()] for word in re.findall("[a-z]+", text)}
    words |= {"and", "at", "by", "for", "from", "in", "of", "on", "province", "that", "this", "to", "with", "s"}
    words |= {trade for trades in TRADES.values() for trade in trades}
    names = {name.casefold() for name in (*FIRST_NAMES, *ADJECTIVES, *NOUNS, *COMPANY_ENDINGS)}
    return sorted(words - names)


_NO_NAME = _words_of_no_name()
_REFERENCES = {kind: _reference_pattern(kind) for kind in FORMS}


# --- shares


def verdicts(questions: Sequence[str], examples: Sequence[QAExample]) -> list[str | None]:
    """`judge` for question i about example i."""
    return [judge(question, example) for question, example in zip(questions, examples, strict=True)]


def shares(given: Sequence[str | None], draws: PassageDraws) -> dict[str, Any] | None:
    """The share of each verdict, a fraction of the questions that have one, with its 95 % interval over passages.

    `given` are the verdicts on the questions of `draws`. Returns `{verdict: {mean, low, high, n, passages}}`, None
    where no question has a verdict: the passages are not of the embedded corpus.
    """
    if not any(given):
        return None
    return {verdict: asdict(mean_interval(column, draws, bounds=SHARE)) for verdict, column in _columns(given)}


def share_differences(
    last: Sequence[str | None], first: Sequence[str | None], draws: PassageDraws
) -> dict[str, Any] | None:
    """The paired differences of the shares of two sets of questions, with intervals, in the form of `shares`."""
    if not any(verdict and other for verdict, other in zip(last, first, strict=True)):
        return None
    pairs = zip(_columns(last), _columns(first), strict=True)
    return {verdict: asdict(paired_interval(a, b, draws, bounds=DIFFERENCE)) for (verdict, a), (_, b) in pairs}


def _columns(given: Sequence[str | None]) -> Iterable[tuple[str, Floats]]:
    """For each verdict 1 where it was given, 0 where another was, NaN where none was."""
    for verdict in VERDICTS:
        yield verdict, np.array([np.nan if one is None else float(one == verdict) for one in given])
