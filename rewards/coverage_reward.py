"""A reward of sets that needs no human questions: `CoverageSetReward`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rewards.contract import scored
from rewards.errors import MetricInputError
from rewards.options import number
from rewards.overlap.word_classes import FUNCTION_WORDS, QUESTION_WORDS
from rewards.question_sets import self_bleu, self_bleu_signature
from rewards.sentences import sentence_texts
from rewards.set_rewards import SetInputs, SetReward, Values, live, metric_of
from rewards.words import ptb


class CoverageSetReward(SetReward):
    """A reward without human questions: good questions, about all sentences, that differ, and as many as wanted.

    Source: this project's; its factors are known as objectives of single questions and of summaries (coverage as in
    Lin and Bilmes, "A Class of Submodular Functions for Document Summarization", 2011; Self-BLEU of Zhu et al. 2018).
    With the m questions of a document

        R = quality · coverage · distinct · count

    - ``quality``: the mean over the m questions of a metric from 0 to 1; empty and repeated ones have 0.
    - ``coverage``: each question belongs to the sentence of the context with which it shares the most content words
      (words that are neither function words nor question words), in equal shares where several have as many, to none
      where no word is shared. The coverage of a sentence is the largest share that a question has of it; coverage is
      the mean over the sentences to cover. So m questions cover m sentences at most.
    - ``distinct``: 1 − Self-BLEU2 of the questions that count, 1 where that is one question.
    - ``count``: max(0, 1 − β |m − m̂| / m̂), with m̂ the number of references, or with ``per_sentence`` that many for
      each sentence to cover, without rounding.

    Args:
        quality: the metric, which may need neither answers nor references: a name, a metric, or a mapping with
            `metric` and its options. None for ``{metric: form, allow_answer: true}``, which is cheap.
        quality_range: [low, high], which become 0 and 1, for a metric with other bounds; scores beyond are clipped.
        beta: weight of a wrong number of questions, β.
        per_sentence: number of questions wanted for each sentence; None for as many as there are references.
        worthy: for lists of sentences, lists of flags: which sentences are to be covered, such as
            `SentenceClassifier.worthy` of `rl_qg.readers`. Where it names none, all are. None for all.

    Raises:
        MetricInputError: a metric or a number that is not valid.
    """

    name = "question_set"
    part_names = ("quality", "coverage", "distinct", "count")

    def __init__(
        self,
        quality: Any = None,
        *,
        quality_range: Sequence[float] | None = None,
        beta: float = 0.5,
        per_sentence: float | None = None,
        worthy: Callable[[list[list[str]]], Sequence[Sequence[bool]]] | None = None,
    ) -> None:
        self.quality = metric_of(
            self.name, "quality", {"metric": "form", "allow_answer": True} if quality is None else quality
        )
        needs = set(getattr(self.quality, "needs", ()))
        if needs & {"answers", "references"}:
            raise MetricInputError(
                f"question_set: {getattr(self.quality, 'name', 'quality')} needs {' and '.join(sorted(needs))}; use a "
                "metric of question and passage alone (of form: {metric: form, allow_answer: true})"
            )
        self.low, self.high = self._range(quality_range)
        self.beta = number(self.name, "beta", beta, low=0)
        self.per_sentence = None
        if per_sentence is not None:
            self.per_sentence = number(self.name, "per_sentence", per_sentence, low=1e-3)
        self.worthy = worthy
        self.needs = frozenset({"contexts"} if per_sentence is not None else {"contexts", "references"})

    @property
    def metrics(self) -> list[Any]:
        """The metric of quality."""
        return [self.quality]

    def choices(self) -> Mapping[str, object]:
        """Return what can change a score."""
        return {
            "quality_range": f"{self.low:g}..{self.high:g}",
            "beta": f"{self.beta:g}",
            "number": "references" if self.per_sentence is None else f"{self.per_sentence:g}_per_sentence",
            "sentences": "all" if self.worthy is None else "worthy",
            "self_bleu": self_bleu_signature().replace("|", ","),
            "quality": getattr(self.quality, "signature", type(self.quality).__name__),
        }

    def values(self, inputs: SetInputs) -> list[Values]:
        """Return R of each part of each document's questions."""
        rows = list(zip(inputs.predictions, inputs.contexts, strict=True))
        asked = list(dict.fromkeys((text, context) for group, context in rows for text in group if ptb(text)))
        given = (
            scored(self.quality, [text for text, _ in asked], [context for _, context in asked]).scores
            if asked
            else []
        )
        scores = {row: np.nan if value is None else value for row, value in zip(asked, given, strict=True)}
        documents = zip(rows, self._to_cover(inputs), inputs.references, strict=True)
        return [
            self._of(
                group,
                np.array([scores.get((text, context), 0.0) for text in group]),
                shares(group, context, sentences),
                float(len(gold)) if self.per_sentence is None else self.per_sentence * len(sentences),
            )
            for (group, context), sentences, gold in documents
        ]

    def _of(self, questions: list[str], quality: np.ndarray, shared: np.ndarray, wanted: float) -> Values:
        quality = ((quality - self.low) / (self.high - self.low)).clip(0, 1)

        def values(kept: Sequence[int]) -> dict[str, float]:
            counted, written = live(questions, kept), len(kept)
            if not counted:
                return dict.fromkeys(("reward", *self.part_names), 0.0)
            parts = {
                "quality": float(quality[counted].sum()) / written,
                "coverage": float(shared[counted].max(0).mean()),
                "distinct": 1 - self_bleu([[questions[at] for at in counted]])[0],
                "count": max(0.0, 1 - self.beta * abs(written - wanted) / wanted),
            }
            return {"reward": float(np.prod([*parts.values()])), **parts}

        return values

    def _to_cover(self, inputs: SetInputs) -> list[list[str]]:
        """The sentences to cover: those given, of the context if none are; of them the worthy ones, if any are."""
        columns = zip(inputs.sentences, inputs.contexts, strict=True)
        every = [given or sentence_texts(context) for given, context in columns]
        if self.worthy is None:
            return every
        rows = zip(every, self.worthy(every), strict=True)
        return [[text for text, flag in zip(*row, strict=True) if flag] or row[0] for row in rows]

    def _range(self, given: Any) -> tuple[float, float]:
        if given is None:
            low, high = getattr(self.quality, "bounds", (-np.inf, np.inf))
            if low < 0 or high > 1 or not getattr(self.quality, "higher_is_better", True):
                raise MetricInputError(
                    f"question_set: {getattr(self.quality, 'name', 'quality')} has scores from {low:g} to {high:g}; "
                    "give quality_range=[low,high], which become 0 and 1 (high below low: better when lower)"
                )
            return 0.0, 1.0
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
            raise MetricInputError(f"question_set: quality_range {given!r:.40} is not [low, high]")
        low, high = (number(self.name, "quality_range", value) for value in given)
        if low == high:
            raise MetricInputError(f"question_set: quality_range {given!r:.40} has no width")
        return low, high


def shares(questions: Sequence[str], context: str, sentences: Sequence[str]) -> np.ndarray:
    """Return which share of each question belongs to each of ``sentences``, (questions, sentences).

    A question belongs to the sentences, of these and of the context's, with which it shares the most content words.
    """
    every = list(dict.fromkeys([*sentences, *sentence_texts(context)]))
    words = [content_words(text) for text in every]
    shared = np.array([[len(content_words(text) & own) for own in words] for text in questions], float)
    shared = shared.reshape(len(questions), len(every))
    best = (shared == shared.max(1, keepdims=True, initial=0)) & (shared > 0)
    columns = [every.index(text) for text in sentences]
    return (best / best.sum(1, keepdims=True).clip(1))[:, columns]


def content_words(text: str) -> frozenset[str]:
    """Return the words of a text, in lower case, without function words and question words."""
    words = (word for word in ptb(text) if any(map(str.isalnum, word)))
    return frozenset(word for word in words if word not in FUNCTION_WORDS and word not in QUESTION_WORDS)
