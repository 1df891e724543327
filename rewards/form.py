"""A gate for rewards: whether a text has the form of a question and copies neither its answer nor its passage."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any
from unicodedata import normalize

from rewards.base import Inputs, Metric, MetricResult
from rewards.errors import flag, language_of, number
from rewards.frozen import load_tokenizer
from rewards.overlap.answerability import opens_question
from rewards.words import (
    QUESTION_MARKS,
    Words,
    combining_marks,
    ends_as_question,
    is_unspaced,
    normalise_answer,
    ptb,
    separate_unspaced,
)

_JOINED = re.compile("[-/\u2010-\u2015]")

CHECKS: tuple[str, ...] = ("question_word", "question_mark", "no_repetition", "no_answer", "no_copy", "known_words")


class QuestionForm(Metric):
    """1.0 for a text that has the form of a question and is no copy, else 0.0: a gate for a product of metrics.

    Source: the rules are this project's. Their need: Hosking and Riedel, "Evaluating Rewards for Question Generation
    Models", NAACL 2019, who trained with rewards of question answering and of language models and found that rewards
    rise while people rate the questions lower: a reader finds answers from fragments too.

    All of these must hold; each is a part, 1.0 or 0.0. Words are those of `rewards.words.ptb`, in lower case.

    - ``question_word``: a question word or an inverted auxiliary verb opens a clause
      (`rewards.overlap.answerability.opens_question`). For ``language="en"`` alone; 1.0 for all others. Questions with
      the question word at the end ("It was built in what year?") fail: they cannot be told from fragments without a
      parser.
    - ``question_mark``: the text ends with a question mark of any script, and has no other
      (`rewards.words.ends_as_question`).
    - ``no_repetition``: no word follows itself, and no three words follow each other twice, unless the passage has the
      same ("Duran Duran"). Characters of scripts without spaces may be repeated.
    - ``no_answer``: the answer's words, without articles and punctuation, do not stand in the text one after another,
      nor quoted, in the possessive, or joined by hyphens or dashes.
    - ``no_copy``: at most ``max_copied`` words in a row are also a row of words of the passage. In scripts without
      spaces, where each character counts as a word, choose a larger number.
    - ``known_words``, with ``vocabulary`` alone: each word stands in the passage, or is one token of a pretrained
      model's vocabulary. It refuses what a generator glues or cuts ("How many workers doeswell Mills employ?", which
      names nobody and pleased a reader), and 6 to 10 % of human questions: those with a rare or misspelt word.

    docs/explanation/metrics.md has the shares of human questions that pass. It does not see whether a sentence is
    grammatical or complete, nor whether the question has an answer. As a gate multiply it with a reward that is never
    negative: 0 is then the lowest score.

    Args:
        max_copied: the longest run of words that may be copied, from 0.
        allow_answer: leave out ``no_answer``; answers are then not needed.
        vocabulary: a model whose tokenizer knows the words (folder or Hub name); None leaves out ``known_words``.
    """

    name = "form"
    bounds = (0.0, 1.0)
    part_names = CHECKS

    def __init__(
        self, language: str = "en", *, max_copied: int = 8, allow_answer: bool = False, vocabulary: str | None = None
    ) -> None:
        self.language = language_of(self.name, language)
        self.allow_answer = flag(self.name, "allow_answer", allow_answer)
        self.max_copied = int(number(self.name, "max_copied", max_copied, low=0, whole=True))
        self.needs = frozenset({"contexts"} if allow_answer else {"contexts", "answers"})
        left_out = {"no_answer": allow_answer, "known_words": vocabulary is None}
        self.part_names = tuple(check for check in CHECKS if not left_out.get(check))
        self.vocabulary: str | None = None
        if vocabulary is not None:
            tokenizer = load_tokenizer(vocabulary)
            known = "\n".join(sorted(tokenizer.get_vocab()))
            self.vocabulary = f"{len(tokenizer)}@{hashlib.sha256(known.encode()).hexdigest()[:8]}"
            self._is_token = words_that_are_tokens(tokenizer)

    def choices(self) -> Mapping[str, object]:
        return {
            "language": self.language,
            "max_copied": self.max_copied,
            "allow_answer": "yes" if self.allow_answer else "no",
            **({} if self.vocabulary is None else {"vocabulary": self.vocabulary}),
        }

    def compute(self, inputs: Inputs) -> MetricResult:
        columns = zip(inputs.questions, inputs.contexts, inputs.answers, strict=True)
        checked = [self._checks(*row) for row in columns]
        parts = {name: [float(row[name]) for row in checked] for name in self.part_names}
        return MetricResult([float(all(row.values())) for row in checked], parts)

    def _checks(self, question: str, context: str, answer: str) -> dict[str, bool]:
        words = ptb(question)
        checks = {
            "question_word": self.language != "en" or opens_question(question),
            "question_mark": ends_as_question(question) and sum(map(question.count, QUESTION_MARKS)) <= 1,
            "no_repetition": not repeats(question, context),
            "no_answer": not any(
                split(answer) and split(answer) in _runs(split(question), len(split(answer)))
                for split in (_compared, _plain)
            ),
            "no_copy": _passage_runs(context, self.max_copied + 1).isdisjoint(_runs(words, self.max_copied + 1)),
            "known_words": self.vocabulary is None or knows_words(question, context, self._is_token),
        }
        return {name: checks[name] for name in self.part_names}


def words_that_are_tokens(tokenizer: Any) -> Callable[[str], bool]:
    """Whether a word is one token of a tokenizer, as it stands, in lower case or capitalised."""

    @lru_cache(1 << 16)
    def is_token(word: str) -> bool:
        tokens = (tokenizer.tokenize(f" {form}") for form in (word, word.lower(), word.capitalize()))
        return any(len(found) == 1 and found[0] != tokenizer.unk_token for found in tokens)

    return is_token


def knows_words(question: str, context: str, is_token: Callable[[str], bool]) -> bool:
    """Whether each word of a question stands in the context or is a token."""
    words, there = _words(question), _passage_words(context)
    return all(word.casefold() in there or is_unspaced(word) or is_token(word) for word in words)


def repeats(question: str, context: str) -> bool:
    """Whether a word of a question follows itself, or three words each other twice, and the context has no such."""
    words, passage = ptb(question), ptb(context)
    known = set(pairwise(passage))
    if any(pair[0] == pair[1] and pair not in known and not is_unspaced(pair[0]) for pair in pairwise(words)):
        return True
    twice, twice_there = (
        {triple for triple, count in Counter(zip(text, text[1:], text[2:], strict=False)).items() if count > 1}
        for text in (words, passage)
    )
    return not {triple for triple in twice if not any(map(is_unspaced, triple))} <= twice_there


def _compared(text: str) -> Words:
    """Return the words of a text as answers are compared: without case, articles and ASCII punctuation."""
    return tuple(separate_unspaced(normalise_answer(text)).split())


def _plain(text: str) -> Words:
    """Return the words of a text without articles; hyphens and dashes separate them, and so do possessives."""
    return tuple(word for word in ptb(_JOINED.sub(" ", text)) if word not in ("a", "an", "the"))


def _runs(words: Words, size: int) -> set[Words]:
    return {words[at : at + size] for at in range(len(words) - size + 1)}


@lru_cache(1 << 8)
def _passage_runs(text: str, size: int) -> frozenset[Words]:
    return frozenset(_runs(ptb(text), size))


@lru_cache(1 << 8)
def _passage_words(text: str) -> frozenset[str]:
    return frozenset(word.casefold() for word in _words(text))


@cache
def _word_pattern() -> re.Pattern[str]:
    return re.compile(rf"[^\W\d_](?:[^\W\d_]|[{combining_marks()}])*")


def _words(text: str) -> list[str]:
    return _word_pattern().findall(normalize("NFC", text))
