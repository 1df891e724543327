"""The oracle of the embedded corpus: whether a question asks for the fact of its answer.

The passage's facts are read back from its text (`rl_qg.data.corpus`) and the question is matched with the forms of the
corpus and of `oracle.yaml`, so the verdict does not depend on any model. It is for evaluation; no reward uses it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from rl_qg.data import corpus
from rl_qg.data.examples import QAExample
from rl_qg.runtime.files import packaged_yaml
from rl_qg.stats.intervals import SHARE, Floats, PassageDraws, mean_interval, paired_interval

_WORDINGS: dict[str, Any] = packaged_yaml(__file__, "oracle.yaml")
LEXICON: Mapping[str, str] = _WORDINGS["lexicon"]
PARAPHRASES: Mapping[str, Mapping[str, Sequence[str]]] = _WORDINGS["paraphrases"]
"""Forms of questions beside the corpus's own, by kind of subject and relation."""

_CONTRACTION = re.compile(r"^(who|what|where|when|how)['’]s\b")
_POSSESSIVE = re.compile(r"['’]s(?=\s|$)")
_DROPPED = re.compile(r"[\"“”„«»,]")
_ARTICLES = re.compile(r"\b(?:the|an|a)\b ?")


def words_of(text: str) -> str:
    """A question in lower case with single spaces, without its final mark, with `'s` as a word of its own."""
    text = _CONTRACTION.sub(r"\1 is", " ".join(text.casefold().split()).rstrip("?!. "))
    return _POSSESSIVE.sub(" 's", text)


def normalised(text: str) -> str:
    """`words_of` without quotes, commas and articles: the form in which questions and names are compared."""
    return " ".join(_ARTICLES.sub("", _DROPPED.sub(" ", words_of(text)) + " ").split())


def _forms(kind: corpus.Kind) -> tuple[tuple[str, re.Pattern[str]], ...]:
    own = [(each.name, normalised(form.replace("{d}", "{s}"))) for each in kind.relations for form in each.questions]
    others = [(relation, form) for relation, forms in PARAPHRASES[kind.name].items() for form in forms]
    compiled: dict[tuple[str, re.Pattern[str]], None] = {}
    for relation, form in own + others:
        for name, words in LEXICON.items():
            form = form.replace(f"{{{name}}}", words)
        compiled[relation, re.compile(form.replace("(", "(?:").replace("{s}", "(?P<s>.+?)"))] = None
    return tuple(compiled)


FORMS = {kind.name: _forms(kind) for kind in corpus.KINDS}
"""For each kind of subject: the relation and the pattern of each question form; the group `s` names the subject."""


VERDICTS = ("right", "ill_formed", "ambiguous", "wrong_relation", "other_subject", "invented_name", "wrong_detail")
"""The faults are in the order in which they are looked for; the verdict is the first that a question has."""
SUMS = {"wrong_attribute": ("wrong_relation",), "wrong_entity": ("other_subject", "invented_name", "wrong_detail")}
"""The coarser verdicts of earlier versions: older files have them alone, newer ones beside `VERDICTS`."""
BESIDE = ("unsupported", "no_subject")
"""What a question may have beside its verdict, see `OracleJudgement`."""
NOUNS_OF_KINDS: Mapping[str, str] = _WORDINGS["nouns"]
"""Words for a subject that do not say which one: pronouns, and nouns, which may stand before a name."""
_TRADES = {kind.name: kind.trades for kind in corpus.KINDS}
_GLUED = re.compile(r"[a-zà-ÿ][A-ZÀ-Ý]")  # two words without their space
_TOKEN = re.compile(r"\d(?:[\d.,]*\d)?|[^\W\d_]+(?:-[^\W\d_]+)*|[^\w\s]")  # numbers, words, single marks


@dataclass(frozen=True)
class OracleJudgement:
    """What is wrong with a question: its verdict, one of `VERDICTS`, and what it has beside that.

    `unsupported`: some name or number of the question does not stand in the passage, whatever the verdict. Names are
    those of the subject and its origin, and capitalised words other than the first; neighbouring ones are one name,
    which must stand in the passage as it is. Words of question forms are no names, and case makes no difference.
    `no_subject`: nothing says what the question is about: no name and no description (`When was she born?`); of an
    ill-formed question, neither a name nor a number.
    """

    verdict: str
    unsupported: bool
    no_subject: bool


