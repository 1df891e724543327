"""What `QuestionGenerator` returns: pairs of question and answer, with the place of the answer in the text."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AnswerSpan:
    """An answer that can be asked about: `text` stands at character `start` of its passage; a higher `score` is
    better, and `kind` is what proposed it (`date`, `name`, …, `given`).
    """

    text: str
    start: int
    kind: str = "given"
    score: float = 0.0

    @property
    def end(self) -> int:
        """One past the last character."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class QAPair:
    """A question and its answer in a text.

    Args:
        question: the question.
        answer: its answer, as it stands in the text.
        answer_start: first character of the answer in the text.
        score: from 0 to 1, higher is better; what it is made of is in `scores`.
        logprob: log-probability of the question (natural logarithm, end token included).
        scores: the value of each criterion by its name, such as `probability` or `round_trip`.
        reason: why the pair was chosen, as one short sentence.
    """

    question: str
    answer: str
    answer_start: int
    score: float
    logprob: float
    scores: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def answer_end(self) -> int:
        """One past the last character of the answer in the text."""
        return self.answer_start + len(self.answer)

    def to_dict(self) -> dict[str, Any]:
        """The fields, ready for JSON."""
        return {**vars(self), "scores": dict(self.scores)}


class QAPairs(list[QAPair]):
    """The pairs of one text, best first.

    Args:
        pairs: of the text.
        reason: why there are fewer than asked for; "" if there are as many.
        dropped: how many pairs were left out, by reason.
    """

    def __init__(
        self, pairs: Iterable[QAPair] = (), *, reason: str = "", dropped: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(pairs)
        self.reason = reason
        self.dropped = dict(dropped or {})
