"""Which of two questions about the same item is better? The share of pairs that a metric orders as people do.

Rank pairs as in the judging of systems by people (Callison-Burch et al., "Further meta-evaluation of machine
translation", WMT 2008): correlations over all questions also ask whether a metric tells easy passages from hard ones;
pairs within an item ask only for the better question, which is all that a reward, beam or filter has to know.
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import Floats, PassageDraws, Statistic, estimate

OUTCOMES = ("wins", "ties", "losses")


def win_loss(
    scores: Floats, ratings: Floats, items: Sequence[Hashable], draws: PassageDraws, rows: NDArray[np.intp]
) -> tuple[dict[str, Statistic], int, Statistic]:
    """Pairs of questions about one item that people rate differently: shares that the metric orders alike (`wins`),
    equally (`ties`) and the other way round (`losses`), of all such pairs.

    Returns the shares with intervals, the number of pairs, and the share of wins plus half the ties.
    """
    counts = np.zeros((len(scores), 3))
    places: dict[Hashable, list[int]] = {}
    for place, item in enumerate(items):
        places.setdefault(item, []).append(place)
    for members in places.values():
        found = np.array(members)
        ahead = ratings[found][:, None] > ratings[found]
        order = np.sign(scores[found][:, None] - scores[found])
        for column, sign in enumerate((1, 0, -1)):
            counts[found, column] = (ahead & (order == sign)).sum(axis=1)
    sums = draws.sums_of_passages(draws.by_passage(counts, rows))
    total = sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(total[:, None] > 0, sums / total[:, None], np.nan)
    pairs = int(counts.sum())
    why = "no two questions about one item have different ratings"
    passages = draws.passages_of(rows[counts.any(axis=1)])
    columns = {name: shares[:, place] for place, name in enumerate(OUTCOMES)}
    columns["alike"] = shares[:, 0] + shares[:, 1] / 2
    named = {name: estimate(column, pairs, passages=passages, why=why) for name, column in columns.items()}
    return named, pairs, named.pop("alike")
