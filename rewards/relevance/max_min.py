"""Max-min normalisation: the smallest score of a set becomes 0 and the largest 1.

Source: Wang et al., "QRelScore", EMNLP 2022, appendix F, for BARTScore, whose logarithms are negative, and the caption
of figure 4, by which all scores were rescaled on the candidate sets.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rewards.errors import MetricInputError


@dataclass(frozen=True)
class MaxMin:
    """The smallest and the largest score of a set."""

    low: float
    high: float

    def rescale(self, score: float) -> float:
        """Return ``(score - low) / (high - low)``: 0 to 1 in the set, below 0 or above 1 for scores beyond it."""
        return (score - self.low) / (self.high - self.low)

    def __str__(self) -> str:
        return f"{self.low:.10g}..{self.high:.10g}"


def read_max_min(given: str | Path | Sequence[float], metric: str, signature: str) -> MaxMin:
    """Return the limits of a set from ``[low, high]``, or from the summary that ``rl-qg score`` writes of it.

    Args:
        given: what the user gave.
        metric: its name, for messages.
        signature: of the metric without normalisation; a summary must have the same.

    Raises:
        MetricInputError: no two different numbers, or scores of another metric.
    """
    if not isinstance(given, str | Path):
        return _checked(given, metric, given)
    try:
        content = json.loads(Path(given).expanduser().read_text(encoding="utf-8"))
        found, limits = content["signature"], (content["score"]["min"], content["score"]["max"])
    except (OSError, UnicodeDecodeError, ValueError, TypeError, KeyError) as error:
        raise MetricInputError(
            f"{metric}: max_min={given} has no limits of scores ({type(error).__name__}: {error}); give the "
            ".summary.json of rl-qg score, or [low, high]"
        ) from None
    if found != signature:
        raise MetricInputError(f"{metric}: max_min={given} are scores of {found}, but this is {signature}")
    return _checked(limits, metric, given)


def _checked(limits: object, metric: str, given: object) -> MaxMin:
    values = list(limits) if isinstance(limits, Sequence) else []
    numbers = [float(end) for end in values if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(numbers) != 2 or len(values) != 2 or not all(map(math.isfinite, numbers)) or numbers[0] >= numbers[1]:
        raise MetricInputError(f"{metric}: max_min={given!s:.60} are no two numbers [low, high] with low below high")
    return MaxMin(numbers[0], numbers[1])
