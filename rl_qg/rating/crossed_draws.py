"""Intervals of statistics of ratings, whose raters and passages are both samples.

Ratings by one rater are not independent, nor are those about one passage. Statistics are computed in draws of raters,
in draws of passages and in draws of pairs of both (what one rater did with one passage), each time with replacement.
The variance is V(raters) + V(passages) - V(pairs), as of estimates clustered in two ways (Cameron, Gelbach and Miller,
"Robust inference with multiway clustering", 2011): what varies from pair to pair is in both of the first two, and
counts once. Multiplying the weights of both draws instead (Owen, "The pigeonhole bootstrap", 2007) counts it up to
three times where, as in QAScore's study, hardly any passage has two raters.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_qg.confidence_intervals import Floats, PassageDraws, Statistic, difference_p, estimate
from rl_qg.rating.ratings import Ints

FEWEST_RATERS = 6  # of fewer no difference could be certain: all lean one way by chance once in 2^(1 - raters)


@dataclass(frozen=True)
class CrossedValues:
    """A statistic, or several, in the data (first row) and in draws: of raters, of passages, of pairs of both, each
    float64 (1 + resamples, …). None where those are not drawn: fewer than `FEWEST_RATERS` raters, or one passage.

    `clusters` is the smaller number of what is drawn.
    """

    raters: Floats | None
    passages: Floats | None
    pairs: Floats | None
    clusters: int

    def map(self, change: Callable[[Floats], Floats]) -> "CrossedValues":
        """A function of the statistics, in each draw; `change` gets and returns (1 + resamples, …)."""
        raters, passages, pairs = (
            None if part is None else change(part) for part in (self.raters, self.passages, self.pairs)
        )
        return CrossedValues(raters, passages, pairs, self.clusters)

    def combined(self) -> Floats:
        """The statistic in the data and in so many draws of both, (1 + resamples, …): deviations in draws of raters
        plus those in draws of passages, drawn independently, brought to the variance above.
        """
        drawn = [part for part in (self.raters, self.passages) if part is not None]
        if len(drawn) < 2 or self.pairs is None:
            return drawn[0]
        data = drawn[0][:1]
        deviations = [part[1:] - data for part in drawn]
        with np.errstate(invalid="ignore", divide="ignore"):
            single = [_variance(part) for part in drawn]
            both = np.maximum(single[0] + single[1] - _variance(self.pairs), np.maximum(*single))
            total = single[0] + single[1]
            shrink = np.where(total > 0, np.sqrt(both / total), 0.0)
        return np.concatenate([data, data + (deviations[0] + deviations[1]) * shrink])

    def estimate(self, n: int, why: str = "nobody rated it") -> Statistic:
        """One statistic, (1 + resamples,), with its 95 % interval."""
        return estimate(self.combined(), n, passages=self.clusters, why=why)

    def p(self) -> float | None:
        """The two-sided p of "the statistic is 0" (`difference_p`)."""
        values = self.combined()
        values[0] = 0.0 if abs(values[0]) < 1e-12 else values[0]
        return difference_p(values, self.clusters)


def _variance(values: Floats) -> Floats:
    rest = values[1:]
    known = np.isfinite(rest)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, rest, 0.0).sum(axis=0) / count
    return np.asarray((np.where(known, rest - mean, 0.0) ** 2).sum(axis=0) / count)


class CrossedDraws:
    """Draws of the raters and passages of rows.

    Args:
        rater, passage: of each row, (rows,).
        resamples, seed: how many draws, and their seed.

    Attributes:
        note: what is not drawn, and so not in the intervals; empty where both are.
    """

    def __init__(self, rater: Ints, passage: Ints, *, resamples: int, seed: int) -> None:
        raters, passages = len(np.unique(rater)), len(np.unique(passage))
        pairs = list(zip(rater.tolist(), passage.tolist(), strict=True))
        drawn: dict[str, Sequence[Any]] = {}
        if raters >= FEWEST_RATERS:
            drawn["raters"] = rater.tolist()
        if passages > 1 or not drawn:
            drawn["passages"] = passage.tolist()
        if len(drawn) > 1:
            drawn["pairs"] = pairs
        seeds = np.random.SeedSequence(seed).generate_state(len(drawn))
        self._draws = {
            name: PassageDraws(groups, resamples=resamples, seed=int(own))
            for (name, groups), own in zip(drawn.items(), seeds, strict=True)
        }
        self.clusters = min(draws.passages for draws in self._draws.values())
        self.note = ""
        if "raters" not in drawn:
            who = "one rater" if raters == 1 else f"{raters} raters"
            self.note = f"Intervals are about passages alone: {who} cannot say how much other raters would differ."
        elif "passages" not in drawn:
            self.note = "Intervals are about raters alone: one passage cannot say how much others would differ."

    def sums(self, table: Floats) -> CrossedValues:
        """The sums over rows of `table` (rows, k), (1 + resamples, k)."""
        parts = {name: draws.sums(table) for name, draws in self._draws.items()}
        return CrossedValues(parts.get("raters"), parts.get("passages"), parts.get("pairs"), self.clusters)
