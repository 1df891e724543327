"""Filters that decide about one candidate at a time: by rules, and by the answer of a reader.

A new filter of this kind is a `RowFilter` in this file, registered in `rl_qg.augmentation.augment`.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import pairwise
from typing import Any, ClassVar

from rewards.faithfulness import EntityFaithfulness
from rewards.standalone import Standalone, known_languages
from rewards.words import answer_f1, ends_as_question
from rl_qg.augmentation.candidates import MEASURES, KeySet, Record, question_key
from rl_qg.augmentation.funnel import (
    CandidateMeasure,
    FilterResources,
    MeasureFunction,
    RowFilter,
    Rules,
    model_identity,
)
from rl_qg.readers.reader import AnswerReader
from rl_qg.text import languages
from rl_qg.text.question_types import asks
from rl_qg.text.words import counted, ngrams, normalised_words

OPENING, CLOSING = "([{（［｛「『《", ")]}）］｝」』》"
QUOTES = ('"', "„“”", "«»")  # which one of a pair opens differs between languages
LEFTOVER = re.compile(
    r"</?(?:s|pad|unk|mask|sep|cls|bos|eos|hl|extra_id_\d+|\|\w+\|)>|<\|\w+\|>|\[(?:UNK|SEP|CLS|PAD|MASK)\]|(?<!\S)##\w|[▁Ġ�]"
)
BATCHES_AT_ONCE = 16  # batches measured together, so that windows of similar length share a forward pass


class Empty(RowFilter):
    """Drops questions without words; always applied, before every other filter."""

    def rules(self) -> Rules:
        return {"empty": lambda record: not normalised_words(record["question"])}


class LanguageFilter(RowFilter):
    """A filter whose rules depend on the language of the passage.

    `language` is a code, `other` (no rules of a language), or `auto`: the `language` of the record where it has one,
    else that which its passage is in (`rl_qg.text.languages.language_of`).
    """

    language: str = languages.AUTO
    unknown: ClassVar[tuple[str, str, str]] = ("", "", "")  # its kind, what is not known of a language, what follows

    def notes(self) -> list[str]:
        kind, lacking, then = self.unknown
        return [
            f"{self.name or kind}: {lacking} for {code or 'the language'} of {counted(count, 'candidate')}; {then}"
            for code, count in sorted(self.noted.items())
        ]

    def option_errors(self) -> list[tuple[bool, str]]:
        fault = languages.code_fault(self.language)
        return [(bool(fault), f"language={fault}")]

    def language_of(self, record: Record) -> str:
        if self.language.casefold() != languages.AUTO:
            return languages.known_code(self.language)
        given = record.get("language")
        return (
            languages.code_of(given) if isinstance(given, str) and given else languages.language_of(record["context"])
        )


@dataclass
class Length(LanguageFilter):
    """Keeps questions as long as `min_words` to `max_words` words of English (QRelScore paper, section 3.3).

    Words are the pieces between white space that contain a letter or digit; in scripts without spaces, characters. In
    languages that need more or fewer of them to say the same (Thai 4.05 characters for a word, Turkish 0.77 words) the
    limits are so much higher or lower: `per_word` of `rl_qg.text.languages`. `language=other` counts them as they are.
    """

    min_words: int = 6
    max_words: int = 30
    language: str = languages.AUTO

    def option_errors(self) -> list[tuple[bool, str]]:
        wrong = (self.min_words > self.max_words, f"min_words={self.min_words} is above max_words={self.max_words}")
        return [wrong, *super().option_errors()]

    def rules(self) -> Rules:
        def length(record: Record) -> int:
            return round(languages.length_in_words(record["question"], self.language_of(record)))

        return {
            "too short": lambda record: length(record) < self.min_words,
            "too long": lambda record: length(record) > self.max_words,
        }


@dataclass
class AnswerInQuestion(LanguageFilter):
    """Drops questions that contain their answer, word for word (QRelScore paper, section 3.3).

    In languages without spaces as a part of the text, of two characters at least; in Korean with a particle after it.
    """

    language: str = languages.AUTO

    def rules(self) -> Rules:
        return {
            "answer in question": lambda r: languages.contains_text(r["answer"], r["question"], self.language_of(r))
        }


@dataclass
class Faithful(LanguageFilter):
    """Drops questions with a name or a number that the passage does not support (`rewards.EntityFaithfulness`)."""

    language: str = languages.AUTO
    titles: bool = False  # whether the title counts as a part of the passage

    def rules(self) -> Rules:
        def has_unsupported(record: Record) -> bool:
            code = self.language_of(record)
            metric = EntityFaithfulness(language=code if code.isalpha() else languages.OTHER, titles=self.titles)
            texts = record["question"], record["context"], record.get("title") or ""
            return not all(entity.supported for entity in metric.entities(*texts))

        return {"name or number not in the passage": has_unsupported}


@dataclass
class StandsAlone(LanguageFilter):
    """Drops questions that cannot be understood without their passage (`rewards.Standalone`), where the rules of their
    language are known; others pass, and are counted (`notes`).
    """

    language: str = languages.AUTO
    unknown = "standalone", "no rules are known", "they passed"

    def rules(self) -> Rules:
        def needs_passage(record: Record) -> bool:
            if (code := self.language_of(record)) in known_languages():
                return not Standalone(code).score([record["question"]]).scores[0]
            if code != languages.OTHER:
                self.noted[code] += 1
            return False

        return {"not understood without the passage": needs_passage}


@dataclass
class GoldDuplicates(RowFilter):
    """Drops questions with the same words as a human question about the same passage."""

    def prepare(self, resources: FilterResources) -> None:
        self._keys = {question_key(example.context, example.question) for example in resources.gold}

    def rules(self) -> Rules:
        return {"duplicate of gold": lambda record: _key(record) in self._keys}


@dataclass
class Duplicates(RowFilter):
    """Of candidates with the same words about the same passage keeps the first in the file, whatever its answer.

    It compares with the candidates that it has kept, so it belongs after the other row filters.
    """

    def rules(self) -> Rules:
        passed = KeySet()
        return {"duplicate of candidate": lambda record: not passed.add(int.from_bytes(_key(record)[:8]) or 1)}


def _key(record: Record) -> bytes:
    return question_key(record["context"], record["question"])


@dataclass
class WellFormed(LanguageFilter):
    """Drops questions that are not well-formed; each test can be switched off.

    Args:
        question_mark: the question ends in a question mark of any script; closing brackets and quotes may follow. Not
            in languages that often do without (Thai, Japanese).
        question_word: it has a question word, or begins with an auxiliary verb (English, German, French, Spanish);
            languages whose question words are not known pass, and are counted (`notes`).
        balanced: brackets close in order, double quotes come in pairs.
        repeated_ngram: no n-gram of this many words occurs twice, and no word follows itself; 0 is off. Repetitions
            that are also in the passage ("Duran Duran") are allowed.
        special_tokens: no special token of a tokenizer, such as `<extra_id_0>` or `[UNK]`, that is not in the passage.
        language: a code, `auto` or `other` (`LanguageFilter`).
    """

    question_mark: bool = True
    question_word: bool = True
    balanced: bool = True
    repeated_ngram: int = 3
    special_tokens: bool = True
    language: str = languages.AUTO
    unknown = "well_formed", "no question words are known", "the rule 'no question word' was left out for them"

    def option_errors(self) -> list[tuple[bool, str]]:
        wrong = (self.repeated_ngram < 0, f"repeated_ngram={self.repeated_ngram} must not be negative")
        return [wrong, *super().option_errors()]

    def rules(self) -> Rules:
        def has_leftover(record: Record) -> bool:  # not in the passage: "Ġ" is also Maltese
            return any(match.group() not in record["context"] for match in LEFTOVER.finditer(record["question"]))

        def lacks_mark(record: Record) -> bool:
            known = languages.LANGUAGES.get(self.language_of(record))
            return (known is None or known.marks_questions) and not ends_as_question(record["question"])

        def lacks_question_word(record: Record) -> bool:
            language = self.language_of(record)
            if language != languages.OTHER and not languages.knows_question_words(language):
                self.noted[language] += 1
            return not asks(record["question"], language)

        def repeats(record: Record) -> bool:
            return repeats_itself(record["question"], record["context"], self.repeated_ngram)

        tests: list[tuple[bool, str, Callable[[Record], bool]]] = [
            (self.special_tokens, "special tokens", has_leftover),
            (self.question_mark, "no question mark", lacks_mark),
            (self.question_word, "no question word", lacks_question_word),
            (self.balanced, "unbalanced brackets or quotes", lambda record: not is_balanced(record["question"])),
            (self.repeated_ngram > 0, "repeated words", repeats),
        ]
        return {reason: rejects for on, reason, rejects in tests if on}


def is_balanced(text: str) -> bool:
    expected = []  # closing brackets, innermost last
    for character in text:
        if character in OPENING:
            expected.append(CLOSING[OPENING.index(character)])
        elif character in CLOSING and (not expected or expected.pop() != character):
            return False
    return not expected and all(sum(map(text.count, pair)) % 2 == 0 for pair in QUOTES)


def repeats_itself(question: str, context: str, length: int) -> bool:
    """Whether a question repeats an n-gram of `length` words, or a word directly, more often than the passage does."""
    words = normalised_words(question)
    repeated = {ngram: count for ngram, count in Counter(ngrams(words, length)).items() if count > 1}
    doubled = {pair for pair in pairwise(words) if len(set(pair)) == 1}
    if not repeated and not doubled:
        return False
    in_passage = normalised_words(context)
    known = Counter(ngrams(in_passage, length))
    return any(known[ngram] < count for ngram, count in repeated.items()) or not doubled <= {*pairwise(in_passage)}


@dataclass
class PassageScript(RowFilter):
    """Keeps questions of whose letters at least the fraction `min_share` is in a script of the passage.

    A script belongs to the passage if at least the fraction `passage_share` of its letters is in it; words that also
    occur in the passage (`NASA` in Arabic text) count as well. This distinguishes Russian from English, but not French
    from English. If passage or question has no letters, the question passes.
    """

    min_share: float = 0.9
    passage_share: float = 0.05

    def option_errors(self) -> list[tuple[bool, str]]:
        fractions = {"min_share": self.min_share, "passage_share": self.passage_share}
        return [(not 0 <= value <= 1, f"{name}={value} is not in [0, 1]") for name, value in fractions.items()]

    def rules(self) -> Rules:
        scripts_of_passage = lru_cache(1)(languages.scripts)  # neighbours are often about the same passage

        def has_other_script(record: Record) -> bool:
            passage = scripts_of_passage(record["context"])
            allowed = {name for name, count in passage.items() if count >= self.passage_share * passage.total()}
            return (
                bool(passage) and languages.share_in(record["question"], allowed, record["context"]) < self.min_share
            )

        return {"other script than the passage": has_other_script}


@dataclass
class RoundTrip(RowFilter):
    """Keeps questions that a reader answers with the candidate's answer.

    Source: Alberti, Andor, Pitler, Devlin and Collins, "Synthetic QA corpora generation with roundtrip consistency"
    (2019). They keep a question if the reader's answer is the same; this filter uses its SQuAD F1.

    Args:
        reader: a folder of `rl-qg qa`, or folder or Hub name of any extractive reader. A reader that was trained on
            the evaluation passages would leak them.
        min_f1: lowest SQuAD F1 between the reader's answer and the candidate's; 1.0 requires the same words.
        max_length, doc_stride, max_answer_length: in tokens, as in the settings of `rl-qg qa`; so is `n_best`.
        batch_size: windows per forward pass.
    """

    reader: str = ""
    min_f1: float = 0.5
    max_length: int = 384
    doc_stride: int = 128
    max_answer_length: int = 30
    n_best: int = 20
    batch_size: int = 32

    def option_errors(self) -> list[tuple[bool, str]]:
        stride = f"doc_stride={self.doc_stride} must be below max_length={self.max_length}, and not negative"
        smallest = min(self.max_answer_length, self.n_best, self.batch_size)
        return [
            (not self.reader, "needs a reader: reader=FOLDER of rl-qg qa, or a Hub name"),
            (not 0 <= self.min_f1 <= 1, f"min_f1={self.min_f1} is not in [0, 1]"),
            (not 0 <= self.doc_stride < self.max_length, stride),
            (smallest < 1, "max_answer_length, n_best and batch_size must be at least 1"),
        ]

    def measure(self, resources: FilterResources) -> CandidateMeasure:
        """F1 of the reader's answer; it does not depend on the threshold."""
        options = {key: value for key, value in asdict(self).items() if key not in ("min_f1", "batch_size")}

        def load() -> tuple[MeasureFunction, Mapping[str, Any]]:
            sizes = {key: value for key, value in asdict(self).items() if key not in ("min_f1", "reader")}
            where: dict[str, Any] = {"title": self.name, "at": f"augment.filters.{self.name}."}
            reader = AnswerReader(self.reader, device=resources.device, **sizes, **where)
            return partial(_answered, reader), {"reader": self.reader}

        batch_size = BATCHES_AT_ONCE * self.batch_size
        return CandidateMeasure("round_trip", {"round_trip": model_identity(options)}, load, batch_size)

    def rules(self) -> Rules:
        # NaN is not given back either; an F1 of 3/4 may be computed as a little less
        return {"answer not given back": lambda record: not record[MEASURES][self.name] >= self.min_f1 - 1e-9}


def _answered(reader: AnswerReader, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each candidate the F1 of the reader's answer, and that answer."""
    answers = reader([record["question"] for record in records], [record["context"] for record in records])
    return [
        {"value": answer_f1(answer, record["answer"]), "answer": answer}
        for answer, record in zip(answers, records, strict=True)
    ]
