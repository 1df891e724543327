"""What a file of scores comes to: mean with its interval, spread and quantiles, and the means of the parts.

Read once, in memory that does not grow with the file.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import NormalDist
from typing import Any
from zlib import crc32

import numpy as np

from rl_qg.confidence_intervals import Floats, Interval, PassageDraws, mean_interval
from rl_qg.data.examples import passage_hash
from rl_qg.data.question_tables import QuestionTable

SAMPLE = 100_000
"""Up to as many scores are held, for the bootstrap and the quantiles; of more, a random choice of this size."""
PASSAGES = 10_000
"""Up to as many passages are resampled; of more, sums are kept in groups of passages."""
PASSAGE_GROUPS = 65_536
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}


class Moments:
    """Mean, spread and extremes of numbers seen one by one (Welford, "Note on a method for calculating corrected sums
    of squares and products", 1962).
    """

    def __init__(self) -> None:
        self.n = 0
        self.mean = 0.0
        self.squares = 0.0
        self.low, self.high = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Take in one number."""
        self.n += 1
        before = value - self.mean
        self.mean += before / self.n
        self.squares += before * (value - self.mean)
        self.low, self.high = min(self.low, value), max(self.high, value)

    @property
    def std(self) -> float:
        """Standard deviation of the population the numbers come from (n - 1); 0 for a single number."""
        return math.sqrt(self.squares / (self.n - 1)) if self.n > 1 else 0.0


class PassageSums:
    """Sums and numbers of scores by passage, in memory that does not grow: the passages after the first 10,000 share
    65,536 groups by their hash. Passages are independent, so groups of whole passages are too.
    """

    def __init__(self) -> None:
        self.index: dict[str, int] = {}
        self.grouped = False
        self._table = np.zeros((PASSAGES + PASSAGE_GROUPS, 2))

    def add(self, passage: str, score: float) -> int:
        """Add one score; return the index of its passage, or of the group that it is in."""
        index = self.index.get(passage)
        if index is None and len(self.index) < PASSAGES:
            index = self.index[passage] = len(self.index)
        elif index is None:
            self.grouped = True
            index = PASSAGES + crc32(passage.encode()) % PASSAGE_GROUPS
        self._table[index] += score, 1
        return index

    @property
    def table(self) -> Floats:
        """Sum and number of scores, (passages or groups, 2)."""
        return self._table[self._table[:, 1] > 0]


def summarise_scores(path: Path, columns: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return `rows`, `without_score`, `score` (None where no row has one) and `parts` of scored JSON lines.

    `score` holds mean, low and high (a 95 % interval over passages), n, `passages`, `interval` (how it was found),
    std, extremes and quantiles. A row without a context is a passage of its own. Up to 100,000 scores on 10,000
    passages the interval is a percentile bootstrap; beyond that the mean of any scores is normal (`normal_interval`),
    and quantiles are those of 100,000 scores chosen at random.

    Args:
        path: JSON lines with `score` and `parts`.
        columns: names of the fields, as `QuestionTable` takes them.
    """
    rows, scores, parts, passages = 0, Moments(), dict[str, Moments](), PassageSums()
    sample, sample_passages, chance = list[float](), list[int](), random.Random(0)
    has_context = False
    table = QuestionTable(path, columns)
    for row in table:
        rows += 1
        if (score := row.fields["score"]) is not None:
            context = table.value(row, "context")
            has_context |= context is not None
            scores.add(score)
            passage = passages.add(f"row {rows}" if context is None else passage_hash(context), score)
            if len(sample) < SAMPLE:
                sample.append(score)
                sample_passages.append(passage)
            elif (index := chance.randrange(scores.n)) < SAMPLE:
                sample[index] = score
        for name, value in row.fields["parts"].items():
            if isinstance(value, float | int):
                parts.setdefault(name, Moments()).add(value)
    interval: dict[str, Any] = {}
    if scores.n:
        if scores.n > len(sample) or passages.grouped:
            method, found = "normal approximation", normal_interval(passages.table)
        else:
            method, found = "percentile bootstrap", mean_interval(sample, PassageDraws(sample_passages))
        interval = asdict(found) | ({"passages": None} if passages.grouped else {})  # they were not counted
        interval["interval"] = f"95 %, {method} over {'passages' if has_context else 'rows'}"
    return {
        "rows": rows,
        "without_score": rows - scores.n,
        "score": {**interval, **_spread(scores, sample)} if scores.n else None,
        "parts": {name: {"mean": part.mean, "n": part.n} for name, part in parts.items()},
    }


def _spread(scores: Moments, sample: list[float]) -> dict[str, float]:
    quantiles = np.quantile(sample, [*QUANTILES.values()]).tolist()
    return {
        "std": scores.std,
        "min": scores.low,
        **dict(zip(QUANTILES, quantiles, strict=True)),
        "max": scores.high,
    }


def normal_interval(table: Floats, *, level: float = 0.95) -> Interval:
    """Return the mean with the interval that the central limit theorem gives it, from the sum and number of scores of
    each passage, (passages, 2).

    The mean m is a ratio of two sums over P passages, so its variance is about P / (P - 1) · Σ (sum - m · number)² /
    n² (Cochran, "Sampling Techniques", 3rd ed. 1977, equation 6.13); for single rows that is the variance of the mean.
    """
    passages, n = len(table), int(table[:, 1].sum())
    mean = float(table[:, 0].sum() / n)
    if passages < 2:
        return Interval(mean, None, None, n, passages)
    squares = float(((table[:, 0] - mean * table[:, 1]) ** 2).sum())
    half = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(passages / (passages - 1) * squares) / n
    return Interval(mean, mean - half, mean + half, n, passages)


def summary_text(summary: Mapping[str, Any]) -> str:
    """Lay a summary out as a short block for the screen."""
    score, without = summary["score"], summary["without_score"]
    lines = [
        f"signature  {summary['signature']}",
        f"rows       {summary['rows']:,}, {without:,} of them without a score",
    ]
    if score is not None:
        ends = "[{low:.4g}, {high:.4g}]  ({interval})" if score["low"] is not None else "(one passage: no interval)"
        lines.append(f"mean       {{mean:.4g}}  {ends}".format(**score))
        lines.append("spread     std {std:.4g}, min {min:.4g}, median {median:.4g}, max {max:.4g}".format(**score))
    if summary["parts"]:
        means = [f"{name} {part['mean']:.4g}" for name, part in summary["parts"].items()]
        lines.append(f"parts      {', '.join(means)}")
    return "\n".join(lines)
