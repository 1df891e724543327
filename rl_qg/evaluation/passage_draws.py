"""Draws of whole passages with replacement, for every statistic that is made of sums.

Questions about one passage are not independent, so a bootstrap draws passages, each with all its questions (the
cluster bootstrap: Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). The first draw
is the data as they are, so that a statistic and its draws come from the same lines of code.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_qg.confidence_intervals import two_sided_p
from rl_qg.runtime.errors import InputError

_NUMBERS_AT_ONCE = 4_000_000
_NUMBERS_KEPT = 200_000_000  # of one byte each
FEW, TAIL = 10, 20  # passages below which a page warns, and from which the normal tail is used
ROUNDING = 1e-12
Floats = NDArray[np.float64]


class Draws:
    """How often each passage was drawn: weights (1 + resamples, passages), the first row all ones.

    The same seed gives the same draws. Up to 200 million weights are kept, one byte each; more are made anew, block by
    block, each time they are needed, so memory does not grow with the data.

    Args:
        groups: the passage of each question.
        resamples: how many draws.
        seed: of the draws.
    """

    def __init__(self, groups: Sequence[Hashable], *, resamples: int = 1000, seed: int = 0) -> None:
        if not groups or resamples < 1:
            raise InputError("nothing to draw from: give at least one question and one draw")
        names = {group: place for place, group in enumerate(dict.fromkeys(groups))}
        self.place = np.array([names[group] for group in groups])
        self.passages, self.resamples = len(names), resamples
        self._seed = seed
        keep = (resamples + 1) * self.passages <= _NUMBERS_KEPT
        self._kept = list(self._make()) if keep else None

    def blocks(self) -> Iterator[Floats]:
        """The weights, some draws at a time."""
        for block in self._kept if self._kept is not None else self._make():
            yield block.astype(np.float64)

    def sums(self, table: ArrayLike) -> Floats:
        """For each draw the sums over questions of `table` (questions, k): float64 (1 + resamples, k)."""
        return self.sums_of_passages(self.by_passage(table))

    def by_passage(self, table: ArrayLike, rows: NDArray[np.intp] | None = None) -> Floats:
        """Sums over the questions of each passage, float64 (passages, k); `rows` says which questions they are."""
        values = np.asarray(table, dtype=np.float64)
        place = self.place if rows is None else self.place[rows]
        return np.stack([np.bincount(place, weights=column, minlength=self.passages) for column in values.T], axis=1)

    def passages_of(self, rows: NDArray[Any]) -> int:
        """How many passages the questions `rows`, places or a mask, are about."""
        return len(np.unique(self.place[rows]))

    def sums_of_passages(self, table: Floats) -> Floats:
        """For each draw the sums over passages of `table` (passages, k)."""
        return np.concatenate([weights @ table for weights in self.blocks()])

    def _make(self) -> Iterator[NDArray[np.uint8]]:
        rng = np.random.default_rng(self._seed)
        at_once = max(1, _NUMBERS_AT_ONCE // self.passages)
        share = np.full(self.passages, 1 / self.passages)
        for start in range(0, self.resamples, at_once):
            # a passage is drawn once on average: 256 times has a probability below 1e-500
            drawn = rng.multinomial(self.passages, share, min(at_once, self.resamples - start)).astype(np.uint8)
            yield drawn if start else np.concatenate([np.ones((1, self.passages), dtype=np.uint8), drawn])


@dataclass(frozen=True)
class Estimate:
    """A statistic with the ends of its 95 % percentile interval, None where either is not defined, and `why` not.

    `n` is the number of questions (or systems) it is of; `undefined` counts the draws in which it does not exist, such
    as a correlation where all ratings drawn are equal: the interval is that of the others.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    undefined: int = 0
    why: str | None = None

    def to_dict(self) -> dict[str, float | int | str | None]:
        """As plain JSON; what says nothing is left out."""
        shown = {"value": self.value, "low": self.low, "high": self.high, "n": self.n}
        extra = {"undefined_draws": self.undefined or None, "why": self.why}
        return {**shown, **{key: value for key, value in extra.items() if value is not None}}


def estimate(
    draws: Floats, n: int, *, passages: int, why: str = "not defined for these values", level: float = 0.95
) -> Estimate:
    """The estimate that values (1 + resamples,) of a statistic give: the first is of the data; NaN is undefined.

    `passages` is the number of those that the n questions are about. All draws of one are alike, and their interval
    would have the width 0 of a certainty: it has none.
    """
    value, rest = draws[0], draws[1:]
    defined = rest[np.isfinite(rest)]
    if not np.isfinite(value):
        return Estimate(None, None, None, n, why=why)
    undefined = len(rest) - len(defined)
    if passages < 2 or not len(defined):
        why = "no interval: one passage alone" if passages < 2 else "no interval: no draws in which it is defined"
        return Estimate(float(value), None, None, n, undefined, why)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high), n, undefined)


def difference(first: Floats, second: Floats) -> Floats:
    """`first - second`, 0 where they differ by rounding alone."""
    gap = first - second
    smallest = ROUNDING * np.maximum(1.0, np.maximum(np.abs(first), np.abs(second)))
    return np.where(np.abs(gap) <= smallest, 0.0, gap)


def difference_p(differences: Floats, passages: int) -> float | None:
    """The p-value of "the difference is 0" from its values (1 + resamples,) in all draws (`difference`); None where
    undefined, and for one passage, whose draws are all alike.

    `rl_qg.confidence_intervals.two_sided_p` of the draws, but no less than 2^(1 - passages): that often passages which lean
    either way by chance all lean the same way, and draws of such passages never cross 0. Where it is as small as the
    number of draws can tell, which Holm's correction over hundreds of pairs would make 1 again, and there are 20
    passages, the tail of the normal distribution with the draws' standard deviation says how much smaller it is.
    """
    from scipy.stats import norm

    rest = differences[1:][np.isfinite(differences[1:])]
    if not np.isfinite(differences[0]) or len(rest) < 2 or passages < 2:
        return None
    if differences[0] == 0:
        return 1.0
    p, mean, spread = two_sided_p(rest), abs(rest.mean()), rest.std(ddof=1)
    if passages >= TAIL and p <= 2 / (len(rest) + 1) and spread > ROUNDING * mean:
        p = min(p, float(2 * norm.sf(mean / spread)))
    return float(max(p, 2.0 ** (1 - passages)))


def few_passages(passages: int) -> str | None:
    """What a page says of intervals and p-values from few passages."""
    if passages >= FEW:
        return None
    if passages < 2:
        return "One passage alone: there are no intervals and no tests."
    return f"Only {passages} passages: intervals are too narrow, and nothing here is certain."
