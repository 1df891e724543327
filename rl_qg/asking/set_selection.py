"""Which questions of a pool make the set of a passage: pure functions of arrays.

Everywhere `quality` (n,) is in [0, 1], higher is better; `similarity` (n, n) is symmetric with ones on its diagonal;
`number` is how many to take at most. All return the chosen indices in the order in which they were taken. Of equal
values the first is taken.

Sources: Ray Chowdhury, Mahata, Caragea, "On the Evaluation of Answer-Agnostic Paragraph-level Multi-Question
Generation", 2022 (`random_choice`, `ranked`), and `advanced_ranked` of its code (`harmonic`); Carbonell and Goldstein,
"The use of MMR", SIGIR 1998; Kulesza and Taskar, "Determinantal point processes for machine learning", 2012; Chen,
Zhang and Zhou, "Fast greedy MAP inference for determinantal point process", NeurIPS 2018; Lin and Bilmes, "A class of
submodular functions for document summarization", ACL 2011 (`cover`).
"""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
EXACT = 8
"""The largest pool for which `dpp` looks at every set."""

RELEVANCE = 0.7
"""Weight of quality in `mmr`, against similarity to what is chosen."""

LEAST_NEW = 0.2
"""`harmonic` without a number stops where no question is more dissimilar than this, as in the released code."""

SHARE = 0.1
"""Weight of quality in `cover`, against sentences."""

LEAST_GAIN = 0.25
"""`cover` without a number stops where no question gains this much."""

_SINGULAR = 1e-10


def random_choice(count: int, number: int, draws: np.random.Generator) -> list[int]:
    """`number` of `count` indices, drawn without replacement."""
    chosen: list[int] = draws.permutation(count)[:number].tolist()
    return chosen


def ranked(quality: Floats, number: int | None) -> list[int]:
    """The best ones; None: all, best first."""
    order: list[int] = np.argsort(-quality, kind="stable")[:number].tolist()
    return order


def mmr(quality: Floats, similarity: Floats, number: int, *, relevance: float = RELEVANCE) -> list[int]:
    """Maximal marginal relevance: next is the largest relevance · q(x) − (1 − relevance) · max similarity to the set.

    Args:
        quality: (n,).
        similarity: (n, n).
        number: to take.
        relevance: from 0 (only different ones) to 1 (only good ones).
    """
    chosen: list[int] = []
    nearest = np.zeros_like(quality)
    while len(chosen) < min(number, len(quality)):
        value = relevance * quality - (1 - relevance) * nearest
        value[chosen] = -np.inf
        chosen.append(int(value.argmax()))
        nearest = np.maximum(nearest, similarity[chosen[-1]])
    return chosen


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


def cover(
    quality: Floats,
    coverage: Floats,
    number: int | None,
    *,
    weights: Floats | None = None,
    share: float = SHARE,
    least: float = LEAST_GAIN,
) -> list[int]:
    """Greedy maximum of Σ_s w_s · max_x c(x, s) + share · Σ_x q(x), at least (1 − 1/e) of the largest value.

    Without a number it stops where no question gains `least`, so that this sets the number of questions; the best
    question is always taken.

    Args:
        quality: (n,).
        coverage: c (n, sentences), in [0, 1]: how much of a sentence a question covers.
        number: to take.
        weights: w (sentences,) of sentences; None: 1 each.
        share: weight of quality.
        least: the smallest gain.
    """
    w = np.ones(coverage.shape[1]) if weights is None else weights
    covered = np.zeros(coverage.shape[1])
    chosen: list[int] = []
    while len(chosen) < min(len(quality) if number is None else number, len(quality)):
        gains = np.clip(coverage - covered, 0, None) @ w + share * quality
        gains[chosen] = -np.inf
        best = int(gains.argmax())
        if number is None and chosen and gains[best] < least:
            break
        chosen.append(best)
        covered = np.maximum(covered, coverage[best])
    return chosen
