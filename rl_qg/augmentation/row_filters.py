"""Filters that look at one candidate at a time, without a model."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby, pairwise

from rl_qg.augmentation.funnel import Record, Rule, RuleFilter, Work, question_key
from rl_qg.text.question_types import LANGUAGES, asks
from rl_qg.text.words import contains_words, normalised_words, word_count

QUESTION_MARKS = "?？؟\u037e፧⁇⁈⸮?"
ARMENIAN_MARK = "\u055e"
OPENING, CLOSING = "([{（［｛「『《", ")]}）］｝」』》"
QUOTES = ('"', "„“”", "«»")  # languages differ in which of a pair opens
LEFTOVER = re.compile(
    r"</?(?:s|pad|unk|mask|sep|cls|bos|eos|hl|extra_id_\d+|\|\w+\|)>|<\|\w+\|>|\[(?:UNK|SEP|CLS|PAD|MASK)\]|(?<!\S)##\w|[▁Ġ�]"
)


class Empty(RuleFilter):
    """Drops what says nothing; before every other filter, and not to be left out."""

    def rules(self) -> list[Rule]:
        """One rule."""
        return [Rule("empty", lambda record: not normalised_words(record["question"]))]


@dataclass
class Length(RuleFilter):
    """Keeps questions of `min_words` to `max_words`, counted between white space (QRelScore paper, section 5);
    in scripts without spaces each character counts.
    """

    min_words: int = 6
    max_words: int = 30

    def faults(self) -> list[tuple[bool, str]]:
        """Limits that leave nothing."""
        return [(self.min_words > self.max_words, f"min_words={self.min_words} is above max_words={self.max_words}")]

    def rules(self) -> list[Rule]:
        """One rule for each limit."""
        return [
            Rule("too short", lambda record: word_count(record["question"]) < self.min_words),
            Rule("too long", lambda record: word_count(record["question"]) > self.max_words),
        ]


@dataclass
class AnswerInQuestion(RuleFilter):
    """Drops questions that hold their answer, word for word (QRelScore paper, section 5)."""

    def rules(self) -> list[Rule]:
        """One rule."""
        return [Rule("answer in question", lambda record: contains_words(record["answer"], record["question"]))]


@dataclass
class GoldDuplicates(RuleFilter):
    """Drops questions that people have asked of the same passage in the same words."""

    def begin(self, work: Work) -> None:
        """Remember 16 bytes of each human question."""
        self._keys = {question_key(example.context, example.question) for example in work.gold}

    def rules(self) -> list[Rule]:
        """One rule."""
        return [Rule("duplicate of gold", lambda record: _key(record) in self._keys)]


@dataclass
class Duplicates(RuleFilter):
    """Of candidates with the same words about the same passage lets the first in the file pass, whatever its answer.

    It remembers what it let through, so it belongs behind the other rules.
    """

    def rules(self) -> list[Rule]:
        """One rule, with a memory of 16 bytes for each candidate it lets pass."""
        passed: set[bytes] = set()

        def repeats(record: Record) -> bool:
            before = len(passed)
            passed.add(_key(record))
            return len(passed) == before

        return [Rule("duplicate of candidate", repeats)]


def _key(record: Record) -> bytes:
    return question_key(record["context"], record["question"])


@dataclass
class WellFormed(RuleFilter):
    """Drops what is no well-formed question; each test can be switched off.

    Args:
        question_mark: it ends in a question mark, of whatever script, behind which brackets and quotes may close.
        question_word: it has a question word, or begins with an auxiliary verb; passed by languages without a table.
        balanced: brackets close in order, double quotes come in pairs.
        repeated_ngram: no so many words in a row come twice, and no word follows itself; 0 is off. What the passage
            repeats as well ("Duran Duran") is allowed.
        special_tokens: no leftover of a tokenizer, such as `<extra_id_0>` or `[UNK]`, that the passage has not.
        language: of the question words: en, de, fr, es.
    """

    question_mark: bool = True
    question_word: bool = True
    balanced: bool = True
    repeated_ngram: int = 3
    special_tokens: bool = True
    language: str = "en"

    def faults(self) -> list[tuple[bool, str]]:
        """A negative length; a word in place of a language's code."""
        known = ", ".join(LANGUAGES)
        return [
            (self.repeated_ngram < 0, f"repeated_ngram={self.repeated_ngram} must not be negative"),
            (
                not re.fullmatch("[a-z]{2,3}", self.language),
                f"language={self.language} is no code such as en; there are question words for {known}",
            ),
        ]

    def rules(self) -> list[Rule]:
        """One rule for each test that is on."""
        tests = [
            (self.special_tokens, Rule("special tokens", lambda r: has_leftover(r["question"], r["context"]))),
            (self.question_mark, Rule("no question mark", lambda r: not ends_in_mark(r["question"]))),
            (self.question_word, Rule("no question word", lambda r: not asks(r["question"], self.language))),
            (self.balanced, Rule("unbalanced brackets or quotes", lambda r: not is_balanced(r["question"]))),
            (
                self.repeated_ngram > 0,
                Rule("repeated words", lambda r: repeats_itself(r["question"], r["context"], self.repeated_ngram)),
            ),
        ]
        return [rule for on, rule in tests if on]


