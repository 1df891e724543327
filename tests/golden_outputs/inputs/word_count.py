"""A reward of a user: the number of words of a question."""

from collections.abc import Sequence
from typing import Any


class WordCount:
    def score(self, questions: Sequence[str], contexts: Sequence[str], **more: Any) -> list[float]:
        return [float(len(question.split())) for question in questions]
