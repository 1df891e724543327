"""Exact match and F1 of SQuAD v1.1, as the official evaluation script computes them.

Source: `evaluate-v1.1.py` of Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (2016).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rewards.words import normalise_answer
from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError


@dataclass(frozen=True)
class SquadScores:
    """Scores of one reader on one set; the lists are fractions in the order of `ids`, the totals percent.

    `missing` questions had no prediction: they score 0, as in the official script.
    """

    ids: list[str]
    exact_matches: list[float]
    f1s: list[float]
    missing: int

    @property
    def exact_match(self) -> float:
        """Mean exact match, in percent."""
        return 100.0 * sum(self.exact_matches) / len(self.ids)

    @property
    def f1(self) -> float:
        """Mean F1, in percent."""
        return 100.0 * sum(self.f1s) / len(self.ids)


def exact_match(prediction: str, answer: str) -> float:
    """Return 1.0 when both are the same after normalisation, else 0.0."""
    return float(normalise_answer(prediction) == normalise_answer(answer))


def f1(prediction: str, answer: str) -> float:
    """Harmonic mean of precision and recall over normalised words, counted with repetition.

    0.0 when no word is shared, and so also when both are empty after normalisation (where `exact_match` is 1.0), as in
    the source.
    """
    predicted, expected = normalise_answer(prediction).split(), normalise_answer(answer).split()
    shared = sum((Counter(predicted) & Counter(expected)).values())
    if shared == 0:
        return 0.0
    precision, recall = shared / len(predicted), shared / len(expected)
    return 2 * precision * recall / (precision + recall)


def score_predictions(predictions: Mapping[str, str], examples: Iterable[QAExample]) -> SquadScores:
    """Score `predictions` (id to text) by the best of each question's answers; raise `InputError` without examples."""
    ids, exact_matches, f1s, missing = list[str](), list[float](), list[float](), 0
    for example in examples:
        prediction = predictions.get(example.id)
        missing += prediction is None
        ids.append(example.id)
        for scores, metric in ((exact_matches, exact_match), (f1s, f1)):
            best = 0.0 if prediction is None else max(metric(prediction, answer.text) for answer in example.answers)
            scores.append(best)
    if not ids:
        raise InputError("no examples to score predictions against: give at least one")
    return SquadScores(ids=ids, exact_matches=exact_matches, f1s=f1s, missing=missing)
