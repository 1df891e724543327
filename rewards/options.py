"""Checks of the numeric options of metrics."""

import math
from numbers import Integral, Real
from pathlib import Path

from rewards.errors import MetricInputError


def number(
    metric: str, option: str, value: object, *, low: float = -math.inf, high: float = math.inf, whole: bool = False
) -> float:
    """Return a finite number from ``low`` to ``high``; with ``whole`` one without a fraction.

    Raises:
        MetricInputError: it is something else; the line names metric and option.
    """
    if (
        isinstance(value, Integral if whole else Real)
        and isinstance(value, Real)
        and not isinstance(value, bool)
        and math.isfinite(result := float(value))
        and low <= result <= high
    ):
        return result
    limits = "".join([f" from {low:g}" * math.isfinite(low), f" to {high:g}" * math.isfinite(high)])
    kind = "a whole number" if whole else "a number"
    raise MetricInputError(f"{metric}: {option} {value!r:.40} is out of range; give {kind}{limits}")


def flag(metric: str, option: str, value: object) -> bool:
    """Return true or false; a text such as "no" would count as true.

    Raises:
        MetricInputError: it is something else.
    """
    if not isinstance(value, bool):
        raise MetricInputError(f"{metric}: {option} {value!r:.40} is neither true nor false")
    return value


def path_of(metric: str, option: str, value: object) -> Path:
    """Return the path of a file, with ``~`` replaced.

    Raises:
        MetricInputError: it is no path, or empty.
    """
    if not isinstance(value, str | Path) or not str(value):
        raise MetricInputError(f"{metric}: {option} {value!r:.40} is no path of a file")
    return Path(value).expanduser()


def batch_of(metric: str, size: object) -> int:
    """Return a batch size, a whole number from 1.

    Raises:
        MetricInputError: it is something else.
    """
    return int(number(metric, "batch_size", size, low=1, whole=True))
