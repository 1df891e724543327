"""The area under the ROC curve: how often a good question scores above a bad one, ties counted half.

Source: Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve",
Radiology 1982 (the area is the Mann-Whitney statistic).
"""

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import Floats, PassageDraws

_AT_ONCE = 4_000_000


def auc_draws(scores: Floats, good: NDArray[np.bool_], draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """The area in the data and in each draw of passages, float64 (1 + resamples,); NaN without both kinds.

    Args:
        scores: (n,), higher for what the metric holds to be better.
        good: (n,), which of them are good.
        draws: of the passages.
        rows: (n,), which questions of `draws` these are.
    """
    order = np.argsort(scores, kind="stable")
    _, starts = np.unique(scores[order], return_index=True)
    place, is_good = draws.passage_index[rows][order], good[order].astype(np.float64)
    found = []
    for block in draws.blocks():
        for start in range(0, len(block), step := max(1, _AT_ONCE // max(1, len(scores)))):
            weights = block[start : start + step, place]
            above = np.add.reduceat(weights * is_good, starts, axis=1)
            below = np.add.reduceat(weights * (1 - is_good), starts, axis=1)
            won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
            pairs = above.sum(axis=1) * below.sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                found.append(np.where(pairs > 0, won / pairs, np.nan))
    return np.concatenate(found)
