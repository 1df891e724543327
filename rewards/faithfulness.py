"""Entity faithfulness: which names, numbers and dates of a question the passage supports."""

import logging
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache
from html import escape
from itertools import groupby, pairwise, product
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import flag, language_of, number, one_of
from rewards.overlap.answerability import FUNCTION_WORDS, QUESTION_WORDS
from rewards.words import ENGLISH, UNSPACED_LETTERS, combining_marks, lower

MEASURES = ("share", "all")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entity:
    """A name or a number of a question, ``question[start:end]``, and whether the passage supports it."""

    start: int
    end: int
    text: str
    supported: bool


@dataclass(frozen=True)
class FaithfulnessExplanation:
    """A score, and the names and numbers that it was computed from."""

    question: str
    context: str
    score: float
    signature: str
    entities: list[Entity]

    @property
    def summary(self) -> str:
        missing = ", ".join(f"“{entity.text}”" for entity in self.entities if not entity.supported)
        return f"score {self.score:.4f} ({f'not in the passage: {missing}' if missing else 'all in the passage'})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_html(self) -> str:
        question, end = "", 0
        for entity in self.entities:
            tag = "ins" if entity.supported else "del"
            question += f"{escape(self.question[end : entity.start])}<{tag}>{escape(entity.text)}</{tag}>"
            end = entity.end
        question += escape(self.question[end:])
        page = Template(Path(__file__).with_name("faithfulness.html").read_text(encoding="utf-8"))
        return page.substitute(question=question, context=escape(self.context), summary=escape(self.summary))


