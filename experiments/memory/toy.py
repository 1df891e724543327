"""A reward that costs nothing, so that what is measured is the command."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any


class Length:
    """Words of a question."""

    signature = "length"
    needs = frozenset({"contexts"})

    def score(self, questions: Sequence[str], contexts: Sequence[str], **columns: Any) -> Any:
        """Scores and one part, a value a question."""
        scores = [float(len(question.split())) for question in questions]
        return SimpleNamespace(scores=scores, parts={"words": scores})
