"""What all metrics have in common, checked on a metric simple enough to compute by hand."""

import inspect
from functools import partial

import numpy as np
import pytest
from pandas import DataFrame

from rewards import Metric, MetricInputError, MetricResult, load
from rewards.base import Inputs


class Lengths(Metric):
    """Length of the question plus that of the answer."""

    name = "lengths"
    needs = frozenset({"contexts", "answers"})
    part_names = ("question", "letters")

    def __init__(self):
        self.seen: list[Inputs] = []

    def choices(self):
        return {"unit": "a|b"}

    def compute(self, inputs):
        self.seen.append(inputs)
        question = [float(len(text)) for text in inputs.questions]
        scores = [q + len(text) for q, text in zip(question, inputs.answers, strict=True)]
        return MetricResult(scores, {"question": question, "letters": [list(text) for text in inputs.questions]})


def test_scores_and_parts_come_back_in_order():
    result = Lengths().score(["ab", "c", "ab"], ["x", "x", "y"], answers=["", "def", "g"])
    assert result.scores == [2.0, 4.0, 3.0]
    assert result.parts == {"question": [2.0, 1.0, 2.0], "letters": [["a", "b"], ["c"], ["a", "b"]]}


def test_equal_rows_are_computed_once_and_returned_in_order():
    metric = Lengths()
    result = metric.score(["qq", "p", "qq", "p"], ["c"] * 4, answers=["a", "b", "a", "bb"], references=[["r"]] * 4)
    assert result.scores == [3.0, 2.0, 3.0, 3.0]
    assert result.parts["question"] == [2.0, 1.0, 2.0, 1.0]
    (inputs,) = metric.seen
    assert (inputs.questions, inputs.answers, inputs.rows) == (["qq", "p", "p"], ["a", "b", "bb"], [0, 1, 3])
    assert inputs.references == [()] * 3  # not needed, so left blank


def test_many_rows_are_computed_in_blocks(monkeypatch):
    monkeypatch.setattr("rewards.base.ROWS_AT_ONCE", 3)
    metric = Lengths()
    questions = ["q" * (1 + at % 5) for at in range(16)]
    result = metric.score(questions, ["c"] * 16, answers=[str(at % 7) for at in range(16)])
    assert [len(inputs.questions) for inputs in metric.seen] == [3, 3, 3, 3, 3, 1]
    assert result.scores == [len(question) + 1.0 for question in questions]
    assert [len(letters) for letters in result.parts["letters"]] == [len(question) for question in questions]
    assert [row for inputs in metric.seen for row in inputs.rows] == list(range(16))


def test_nothing_to_score():
    metric = Lengths()
    assert metric.score([], [], answers=[]) == MetricResult([], {"question": [], "letters": []})
    assert metric.seen == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"contexts": ["c"], "answers": ["a", "a"]}, "2 questions but 1 contexts"),
        ({"contexts": ["c", "c"], "answers": ["a", "a", "a"]}, "2 questions but 3 answers"),
        ({"contexts": ["c", "c"], "answers": ["a", "a"], "references": [["r"]]}, "2 questions but 1 references"),
        ({"contexts": ["c", "c"]}, "lengths needs answers"),
        ({"contexts": ["c", 7], "answers": ["a", "a"]}, r"contexts\[1\] is int, not text"),
        ({"contexts": ["c", "c"], "answers": ["a", None]}, r"answers\[1\] is NoneType, not text"),
        ({"contexts": "cc", "answers": ["a", "a"]}, "contexts is one text"),
        (
            {"contexts": DataFrame({"c": ["x", "y"]}), "answers": ["a", "a"]},
            "contexts is a DataFrame of 2 dimensions; give a list, or",
        ),
        ({"contexts": {"x": 1, "y": 2}, "answers": ["a", "a"]}, "contexts is a dict; give a list"),
        ({"contexts": {"x", "y"}, "answers": ["a", "a"]}, "contexts is a set; give a list"),
        ({"contexts": iter("xy"), "answers": ["a", "a"]}, "contexts is a str_ascii_iterator; give a list"),
        ({"contexts": ["c", "\ud800"], "answers": ["a", "a"]}, r"contexts\[1\] is not valid Unicode"),
    ],
)
def test_bad_input_is_one_line_that_names_the_position(arguments, message):
    with pytest.raises(MetricInputError, match=message) as caught:
        Lengths().score(["q", "q"], **arguments)
    assert "\n" not in str(caught.value)


