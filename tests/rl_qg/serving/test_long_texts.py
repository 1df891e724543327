"""Long texts: their passages, the division of the number, and pairs put together again."""

from hypothesis import given, strategies as st

from rl_qg.asking.drafts import NOT_IN_TEXT
from rl_qg.asking.pairs import AnswerSpan, AskRequest, QAPair, QAPairs
from rl_qg.asking.selection import NEAR_DUPLICATE
from rl_qg.serving.long_texts import REPEATED, WholeText, passage_requests, shares

TEXTS = st.text(st.sampled_from("ab. \n𝔸é"), min_size=1, max_size=200).filter(str.strip)


@given(TEXTS, st.integers(3, 60), st.integers(1, 9))
def test_passages_have_the_places_that_they_say_and_all_that_is_not_white_space(
    text: str, longest: int, number: int
) -> None:
    parts = passage_requests(AskRequest(text, number=None), longest)
    assert all(text.startswith(asked.text, start) for start, asked in parts)
    assert "".join("".join(asked.text.split()) for _, asked in parts) == "".join(text.split())
    numbers = [asked.number for _, asked in passage_requests(AskRequest(text, number=number), longest)]
    assert sum(one or 0 for one in numbers) == number and None not in numbers and 0 not in numbers


@given(TEXTS, st.integers(3, 40), st.data())
def test_every_answer_is_asked_about_once_in_the_passage_that_holds_it(
    text: str, longest: int, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    answer = AnswerSpan(text[start:end], start)
    request = AskRequest(text, (answer,), number=1)
    if not answer.text.strip():
        assert passage_requests(request, longest) == [] and WholeText(request).dropped == {NOT_IN_TEXT: 1}
        return
    [(place, asked)] = passage_requests(request, longest)
    [moved] = asked.answers or ()
    assert isinstance(moved, AnswerSpan)
    assert (moved.text, moved.end + place) == (answer.text.strip(), start + len(answer.text.rstrip()))
    assert asked.text.startswith(moved.text, moved.start)


def test_answers_that_do_not_stand_in_the_text_are_counted() -> None:
    request = AskRequest("One day.", tuple(AnswerSpan("One", start) for start in (0, 1, 90, -8)), number=4)
    [(_, asked)] = passage_requests(request, 100)
    assert asked.answers == (AnswerSpan("One", 0),) and WholeText(request).dropped == {NOT_IN_TEXT: 3}


def test_a_heading_on_a_line_of_its_own_is_a_sentence_of_its_own() -> None:
    text = "The fee is 40 pounds.\nAppeals\nAppeals go to the\nboard of trade."
    found = passage_requests(AskRequest(text, number=None), 100, by_sentence=True)
    assert [asked.text for _, asked in found] == [
        "The fee is 40 pounds.",
        "Appeals",
        "Appeals go to the\nboard of trade.",
    ]
    assert all(text.startswith(asked.text, start) for start, asked in found)


def test_a_number_is_divided_by_largest_remainders() -> None:
    assert shares(10, [50, 30, 20]) == [5, 3, 2]
    assert shares(7, [1, 1, 1]) == [3, 2, 2]
    assert shares(1, [10, 90]) == [0, 1]
    assert shares(5, [0, 1]) == [0, 5]
    assert shares(3, [0, 0]) == [0, 0]


def test_pairs_of_passages_get_the_offsets_of_the_text_and_questions_are_not_repeated() -> None:
    whole = WholeText(AskRequest("text"))
    first = QAPair("Who?", "Ada", 2, 0.5, -1.0)
    again = QAPair("WHO?", "Bob", 0, 0.9, -1.0)
    other = QAPair("When?", "1843", 4, 0.7, -1.0)
    whole.add(0, QAPairs([first], dropped={"short": 1}))
    found = whole.add(100, QAPairs([again, other], reason="there is no more", dropped={"short": 2}))
    assert [(pair.question, pair.answer_start) for pair in found] == [("When?", 104)]
    result = whole.result()
    assert [pair.question for pair in result] == ["When?", "Who?"]
    assert result.dropped == {"short": 3, REPEATED: 1}
    assert result.reason == f"2 of 5 pairs: short (3), {REPEATED} (1)"


def test_of_several_passages_the_best_pairs_of_the_whole_text_are_chosen_and_one_reason_is_given() -> None:
    text = "Ada met Bob.\n\nEve met Dan."
    request = AskRequest(text, number=2)
    assert [asked.number for _, asked in passage_requests(request, 14, more=2)] == [3, 3]
    assert [asked.number for _, asked in passage_requests(request, 99, more=2)] == [2]
    one = [QAPair("Who met Bob there on a day in the year?", "Ada", 0, 0.4, -1.0), QAPair("B?", "Bob", 8, 0.3, -1.0)]
    two = [QAPair("Who met Bob there on a day in the year", "Eve", 0, 0.9, -1.0), QAPair("C?", "Dan", 8, 0.2, -1.0)]
    whole = WholeText(request)
    whole.add(0, QAPairs(one, reason="2 of 3 pairs: ..."))
    whole.add(14, QAPairs(two, reason="2 of 3 pairs: ..."))
    found = whole.result()
    # Of the two near duplicates the better one stays; then the best pair of the first sentence.
    assert [(pair.question, pair.answer_start) for pair in found] == [(two[0].question, 14), ("B?", 8)]
    assert found.reason == "" and found.dropped[NEAR_DUPLICATE] == 1
    assert whole.result().dropped == found.dropped and NEAR_DUPLICATE not in whole.dropped

    short = WholeText(AskRequest(text, number=5))
    short.add(0, QAPairs(one[1:]))
    short.add(14, QAPairs())
    assert short.result().reason == "1 of 5 pairs: the text has no other answers to ask about"


def test_given_answers_keep_all_their_questions() -> None:
    first, again = QAPair("Who?", "Ada", 2, 0.5, -1.0), QAPair("WHO?", "Bob", 0, 0.9, -1.0)

    given_answers = WholeText(AskRequest("text", ("Ada", "Bob")))
    given_answers.add(0, QAPairs([first]))
    assert len(given_answers.add(100, QAPairs([again]))) == 1
