"""The sentence of an answer, against parts of passages that were marked by hand."""

import pytest
from hypothesis import given, strategies as st

from rl_qg.data.examples import sentence_of


@pytest.mark.parametrize(
    ("passage", "answer"),
    [
        ("[A mill stood here.] It burned down.", "mill"),
        ("A mill stood here.  [It burned in 1901.] Nobody came. ", "1901"),
        ("One. [Two. Three.] Four.", "wo. Th"),  # goes beyond a sentence
        ("[The whole text has no end]", "whole text"),
        ("水車。[塔は高い。]橋は低い。", "高い"),
        (" \n[ One.] Two.", " One"),  # white space of the answer is part of it
        ("One.[ Two.] Three.", " Tw"),
        ("One. [Two. \n]", "wo. \n"),
    ],
)
def test_sentence_is_that_marked_by_hand(passage: str, answer: str) -> None:
    first, last = passage.index("["), passage.index("]") - 1
    context = passage.replace("[", "").replace("]", "")
    start = context.index(answer)
    assert sentence_of(context, start, start + len(answer)) == (first, last)


@given(st.text("ab. \n。", min_size=1, max_size=30), st.data())
def test_sentence_holds_the_answer_and_grows_with_it(context: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(context) - 1))
    end = data.draw(st.integers(start + 1, len(context)))
    first, last = sentence_of(context, start, end)
    assert 0 <= first <= start < end <= last <= len(context)
    smaller = sentence_of(context, start, start + 1)
    assert first <= smaller[0] and smaller[1] <= last


@pytest.mark.parametrize(("start", "end"), [(2, 2), (3, 2), (-1, 2), (0, 99)])
def test_a_place_outside_of_the_passage_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="not in a passage of 9"):
        sentence_of("One. Two.", start, end)
