"""All questions that were generated about one passage, with what selection needs to know about them."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from rl_qg.asking.question_similarity import Similarity, word_coverage, word_similarity
from rl_qg.asking.set_selection import Floats
from rl_qg.generation.question_pool import PooledQuestion, UnitPool
from rl_qg.text.spans import sentence_spans
from rl_qg.text.words import normalised_words

REPEATED = "repeated"  # as in `rl_qg.generation.question_pool`


class AnswerabilityReader(Protocol):
    """What `rewards.ReaderScore` offers."""

    def impossible(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]:
        """How sure the reader is, from 0 to 1, that each passage does not answer its question."""
        ...


@dataclass(frozen=True)
class PassagePool:
    """The pool of one passage: n questions, no two with the same words, and S sentences.

    Args:
        context: the passage.
        questions: unit by unit, of each unit in the order of the pool.
        worthy: (S,) which sentences are worth asking about; None: all.
        answerability: (n,) 1 − p(impossible) of a reader; None without one.
        dropped: questions that are left out, by reason: incomplete, or given twice, by one unit or by two.
        similar: from questions to their similarities.
    """

    context: str
    questions: tuple[PooledQuestion, ...]
    worthy: tuple[bool, ...] | None = None
    answerability: Floats | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    similar: Similarity = word_similarity

    @classmethod
    def of(
        cls,
        context: str,
        groups: Sequence[Sequence[PooledQuestion]],
        *,
        worthy: Sequence[bool] | None = None,
        similar: Similarity = word_similarity,
    ) -> "PassagePool":
        """The pool of the questions of each unit; a question that two units give stays with the more probable one."""
        written = [question for group in groups for question in group]
        kept: dict[tuple[str, ...], PooledQuestion] = {}
        for question in written:
            words = tuple(normalised_words(question.question))
            if words not in kept or _probability(kept[words]) < _probability(question):
                kept[words] = question
        chosen = {id(question) for question in kept.values()}
        questions = tuple(question for question in written if id(question) in chosen)
        dropped = Counter({REPEATED: len(written) - len(questions)})
        for group in groups:
            dropped += group.dropped if isinstance(group, UnitPool) else Counter()
        flags = None if worthy is None else tuple(map(bool, worthy))
        return cls(context, questions, flags, dropped=dict(+dropped), similar=similar)

    @property
    def size(self) -> int:
        """How many questions were generated, those that are left out included."""
        return len(self.questions) + sum(self.dropped.values())

    @property
    def texts(self) -> list[str]:
        """The questions."""
        return [question.question for question in self.questions]

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
        """Start and end of each sentence."""
        return sentence_spans(self.context)

    @cached_property
    def probability(self) -> Floats:
        """(n,) the geometric mean of the probabilities of each question's tokens."""
        return np.array([_probability(question) for question in self.questions])

    @property
    def quality(self) -> Floats:
        """(n,) answerability, without a reader probability."""
        return self.probability if self.answerability is None else self.answerability

    @cached_property
    def similarity(self) -> Floats:
        """(n, n)."""
        return self.similar(self.texts)

    @cached_property
    def asked(self) -> Floats:
        """(n, S) of each sentence 1 if it is the question's unit, else the share of the question's words in it."""
        coverage = word_coverage(self.texts, [self.context[start:end] for start, end in self.sentences])
        for row, question in enumerate(self.questions):
            for column, span in enumerate(self.sentences):
                if span == (question.start, question.end) and len(self.sentences) > 1:
                    coverage[row, column] = 1.0
        return coverage

    @property
    def weights(self) -> Floats:
        """(S,) 1 for a worthy sentence, else 0."""
        return np.ones(len(self.sentences)) if self.worthy is None else np.array(self.worthy, dtype=float)

    def kept(self, rows: Sequence[int]) -> "PassagePool":
        """The pool with these questions alone."""
        answerability = None if self.answerability is None else self.answerability[list(rows)]
        return replace(self, questions=tuple(self.questions[row] for row in rows), answerability=answerability)

    def sentence_of(self, row: int) -> int | None:
        """The number, from 0, of the sentence that a question was asked of; None where it was the whole passage."""
        question = self.questions[row]
        place = (question.start, question.end)
        return self.sentences.index(place) if len(self.sentences) > 1 and place in self.sentences else None

    def to_dict(self) -> dict[str, Any]:
        """The pool, ready for JSON; `similar` is not part of it."""
        answerability = None if self.answerability is None else self.answerability.tolist()
        questions = [dict(vars(question)) for question in self.questions]
        worthy = None if self.worthy is None else list(self.worthy)
        return {"context": self.context, "questions": questions, "worthy": worthy, "answerability": answerability}

    @classmethod
    def from_dict(cls, record: dict[str, Any], *, similar: Similarity = word_similarity) -> "PassagePool":
        """What `to_dict` has written."""
        values, worthy = record["answerability"], record["worthy"]
        return cls(
            record["context"],
            tuple(PooledQuestion(**question) for question in record["questions"]),
            None if worthy is None else tuple(worthy),
            None if values is None else np.array(values),
            similar=similar,
        )


def with_answerability(pools: Sequence[PassagePool], reader: AnswerabilityReader) -> list[PassagePool]:
    """The pools with the answerability of their questions, all read together."""
    texts = [text for pool in pools for text in pool.texts]
    contexts = [pool.context for pool in pools for _ in pool.questions]
    values = iter(1 - np.array(reader.impossible(texts, contexts)))
    return [
        replace(pool, answerability=np.array([next(values) for _ in pool.questions], dtype=np.float64))
        for pool in pools
    ]


def _probability(question: PooledQuestion) -> float:
    return math.exp(min(0.0, question.logprob / max(1, question.tokens)))