def test_columns_of_tables_and_arrays_are_lists():
    table = DataFrame({"q": ["Who ran?", "Where?"], "r": [np.array(["Who ran?"], object), np.array(["x", "Where?"])]})
    table = table.iloc[::-1]
    assert load("rouge_l").score(table["q"], references=table["r"]).scores == [1.0, 1.0]
    with pytest.raises(MetricInputError, match="questions is a DataFrame of 2 dimensions; give a list, or one column"):
        load("rouge_l").score(table[["q"]], references=table["r"])


@pytest.mark.parametrize(
    ("references", "message"),
    [
        (["r"], r"references\[0\] is one text; give a list, or one column of a table"),
        ([np.array([])], r"references\[0\] is empty; give at least one gold question"),
        ([np.array([["r"]])], r"references\[0\] is a ndarray of 2 dimensions; give a list"),
        ([DataFrame({"r": ["r"]})], r"references\[0\] is a DataFrame of 2 dimensions; give a list"),
        ([[["r"]]], r"references\[0\]\[0\] is list, not text: \['r'\]"),
        (np.array([["r"]]), "references is a ndarray of 2 dimensions; give a list of lists, or one column of a table"),
        ("r", "references is one text; give a list of lists, or one column of a table"),
    ],
)
def test_references_of_other_dimensions_are_named(references, message):
    with pytest.raises(MetricInputError, match=f"^rouge_l: {message}") as caught:
        load("rouge_l").score(["Who?"], references=references)
    assert "\n" not in str(caught.value)


def test_columns_that_are_not_needed_may_hold_anything():
    class NoAnswers(Lengths):
        needs = frozenset({"contexts"})

    assert NoAnswers().score(["q"], ["c"], answers=[None]).scores == [1.0]


def test_trl_convention():
    logged = {}
    scores = Lengths()(
        prompts=["p1", "p2", "p3"],
        completions=["ab", [{"role": "assistant", "content": "abc"}], "abcd"],
        completion_ids=[[1], [2], [3]],
        context=["c", "c", "c"],
        answer=["x", "yy", None],
        difficulty=["easy", "hard", "hard"],
        trainer_state=object(),
        log_extra=lambda column, values: None,
        log_metric=lambda name, value: logged.update({name: value}),
    )
    assert scores == [3.0, 5.0, None]
    assert logged == {"lengths/question": 2.5}  # parts that are not numbers have no mean


def test_trl_convention_needs_its_columns():
    with pytest.raises(MetricInputError, match="no column 'answer'"):
        Lengths()(prompts=["p"], completions=["q"], context=["c"])
    with pytest.raises(MetricInputError, match="2 questions but 1 contexts"):
        Lengths()(prompts=["p", "p"], completions=["q", "q"], context=["c"], answer=["a", "a"])
    assert Lengths()(prompts=["p"], completions=["q"], context=["c"], answer=[None]) == [None]


def test_trl_finds_the_name_and_a_plain_function():
    metric = Lengths()
    assert metric.__name__ == "lengths"
    assert partial(metric).func.__name__ == "lengths"
    assert not inspect.iscoroutinefunction(metric.__call__)
    assert Lengths.__name__ == "Lengths"


def test_separators_inside_a_signature_are_replaced():
    assert Lengths().signature.startswith("lengths|unit:a_b|version:")
