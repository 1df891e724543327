"""Rewards of sets of questions: one number for all questions that a generator asks about a document.

    reward = load("multi_set")
    reward.score_sets([["Who wrote it?", "When?"], …], references=[["Who wrote the book?", …], …])   # one for each set
    reward.marginals([["Who wrote it?", "When?"], …], references=…)      # [(R(Q), [R(Q) − R(Q without q_1), …]), …]

What holds for all of them. R is between 0 and 1, and 0 for a set without a question; the order of the questions does
not matter. An *empty* question, one without words, counts as a question that was asked and earns nothing. So does one
that has the same words (after tokenising) as another question of the set, for all such questions but one: to remove
either of them costs nothing, so none of them has a marginal above 0 (under `question_set` with beta up to 1).
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rewards.base import BaseReward, is_column
from rewards.contract import bounds_of, check_row_by_row, scored
from rewards.errors import MetricInputError, number
from rewards.loading import load_for
from rewards.overlap.answerability import FUNCTION_WORDS, QUESTION_WORDS
from rewards.sets import Multi, Sets, check_texts, is_list, self_bleu, self_bleu_signature
from rewards.words import ptb, sentence_texts

CREDITS = ("whole", "marginal", "to_go")

Values = Callable[[Sequence[int]], Mapping[str, float]]  # of places of questions: the factors, and `reward`


@dataclass(frozen=True)
class SetResult:
    """What a reward gives for n sets, in the order given."""

    scores: list[float]
    parts: dict[str, list[float]]
    """What scores come from, and `written` and `valid`: questions, and the share not empty or repeated (or NaN)."""
    credits: list[list[float]]
    """One number for each question of each set, see `SetReward.result`; empty lists with ``credit="whole"``."""


@dataclass(frozen=True)
class SetInputs:
    """Checked input, one entry for each document; what a reward does not need is left blank."""

    predictions: list[list[str]]
    contexts: list[str]
    references: list[list[str]]
    sentences: list[list[str]]  # the sentences that the questions are to cover; without any those of the context


class SetReward(BaseReward):
    """A reward of sets of questions; a subclass sets the class attributes and implements `values` and `choices`."""

    bounds: tuple[float, float] = (0.0, 1.0)

    @abstractmethod
    def values(self, inputs: SetInputs) -> list[Values]:
        """Return for each document the function of a part of its questions; models run here, not in the function."""

    def score_sets(self, predictions: Sets, *given: Any, **options: Any) -> list[float]:
        """Return R of each set; arguments as `result`."""
        return self.result(predictions, *given, **options).scores

    def marginals(self, predictions: Sets, *given: Any, **options: Any) -> list[tuple[float, list[float]]]:
        """Return R(Q) of each set Q, and for each of its questions R(Q) − R(Q without it).

        Source: difference rewards (Wolpert and Tumer, "Optimal Payoff Functions for Members of Collectives", 2001).
        """
        result = self.result(predictions, *given, **options, credit="marginal")
        return list(zip(result.scores, result.credits, strict=True))

    def result(
        self,
        predictions: Sets,
        contexts: Sequence[str] | None = None,
        references: Sets | None = None,
        *,
        sentences: Sets | None = None,
        credit: str = "whole",
    ) -> SetResult:
        """Score the questions of each document, of which none may be left out: empty ones count. Those of a set are to
        cover ``sentences``; None for all of the context.

        ``credit`` is what to compute for each question q_j of a set Q: nothing (``whole``), its ``marginal``
        R(Q) − R(Q without q_j), or ``to_go``, R(Q) − R(the questions before q_j): what the set gains from q_j on.
        """
        if credit not in CREDITS:
            raise MetricInputError(f"{self.name}: credit {credit!r} is not one of {', '.join(CREDITS)}")
        inputs = self._checked(predictions, contexts, references, sentences)
        rows: list[Mapping[str, float]] = []
        credits: list[list[float]] = []
        with torch.inference_mode():
            documents = self.values(inputs) if inputs.predictions else []
        for questions, values in zip(inputs.predictions, documents, strict=True):
            every = range(len(questions))
            compared: list[list[int]] = []  # for each question those with whose reward the whole set is compared
            if credit == "marginal":
                compared = [[other for other in every if other != at] for at in every]
            elif credit == "to_go":
                compared = [list(range(at)) for at in every]
            whole, written = values(every), float(len(questions))
            valid = len(live(questions, every)) / written if questions else float("nan")
            rows.append({**whole, "written": written, "valid": valid})
            credits.append([whole["reward"] - values(rest)["reward"] for rest in compared])
        parts = {name: [row[name] for row in rows] for name in (*self.part_names, "written", "valid")}
        return SetResult([row["reward"] for row in rows], parts, credits)

    def _checked(
        self, predictions: Sets, contexts: Sequence[str] | None, references: Sets | None, sentences: Sets | None
    ) -> SetInputs:
        def groups(name: str, given: Sets | None) -> list[list[str]]:
            if given is None:
                return [[] for _ in predictions]
            try:
                check_texts(name, given)
            except MetricInputError as error:
                raise MetricInputError(f"{self.name}: {error}") from None
            if len(given) != len(predictions):
                raise MetricInputError(
                    f"{self.name}: {len(predictions)} sets but {len(given)} {name}; give one list for each"
                )
            return [list(group) for group in given]

        asked = groups("predictions", predictions)
        for need, given in (("contexts", contexts), ("references", references)):
            if need in self.needs and given is None:
                raise MetricInputError(f"{self.name} needs {need}; pass {need}=[...], one entry for each set")
        if contexts is not None and (not is_column(contexts) or len(contexts) != len(asked)):
            raise MetricInputError(f"{self.name}: {len(asked)} sets but contexts are not as many texts")
        if contexts is not None and (wrong := [text for text in contexts if not isinstance(text, str)]):
            raise MetricInputError(f"{self.name}: contexts has {wrong[0]!r:.60}, which is no text")
        gold = groups("references", references)
        if "references" in self.needs and not all(gold):
            row = next(row for row, group in enumerate(gold) if not group)
            raise MetricInputError(f"{self.name}: references[{row}] is empty; give at least one gold question")
        texts = [""] * len(asked) if contexts is None else list(contexts)
        return SetInputs(asked, texts, gold, groups("sentences", sentences))


def live(questions: Sequence[str], kept: Sequence[int]) -> list[int]:
    """Return the places of questions that count: with words, and the first (as text) of those with the same."""
    first: dict[object, int] = {}
    for at in kept:
        if key := ptb(questions[at]):
            first[key] = min(first.get(key, at), at, key=lambda place: (questions[place], place))
    return sorted(first.values())


class MultiSetReward(SetReward):
    """F of Multi-M: how well the questions of a document agree with those that people asked, one to one.

    Source: Ray Chowdhury, Mahata, Caragea, "On the Evaluation of Answer-Agnostic Paragraph-level Multi-Question
    Generation", 2022 (`rewards.Multi`). With m questions (empty and repeated ones included), n references, and S the
    largest sum of M over pairs of which no two share a question or a reference,

        R = F = 2 S / (m + n).

    A question that is empty or repeated has 0 with every reference. To add a question that raises S by a changes F by
    more than 0 exactly if a > F / 2: a question that matches nothing has a marginal below 0.

    Args:
        metric: M, a metric from 0 to 1 that compares with references: a name, a metric, or a mapping with `metric`
            and its options.
        clip: count scores below 0 as 0: for BERTScore that is rescaled, ``{metric: bertscore, rescale: 0.8}``.
    """

    name = "multi_set"
    part_names = ("precision", "recall")

    def __init__(self, metric: Any = "rouge_l", *, clip: bool = False) -> None:
        self.metric = metric_of(self.name, "metric", metric)
        self.metrics, self.multi = [self.metric], Multi(self.metric, clip=clip)
        if lacking := [name for name in ("answers", "titles") if name in self.metric.needs]:
            raise MetricInputError(f"multi_set: {self.metric.name} needs {lacking[0]}, which sets do not have")
        if self.metric.bounds[1] > 1:
            raise MetricInputError(
                f"multi_set: {self.metric.name} may score above 1; use one from 0 to 1, such as rouge_l or q_bleu1"
            )
        self.needs = self.metric.needs

    def choices(self) -> Mapping[str, object]:
        return {"repeated": "zero", "clip": "0" if self.multi.clip else "none", "metric": self.metric.signature}

    def values(self, inputs: SetInputs) -> list[Values]:
        matrices = self.multi.matrices(inputs.predictions, inputs.references, inputs.contexts)
        return [self._of(group, matrix) for group, matrix in zip(inputs.predictions, matrices, strict=True)]

    def _of(self, questions: list[str], matrix: np.ndarray) -> Values:
        # Of questions with the same words any one counts with the scores of the first, whichever are left.
        first = {ptb(questions[at]): at for at in live(questions, range(len(questions)))}

        def values(kept: Sequence[int]) -> dict[str, float]:
            part = np.zeros((len(kept), matrix.shape[1]))
            counted = set(live(questions, kept))
            for row, at in enumerate(kept):
                if at in counted:
                    part[row] = matrix[first[ptb(questions[at])]]
            precision, recall, f1 = self.multi.assigned(part) if len(kept) else (0.0, 0.0, 0.0)
            return {"reward": f1, "precision": precision, "recall": recall}

        return values


def metric_of(where: str, option: str, given: Any) -> Any:
    """Return a metric of single questions from its name, from a mapping with `metric` and options, or itself."""
    if isinstance(given, str):
        given = {"metric": given}
    if isinstance(given, Mapping):
        options = dict(given)
        if not isinstance(name := options.pop("metric", None), str):
            raise MetricInputError(f"{where}: {option} {given!r:.60} names no metric; give {{metric: rouge_l}}")
        given = load_for(f"{where}: {option}", name, options)
    if not callable(getattr(given, "score", None)):
        raise MetricInputError(f"{where}: {option} is {given!r:.60}; give a name or a metric of single questions")
    check_row_by_row(given)
    return given


class CoverageSetReward(SetReward):
    """A reward without human questions: good questions, about all sentences, that differ, and as many as wanted.

    Source: this project's; its factors are known as objectives of single questions and of summaries (coverage as in
    Lin and Bilmes, "A Class of Submodular Functions for Document Summarization", 2011; Self-BLEU of Zhu et al. 2018).
    With the m questions of a document

        R = quality · coverage · distinct · count

    - ``quality``: the mean over the m questions of a metric from 0 to 1; empty and repeated ones have 0.
    - ``coverage``: each question belongs to the sentence of the context with which it shares the most content words
      (words that are neither function words nor question words), in equal shares where several have as many. The
      coverage of a sentence is the largest share that a question has of it; coverage is the mean over the sentences to
      cover. So m questions cover m sentences at most.
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
        self.metrics = [self.quality]
        needs = set(getattr(self.quality, "needs", ()))
        if needs & {"answers", "references", "titles"}:
            raise MetricInputError(
                f"question_set: {getattr(self.quality, 'name', 'quality')} needs {' and '.join(sorted(needs))}; use a "
                "metric of question and passage alone (of form: {metric: form, allow_answer: true})"
            )
        self.low, self.high = self._range(quality_range)
        self.beta = number(self.name, "beta", beta, low=0)
        least = None if per_sentence is None else number(self.name, "per_sentence", per_sentence, low=1e-3)
        self.per_sentence, self.worthy = least, worthy
        self.needs = frozenset({"contexts"} if per_sentence is not None else {"contexts", "references"})

    def choices(self) -> Mapping[str, object]:
        return {
            "quality_range": f"{self.low:g}..{self.high:g}",
            "beta": f"{self.beta:g}",
            "number": "references" if self.per_sentence is None else f"{self.per_sentence:g}_per_sentence",
            "sentences": "all" if self.worthy is None else "worthy",
            "self_bleu": self_bleu_signature().replace("|", ","),
            "quality": getattr(self.quality, "signature", type(self.quality).__name__),
        }

    def values(self, inputs: SetInputs) -> list[Values]:
        rows = list(zip(inputs.predictions, inputs.contexts, strict=True))
        asked = list(dict.fromkeys((text, context) for group, context in rows for text in group if ptb(text)))
        texts, contexts = ([row[side] for row in asked] for side in (0, 1))
        given = scored(self.quality, texts, contexts).scores if asked else []
        scores = {row: np.nan if value is None else value for row, value in zip(asked, given, strict=True)}
        # The sentences to cover: those given, of the context if none are; of them the worthy ones, if any are.
        columns = zip(inputs.sentences, inputs.contexts, strict=True)
        to_cover = [own or sentence_texts(context) for own, context in columns]
        if self.worthy is not None:
            flagged = zip(to_cover, self.worthy(to_cover), strict=True)
            to_cover = [[text for text, flag in zip(*row, strict=True) if flag] or row[0] for row in flagged]
        documents = zip(rows, to_cover, inputs.references, strict=True)
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

    def _range(self, given: Any) -> tuple[float, float]:
        if given is None:
            low, high = bounds_of(self.quality)
            if low < 0 or high > 1 or not getattr(self.quality, "higher_is_better", True):
                raise MetricInputError(
                    f"question_set: {getattr(self.quality, 'name', 'quality')} has scores from {low:g} to {high:g}; "
                    "give quality_range=[low,high], which become 0 and 1 (high below low: better when lower)"
                )
            return 0.0, 1.0
        if not is_list(given) or len(given) != 2:
            raise MetricInputError(f"question_set: quality_range {given!r:.40} is not [low, high]")
        low, high = (number(self.name, "quality_range", value) for value in given)
        if low == high:
            raise MetricInputError(f"question_set: quality_range {given!r:.40} has no width")
        return low, high


def shares(questions: Sequence[str], context: str, sentences: Sequence[str]) -> np.ndarray:
    """Return which share of each question belongs to each of ``sentences``, (questions, sentences)."""
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
