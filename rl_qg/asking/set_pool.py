"""All questions that were generated about one passage, with what selection needs to know about them, and selections as
functions of arrays.

Everywhere `quality` (n,) is in [0, 1], higher is better; `similarity` (n, n) is symmetric with ones on its diagonal;
`number` is how many to take at most (None: any number). All return the chosen indices in the order in which they were
taken. Of equal values the first is taken.

Sources: Ray Chowdhury, Mahata, Caragea, "On the Evaluation of Answer-Agnostic Paragraph-level Multi-Question
Generation", 2022 (`random_choice`, `ranked`); Carbonell and Goldstein, "The use of MMR", SIGIR 1998 (`mmr`); Lin and
Bilmes, "A class of submodular functions for document summarization", ACL 2011 (`cover`). Two more, which were measured
to be no better, are in experiments/sets.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from rewards.embedding.token_embeddings import SentenceEncoder
from rewards.frozen import FrozenModel
from rl_qg.generation.generator import Kept
from rl_qg.generation.sets import PooledQuestion
from rl_qg.stats.intervals import Floats
from rl_qg.text.spans import sentence_spans
from rl_qg.text.words import normalised_words

Similarity = Callable[[Sequence[str]], Floats]
"""From n questions to (n, n), symmetric, in [0, 1], with ones on the diagonal."""

RELEVANCE = 0.7  # weight of quality in `mmr`, against similarity to what is chosen
SHARE = 0.1  # weight of quality in `cover`, against sentences
LEAST_GAIN = 0.25  # `cover` without a number stops where no question gains this much
WORDS = "words"
REPEATED = "repeated"  # as in `rl_qg.generation.sets`


def random_choice(count: int, number: int | None, draws: np.random.Generator) -> list[int]:
    return draws.permutation(count)[:number].tolist()


def ranked(quality: Floats, number: int | None) -> list[int]:
    return np.argsort(-quality, kind="stable")[:number].tolist()


def mmr(quality: Floats, similarity: Floats, number: int | None, *, relevance: float = RELEVANCE) -> list[int]:
    """Maximal marginal relevance: next is the largest relevance · q(x) − (1 − relevance) · max similarity to the set;
    `relevance` goes from 0 (only different ones) to 1 (only good ones).
    """
    chosen: list[int] = []
    nearest = np.zeros_like(quality)
    for _ in quality[:number]:
        value = relevance * quality - (1 - relevance) * nearest
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
        nearest = np.maximum(nearest, similarity[chosen[-1]])
    return chosen


def cover(
    quality: Floats, coverage: Floats, number: int | None, *, weights: Floats | None = None, least: float = LEAST_GAIN
) -> list[int]:
    """Greedy maximum of Σ_s w_s · max_x c(x, s) + `SHARE` · Σ_x q(x), at least (1 − 1/e) of the largest value.

    c is `coverage` (n, sentences), in [0, 1]: how much of a sentence a question covers; w the `weights` (sentences,),
    None: 1 each. Without a number it stops where no question gains `least`; the best question is always taken.
    """
    w = np.ones(coverage.shape[1]) if weights is None else weights
    covered = np.zeros(coverage.shape[1])
    chosen: list[int] = []
    for _ in quality[:number]:
        gains = np.clip(coverage - covered, 0, None) @ w + SHARE * quality
        gains[chosen] = -np.inf
        best = int(gains.argmax())
        if number is None and chosen and gains[best] < least:
            break
        chosen.append(best)
        covered = np.maximum(covered, coverage[best])
    return chosen


def word_similarity(questions: Sequence[str]) -> Floats:
    """Jaccard similarity of the sets of words: shared words over all words of both. It is positive semidefinite
    (Gower, "A general coefficient of similarity and some of its properties", 1971).
    """
    sets = _incidence([normalised_words(question) for question in questions])
    shared = sets @ sets.T
    sizes = sets.sum(1)
    either = sizes[:, None] + sizes - shared
    similarity = np.divide(shared, either, out=np.zeros_like(shared), where=either > 0)
    np.fill_diagonal(similarity, 1.0)
    return similarity


def word_coverage(questions: Sequence[str], sentences: Sequence[str]) -> Floats:
    """How much of each question is about each sentence, (questions, sentences): its words that stand in any of them,
    each divided among those in which it stands. A row sums to 1, or is 0 where no word stands in a sentence.
    """
    sets = _incidence([normalised_words(text) for text in (*questions, *sentences)])
    asked, said = sets[: len(questions)], sets[len(questions) :]
    holders = said.sum(0)
    divided = np.divide(said, holders, out=np.zeros_like(said), where=holders > 0)
    total = asked @ (holders > 0).astype(float)[:, None]
    return np.divide(asked @ divided.T, total, out=np.zeros((len(questions), len(sentences))), where=total > 0)


def _incidence(texts: Sequence[Sequence[str]]) -> Floats:
    """Which text has which word, (texts, words), 0 or 1."""
    known = {word: place for place, word in enumerate(dict.fromkeys(word for text in texts for word in text))}
    table = np.zeros((len(texts), len(known)))
    for row, text in enumerate(texts):
        table[row, [known[word] for word in text]] = 1.0
    return table


class SentenceVectors:
    """Cosine of the questions' vectors, the means of their tokens' last states, as in sentence-transformers; below 0
    counts as 0. `encoder` is a folder or Hub name, such as `sentence-transformers/all-MiniLM-L6-v2`.
    """

    def __init__(self, encoder: str | Path, *, device: str | torch.device | None = None) -> None:
        model = FrozenModel(encoder, "encoder", device=device, dtype="float32")
        self._encoder = SentenceEncoder(model, batch_size=32, name="similarity")

    def __call__(self, questions: Sequence[str]) -> Floats:
        unit = self._encoder.vectors(questions).double().numpy()
        similarity: Floats = np.clip(unit @ unit.T, 0.0, 1.0)
        np.fill_diagonal(similarity, 1.0)
        return similarity


class AnswerabilityReader(Protocol):
    """Says how sure it is, from 0 to 1, that each passage does not answer its question: `rewards.ReaderScore`."""

    def impossible(self, questions: Sequence[str], contexts: Sequence[str]) -> list[float]: ...


@dataclass(frozen=True)
class PassagePool:
    """The pool of one passage: n questions, no two with the same words, and S sentences.

    Args:
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
            dropped += group.dropped if isinstance(group, Kept) else Counter()
        flags = None if worthy is None else tuple(map(bool, worthy))
        return cls(context, questions, flags, dropped=dict(+dropped), similar=similar)

    @property
    def size(self) -> int:
        """How many questions were generated, those that are left out included."""
        return len(self.questions) + sum(self.dropped.values())

    @property
    def texts(self) -> list[str]:
        return [question.question for question in self.questions]

    @cached_property
    def sentences(self) -> list[tuple[int, int]]:
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
        for row in range(len(self.questions)):
            if (sentence := self.sentence_of(row)) is not None:
                coverage[row, sentence] = 1.0
        return coverage

    @property
    def weights(self) -> Floats:
        """(S,) 1 for a worthy sentence, else 0."""
        return np.ones(len(self.sentences)) if self.worthy is None else np.array(self.worthy, dtype=float)

    def kept(self, rows: Sequence[int]) -> "PassagePool":
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
        return {"context": self.context, "questions": questions, "worthy": self.worthy, "answerability": answerability}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> "PassagePool":
        values, worthy = record["answerability"], record["worthy"]
        questions = tuple(PooledQuestion(**question) for question in record["questions"])
        flags = None if worthy is None else tuple(worthy)
        return cls(record["context"], questions, flags, None if values is None else np.array(values))


def with_answerability(pools: Sequence[PassagePool], reader: AnswerabilityReader) -> list[PassagePool]:
    texts = [text for pool in pools for text in pool.texts]
    contexts = [pool.context for pool in pools for _ in pool.questions]
    values = iter(1 - np.array(reader.impossible(texts, contexts)))
    return [
        replace(pool, answerability=np.array([next(values) for _ in pool.questions], dtype=np.float64))
        for pool in pools
    ]


def _probability(question: PooledQuestion) -> float:
    return math.exp(min(0.0, question.logprob / max(1, question.tokens)))