class EntityFaithfulness(Metric):
    """The share of a question's names and numbers that the passage supports, from 0 to 1; 1.0 where it has none.

    Source: Nan et al., "Entity-level Factual Consistency of Abstractive Text Summarization", EACL 2021: the share of a
    summary's named entities that stand in the source (precision-source). As a reward: "Entity hallucination index",
    arXiv 2507.22744. Theirs find entities with a tagger; here rules do, so no model is needed and a score is exact.

    A name is a run of capitalised words, or of words that the passage has only with a capital; a number a word that
    begins with a digit. Weekdays and months are names. The first word of a sentence belongs to a name only where the
    passage has it capitalised elsewhere than there.

    The passage supports a name if it has all its words, and two neighbours as neighbours or in this order within one
    name. So of "Paula Eklini" and "Carlo Dornberg" it does not support "Carlo Eklini". Case, accents, hyphens,
    possessives and the forms of a word do not count: "Germany" supports "German" and "Germans", initials support a
    name and the name supports them (US, United States), "Dec." supports "December" and "two" supports "2" and "II". A
    number must stand in the passage, whatever its separators and endings ("1,000", "19th", "1990s").

    It does not see unknown names without capitals, number words, and wrong relations between supported names;
    docs/explanation/metrics.md says how many human questions score 1.0.

    Args:
        measure: ``"share"``, or ``"all"``: 1.0 where all are supported, else 0.0 (a gate).
        language: of the questions, a code such as ``"en"``. Forms of words, function words and written numbers are
            known for English. In German and Luxembourgish, which capitalise all nouns, a name is a run of two words or
            more. Scripts without capital letters have numbers alone.
        unnamed: the score of a question without any name or number. Where all human questions have one, 0 forbids
            those that say nothing of their subject ("What is the famous for?").
        titles: whether the passage's title counts as a part of it (``needs`` has ``"titles"``). Articles often name
            their subject there alone; an underscore is a space.
        whole: a name must be all of a run of the passage's capitalised words, or of its part between function words
            ("World War I"), letter by letter but for case and accents. Where human questions always give the whole
            name, this forbids another word in the place of the rest ("Lukas film" for Lukas Vessini).
    """

    name = "faithfulness"
    bounds = (0.0, 1.0)
    part_names, lower_parts = ("entities", "unsupported"), ("unsupported",)

    def __init__(
        self,
        measure: str = "share",
        *,
        language: str = "en",
        unnamed: float = 1.0,
        whole: bool = False,
        titles: bool = False,
    ) -> None:
        self.measure = one_of(self.name, "measure", measure, MEASURES)
        self.language = language_of(self.name, language)
        self.unnamed = number(self.name, "unnamed", unnamed, low=0, high=1)
        self.whole = flag(self.name, "whole", whole)
        self._told = False  # that names are not judged
        self.titles = flag(self.name, "titles", titles)
        self.needs = frozenset({"contexts", "titles"} if self.titles else {"contexts"})

    def choices(self) -> Mapping[str, object]:
        return {
            "measure": self.measure,
            "language": self.language,
            "unnamed": self.unnamed,
            "whole": "yes" if self.whole else "no",
            **({"titles": "yes"} if self.titles else {}),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        titles = inputs.titles or [""] * len(inputs.questions)
        rows = [self.entities(*row) for row in zip(inputs.questions, inputs.contexts, titles, strict=True)]
        if not self._told and not any(any(map(str.isupper, text)) for text in inputs.contexts):
            self._told = True
            log.warning(
                "faithfulness: no passage of %d rows has a capital letter, as in scripts without case: names are not "
                "judged, numbers are; a question without any scores %g, which says nothing",
                *(len(rows), self.unnamed),
            )
        wrong = [sum(not entity.supported for entity in row) for row in rows]
        share = [1 - bad / len(row) if row else self.unnamed for row, bad in zip(rows, wrong, strict=True)]
        if self.measure == "all":
            share = [float(score == 1.0) if row else score for row, score in zip(rows, share, strict=True)]
        parts = {"entities": [float(len(row)) for row in rows], "unsupported": [float(bad) for bad in wrong]}
        return MetricResult(share, parts)

    def explain(self, question: str, context: str, title: str = "") -> FaithfulnessExplanation:
        [score] = self.score([question], [context], titles=[title]).scores
        entities = self.entities(question, context, title)
        return FaithfulnessExplanation(question, context, score, self.signature, entities)

    def entities(self, question: str, context: str, title: str = "") -> list[Entity]:
        """Return the names and numbers of a question in their order; a title counts if the metric reads titles."""
        if self.titles and title:
            context = f"{context}\n\n{title.replace('_', ' ')}"
        passage, entities = _passages(context, self.language), []
        for run in _entities(question, passage):
            start, end = run[0].start, run[-1].end
            supported = passage.supports(run) and (not self.whole or run[0].is_number or passage.has_whole(run))
            entities.append(Entity(start, end, question[start:end], supported))
        return entities


class _Word(NamedTuple):
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

    @property
    def is_acronym(self) -> bool:
        return self.text.isupper() and len(self.folded) > 1

    @property
    def is_no_name(self) -> bool:
        return self.folded in _NO_NAMES and not self.is_acronym


Run = list[_Word]


@cache
def _word_pattern() -> re.Pattern[str]:
    letter = rf"[^\W_{UNSPACED_LETTERS}]"
    tail = rf"(?:{letter}|[{combining_marks()}])*"
    return re.compile(rf"['’]s(?!\w)|\d+(?:[.,]\d+)*{tail}|(?:[^\W\d_{UNSPACED_LETTERS}]\.){{2,}}|{letter}{tail}")


_ENDS_SENTENCE = re.compile(r"[.!?…:;。！？।؟]|\n\s*\n")
_JOINTS = frozenset(["", *"-‐‑–"])


def _words(text: str, language: str) -> Iterator[_Word]:
    """Yield the words without possessives (U.S. is one); characters of scripts without spaces are none."""
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
        first = not (end or any(map(str.isalnum, gap))) or _ENDS_SENTENCE.search(gap) is not None
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
    return "".join(c for c in letters if not unicodedata.combining(c)).translate(_LETTERS) or word


def _entities(question: str, passage: "_Passage") -> Iterator[Run]:
    """Yield the runs of capitalised words of a question, and its numbers."""
    run: Run = []
    least = 2 if passage.language in _CAPITAL_NOUNS else 1  # words of a name
    for word in (*_words(question, passage.language), None):
        named = word is not None and passage.is_name(word)
        if run and not (word and named and word.joined):
            if len(run) >= least:
                yield run
            run = []
        if word and named:
            run.append(word)
        elif word and word.is_number:
            yield [word]


class _Passage:
    def __init__(self, text: str, language: str) -> None:
        self.language = language
        self.known: set[str] = set()  # its words, and neighbours written as one
        self.names: set[str] = set()  # words with a capital that is not that of a sentence
        self.lower: set[str] = set()
        self.acronyms: set[str] = set()
        self.pairs: set[tuple[str, str]] = set()  # words that follow each other
        # For each word the runs of capitalised words that it is in, and its first and last place there.
        self.spans: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
        # Runs of capitalised words, and their parts between function words (The Ulmburg Mills, Elizabeth I).
        self.wholes: set[tuple[str, ...]] = set()
        self._forms: dict[str, list[str]] = {}
        initials, every = [], []
        before, run, name = "", 0, Run()
        for at, word in enumerate(_words(text, language)):
            self.known.add(word.folded)
            if word.is_capital and not word.first:
                self.names.add(word.folded)
            if not word.is_capital:
                self.lower.add(word.folded)
            if word.is_acronym:
                self.acronyms.add(word.folded)
            if word.joined:
                self.pairs.add((before, word.folded))
                self.known.add(before + word.folded)
            if not (word.joined and word.is_capital):
                run += 1
                self._add_whole(name)
                name = []
            if word.is_capital:
                name.append(word)
            first, _ = self.spans[word.folded].get(run, (at, at))
            self.spans[word.folded][run] = first, at
            if word.is_capital or word.folded not in FUNCTION_WORDS:
                initials.append(word.folded[0] if word.is_capital else " ")
                every.append(initials[-1])
            else:
                every.append(word.folded[0])
            before = word.folded
        self._add_whole(name)
        # Initials of capitalised words that follow each other, without the words between them and with (of, the).
        self.initials = f"{''.join(initials)} {''.join(every)}"
        self.stems: dict[str, list[str]] = defaultdict(list)
        if language != "en":
            for known in self.spans:
                for stem in _stems(known):
                    self.stems[stem].append(known)

    def _add_whole(self, name: Run) -> None:
        parts = groupby(name, lambda word: word.is_no_name and (word is name[0] or self.language == "en"))
        for run in (name, *(list(part) for ends, part in parts if not ends)):
            self.wholes.add(tuple(word.folded for word in run))

    def has_whole(self, run: Run) -> bool:
        """Return whether a name is a whole one of the passage; words in lower case are no name."""
        return tuple(word.folded for word in run) in self.wholes or not any(word.is_capital for word in run)

    def is_name(self, word: _Word) -> bool:
        """Return whether a word of a question is one of a name: a capital, or the passage has it only with one."""
        if word.is_number or (self.language == "en" and word.is_no_name):
            return False
        if word.is_capital and not word.first:
            return True
        return word.folded in self.names and (word.is_capital or word.folded not in self.lower)

    def supports(self, run: Run) -> bool:
        words = [word.folded for word in run]
        if self.known.issuperset(words) and self.pairs.issuperset(pairwise(words)):
            return True
        followed = (any(map(self._follow, product(*map(self.forms, pair)))) for pair in pairwise(words))
        if all(map(self.forms, words)) and all(followed):
            return True
        if len(run) == 1:
            return run[0].is_acronym and words[0] in self.initials
        return "".join(words) in self.known or "".join(word[0] for word in words) in self.acronyms

    def _follow(self, pair: tuple[str, ...]) -> bool:
        """Return whether a word stands before another, as its neighbour or in one run of capitalised words."""
        ones, others = (self.spans.get(word, {}) for word in pair)
        return pair in self.pairs or any(ones[run][0] < others[run][1] for run in ones.keys() & others.keys())

    def forms(self, word: str) -> list[str]:
        """Return the words of the passage that are forms of a word: by lists in English, else by their beginnings."""
        if word not in self._forms:
            forms = [word]
            if self.language == "en":
                forms += _ALIKE.get(word, ())
                for ending, others in _RELATED.items():
                    stem = word.removesuffix(ending)
                    if len(stem) >= 4 and stem + ending == word:
                        forms += (stem + other for other in others)
            else:
                forms += (known for stem in _stems(word) for known in self.stems.get(stem, ())[:_MOST])
            self._forms[word] = [form for form in dict.fromkeys(forms) if form in self.known]
        return self._forms[word]


_passages = lru_cache(1 << 6)(_Passage)


def _stems(word: str) -> list[str]:
    """Return the beginnings of a word, of four letters or more, without its last letters, up to three."""
    return [] if word[0].isdecimal() else [word[: len(word) - cut] for cut in range(4) if len(word) - cut >= 4]


_MOST = 8  # words of a passage that may be a form of one word by their beginning

_CAPITAL_NOUNS = frozenset({"de", "lb"})
_NO_NAMES = FUNCTION_WORDS | {word.lower() for word in QUESTION_WORDS}

_ALIKE: dict[str, list[str]] = {
    word: group.split() for line in ENGLISH["alike"].split("\n") for group in line.split("|") for word in group.split()
}
_RELATED: dict[str, list[str]] = defaultdict(list)  # endings, and those that take their place
for _one, _others in ENGLISH["endings"].items():
    for _other in _others.split():
        _RELATED[_one].append(_other)
        _RELATED[_other].append(_one)
