"""Means and differences as text for pages: value, interval, and on which side of 0 a difference is."""

import math
from collections.abc import Sequence
from typing import Any

from rl_qg.reports.run_files import ReportedMean

MINUS = "\N{MINUS SIGN}"


def estimate_cell(estimate: ReportedMean | None, digits: int, *, signed: bool = False) -> dict[str, Any] | None:
    """A mean for a cell of the template: value and interval as text, n, and for a difference (`signed`) on which side
    of 0 the interval is. As one text it is `rl_qg.evaluation.result_pages.estimate_text`.
    """
    if estimate is None:
        return None
    value, low, high = (
        None if number is None else number_text(number, digits, signed=signed)
        for number in (estimate.mean, estimate.low, estimate.high)
    )
    verdict = ""
    if signed and estimate.excludes_zero is not None:
        direction = "up" if estimate.mean > 0 else "down"
        verdict = direction if estimate.excludes_zero else "unclear"
    interval = f"[{low}, {high}]" if low is not None and high is not None else ""
    return {"value": value, "interval": interval, "n": estimate.n, "verdict": verdict}


def number_text(value: float, digits: int, *, signed: bool = False) -> str:
    """A number with a fixed number of decimals, thousands separated, and a true minus sign."""
    return format(value, f"{'+' if signed else ''},.{digits}f").replace("-", MINUS)


def digits_of(estimates: Sequence[ReportedMean | None]) -> int:
    """How many decimals show one digit of the narrowest interval's half-width, from 2 to 5; 3 without intervals."""
    widths = [(e.high - e.low) / 2 for e in estimates if e and e.low is not None and e.high is not None]
    widths = [width for width in widths if 0 < width < math.inf]
    return min(5, max(2, -math.floor(math.log10(min(widths))))) if widths else 3


def percent(estimate: ReportedMean | None) -> ReportedMean | None:
    """A fraction in percent."""
    if estimate is None:
        return None
    low, high = (None if end is None else 100 * end for end in (estimate.low, estimate.high))
    return ReportedMean(100 * estimate.mean, low, high, estimate.n)
