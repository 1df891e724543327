"""Ratings for tests: records as in `ratings.jsonl`, and their columns."""

from collections.abc import Iterable, Mapping
from typing import Any

from rl_qg.rating.analysis.ratings import RatedItems, Scale, rated_items


def rating(
    rater: str, position: int, value: float, kind: str = "ordinary", system: str = "a", **more: Any
) -> dict[str, Any]:
    """One rating; of the criterion `c` and the task `h1` of its rater unless said otherwise."""
    hit = more.pop("hit", "h1")
    fields = {"hit": hit, "assignment": f"{hit}-{rater}", "rater": rater, "position": position, "kind": kind}
    fields |= {"systems": system.split("|"), "item": f"item {hit}", "passage": f"passage {hit}", "original": None}
    return fields | {"criterion": "c", "value": value, "state": "submitted"} | more


def columns(records: Iterable[Mapping[str, Any]], **scales: Scale) -> RatedItems:
    return rated_items(((f"line {number}", record) for number, record in enumerate(records, 1)), scales)


def pairs_of(rater: str, good: Iterable[float], bad: Iterable[float], **more: Any) -> list[dict[str, Any]]:
    """Ordinary questions and their degraded forms, of one criterion."""
    rows = []
    for number, (high, low) in enumerate(zip(good, bad, strict=True)):
        rows.append(rating(rater, 2 * number + 1, high, **more))
        rows.append(rating(rater, 2 * number + 2, low, "degraded", original=2 * number + 1, **more))
    return rows
