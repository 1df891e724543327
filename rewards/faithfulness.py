"""Entity faithfulness: which names, numbers and dates of a question the passage supports."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import MetricInputError
from rewards.options import number
from rewards.overlap.word_classes import FUNCTION_WORDS, QUESTION_WORDS
from rewards.words import combining_marks, lower

MEASURES = ("share", "all")


@dataclass(frozen=True)
class Entity:
    """A name or a number of a question, ``question[start:end]``, and whether the passage supports it."""

    start: int
    end: int
    text: str
    supported: bool


class EntityFaithfulness(Metric):
    """The share of a question's names and numbers that the passage supports, from 0 to 1; 1.0 where it has none.

    Source: Nan et al., "Entity-level Factual Consistency of Abstractive Text Summarization", EACL 2021: the share of a
    summary's named entities that stand in the source (precision-source). As a reward: "Entity hallucination index",
    arXiv 2507.22744. Theirs find entities with a tagger; here rules do, so no model is needed and a score is exact.

    A name is a run of capitalised words, a number a word that begins with a digit. Weekdays and months are names. The
    first word of a sentence belongs to a name only where the passage has it capitalised elsewhere than there.

    The passage supports a name if it has all its words, two neighbours as neighbours, or in this order within one name.
    So of "Paula Eklini" and "Carlo Dornberg" it does not support "Carlo Eklini". Case, accents, hyphens, possessives
    and the forms of a word do not count (`_Passage.forms`): "Germany" supports "German" and "Germans"; initials
    support a name and the name supports them (US, United States); abbreviations, Roman and written numbers are those
    in digits ("Dec.", "II", "two"). A number must stand in the passage, whatever its separators and endings ("1,000",
    "19th", "1990s").

    What it does not see: names without capitals, wrong relations between supported names, and whether a name that the
    passage lacks is right all the same. docs/explanation/metrics.md says how many human questions score 1.0.

    Args:
        measure: ``"share"``, or ``"all"``: 1.0 where all are supported, else 0.0 (a gate).
        language: of the questions, a code such as ``"en"``. Forms of words, function words and written numbers are
            known for English. In German and Luxembourgish, which capitalise all nouns, a name is a run of two words or
            more. Scripts without capital letters have numbers alone.
        unnamed: the score of a question without any name or number. Where all human questions have one, 0 forbids
            those that say nothing of their subject ("What is the famous for?").

    Raises:
        MetricInputError: a measure or a language that is not valid.
    """

    name = "faithfulness"
    bounds = (0.0, 1.0)
    part_names = ("entities", "unsupported")

    def __init__(self, measure: str = "share", *, language: str = "en", unnamed: float = 1.0) -> None:
        if measure not in MEASURES:
            raise MetricInputError(f"faithfulness: measure {measure!r:.40}; give one of {', '.join(MEASURES)}")
        if not isinstance(language, str) or not language.isalpha() or not language.islower():
            raise MetricInputError(f"faithfulness: language {language!r} is no code of a language, such as en or de")
        self.measure, self.language = measure, language
        self.unnamed = number(self.name, "unnamed", unnamed, low=0, high=1)

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {"measure": self.measure, "language": self.language, "unnamed": self.unnamed}

    def compute(self, inputs: Inputs) -> MetricResult:
        """Return the score, and the numbers of entities and of unsupported ones."""
        rows = [self.entities(*row) for row in zip(inputs.questions, inputs.contexts, strict=True)]
        wrong = [sum(not entity.supported for entity in row) for row in rows]
        share = [1 - bad / len(row) if row else self.unnamed for row, bad in zip(rows, wrong, strict=True)]
        return MetricResult(
            [float(score == 1.0) for score in share] if self.measure == "all" else share,
            {"entities": [float(len(row)) for row in rows], "unsupported": [float(bad) for bad in wrong]},
        )

    def entities(self, question: str, context: str) -> list[Entity]:
        """Return the names and numbers of a question in their order."""
        passage = _passage(context, self.language)
        return [
            Entity(run[0].start, run[-1].end, question[run[0].start : run[-1].end], passage.supports(run))
            for run in _entities(question, passage)
        ]


@dataclass(frozen=True)
class _Word:
    """A word of a text and how it is compared; ``joined`` to the word before it, or the ``first`` of a sentence."""

    text: str
    folded: str
    start: int
    end: int
    joined: bool
    first: bool

    @property
    def is_number(self) -> bool:
        return self.text[0].isdecimal()

    @property
    def is_capital(self) -> bool:
        return self.text[0].isupper() or self.text[0].istitle()


Run = list[_Word]


@cache
def _word_pattern() -> re.Pattern[str]:
    letters = rf"(?:[^\W\d_]|[{combining_marks()}])"
    number = rf"\d+(?:[.,]\d+)*{letters}*"
    return re.compile(rf"['’]s(?!\w)|{number}|(?:[^\W\d_]\.){{2,}}|[^\W_](?:[^\W_]|[{combining_marks()}])*")


_ENDS_SENTENCE = re.compile(r"[.!?…:;]|\n\s*\n")
_JOINTS = frozenset(["", *"-‐‑–/&"])


def _words(text: str, language: str) -> Iterator[_Word]:
    """Yield the words of a text without possessives; letters with dots are one word (U.S.)."""
    end, before, possessive = 0, "", False
    for match in _word_pattern().finditer(text):
        if match[0][0] in "'’":
            possessive = True
            continue
        gap = text[end : match.start()]
        if gap.startswith(".") and 0 < len(before) <= 3 and before[0].isupper():
            gap = gap[1:]  # St. Louis, J. K.
        word = match[0].rstrip(".,")
        folded = _folded(word.replace(".", "") if word[0].isalpha() else word, language)
        first = not end or _ENDS_SENTENCE.search(gap) is not None
        joined = not first and not possessive and gap.strip() in _JOINTS
        yield _Word(word, folded, match.start(), match.end(), joined, first)
        end, before, possessive = match.end(), word, False


_LETTERS = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "æ": "ae", "œ": "oe", "ı": "i"})
_SEPARATOR = re.compile(r"[.,](?=\d{3}(?!\d))")
_ENDING = re.compile(r"(?<=\d)(?:st|nd|rd|th|s)$")


def _folded(word: str, language: str) -> str:
    """Return a word without case and accents, a number without its separators and endings."""
    if word[0].isdecimal():
        digits = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in word.lower())
        return _ENDING.sub("", _SEPARATOR.sub("", digits).replace(",", "."))
    word = lower(word, language)
    if word.isascii():
        return word
    letters = unicodedata.normalize("NFKD", word.casefold())
    return "".join(c for c in letters if not unicodedata.combining(c)).translate(_LETTERS)


def _entities(question: str, passage: "_Passage") -> Iterator[Run]:
    """Yield the runs of capitalised words of a question, and its numbers."""
    run: Run = []
    least = 2 if passage.language in CAPITAL_NOUNS else 1
    for word in _words(question, passage.language):
        named = passage.is_name(word)
        if run and not (named and word.joined):
            if len(run) >= least:
                yield run
            run = []
        if named:
            run.append(word)
        elif word.is_number:
            yield [word]
    if len(run) >= least:
        yield run


class _Passage:
    """What a passage supports."""

    def __init__(self, text: str, language: str) -> None:
        self.language = language
        self.known: set[str] = set()
        self.names: set[str] = set()
        self.initials: set[str] = set()
        self.pairs: set[tuple[str, str]] = set()
        self.places: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        before: _Word | None = None
        run = 0
        for at, word in enumerate(_words(text, language)):
            self.known.add(word.folded)
            if language == "en" and word.folded in NUMBERS:
                self.known.add(NUMBERS[word.folded])
            if word.is_capital and not word.first:
                self.names.add(word.folded)
            if before is not None:
                self.pairs.add((before.folded, word.folded))
                if word.joined and word.start - before.end == 1:
                    self.known.add(before.folded + word.folded)
            run += not (word.joined and word.is_capital)
            first, _ = self.places[word.folded].get(run, (at, at))
            self.places[word.folded][run] = first, at
            before = word
        self._forms: dict[str, list[str]] = {}

    def is_name(self, word: _Word) -> bool:
        """Return whether a word of a question is one of a name."""
        if not word.is_capital or (self.language == "en" and word.folded in _NO_NAMES and not word.text.isupper()):
            return False
        return not word.first or word.folded in self.names

    def supports(self, run: Run) -> bool:
        """Return whether the passage supports a name or a number."""
        words = [word.folded for word in run]
        if not all(self.forms(word) for word in words):
            return False
        return all(self._follow(a, b) for a, b in zip(words, words[1:], strict=False))

    def forms(self, word: str) -> list[str]:
        """Return the words of the passage that support a word."""
        if word not in self._forms:
            self._forms[word] = [form for form in self._candidates(word) if form in self.known]
        return self._forms[word]

    def _candidates(self, word: str) -> Iterator[str]:
        yield word

    def _follow(self, first: str, second: str) -> bool:
        return any((a, b) in self.pairs or self._within(a, b) for a in self.forms(first) for b in self.forms(second))

    def _within(self, first: str, second: str) -> bool:
        """Return whether a word stands before another in one run of capitalised words."""
        ones, others = self.places.get(first, {}), self.places.get(second, {})
        return any(
            run in ones and run in others and ones[run][0] < others[run][1] for run in min(ones, others, key=len)
        )


@lru_cache(1 << 8)
def _passage(text: str, language: str) -> _Passage:
    return _Passage(text, language)


CAPITAL_NOUNS = frozenset({"de", "lb"})
_NO_NAMES = FUNCTION_WORDS | {word.lower() for word in QUESTION_WORDS}
_ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty"
NUMBERS = {word: str(number) for number, word in enumerate(_ONES.split())}
