"""The address that clients of lmqg call."""

import json
from difflib import SequenceMatcher
from typing import Any

import pytest
from hypothesis import given, strategies as st

from rl_qg.asking.pairs import AnswerSpan
from rl_qg.serving.lmqg_routes import novelty
from tests.rl_qg.serving.clients import TEXT, is_problem, run, serving
from tests.rl_qg.serving.fake_model import FakeModel

JSON = {"Content-Type": "application/json"}
TWO = "Ada wrote it in London. Charles built it in Paris."


def ask(body: dict[str, Any], *, ways: tuple[str, ...] = ("pipeline",), status: int = 200) -> Any:
    """The answer, and what the model was asked."""
    model = FakeModel(ways=ways)
    found: list[Any] = []

    async def test() -> None:
        async with serving(model) as (client, _):
            answer = await client.post("/question_generation", content=json.dumps(body), headers=JSON)
            found.append(answer.json() if status == 200 else is_problem(answer, status))

    run(test)
    return found[0], [request for call in model.calls for request in call]


def test_a_request_as_lmqgs_page_sends_it() -> None:
    body = {
        "input_text": TWO,
        "language": "English",
        "qag_type": "Multitask",
        "model": "lmqg/t5-base-squad-qg-ae",
        "highlight": None,
        "num_beams": 4,
        "use_gpu": False,
        "do_sample": True,
        "top_p": 0.9,
        "max_length": 64,
        "split": "paragraph",
    }
    answer, [asked] = ask(body)
    assert list(answer) == ["qa"] and [set(pair) for pair in answer["qa"]] == [{"question", "answer", "score"}] * 2
    scores = [pair["score"] for pair in answer["qa"]]
    assert scores == sorted(scores, reverse=True)
    assert (asked.number, asked.language, asked.way, asked.answers) == (2, "en", "pipeline", None)
    assert ask({"input_text": TWO})[0] == answer


@pytest.mark.parametrize("highlight", ["Paris", ["Paris"]])
def test_highlights_are_texts_or_lists(highlight: Any) -> None:
    answer, [asked] = ask({"input_text": TWO, "highlight": highlight})
    assert asked.answers == (AnswerSpan("Paris", TWO.find("Paris")),)
    assert [pair["answer"] for pair in answer["qa"]] == ["Paris"]


@pytest.mark.parametrize("highlight", ["", [], [""], None])
def test_empty_highlights_are_none(highlight: Any) -> None:
    assert ask({"input_text": TWO, "highlight": highlight})[1][0].answers is None


@pytest.mark.parametrize(
    ("kind", "ways", "way"),
    [
        (None, ("multitask", "pipeline"), "multitask"),
        ("Multitask", ("end2end",), "end2end"),
        ("Pipeline", ("multitask", "pipeline"), "pipeline"),
        ("End2End", ("end2end",), "end2end"),
    ],
)
def test_types_become_ways_of_the_model(kind: str | None, ways: tuple[str, ...], way: str) -> None:
    assert ask({"input_text": TWO, "qag_type": kind}, ways=ways)[1][0].way == way


def test_sentences_are_passages_of_their_own_where_the_split_is_by_sentence() -> None:
    answer, asked = ask({"input_text": TWO, "split": "sentence"})
    assert [request.text for request in asked] == ["Ada wrote it in London.", "Charles built it in Paris."]
    assert len(answer["qa"]) == 2


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({}, "input_text: is missing"),
        ({"input_text": TEXT, "highlight": "Rome"}, "highlight: is not in the text, letter by letter"),
        ({"input_text": TEXT, "highlight": "\0"}, "highlight: has a NUL character; remove it"),
        ({"input_text": TEXT, "highlight": ["London", "\ud800"]}, "highlight: has half of a surrogate pair"),
        ({"input_text": TEXT, "language": "Klingonisch"}, "language: is no code"),
        ({"input_text": TEXT, "qag_type": "End2End"}, "qag_type: this model cannot End2End"),
        ({"input_text": TEXT, "qag_type": "Other"}, "qag_type: input should be"),
        ({"input_text": TEXT, "split": "word"}, "split: input should be"),
    ],
)
def test_errors_say_what_was_wrong(body: dict[str, Any], detail: str) -> None:
    assert ask(body, status=422)[0]["detail"].startswith(detail)


@given(st.text("ab ", max_size=12), st.text("abc ", min_size=1, max_size=12))
def test_the_score_is_one_minus_the_part_that_is_copied_at_a_stretch(text: str, question: str) -> None:
    matcher = SequenceMatcher(None, text, question, autojunk=False)
    assert novelty(text, question) == 1 - matcher.find_longest_match().size / len(question)


def test_the_score_worked_by_hand() -> None:
    assert novelty("Ada wrote it in London.", "Who wrote it?") == 1 - len(" wrote it") / 13
    assert novelty("x", "") == 0
