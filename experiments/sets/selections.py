"""Two selections that were measured beside those of `rl-qg ask` and are not better, `harmonic` and `dpp`, and the
choice of one that knows the human questions, `oracle`.

    from experiments.sets.selections import dpp_of_pool
    choose(pool, dpp_of_pool, number=5)  # rl_qg.asking.sets

`quality` (n,) is in [0, 1], higher is better; `similarity` (n, n) is symmetric with ones on its diagonal; `number` is
how many to take at most. All return the chosen indices in the order in which they were taken; of equal values the
first is taken.

Sources: `harmonic` is `advanced_ranked` of the code of Ray Chowdhury, Mahata, Caragea, "On the Evaluation of
Answer-Agnostic Paragraph-level Multi-Question Generation", 2022; Kulesza and Taskar, "Determinantal point processes
for machine learning", 2012; Chen, Zhang and Zhou, "Fast greedy MAP inference for determinantal point process", NeurIPS
2018.
"""

from itertools import combinations

import numpy as np
from scipy.optimize import linear_sum_assignment

from rl_qg.asking.learned_selector import worth
from rl_qg.asking.set_pool import Floats, PassagePool

EXACT = 8
"""The largest pool for which `dpp` looks at every set."""

LEAST_NEW = 0.2
"""`harmonic` without a number stops where no question is more dissimilar than this, as in the released code."""

_SINGULAR = 1e-10
_FORBIDDEN = -1e6


def harmonic(quality: Floats, similarity: Floats, number: int | None, *, least: float = LEAST_NEW) -> list[int]:
    """Next is the largest harmonic mean of quality and 1 − max similarity to the set; first the best.

    Without a number it stops where 1 − max similarity of every other question is at most `least`.
    """
    chosen: list[int] = []
    new = np.ones_like(quality)
    while len(chosen) < min(len(quality) if number is None else number, len(quality)):
        rest = np.delete(new, chosen)
        if number is None and rest.max() <= least:
            break
        total = quality + new
        value = np.divide(2 * quality * new, total, out=np.zeros_like(total), where=total > 0)
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
        new = np.clip(np.minimum(new, 1 - similarity[chosen[-1]]), 0, None)
    return chosen


def dpp(quality: Floats, similarity: Floats, number: int) -> list[int]:
    """The set with the largest determinant of L = diag(q) S diag(q): `dpp_exact` for at most `EXACT` questions, else
    `dpp_greedy`.
    """
    if len(quality) > EXACT:
        return dpp_greedy(quality, similarity, number)
    best = dpp_exact(quality, similarity, number)
    inside = dpp_greedy(quality[best], similarity[np.ix_(best, best)], number)
    return [best[at] for at in inside]


def dpp_greedy(quality: Floats, similarity: Floats, number: int) -> list[int]:
    """Next is the question with which the determinant of L = diag(q) S diag(q) is largest (Chen et al. 2018,
    algorithm 1: an incremental Cholesky factor, O(n k²)).

    Stops early where every further question would make the determinant 0: it repeats what is chosen.

    Args:
        quality: (n,).
        similarity: (n, n), positive semidefinite.
        number: to take.
    """
    gains = quality**2 * np.diagonal(similarity)
    factor = np.zeros((min(number, len(quality)), len(quality)))
    chosen: list[int] = []
    while len(chosen) < len(factor):
        open_gains = gains.copy()
        open_gains[chosen] = -np.inf
        best = int(open_gains.argmax())
        if open_gains[best] <= _SINGULAR:
            break
        rank = len(chosen)
        row = quality[best] * similarity[best] * quality - factor[:rank, best] @ factor[:rank]
        factor[rank] = row / np.sqrt(gains[best])
        gains = gains - factor[rank] ** 2
        chosen.append(best)
    return chosen


def dpp_exact(quality: Floats, similarity: Floats, number: int) -> list[int]:
    """The set of the largest determinant of all sets of `number` questions, in the order of their indices; a smaller
    set where all larger ones have determinant 0.
    """
    kernel = quality[:, None] * similarity * quality
    for size in range(min(number, len(quality)), 0, -1):
        sets = list(combinations(range(len(quality)), size))
        values = np.linalg.det(np.stack([kernel[np.ix_(one, one)] for one in sets]))
        if values.max() > _SINGULAR**size:
            return list(sets[int(values.argmax())])
    return []


def harmonic_of_pool(pool: PassagePool, number: int | None) -> list[int]:
    return harmonic(pool.quality, pool.similarity, number)


def dpp_of_pool(pool: PassagePool, number: int | None) -> list[int]:
    return dpp(pool.quality, pool.similarity, len(pool.questions) if number is None else number)


# The best set that a pool holds, judged by the human questions: how much a selection leaves unused. A diagnostic, for
# nobody has the human questions when asking.


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
