"""The best set that a pool holds, judged by the human questions: how much a selection leaves unused. A diagnostic, and
the target of the learned selector; nobody has the human questions when asking.

A set of m questions is worth S, the largest sum of scores over pairs of a question and a human one of which no two
share either (Multi-M of `rewards.question_sets`: precision S / m, recall S / n, F = 2 S / (m + n)).
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from rewards import RougeL
from rewards.base import Metric
from rl_qg.asking.set_selection import Floats

_FORBIDDEN = -1e6


def reference_scores(questions: Sequence[str], references: Sequence[str], metric: Metric | None = None) -> Floats:
    """The score of each question with each human one, (questions, references).

    Args:
        questions: generated.
        references: human.
        metric: one that compares with references and has no score below 0; None: ROUGE-L.
    """
    shape = (len(questions), len(references))
    if not all(shape):
        return np.zeros(shape)
    pairs = [(question, [reference]) for question in questions for reference in references]
    scores = (metric or RougeL()).score([question for question, _ in pairs], references=[gold for _, gold in pairs])
    return np.array(scores.scores).reshape(shape)


def worth(scores: Floats) -> float:
    """S of a set, from the scores (m, n) of its questions."""
    return float(scores[linear_sum_assignment(scores, maximize=True)].sum()) if scores.size else 0.0


def oracle(scores: Floats, number: int | None) -> list[int]:
    """The set of the largest S among all sets of `number` questions; None: of the largest F among all sets.

    Exact: an assignment with `number` real pairs, in which dummies take the other rows and columns. Beyond the number
    of human questions further ones add nothing to S; then those that are most like any of them are taken.

    Args:
        scores: (n, references), from 0 up.
        number: of questions, at most.

    Returns:
        Indices in ascending order.
    """
    pairs = min(scores.shape)
    if number is None:
        sizes = range(1, pairs + 1)
        sets = [_pairs_of(scores, size) for size in sizes]
        values = [2 * worth(scores[rows]) / (len(rows) + scores.shape[1]) for rows in sets]
        return sets[int(np.argmax(values))] if sets else []
    chosen = _pairs_of(scores, min(number, pairs))
    best = scores.max(1) if scores.size else np.zeros(len(scores))
    others = [row for row in np.argsort(-best, kind="stable").tolist() if row not in chosen]
    return sorted([*chosen, *others[: max(0, number - len(chosen))]])


def _pairs_of(scores: Floats, size: int) -> list[int]:
    """The rows of the best assignment with exactly `size` pairs."""
    rows, columns = scores.shape
    whole = np.zeros((rows + columns - size, rows + columns - size))
    whole[:rows, :columns] = scores
    whole[rows:, columns:] = _FORBIDDEN
    first, second = linear_sum_assignment(whole, maximize=True)
    return [int(row) for row, column in zip(first, second, strict=True) if row < rows and column < columns]


def gains(scores: Floats, chosen: Sequence[int]) -> Floats:
    """How much S grows with each question, (n,), after those that are chosen; 0 for these."""
    before = worth(scores[list(chosen)])
    values = [0.0 if row in chosen else worth(scores[[*chosen, row]]) - before for row in range(len(scores))]
    return np.array(values)
