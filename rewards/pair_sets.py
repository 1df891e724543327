"""Sets of question-answer pairs: those that a system made of a passage, compared with those that people wrote.

    scores = QAAligned(load("bertscore", part="precision")).score(
        predictions=[[("Who …?", "Ada"), …], …], references=[[("Whom …?", "Ada"), …], …]
    )
    scores.mean()      # {"precision": …, "recall": …, "f1": …, "one_to_one_precision": …, …}

Source: Ushio, Alva-Manchego, Camacho-Collados, "An Empirical Comparison of LM-based Question and Answer Generation
Methods", Findings of ACL 2023 (QAAligned precision, recall and F1), and its released code (lmqg,
`qa_aligned_f1_score.py`). Beside it, from the same scores of pairs, the one-to-one assignment of
`rewards.question_sets.Multi`.

These are scores of whole sets, not rewards of single questions.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rewards.base import Metric
from rewards.errors import MetricInputError
from rewards.loading import load
from rewards.question_sets import Multi, distinct

Pair = tuple[str, str]
"""A question and its answer."""
Pairs = Sequence[Sequence[Pair]]

EPSILON = 1e-6
"""In the denominator of F1, as in the released code: a system without a fault has 0.9999995."""

PUBLISHED_OPTIONS = {"bertscore": {"part": "precision"}, "moverscore": {"variant": "v2"}}
"""Of the metrics under QAAligned in the released code: of BERTScore it takes the precision, not F."""

PUBLISHED_ENCODERS: dict[str, dict[str, tuple[str, int | None]]] = {
    "bertscore": {"en": ("roberta-large", 17), "zh": ("bert-base-chinese", 8)},
    "moverscore": {"en": ("distilbert-base-uncased", None)},
}
OTHER_LANGUAGES = ("bert-base-multilingual-cased", 9)


@dataclass(frozen=True)
class PairScores:
    """One value for each passage, in the order given."""

    precision: list[float]
    """QAAligned: the mean over the predicted pairs of the best score with any human pair."""
    recall: list[float]
    """QAAligned: the mean over the human pairs of the best score with any predicted pair."""
    f1: list[float]
    one_to_one_precision: list[float]
    """The largest sum of scores of which each pair is part of one at most, over the number of predicted pairs."""
    one_to_one_recall: list[float]
    """The same sum over the number of human pairs."""
    one_to_one_f1: list[float]
    signature: str

    def mean(self) -> dict[str, float]:
        """Return the mean over passages of each; the F1 of a corpus is the mean of F1, not the F1 of means."""
        return {part: math.fsum(values) / max(len(values), 1) for part, values in self.columns().items()}

    def columns(self) -> dict[str, list[float]]:
        """Return the values of the passages by the name of the part."""
        return {part: getattr(self, part) for part in self.parts()}

    @classmethod
    def parts(cls) -> tuple[str, ...]:
        """Return the names of the parts: those of QAAligned, then those of the one-to-one assignment."""
        return tuple(field.name for field in fields(cls) if field.name != "signature")


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
    one to one, from the same scores, as `rewards.question_sets.Multi` does: a pair counts once, scores below 0 count
    as 0, predictions with the same words after tokenising are one.

    Differences from the released code: it splits one text into pairs at `` | `` and leaves out those without exactly
    one ``, answer: ``; here pairs are given as pairs, and texts with these signs in them stay (that form is read by
    `rl_qg.data.lmqg_pairs`). It ends with an error where no passage has a prediction; here these are zeros.

    Args:
        metric: one that compares a text with references and reads nothing else, and is better when higher.
        tokenize: any of `rewards.words.tokenizer`; decides which predictions are equal in ``one_to_one_…``.

    Raises:
        MetricInputError: a metric of another kind, or scipy is missing.
    """

    def __init__(self, metric: Metric, *, tokenize: str = "ptb") -> None:
        if metric.needs - {"references"}:
            others = " and ".join(sorted(metric.needs - {"references"}))
            raise MetricInputError(
                f"qa_aligned: {metric.name} reads {others}, and a pair is compared with a pair alone"
            )
        self._one_to_one = Multi(metric, tokenize=tokenize, clip=metric.bounds[0] < 0)
        self.metric, self.tokenize = metric, tokenize

    @property
    def signature(self) -> str:
        """One line that identifies the numbers."""
        return f"qa_aligned|repetitions:once|epsilon:{EPSILON:g}|empty:zero|one_to_one:{self._one_to_one.signature}"

    def score(self, predictions: Pairs, references: Pairs) -> PairScores:
        """Score the predicted pairs of each passage.

        Args:
            predictions: for each passage its pairs of question and answer; may be empty.
            references: for each passage the human pairs, at least one.

        Raises:
            MetricInputError: lists of unequal length, something other than pairs of texts, a passage without human
                pairs.
        """
        texts, gold = _texts("predictions", predictions), _texts("references", references)
        if len(texts) != len(gold):
            raise MetricInputError(
                f"{len(texts)} sets of predictions but {len(gold)} of references; one of each per passage"
            )
        if empty := [at for at, group in enumerate(gold) if not group]:
            raise MetricInputError(f"references[{empty[0]}] is empty; leave out passages without human pairs")
        texts = [list(dict.fromkeys(group)) for group in texts]
        counted = distinct(texts, tokenize=self.tokenize)
        rows: list[tuple[float, ...]] = []
        for predicted, once, matrix in zip(texts, counted, self._matrices(texts, gold), strict=True):
            if not predicted:
                rows.append((0.0,) * 6)
                continue
            kept = np.maximum(matrix[[predicted.index(text) for text in once]], 0.0)
            rows.append((*_aligned(matrix), *self._one_to_one.assigned(kept)))
        columns = {part: [row[at] for row in rows] for at, part in enumerate(PairScores.parts())}
        return PairScores(**columns, signature=self.signature)

    def _matrices(self, texts: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> Iterator[np.ndarray]:
        """Yield s(h, g) of each passage, (predictions, references)."""
        pairs = [
            (text, [human]) for group, people in zip(texts, gold, strict=True) for text in group for human in people
        ]
        result = self.metric.score([text for text, _ in pairs], references=[people for _, people in pairs])
        scores, at = np.array(result.scores, dtype=np.float64), 0
        for group, people in zip(texts, gold, strict=True):
            size = len(group) * len(people)
            yield scores[at : at + size].reshape(len(group), len(people))
            at += size


def pair_text(question: str, answer: str) -> str:
    """Return the text of a pair that is compared."""
    return f"question: {question}, answer: {answer}"


def published_base(name: str, language: str = "en", **options: Any) -> Metric:
    """Return the metric under QAAligned as the released code computes it for a language.

    BERTScore: precision, without idf and rescaling, roberta-large (layer 17) for English, bert-base-chinese (8) for
    Chinese, bert-base-multilingual-cased (9) otherwise. MoverScore: version 2, distilbert-base-uncased for English,
    otherwise bert-base-multilingual-cased.

    Args:
        name: ``bertscore`` or ``moverscore``.
        language: an ISO 639-1 code.
        options: of the metric, in place of these, such as ``model="folder"``.

    Raises:
        MetricInputError: another name, or the metric cannot be built.
    """
    if name not in PUBLISHED_ENCODERS:
        raise MetricInputError(f"{name!r} was not published under QAAligned; use {' or '.join(PUBLISHED_ENCODERS)}")
    model, layer = PUBLISHED_ENCODERS[name].get(language, OTHER_LANGUAGES)
    implied: dict[str, Any] = {"model": model, **PUBLISHED_OPTIONS[name]}
    if name == "bertscore":
        implied["layer"] = layer
    metric: Metric = load(name, **{**implied, **options})
    return metric


def _aligned(matrix: np.ndarray) -> tuple[float, float, float]:
    """Return precision, recall and F1 of one passage, of which neither side is empty."""
    precision, recall = float(matrix.max(axis=1).mean()), float(matrix.max(axis=0).mean())
    return precision, recall, 2 * precision * recall / (precision + recall + EPSILON)


def _texts(name: str, sets: Pairs) -> list[list[str]]:
    """Return the texts of the pairs of each passage, checked."""
    if isinstance(sets, str) or not isinstance(sets, Sequence):
        raise MetricInputError(f"{name} is {sets!r:.60}; give one list of pairs per passage")
    texts = []
    for at, group in enumerate(sets):
        if isinstance(group, str) or not isinstance(group, Sequence):
            raise MetricInputError(f"{name}[{at}] is {group!r:.60}; give a list of (question, answer)")
        for number, pair in enumerate(group):
            is_pair = isinstance(pair, Sequence) and not isinstance(pair, str) and len(pair) == 2
            if not is_pair or not all(isinstance(text, str) for text in pair):
                raise MetricInputError(f"{name}[{at}][{number}] is {pair!r:.60}; give (question, answer), two texts")
        texts.append([pair_text(*pair) for pair in group])
    return texts
