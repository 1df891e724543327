"""Sets of questions, and of question-answer pairs: those that a system made, compared with those that people wrote.

    scores = match_sets(load("coco_bleu4"), predictions=[["Who …?", …], …], references=[["Whom …?", …], …])
    scores.mean()      # {"precision": …, "recall": …, "f1": …, "averaged": …}
    scores = QAAligned(load("bertscore", part="precision")).score(
        predictions=[[("Who …?", "Ada"), …], …], references=[[("Whom …?", "Ada"), …], …]
    )
    scores.mean()      # {"precision": …, "recall": …, "f1": …, "one_to_one_precision": …, …}

For systems that are given a document and no answer. A question is good if it resembles *some* reference, and a set is
good if it covers the references without repetition; so predictions and references are paired one to one. Source: Ray
Chowdhury, Mahata, Caragea, "On the Evaluation of Answer-Agnostic Paragraph-level Multi-Question Generation", 2022
(arXiv 2203.04464), and its released code JRC1995/QuestionGenerationPub (Multi-BLEU and so on), whose numbers the tests
reproduce.

Pairs: Ushio, Alva-Manchego, Camacho-Collados, "An Empirical Comparison of LM-based Question and Answer Generation
Methods", Findings of ACL 2023 (QAAligned), and its released code (lmqg, `qa_aligned_f1_score.py`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rewards.base import Metric
from rewards.contract import bounds_of, check_row_by_row, name_of
from rewards.errors import MetricInputError, flag, library
from rewards.loading import load
from rewards.overlap.bleu import Bleu
from rewards.signature import format_signature
from rewards.words import libraries, tokenizer

Sets = Sequence[Sequence[str]]
Pair = tuple[str, str]  # a question and its answer
Pairs = Sequence[Sequence[Pair]]
Compared = tuple[int, str, list[str]]  # the place of a document, one of its predictions, and references

_BELOW_ZERO = "and a pair that is left out counts as 0; use a metric from 0 up, or clip=True to count lower ones as 0"


class _Columns:
    """One value of each part for each document, in the order given."""

    @classmethod
    def parts(cls) -> tuple[str, ...]:
        return tuple(field.name for field in fields(cls) if field.name != "signature")  # type: ignore[arg-type]

    def columns(self) -> dict[str, list[float]]:
        return {part: getattr(self, part) for part in self.parts()}

    def mean(self) -> dict[str, float]:
        """Return the mean over documents of each part; the F of a corpus is the mean of F, not the F of means."""
        return {part: math.fsum(values) / max(len(values), 1) for part, values in self.columns().items()}


@dataclass(frozen=True)
class SetScores(_Columns):
    """What `Multi` returns. ``f1`` is the conservative score: a reference counts once."""

    precision: list[float]  # sum of the scores of the pairs over the number of predictions
    recall: list[float]  # the same sum over the number of references
    f1: list[float]  # harmonic mean of the two, 0 where both are 0
    averaged: list[float]
    """Mean over the predictions of the score against all references at once: best if one good question is repeated."""
    signature: str


class Multi:
    """Multi-M: any reference-based metric M for sets of questions, by optimal one-to-one assignment.

    For each document, M of every prediction with every reference; then the min(m, n) pairs with the largest total
    S (`scipy.optimize.linear_sum_assignment`); precision S/m, recall S/n, F. Without predictions or without references
    all values are 0; without both, all are 1. Equal predictions count as one: exact copies, and texts with the same
    words after tokenising.

    Differences from the released code: there a repetition in other case or punctuation removes one *arbitrary*
    prediction (file means change by a few 1e-4), here it removes the repetition. There an empty set is scored as a set
    with one unusual word (``placeholder``), and scores are rounded to 5 decimals before the assignment
    (``decimals=5``).

    Args:
        metric: one that compares with references, is better when higher, and has no score below 0 (a pair that is left
            out counts as 0) unless ``clip``.
        tokenize: any of `rewards.words.tokenizer`; decides which predictions are equal.
        placeholder: the only question of an empty set of predictions; None leaves it empty.
        decimals: number of decimals of the scores in the choice of pairs, not in their sum; None does not round.
        clip: count scores below 0 as 0, in pairs and in ``averaged``, for metrics with such scores: MoverScore,
            rescaled BERTScore. A log-likelihood, which would always be 0, still raises.
    """

    def __init__(
        self,
        metric: Metric,
        *,
        tokenize: str = "ptb",
        placeholder: str | None = None,
        decimals: int | None = None,
        clip: bool = False,
    ) -> None:
        if not isinstance(metric, Metric):
            raise MetricInputError(f"multi: {name_of(metric)} is no rewards.Metric, which names its needs and bounds")
        if "references" not in metric.needs:
            raise MetricInputError(f"multi: {metric.name} does not use references, so no pair is better than another")
        check_row_by_row(metric)
        low, high = metric.bounds
        if not metric.higher_is_better or high <= 0:
            raise MetricInputError(
                f"multi: {metric.name} is better when lower or never above 0, and a pair that is left out counts as "
                "0; use a metric whose good scores are above 0"
            )
        if low == float("-inf") and not clip:
            raise MetricInputError(f"multi: {metric.name} may score below 0, {_BELOW_ZERO}")
        self.metric, self.tokenize, self.placeholder, self.decimals = metric, tokenize, placeholder, decimals
        self.clip = flag("multi", "clip", clip)
        tokenizer(tokenize)
        self._assign = library("scipy.optimize", "multi", "scipy").linear_sum_assignment

    @property
    def signature(self) -> str:
        choices = {
            "empty": "zero" if self.placeholder is None else "placeholder",
            "decimals": "all" if self.decimals is None else self.decimals,
            **({"clip": 0} if self.clip else {}),
            "metric": self.metric.signature,
        }
        return _signature("multi", self.tokenize, choices)

    def score(
        self,
        predictions: Sets,
        references: Sets,
        contexts: Sequence[str] | None = None,
        *,
        answers: Sequence[str] | None = None,
    ) -> SetScores:
        """Score the questions of each document; a text and an answer for each, for metrics that need them."""
        columns = {"contexts": contexts, "answers": answers}
        self._check(predictions, references, columns)
        questions = distinct(predictions, tokenize=self.tokenize, placeholder=self.placeholder)
        documents = [at for at, group in enumerate(questions) if group and len(references[at])]
        whole = [(at, text, list(references[at])) for at in documents for text in questions[at]]
        values = iter(self._scores(whole, columns))
        rows: list[tuple[float, float, float, float]] = []
        matrices = compared(questions, references, lambda pairs: self._scores(pairs, columns))
        for group, gold, matrix in zip(questions, references, matrices, strict=True):
            if group and gold:
                averaged = math.fsum(next(values) for _ in group) / len(group)
                rows.append((*self.assigned(matrix), averaged))
            else:
                rows.append((0.0,) * 4 if group or gold else (1.0,) * 4)
        precisions, recalls, f1s, means = ([row[at] for row in rows] for at in range(4))
        return SetScores(precisions, recalls, f1s, means, self.signature)

    def matrices(self, predictions: Sets, references: Sets, contexts: Sequence[str] | None = None) -> list[np.ndarray]:
        """Return M of every question with every reference of its document, (questions, references) each."""
        columns = {"contexts": contexts}
        self._check(predictions, references, columns)
        return compared(predictions, references, lambda pairs: self._scores(pairs, columns))

    def assigned(self, matrix: np.ndarray) -> tuple[float, float, float]:
        """Return precision, recall and F of one document from its scores, (predictions, references), not empty."""
        total = math.fsum(matrix[self._best(matrix)])
        precision, recall = total / matrix.shape[0], total / matrix.shape[1]
        return precision, recall, 2 * precision * recall / (precision + recall) if total else 0.0

    def pairs(
        self, predictions: Sets, references: Sets, contexts: Sequence[str] | None = None
    ) -> list[list[tuple[int, int, float]]]:
        """Return each document's pairs: places of prediction (the first of equal ones) and reference, and score."""
        found = []
        split: Callable[[str], object] = tokenizer(self.tokenize)
        for group, matrix in zip(predictions, self.matrices(predictions, references, contexts), strict=True):
            keys = [split(text) for text in group]
            first = [at for at, key in enumerate(keys) if key not in keys[:at]]
            chosen = zip(*self._best(matrix[first]), strict=True) if matrix.size else ()
            found.append([(first[row], int(to), float(matrix[first[row], to])) for row, to in chosen])
        return found

    def _best(self, matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and columns of the entries with the largest sum."""
        rows, columns = self._assign(
            matrix if self.decimals is None else np.round(matrix, self.decimals), maximize=True
        )
        return rows, columns

    def _check(self, predictions: Sets, references: Sets, columns: Mapping[str, Sequence[str] | None]) -> None:
        _check_sets(predictions, references)
        for name, column in columns.items():
            if name not in self.metric.needs:
                continue
            if column is None:
                raise MetricInputError(f"multi: {self.metric.name} needs {name}; pass one text per document")
            if not is_list(column) or not all(isinstance(text, str) for text in column):
                raise MetricInputError(f"multi: {name} is {column!r:.60}; give a list of one text per document")
            if len(column) != len(predictions):
                raise MetricInputError(
                    f"multi: {len(predictions)} documents but {len(column)} {name}; give one per document"
                )

    def _scores(self, rows: Sequence[Compared], columns: Mapping[str, Sequence[str] | None]) -> list[float]:
        needed: dict[str, Any] = {
            name: [column[at] for at, _, _ in rows]
            for name, column in columns.items()
            if name in self.metric.needs and column is not None
        }
        scores = self.metric.score([text for _, text, _ in rows], references=[gold for *_, gold in rows], **needed)
        if self.clip:
            return [max(score, 0.0) for score in scores.scores]
        if rows and (least := min(scores.scores)) < 0:
            raise MetricInputError(f"multi: {self.metric.name} scores {least:.3g} for a pair, {_BELOW_ZERO}")
        return scores.scores


def match_sets(
    metric: Metric, predictions: Sets, references: Sets, contexts: Sequence[str] | None = None
) -> SetScores:
    return Multi(metric).score(predictions, references, contexts)


def compared(
    predictions: Sets, references: Sets, score: Callable[[list[Compared]], Sequence[float]]
) -> list[np.ndarray]:
    """Return the score of each prediction with each reference of its document, (predictions, references) each."""
    documents = list(zip(predictions, references, strict=True))
    rows = [(at, text, [other]) for at, (group, gold) in enumerate(documents) for text in group for other in gold]
    entries = np.array(score(rows), dtype=np.float64)
    if np.isnan(entries).any():
        at, text, (other,) = rows[int(np.isnan(entries).argmax())]
        raise MetricInputError(f"set {at}: the metric has no score for {text!r:.60} against {other!r:.60}")
    ends = np.cumsum([len(group) * len(gold) for group, gold in documents])
    parts = np.split(entries, ends[:-1]) if documents else []
    return [part.reshape(len(group), len(gold)) for part, (group, gold) in zip(parts, documents, strict=True)]


def distinct(sets: Sets, *, tokenize: str = "ptb", placeholder: str | None = None) -> list[list[str]]:
    """Return each set without equal questions: of those with the same words the first in the order of characters."""
    check_texts("predictions", sets)
    split: Callable[[str], object] = tokenizer(tokenize)
    sets_of_distinct = []
    for group in sets:
        first: dict[object, str] = {}
        for text in group:
            first[split(text)] = min(text, first.get(split(text), text))
        sets_of_distinct.append(list(first.values()) or ([] if placeholder is None else [placeholder]))
    return sets_of_distinct


def self_bleu(predictions: Sets, order: int = 2, *, tokenize: str = "ptb") -> list[float]:
    """Return Self-BLEU of each set: the mean BLEU (the captioning scripts') of its questions against its other
    questions. Lower is more varied. Repetitions count once; a set of fewer than two questions has 0.

    Source: Zhu et al., "Texygen: A Benchmarking Platform for Text Generation Models", SIGIR 2018.
    """
    questions = distinct(predictions, tokenize=tokenize)
    several = [group for group in questions if len(group) > 1]
    rows = [(text, [*group[:at], *group[at + 1 :]]) for group in several for at, text in enumerate(group)]
    metric = Bleu(order, "coco", tokenize=tokenize)
    scores = iter(metric.score([text for text, _ in rows], references=[others for _, others in rows]).scores)
    return [math.fsum(next(scores) for _ in group) / len(group) if len(group) > 1 else 0.0 for group in questions]


def self_bleu_signature(order: int = 2, *, tokenize: str = "ptb") -> str:
    return _signature("self_bleu", tokenize, {"metric": Bleu(order, "coco", tokenize=tokenize).signature})


def cardinality_difference(
    predictions: Sets, references: Sets, *, tokenize: str = "ptb", placeholder: str | None = None
) -> list[int]:
    """Return, for each document, the number of references minus that of predictions; repetitions count once."""
    _check_sets(predictions, references)
    questions = distinct(predictions, tokenize=tokenize, placeholder=placeholder)
    return [len(gold) - len(group) for group, gold in zip(questions, references, strict=True)]


def cardinality_signature(*, tokenize: str = "ptb", placeholder: str | None = None) -> str:
    empty = "zero" if placeholder is None else "placeholder"
    return format_signature("cardinality_difference", {"same": tokenize, **libraries(tokenize), "empty": empty})


def _signature(name: str, tokenize: str, choices: Mapping[str, object]) -> str:
    """A signature that ends in that of a metric, with its version."""
    fields = {"same": tokenize, **libraries(tokenize), **choices}
    return "|".join([name, *(f"{key}:{value}" for key, value in fields.items())])


def _check_sets(predictions: Sets, references: Sets) -> None:
    check_texts("predictions", predictions)
    check_texts("references", references)
    if len(predictions) != len(references):
        raise MetricInputError(
            f"{len(predictions)} sets of predictions but {len(references)} of references; one of each per document"
        )


def check_texts(name: str, sets: Any) -> None:
    if not is_list(sets):
        raise MetricInputError(f"{name} is {sets!r:.60}; give one list of texts per document")
    for at, group in enumerate(sets):
        if not is_list(group) or not all(isinstance(text, str) for text in group):
            raise MetricInputError(f"{name}[{at}] is {group!r:.60}; give a list of texts")


def is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


EPSILON = 1e-6  # in the denominator of F1, as in the released code: a system without a fault has 0.9999995

PUBLISHED_OPTIONS = {"bertscore": {"part": "precision"}, "moverscore": {"variant": "v2"}}
"""Of the metrics under QAAligned in the released code: of BERTScore it takes the precision, not F."""

PUBLISHED_ENCODERS: dict[str, dict[str, tuple[str, int | None]]] = {
    "bertscore": {"en": ("roberta-large", 17), "zh": ("bert-base-chinese", 8)},
    "moverscore": {"en": ("distilbert-base-uncased", None)},
}
OTHER_LANGUAGES = ("bert-base-multilingual-cased", 9)


@dataclass(frozen=True)
class PairScores(_Columns):
    """What `QAAligned` returns: its own three parts, then those of the one-to-one assignment."""

    precision: list[float]  # the mean over the predicted pairs of the best score with any human pair
    recall: list[float]  # the mean over the human pairs of the best score with any predicted pair
    f1: list[float]
    # The largest sum of scores of which each pair is part of one at most, over the number of predicted or human pairs.
    one_to_one_precision: list[float]
    one_to_one_recall: list[float]
    one_to_one_f1: list[float]
    signature: str


class QAAligned:
    """QAAligned-M: any metric M that compares two texts, for sets of question-answer pairs.

    H are the predicted pairs of a passage without exact repetitions, G its human pairs as they are, repetitions
    included; s(h, g) is M of the whole text ``question: …, answer: …`` of h with that of g. Then

        precision = mean over h in H of max over g of s(h, g)
        recall    = mean over g in G of max over h of s(h, g)
        F1        = 2 · precision · recall / (precision + recall + 1e-6)

    and all three are 0 where H is empty. This is what the released code computes and what its tables print. Equations
    4 and 5 of the demo paper (Ushio et al., ACL 2023) and some rows of its Table 1 have precision and recall swapped.
    There M is BERTScore, of which the code takes *precision* (not F), or MoverScore: `published_base`.

    Matching is many to one: repeating a good pair in other words costs nothing. So ``one_to_one_…`` pair both sides
    one to one, from the same scores, as `Multi` does: a pair counts once, scores below 0 count as 0, predictions with
    the same words after tokenising are one.

    Differences from the released code: it splits one text into pairs at `` | `` and leaves out those without exactly
    one ``, answer: ``; here pairs are given as pairs. It ends with an error where no passage has a prediction.

    Args:
        metric: one that compares a text with references and reads nothing else, and is better when higher.
        tokenize: any of `rewards.words.tokenizer`; decides which predictions are equal in ``one_to_one_…``.
    """

    def __init__(self, metric: Metric, *, tokenize: str = "ptb") -> None:
        if others := " and ".join(sorted({*getattr(metric, "needs", ())} - {"references"})):
            raise MetricInputError(
                f"qa_aligned: {metric.name} reads {others}, and a pair is compared with a pair alone"
            )
        self._one_to_one = Multi(metric, tokenize=tokenize, clip=bounds_of(metric)[0] < 0)
        self.metric, self.tokenize = metric, tokenize

    @property
    def signature(self) -> str:
        return f"qa_aligned|repetitions:once|epsilon:{EPSILON:g}|empty:zero|one_to_one:{self._one_to_one.signature}"

    def score(self, predictions: Pairs, references: Pairs) -> PairScores:
        """Score the predicted pairs of each passage, which may have none, with its human pairs, at least one."""
        texts, gold = _pair_texts("predictions", predictions), _pair_texts("references", references)
        if len(texts) != len(gold):
            raise MetricInputError(
                f"{len(texts)} sets of predictions but {len(gold)} of references; one of each per passage"
            )
        if empty := [at for at, group in enumerate(gold) if not group]:
            raise MetricInputError(f"references[{empty[0]}] is empty; leave out passages without human pairs")
        texts = [list(dict.fromkeys(group)) for group in texts]
        counted = distinct(texts, tokenize=self.tokenize)
        rows: list[tuple[float, ...]] = []
        for predicted, once, matrix in zip(texts, counted, compared(texts, gold, self._scores), strict=True):
            if not predicted:
                rows.append((0.0,) * 6)
                continue
            kept = np.maximum(matrix[[predicted.index(text) for text in once]], 0.0)
            precision, recall = float(matrix.max(axis=1).mean()), float(matrix.max(axis=0).mean())
            f1 = 2 * precision * recall / (precision + recall + EPSILON)
            rows.append((precision, recall, f1, *self._one_to_one.assigned(kept)))
        columns = {part: [row[at] for row in rows] for at, part in enumerate(PairScores.parts())}
        return PairScores(**columns, signature=self.signature)

    def _scores(self, pairs: Sequence[Compared]) -> list[float]:
        return self.metric.score([text for _, text, _ in pairs], references=[gold for *_, gold in pairs]).scores


def pair_text(question: str, answer: str) -> str:
    return f"question: {question}, answer: {answer}"


def published_base(name: str, language: str = "en", **options: Any) -> Metric:
    """Return the metric under QAAligned, ``bertscore`` or ``moverscore``, as the released code computes it for a
    language (ISO 639-1); ``options`` of the metric take the place of these, such as ``model="folder"``.

    BERTScore: precision, without idf and rescaling, roberta-large (layer 17) for English, bert-base-chinese (8) for
    Chinese, bert-base-multilingual-cased (9) otherwise. MoverScore: version 2, distilbert-base-uncased for English,
    otherwise bert-base-multilingual-cased.
    """
    if name not in PUBLISHED_ENCODERS:
        raise MetricInputError(f"{name!r} was not published under QAAligned; use {' or '.join(PUBLISHED_ENCODERS)}")
    model, layer = PUBLISHED_ENCODERS[name].get(language, OTHER_LANGUAGES)
    implied: dict[str, Any] = {"model": model, **PUBLISHED_OPTIONS[name]}
    if name == "bertscore":
        implied["layer"] = layer
    return load(name, **{**implied, **options})


def _pair_texts(name: str, sets: Pairs) -> list[list[str]]:
    if not is_list(sets):
        raise MetricInputError(f"{name} is {sets!r:.60}; give one list of pairs per passage")
    texts = []
    for at, group in enumerate(sets):
        if not is_list(group):
            raise MetricInputError(f"{name}[{at}] is {group!r:.60}; give a list of (question, answer)")
        for number, pair in enumerate(group):
            if not is_list(pair) or len(pair) != 2 or not all(isinstance(text, str) for text in pair):
                raise MetricInputError(f"{name}[{at}][{number}] is {pair!r:.60}; give (question, answer), two texts")
        texts.append([pair_text(*pair) for pair in group])
    return texts
