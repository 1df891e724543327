"""What `QuestionGenerator` is asked, and what it returns: pairs of question and answer, with the answer's place in the
text. All offsets count Unicode characters of the given text.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from reprlib import repr as short
from types import NoneType
from typing import TYPE_CHECKING, Any, TypedDict

from rl_qg.runtime.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset
    from pandas import DataFrame

WAYS = ("pipeline", "multitask", "end2end")
"""How pairs are made: answers by rules or a tagger, then questions; both by one model; or all pairs at once."""

SEEDS = 2**32


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
        return self.start + len(self.text)


@dataclass(frozen=True)
class QAPair:
    """A question and its answer in a text.

    Args:
        question: the question.
        answer: its answer, as it stands in the text from character `answer_start` on.
        score: from 0 to 1, higher is better; what it is made of is in `scores`.
        logprob: log-probability of the question (natural logarithm, end token included), None: not known.
        scores: the value of each criterion by its name, such as `probability` or `round_trip`.
        reason: why the pair was chosen, as one short sentence.
    """

    question: str
    answer: str
    answer_start: int
    score: float
    logprob: float | None
    scores: Mapping[str, float] = field(default_factory=dict)
    reason: str = ""

    @property
    def answer_end(self) -> int:
        return self.answer_start + len(self.answer)

    def to_dict(self) -> dict[str, Any]:
        return {**vars(self), "scores": dict(self.scores)}


class AskOptions(TypedDict, total=False):
    """The options of `QuestionGenerator.ask`, as in `AskRequest`."""

    number: int | None
    language: str
    seed: int | None
    way: str | None
    min_score: float | None


@dataclass(frozen=True)
class AskRequest:
    """What to ask about one text.

    Args:
        text: any length; a long one is read in passages.
        answers: what to ask about; None: answers are proposed. A text is asked about at its first place, a span where
            it says.
        number: of pairs; None: all that are good enough.
        language: of the text, an ISO 639-1 code; chooses the language code of models that have some (mBART).
        seed: None for the most probable questions; a number draws other ones, the same for the same number.
        way: one of `WAYS`; None: the first that the model can, and where it extracts no answers, those of `pipeline`.
        min_score: pairs below it are left out; None: what suits the model (`rl_qg.asking.models.least_score`).

    A value that is of the wrong type or out of its range is an `InputError`.
    """

    text: str
    answers: tuple[str | AnswerSpan, ...] | None = None
    number: int | None = 5
    language: str = "en"
    seed: int | None = None
    way: str | None = None
    min_score: float | None = None

    def __post_init__(self) -> None:
        if self.answers is not None:  # a tuple, so that requests can be compared and hashed
            object.__setattr__(self, "answers", _checked_answers(self.answers))
        wrong = [
            f"{name}={short(value)} is not {kind}"
            for name, (types, kind) in _TYPES.items()
            if isinstance(value := getattr(self, name), bool) or not isinstance(value, types)
        ]
        if wrong:
            raise InputError("; ".join(wrong))
        faults = [
            (self.number is not None and self.number < 1, f"number={self.number} must be at least 1, or None for all"),
            (self.seed is not None and not 0 <= self.seed < SEEDS, f"seed={self.seed} is not in [0, {SEEDS - 1}]"),
            (self.way is not None and self.way not in WAYS, f"way={self.way} is not one of {', '.join(WAYS)}"),
            (not 0 <= (self.min_score or 0) <= 1, f"min_score={self.min_score} is not in [0, 1]"),
            (not self.language.isascii() or not self.language, f"language={self.language!r} is no code such as en"),
        ]
        if wrong := [fault for is_wrong, fault in faults if is_wrong]:
            raise InputError("; ".join(wrong))


_TYPES: dict[str, tuple[tuple[type, ...], str]] = {
    "text": ((str,), "a text"),
    "number": ((Integral, NoneType), "a whole number, or None for all"),
    "language": ((str,), "a code such as en"),
    "seed": ((Integral, NoneType), "a whole number or None"),
    "way": ((str, NoneType), f"one of {', '.join(WAYS)}, or None"),
    "min_score": ((Real, NoneType), "a number in [0, 1], or None"),
}
"""What the fields of a request are; a truth value is none of them."""


def _checked_answers(answers: Any) -> tuple[str | AnswerSpan, ...]:
    if isinstance(answers, (str, bytes, AnswerSpan)) or not isinstance(answers, Iterable):
        raise InputError(f"answers={short(answers)} is no list; give a list, such as answers=['Rome', '1833']")
    given = tuple(answers)
    for answer in given:
        parts = (answer.text, answer.start) if isinstance(answer, AnswerSpan) else (answer, 0)
        if not isinstance(parts[0], str) or not isinstance(parts[1], Integral):
            raise InputError(f"answers: {short(answer)} is neither a text nor an AnswerSpan(text, start)")
    return given


class QAPairs(list[QAPair]):
    """The pairs of one text, best first, with the `reason` why there are fewer than asked for ("" if there are as
    many), and how many were left out, by reason (`dropped`).
    """

    def __init__(
        self, pairs: Iterable[QAPair] = (), *, reason: str = "", dropped: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(pairs)
        self.reason = reason
        self.dropped = dict(dropped or {})

    def to_dataset(self) -> "Dataset":
        """A row for each pair, with the fields of `QAPair`."""
        from datasets import Dataset  # these take a second to load

        return Dataset.from_list([pair.to_dict() for pair in self])

    def to_pandas(self) -> "DataFrame":
        """A row for each pair, with the fields of `QAPair`."""
        from pandas import DataFrame

        return DataFrame([pair.to_dict() for pair in self])