def has_leftover(question: str, context: str) -> bool:
    """Say whether a question holds a leftover of a tokenizer; what the passage has too is none: "Ġ" is Maltese."""
    return any(match.group() not in context for match in LEFTOVER.finditer(question))


def ends_in_mark(question: str) -> bool:
    """Say whether a question ends in a question mark, behind which brackets and quotes may close.

    That of Greek is a semicolon; that of Armenian stands within the word that asks.
    """
    asked = question.rstrip().rstrip(f"{CLOSING}{''.join(QUOTES)}'’‘ ")
    if asked.endswith(";"):
        return [script for script, _ in scripts(asked).most_common(1)] == ["GREEK"]
    return asked.endswith(tuple(QUESTION_MARKS)) or ARMENIAN_MARK in asked


def is_balanced(text: str) -> bool:
    """Say whether brackets close in order, and double quotes come in pairs."""
    waiting = []
    for sign in text:
        if sign in OPENING:
            waiting.append(CLOSING[OPENING.index(sign)])
        elif sign in CLOSING and (not waiting or waiting.pop() != sign):
            return False
    return not waiting and all(sum(map(text.count, pair)) % 2 == 0 for pair in QUOTES)


def repeats_itself(question: str, context: str, length: int) -> bool:
    """Say whether `length` words in a row come twice in a question, or a word follows itself, where the passage has
    the same words only once.
    """
    found = normalised_words(question)
    repeated = {run: count for run, count in _runs_of(found, length).items() if count > 1}
    doubled = {pair for pair in pairwise(found) if len(set(pair)) == 1}
    if not repeated and not doubled:
        return False
    there = normalised_words(context)
    known = _runs_of(there, length)
    return any(known[run] < count for run, count in repeated.items()) or not doubled <= set(pairwise(there))


def _runs_of(found: list[str], length: int) -> Counter[tuple[str, ...]]:
    """How often each `length` words stand in a row; rows may overlap."""
    return Counter(tuple(found[i : i + length]) for i in range(len(found) - length + 1))


@dataclass
class Script(RuleFilter):
    """Keeps questions of whose letters a share of at least `min_share` is of the passage's scripts.

    A script is the passage's when `passage_share` of its letters are of it; a name that stands in the passage (`NASA`
    in Arabic text) counts as its own too. Tells Russian from English, not French from English; passages and questions
    without letters pass.
    """

    min_share: float = 0.9
    passage_share: float = 0.05

    def faults(self) -> list[tuple[bool, str]]:
        """Shares beyond 0 and 1."""
        shares = {"min_share": self.min_share, "passage_share": self.passage_share}
        return [(not 0 <= share <= 1, f"{name}={share} is not in [0, 1]") for name, share in shares.items()]

    def rules(self) -> list[Rule]:
        """One rule."""
        return [Rule("other script than the passage", self._is_foreign)]

    def _is_foreign(self, record: Record) -> bool:
        passage, question = scripts(record["context"]), scripts(record["question"])
        if not passage or not question:
            return False
        own = {name for name, count in passage.items() if count >= self.passage_share * passage.total()}
        foreign = [run for run in _script_runs(record["question"]) if run[0] not in own]
        if foreign:
            known = set(_script_runs(record["context"]))
            foreign = [run for run in foreign if run not in known]
        return question.total() - sum(len(run) for _, run in foreign) < self.min_share * question.total()


def scripts(text: str) -> Counter[str]:
    """How many letters of each script a text has; marks that go with letters do not count."""
    found = Counter[str]()
    for script, run in _script_runs(text):
        found[script] += len(run)
    return found


def _script_runs(text: str) -> Iterator[tuple[str, str]]:
    """Script and letters of each run of neighbouring letters of one script: the words, where words stand apart."""
    for script, run in groupby(unicodedata.normalize("NFC", text).casefold(), _script):
        if script:
            yield script, "".join(run)


_SHARED = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA", "IDEOGRAPHIC": "CJK"}


@cache
def _script(sign: str) -> str:
    """The first word of a letter's Unicode name, which is its script: LATIN, CYRILLIC or CJK, say.

    Both kinds of kana, and the signs that lengthen or repeat a character, are one script with what they belong to.
    """
    if not sign.isalpha():
        return ""
    name = unicodedata.name(sign, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")[0]
    return _SHARED.get(name, name)
