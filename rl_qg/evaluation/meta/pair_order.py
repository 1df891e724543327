"""How often a metric puts two questions in the right order: rated questions about one item, good and bad questions.

Pairs within an item: correlations over all questions also ask whether a metric tells easy passages from hard ones;
these pairs ask only for the better question, which is all that a reward, beam or filter needs. Source: Callison-Burch
et al., "Further meta-evaluation of machine translation", WMT 2008 (rank pairs in the human evaluation of systems);
with pairs whose ratings are far apart alone, KPQA, NAACL 2021, table 7.

Area under the ROC curve: the probability that a good question scores above a bad one, ties counted half. Source:
Hanley and McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve", Radiology
1982 (the area is the Mann-Whitney statistic).
"""

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from rl_qg.confidence_intervals import SHARE, Floats, PassageDraws, Statistic, estimate

OUTCOMES = ("wins", "ties", "losses")
_NUMBERS_AT_ONCE = 4_000_000


def win_loss(
    scores: Floats,
    ratings: Floats,
    items: Sequence[Hashable],
    draws: PassageDraws,
    rows: NDArray[np.intp],
    min_gap: float = 0.0,
) -> tuple[dict[str, Statistic], int, Statistic]:
    """Pairs of questions about one item that people rate differently: the fractions that the metric orders as people
    do (`wins`), scores equally (`ties`) and orders the other way (`losses`).

    Returns the fractions with intervals, the number of pairs, and the fraction of wins plus half the ties.

    Args:
        scores: (n,), higher for what the metric takes for better.
        ratings: (n,), by people.
        items: (n,), what each question is about.
        draws: of the passages.
        rows: (n,), the indices of these questions among those of `draws`.
        min_gap: a pair counts where its ratings differ by more than this.
    """
    beyond = min_gap + 1e-9 * (min_gap > 0)  # means of ratings that differ by exactly this differ by rounding as well
    counts = np.zeros((len(scores), 3))
    members: dict[Hashable, list[int]] = {}
    for number, item in enumerate(items):
        members.setdefault(item, []).append(number)
    for numbers in members.values():
        index = np.array(numbers)
        better = ratings[index][:, None] - ratings[index] > beyond
        order = np.sign(scores[index][:, None] - scores[index])
        for column, sign in enumerate((1, 0, -1)):
            counts[index, column] = (better & (order == sign)).sum(axis=1)
    sums = draws.sums_of_passages(draws.by_passage(counts, rows))
    total = sums.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        fractions = np.where(total[:, None] > 0, sums / total[:, None], np.nan)
    pairs = int(counts.sum())
    why = "no two questions about one item have different ratings"
    if min_gap:
        why = f"no two questions about one item have ratings that differ by more than {min_gap:g}"
    units = draws.units_of(rows[counts.any(axis=1)])
    columns = {name: fractions[:, column] for column, name in enumerate(OUTCOMES)}
    columns["alike"] = fractions[:, 0] + fractions[:, 1] / 2
    statistics = {
        name: estimate(values, pairs, passages=units, why=why, bounds=SHARE) for name, values in columns.items()
    }
    return statistics, pairs, statistics.pop("alike")


def auc_draws(scores: Floats, good: NDArray[np.bool_], draws: PassageDraws, rows: NDArray[np.intp]) -> Floats:
    """The area in the data and in each draw of passages, float64 (1 + resamples,); NaN without both kinds.

    Args:
        scores: (n,), higher for what the metric takes for better.
        good: (n,), which of the questions are good.
        draws: of the passages.
        rows: (n,), the indices of these questions among those of `draws`.
    """
    order = np.argsort(scores, kind="stable")
    _, starts = np.unique(scores[order], return_index=True)
    passage, is_good = draws.passage_index[rows][order], good[order].astype(np.float64)
    areas = []
    for block in draws.blocks():
        for start in range(0, len(block), step := max(1, _NUMBERS_AT_ONCE // max(1, len(scores)))):
            weights = block[start : start + step, passage]
            above = np.add.reduceat(weights * is_good, starts, axis=1)
            below = np.add.reduceat(weights * (1 - is_good), starts, axis=1)
            won = (above * (np.cumsum(below, axis=1) - below / 2)).sum(axis=1)
            pairs = above.sum(axis=1) * below.sum(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                areas.append(np.where(pairs > 0, won / pairs, np.nan))
    return np.concatenate(areas)