@dataclass(frozen=True)
class _Reference:
    """How a question names its subject, in normalised words; empty for what it does not say."""

    name: str
    trade: str
    origin: str

    def fits(self, subject: corpus.CorpusSubject) -> bool:
        """Whether nothing that the question says contradicts the subject; a part of a name fits the name."""
        return (
            self.trade in ("", subject.trade)
            and _is_part(self.name, normalised(subject.name))
            and _is_part(self.origin, normalised(subject.origin))
        )


_NOTHING = _Reference("", "", "")


def examine(question: str, example: QAExample) -> OracleJudgement | None:
    """Whether a question about the example's passage asks for the example's answer, and what else is wrong with it.
    The verdict is one of `VERDICTS`.

    - right: the fact asked for has the answer, at the place of the answer;
    - ill_formed: no question that the corpus's forms and their paraphrases explain: unfinished, repeated, scrambled,
      or with a question word that does not suit the relation (`What is the mayor of …`);
    - ambiguous: no subject is named, or what is named fits more than one;
    - wrong_relation: another relation, also one that the passage does not state;
    - other_subject: the right relation, of the other subject or of somebody else in the passage;
    - invented_name: the right relation, of a name that nobody in the passage has;
    - wrong_detail: the right relation and no other name, but with a trade or an origin that is not the subject's.

    Case, quotes, articles, spaces and the question mark make no difference. A part of a name counts as the name where
    no other name of the passage has it. A question that can be read in several ways has the best of their verdicts.
    None for a passage that is not of the embedded corpus, and for an answer that is not one of its facts.
    """
    facts = corpus.read_facts(example.context)
    if facts is None or (target := corpus.answered_fact(facts, example)) is None:
        return None
    readings = [
        (_verdict(relation, reference, facts, target), reference)
        for relation, reference in _parse(question, facts.kind)
    ]
    if not readings:
        names = _names_and_numbers(question)
        return OracleJudgement("ill_formed", _lacks(example.context, names), no_subject=not names)
    verdict, reference = max(readings, key=lambda reading: (reading[0] == "right", VERDICTS.index(reading[0])))
    names = [*_names_and_numbers(question), reference.name, reference.origin]
    return OracleJudgement(verdict, _lacks(example.context, names), no_subject=reference == _NOTHING)


def _verdict(
    asked: tuple[str, str], reference: _Reference, facts: corpus.CorpusFacts, target: corpus.CorpusFact
) -> str:
    fitting = {number for number, subject in enumerate(facts.subjects) if reference.fits(subject)}
    asked_for = [fact for fact in facts.facts if (facts.kind, fact.relation) == asked and fact.subject in fitting]
    names = _names_with(reference.name, facts)
    is_part_of_several = bool(reference.name) and reference.name not in names and len(names) > 1
    if reference == _NOTHING or len(asked_for) > 1 or is_part_of_several:
        return "ambiguous"
    if asked != (facts.kind, target.relation):
        return "wrong_relation"
    if target in asked_for:
        return "right"
    own, other = facts.subjects[target.subject], facts.subjects[1 - target.subject]
    if not reference.fits(other) and _is_part(reference.name, normalised(own.name)):
        return "wrong_detail"
    return "other_subject" if names else "invented_name"


def _names_with(part: str, facts: corpus.CorpusFacts) -> set[str]:
    subjects = [text for subject in facts.subjects for text in (subject.name, subject.origin)]
    names = {normalised(text) for text in [*subjects, *(fact.value for fact in facts.facts)]}
    return {name for name in names if _is_part(part, name)}


def _is_part(part: str, name: str) -> bool:
    return f" {part} " in f" {name} " if part else True


def _lacks(context: str, names: Iterable[str]) -> bool:
    return not all(_is_part(name, _passage_words(context)) for name in names)


@lru_cache(maxsize=8192)
def _passage_words(context: str) -> str:
    """The passage in lower case with spaces around each word and mark; names do not go on across a mark."""
    return " ".join(_TOKEN.findall(context.casefold()))


