"""Exact match and F1 of SQuAD v1.1, as the official evaluation script computes them.

Source: `evaluate-v1.1.py` of Rajpurkar et al., "SQuAD: 100,000+ Questions for Machine Comprehension of Text" (2016).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rewards.words import answer_exact_match, answer_f1
from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError

exact_match, f1 = answer_exact_match, answer_f1


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
