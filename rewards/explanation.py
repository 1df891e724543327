"""Where a QRelScore comes from, token by token."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewards.qrelscore import QRelScore


@dataclass(frozen=True)
class Explanation:
    """Placeholder."""


def explain(metric: "QRelScore", question: str, context: str) -> Explanation:
    """Placeholder."""
    raise NotImplementedError
