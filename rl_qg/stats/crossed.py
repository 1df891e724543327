"""Intervals of statistics of ratings, whose raters and passages are both samples.

Ratings by one rater are not independent, nor are those about one passage. Statistics are computed in draws of raters,
in draws of passages and in draws of pairs of both (what one rater did with one passage), each time with replacement.
The variance is V(raters) + V(passages) - V(pairs), as of estimates clustered in two ways (Cameron, Gelbach and Miller,
"Robust inference with multiway clustering", 2011): what varies from pair to pair is in both of the first two, and
counts once. Multiplying the weights of both draws instead (Owen, "The pigeonhole bootstrap", 2007) counts it up to
three times where, as in QAScore's study, hardly any passage has two raters. `experiments/rating` compares them.

The deviations of each are widened for as many raters, passages or pairs (`rl_qg.stats.intervals`) before
they are combined, so intervals and p-values take the combined draws as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from rl_qg.stats.intervals import TAIL, Floats, Ints, PassageDraws, Statistic, difference_p, estimate, widening

RATERS, PASSAGES, PAIRS = "raters", "passages", "pairs"
FEWEST_RATERS = 6  # of fewer no difference could be certain: all lean one way by chance once in 2^(1 - raters)


@dataclass(frozen=True)
class CrossedValues:
    """A statistic, or several, in the data (first row) and in draws, each float64 (1 + resamples, …), for each that is
    drawn: `raters` (at least `FEWEST_RATERS`), `passages` (at least two), and, where both are, `pairs` of them; and
    how many there are of each.
    """

    drawn: Mapping[str, Floats]
    sizes: Mapping[str, int]

    @property
    def data(self) -> Floats:
        return np.asarray(next(iter(self.drawn.values()))[0])

    @property
    def clusters(self) -> int:
        return min(self.sizes.values())

    def map(self, change: Callable[[Floats], Floats]) -> "CrossedValues":
        return CrossedValues({name: change(part) for name, part in self.drawn.items()}, self.sizes)

    def combined(self) -> Floats:
        """The statistic in the data and in so many draws of both, (1 + resamples, …): deviations in draws of raters
        plus those in draws of passages, drawn independently, brought to the variance above.
        """
        deviations = {name: (part[1:] - part[0]) * widening(self.sizes[name]) for name, part in self.drawn.items()}
        if PAIRS in deviations:
            raters, passages, pairs = (_variance(deviations[name]) for name in (RATERS, PASSAGES, PAIRS))
            total = raters + passages
            wanted = np.maximum(total - pairs, np.maximum(raters, passages))
            with np.errstate(invalid="ignore", divide="ignore"):
                shrink = np.where(total > 0, np.sqrt(wanted / total), 0.0)
            both = (deviations[RATERS] + deviations[PASSAGES]) * shrink
        else:
            both = next(iter(deviations.values()))
        return np.concatenate([self.data[None], self.data + both])

    def estimate(self, n: int, why: str = "nobody rated it") -> Statistic:
        return estimate(self.combined(), n, passages=self.units, why=why)

    def p(self) -> float | None:
        """The two-sided p of "the statistic is 0" (`difference_p`); of few clusters no smaller than draws can tell,
        nor than the probability that all lean the same way by chance.
        """
        values = self.combined()
        values[0] = 0.0 if abs(values[0]) < 1e-12 else values[0]
        p = difference_p(values, self.units)
        if p is None or self.clusters >= TAIL:
            return p
        return max(p, 2 / len(values), 2.0 ** (1 - self.clusters))

    @property
    def units(self) -> float:
        """For intervals of `combined`, which is widened: as of infinitely many, but of one alone there is none."""
        return inf if self.clusters > 1 else 1


def _variance(deviations: Floats) -> Floats:
    known = np.isfinite(deviations)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, deviations, 0.0).sum(axis=0) / count
    return np.asarray((np.where(known, deviations - mean, 0.0) ** 2).sum(axis=0) / count)


class CrossedDraws:
    """Draws of the raters and passages of rows, both (rows,). `note` says what is not drawn, "" where both are."""

    def __init__(self, rater: Ints, passage: Ints, *, resamples: int, seed: int) -> None:
        raters, passages = len(np.unique(rater)), len(np.unique(passage))
        drawn: dict[str, Sequence[Any]] = {}
        if raters >= FEWEST_RATERS:
            drawn[RATERS] = rater.tolist()
        if passages > 1 or not drawn:
            drawn[PASSAGES] = passage.tolist()
        if len(drawn) > 1:
            drawn[PAIRS] = list(zip(rater.tolist(), passage.tolist(), strict=True))
        seeds = np.random.SeedSequence(seed).generate_state(len(drawn))
        self._draws = {
            name: PassageDraws(groups, resamples=resamples, seed=int(own))
            for (name, groups), own in zip(drawn.items(), seeds, strict=True)
        }
        self.note = ""
        if RATERS not in drawn:
            who = "one rater" if raters == 1 else f"{raters} raters"
            known = "Intervals are about passages alone" if passages > 1 else "One passage has no intervals"
            self.note = f"{known}: {who} cannot say how much other raters would differ."
        elif PASSAGES not in drawn:
            self.note = "Intervals are about raters alone: one passage cannot say how much others would differ."

    def sums(self, table: Floats) -> CrossedValues:
        """The sums over rows of `table` (rows, k), (1 + resamples, k)."""
        sizes = {name: draws.passages for name, draws in self._draws.items()}
        return CrossedValues({name: draws.sums(table) for name, draws in self._draws.items()}, sizes)
