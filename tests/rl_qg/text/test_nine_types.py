"""The rule of the multi-question paper (section 6.2), by a table written from its text."""

import pytest

from rl_qg.text.question_types import NINE_TYPES, nine_type

TABLE = [
    ("Who wrote it?", "Ada", "who"),
    ("Whose book is it?", "Ada", "who"),
    ("To whom was it sent?", "Ada", "who"),
    ("When did it end?", "1900", "when"),
    ("Where is it?", "Rome", "where"),
    ("In what city is it?", "Rome", "what"),  # the word may stand anywhere
    ("How many books are there?", "3", "quantity"),
    ("It cost how  much?", "3", "quantity"),
    ("How is it made?", "by hand", "how"),
    ("How long is it?", "3 m", "how"),  # the paper counts "many" and "much" alone as quantities
    ("Why did it end?", "war", "why"),
    ("In which city is it?", "Rome", "which"),
    ("Is it red?", "red", "other"),
    ("What quantity is other?", "3", "what"),
    ("The quantity of other things is?", "3", "other"),  # these two words say nothing
    ("Who was it, yes or no?", "Yes", "other"),
    ("Did who win?", " no ", "other"),
    ("Did who win?", "no one", "who"),
    # Of several words the first of the list decides, not the first of the question.
    ("Which city is where?", "Rome", "where"),
    ("How many saw what happened?", "3", "what"),
    ("Why and how?", "", "how"),
    # Parts of words are not words.
    ("Whoever whatever somehow?", "", "other"),
    ("", "", "other"),
]


@pytest.mark.parametrize(("question", "answer", "expected"), TABLE)
def test_types_are_those_of_the_paper(question: str, answer: str, expected: str) -> None:
    assert nine_type(question, answer) == expected


def test_every_type_has_a_line_in_the_table() -> None:
    assert {expected for *_, expected in TABLE} == {*NINE_TYPES}