def _names_and_numbers(question: str) -> list[str]:
    """Each number, and each run of capitalised words that are of no question form, after the question's first word."""
    found: list[str] = []
    goes_on = False
    for token in _TOKEN.findall(question)[1:]:
        is_name = token[0].isupper() and token.casefold() not in _NO_NAME
        if is_name and goes_on:
            found[-1] += f" {token.casefold()}"
        elif is_name or token[0].isdigit():
            found.append(token.casefold())
        goes_on = is_name
    return found


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
    for name in (kind, *(other for other in FORMS if other != kind)):
        if (match := _REFERENCES[name].fullmatch(words)) and (not match["n"] or match["n"] != match["o"]):
            trade, after = match["t"] or "", match["t2"] or ""
            return _Reference(match["n"] or "", trade or after, match["o"] or "")
    return None


def _reference_pattern(kind: str) -> re.Pattern[str]:
    """`painter Ada Elmford from Ulmville` in normalised words: trade, name and origin may each be missing."""
    trades, nouns = "|".join(_TRADES[kind]), NOUNS_OF_KINDS[kind]
    is_noun = kind in ("person", "work")  # a painter is a person, a harbour is no town: `harbour town`
    then = "(?: |$)" if is_noun else rf" (?={nouns})"
    word = rf"(?!(?:{'|'.join(_NO_NAME)})(?: |$))[^\W\d_]+(?:-[^\W\d_]+)*"
    return re.compile(
        rf"(?=.)(?:this |that )?(?:(?P<t>{trades}){then})?(?:(?:{nouns})(?: (?:of |called |named )?|$))?"
        rf"(?P<n>{word}(?: {word}){{0,2}})?(?: ?\b(?P<t2>{trades}){'' if is_noun else f' (?:{nouns})'})?"
        rf"(?: ?(?<= )(?:from|in|of|by)(?: province of)? (?P<o>{word}(?: {word})?))?"
    )


def _words_of_no_name() -> list[str]:
    own = [pattern.pattern for forms in FORMS.values() for _, pattern in forms]
    paraphrases = [form for by_relation in PARAPHRASES.values() for forms in by_relation.values() for form in forms]
    words = {word for text in [*own, *paraphrases, *LEXICON.values()] for word in re.findall("[a-z]+", text)}
    words |= {*"a an and at by for from in of on province that this to with s the".split()}
    words |= {trade for trades in _TRADES.values() for trade in trades}
    names = {
        name.casefold() for name in (*corpus.FIRST_NAMES, *corpus.ADJECTIVES, *corpus.NOUNS, *corpus.COMPANY_ENDINGS)
    }
    return sorted(words - names)


_NO_NAME = _words_of_no_name()
_REFERENCES = {kind: _reference_pattern(kind) for kind in FORMS}


def judgements(questions: Sequence[str], examples: Sequence[QAExample]) -> list[OracleJudgement | None]:
    return [examine(question, example) for question, example in zip(questions, examples, strict=True)]


def columns(given: Sequence[OracleJudgement | None]) -> dict[str, Floats]:
    """For each of `VERDICTS`, `SUMS` and `BESIDE` 1 where a question has it, 0 where not, NaN without a judgement."""
    kinds = {verdict: (verdict,) for verdict in VERDICTS} | SUMS
    table = {name: [None if one is None else one.verdict in kind for one in given] for name, kind in kinds.items()}
    table |= {name: [None if one is None else getattr(one, name) for one in given] for name in BESIDE}
    return {name: np.array(values, dtype=np.float64) for name, values in table.items()}  # None becomes NaN


def shares(given: Sequence[OracleJudgement | None], draws: PassageDraws) -> dict[str, Any] | None:
    """The share of each of `VERDICTS`, which sum to 1, of `SUMS` and of `BESIDE`, `{name: {mean, low, high, n,
    passages}}`: fractions of the questions of `draws` that have a judgement, with 95 % intervals over passages. None
    where none has one: the passages are not of the embedded corpus.
    """
    if not any(given):
        return None
    return {name: asdict(mean_interval(column, draws, bounds=SHARE)) for name, column in columns(given).items()}


def share_differences(
    last: Sequence[OracleJudgement | None], first: Sequence[OracleJudgement | None], draws: PassageDraws
) -> dict[str, Any] | None:
    """The paired differences of the `shares` of two sets of questions, with intervals."""
    if not any(one and other for one, other in zip(last, first, strict=True)):
        return None
    before = columns(first)
    return {
        name: asdict(paired_interval(after, before[name], draws, bounds=SHARE))
        for name, after in columns(last).items()
    }
