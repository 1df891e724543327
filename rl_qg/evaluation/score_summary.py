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

import numpy as np

from rl_qg.confidence_intervals import Interval, mean_interval
from rl_qg.runtime.json_files import read_json_lines

SAMPLE = 100_000
"""Up to as many scores are held, for the bootstrap and the quantiles; of more, a random choice of this size."""
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


def summarise_scores(path: Path) -> dict[str, Any]:
    """Return `rows`, `without_score`, `score` (None where no row has one) and `parts` of scored JSON lines.

    `score` holds mean, low and high (a 95 % interval over rows), n, `interval` (how it was found), std, extremes and
    quantiles. Up to 100,000 scores the interval is a percentile bootstrap; beyond that the mean of any scores is
    normal, so it is mean ± 1.96 std / sqrt(n), and quantiles are those of 100,000 scores chosen at random.
    """
    rows, scores, parts = 0, Moments(), dict[str, Moments]()
    sample, chance = list[float](), random.Random(0)
    for _, row in read_json_lines(path):
        rows += 1
        if (score := row["score"]) is not None:
            scores.add(score)
            if len(sample) < SAMPLE:
                sample.append(score)
            elif (place := chance.randrange(scores.n)) < SAMPLE:
                sample[place] = score
        for name, value in row["parts"].items():
            if isinstance(value, float | int):
                parts.setdefault(name, Moments()).add(value)
    return {
        "rows": rows,
        "without_score": rows - scores.n,
        "score": _described(scores, sample) if scores.n else None,
        "parts": {name: {"mean": part.mean, "n": part.n} for name, part in parts.items()},
    }


def _described(scores: Moments, sample: list[float]) -> dict[str, Any]:
    if scores.n > len(sample):
        how, interval = "normal approximation", normal_interval(scores)
    else:
        how, interval = "percentile bootstrap", mean_interval(sample)
    quantiles = np.quantile(sample, [*QUANTILES.values()]).tolist()
    return {
        **asdict(interval),
        "interval": f"95 %, {how} over rows",
        "std": scores.std,
        "min": scores.low,
        **dict(zip(QUANTILES, quantiles, strict=True)),
        "max": scores.high,
    }


def normal_interval(scores: Moments, *, level: float = 0.95) -> Interval:
    """Return the mean with the interval that the central limit theorem gives it."""
    half = NormalDist().inv_cdf((1 + level) / 2) * scores.std / math.sqrt(scores.n)
    return Interval(mean=scores.mean, low=scores.mean - half, high=scores.mean + half, n=scores.n)


def summary_text(summary: Mapping[str, Any]) -> str:
    """Lay a summary out as a short block for the screen."""
    score, without = summary["score"], summary["without_score"]
    lines = [
        f"signature  {summary['signature']}",
        f"rows       {summary['rows']:,}, {without:,} of them without a score",
    ]
    if score is not None:
        lines.append("mean       {mean:.4g}  [{low:.4g}, {high:.4g}]  ({interval})".format(**score))
        lines.append("spread     std {std:.4g}, min {min:.4g}, median {median:.4g}, max {max:.4g}".format(**score))
    if summary["parts"]:
        means = [f"{name} {part['mean']:.4g}" for name, part in summary["parts"].items()]
        lines.append(f"parts      {', '.join(means)}")
    return "\n".join(lines)
