"""Draws of whole passages with replacement, for every statistic that is made of sums.

Questions about one passage are not independent, so a bootstrap draws passages, each with all its questions (the
cluster bootstrap: Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8). The first draw
is the data as they are, so that a statistic and its draws come from the same lines of code.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_qg.bootstrap import two_sided_p
from rl_qg.errors import InputError

_NUMBERS_AT_ONCE = 4_000_000
_NUMBERS_KEPT = 20_000_000
Floats = NDArray[np.float64]


class Draws:
    """How often each passage was drawn: weights (1 + resamples, passages), the first row all ones.

    The same seed gives the same draws. Up to 20 million weights are kept; more are made anew, block by block, each
    time they are needed, so memory does not grow with the data.

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
        return iter(self._kept) if self._kept is not None else self._make()

    def sums(self, table: ArrayLike) -> Floats:
        """For each draw the sums over questions of `table` (questions, k): float64 (1 + resamples, k)."""
        return self.sums_of_passages(self.by_passage(table))

    def by_passage(self, table: ArrayLike, rows: NDArray[np.intp] | None = None) -> Floats:
        """Sums over the questions of each passage, float64 (passages, k); `rows` says which questions they are."""
        values = np.asarray(table, dtype=np.float64)
        place = self.place if rows is None else self.place[rows]
        sums = np.zeros((self.passages, values.shape[1]))
        np.add.at(sums, place, values)
        return sums

    def sums_of_passages(self, table: Floats) -> Floats:
        """For each draw the sums over passages of `table` (passages, k)."""
        return np.concatenate([weights @ table for weights in self.blocks()])

    def _make(self) -> Iterator[Floats]:
        rng = np.random.default_rng(self._seed)
        at_once = max(1, _NUMBERS_AT_ONCE // self.passages)
        share = np.full(self.passages, 1 / self.passages)
        for start in range(0, self.resamples, at_once):
            drawn = rng.multinomial(self.passages, share, min(at_once, self.resamples - start)).astype(np.float64)
            yield drawn if start else np.concatenate([np.ones((1, self.passages)), drawn])


@dataclass(frozen=True)
class Estimate:
    """A statistic with the ends of its 95 % percentile interval, None where it is not defined, and `why` not.

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


def estimate(draws: Floats, n: int, *, why: str = "not defined for these values", level: float = 0.95) -> Estimate:
    """The estimate that values (1 + resamples,) of a statistic give: the first is of the data; NaN is undefined."""
    value, rest = draws[0], draws[1:]
    defined = rest[np.isfinite(rest)]
    if not np.isfinite(value) or not len(defined):
        return Estimate(None, None, None, n, why=why)
    low, high = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return Estimate(float(value), float(low), float(high), n, undefined=len(rest) - len(defined))


def difference_p(differences: Floats) -> float | None:
    """The p-value of "the difference is 0" from its values (1 + resamples,) in all draws; None where undefined.

    `rl_qg.bootstrap.two_sided_p` of the draws. Where it is as small as their number can tell, which Holm's correction
    over hundreds of pairs would make 1 again, the tail of the normal distribution with the draws' standard deviation
    says how much smaller it is.
    """
    from scipy.stats import norm

    rest = differences[1:][np.isfinite(differences[1:])]
    if not np.isfinite(differences[0]) or len(rest) < 2:
        return None
    if not rest.any():
        return 1.0
    p = two_sided_p(rest)
    if p <= 2 / (len(rest) + 1) and rest.std():
        p = min(p, float(2 * norm.sf(abs(rest.mean()) / rest.std(ddof=1))))
    return p
