"""Questions take the order in which the model writes those that they are assigned to."""

from types import SimpleNamespace
from typing import Any

import pytest

from rl_qg.generation.prompts import Prompt
from rl_qg.generation.sets import assigned_order, in_order_of_model, join_questions, question_parts, set_rows
from rl_qg.runtime.errors import InputError
from tests.questions import example

CONTEXT = "Ada met Ben in Rome. Ben died in 1900."
EXAMPLES = [
    example(CONTEXT, "Ada", "Who met Ben?", "e1"),
    example(CONTEXT, "Rome", "Where did Ada meet Ben?", "e2"),
    example(CONTEXT, "1900", "When did Ben die?", "e3"),
    example("Alone.", "Alone", "Who?", "e4"),
]


class Writer:
    """A generator that writes the same text for every row."""

    def __init__(self, *questions: str, **prompt: Any) -> None:
        self.prompt = Prompt(**{"task": "sets", "granularity": "paragraph", "mode": "one2many", **prompt})
        self.encoder = SimpleNamespace(prompt=self.prompt)
        self.text, self.asked = join_questions(questions), 0

    def greedy(self, rows: list[Any], *, max_new_tokens: int) -> list[str]:
        self.asked += len(rows)
        return [self.text] * len(rows)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["When did Ben die?", "Who met Ben?", "Where did they meet?"], [2, 0, 1]),
        (["Where did Ada meet Ben?"], [1, 0, 2]),
        ([], [0, 1, 2]),
        (["x", "y", "When died Ben?"], [2, 0, 1]),  # what shares no word says nothing
        # Sums of F1: 0.89 + 0.44 for e2 and e3, against 1 + 0.25 where the second text takes e2, which it equals.
        (["Where did Ada meet?", "Where did Ada meet Ben?"], [1, 2, 0]),
    ],
)
def test_orders_written_by_hand(written: list[str], expected: list[int]) -> None:
    assert assigned_order([row.question for row in EXAMPLES[:3]], written) == expected


def test_rows_take_the_order_of_the_model_and_keep_their_questions() -> None:
    rows = set_rows("paragraph", "one2many", EXAMPLES)
    writer: Any = Writer("When did Ben die?", "Where did they meet?")
    first, second = in_order_of_model(rows, writer, "paragraph")
    assert [source.id for source in first.sources] == ["e3", "e2", "e1"]
    assert question_parts(first.question) == [source.question for source in first.sources]
    assert second == rows[1] and writer.asked == 1  # one question has one order


@pytest.mark.parametrize("prompt", [{"task": "questions"}, {"mode": "one2one"}, {"granularity": "type"}])
def test_a_model_that_writes_no_such_sets_is_refused(prompt: dict[str, str]) -> None:
    writer: Any = Writer(**prompt)
    with pytest.raises(InputError, match=r"ask\.order=best: model\.path has not learned to write such sets"):
        in_order_of_model(set_rows("paragraph", "one2many", EXAMPLES), writer, "paragraph")
