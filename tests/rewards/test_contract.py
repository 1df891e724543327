"""What is expected of any reward, by rewards that keep to it and rewards that do not."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rewards.contract import WrongReward, check_reward, failure, scored
from rewards.errors import MetricInputError


def returning(value):
    return SimpleNamespace(score=lambda questions, contexts, **columns: value)


@pytest.mark.parametrize(
    "value",
    [
        [1, 2.5],
        (1, 2.5),
        np.array([1, 2.5]),
        torch.tensor([1, 2.5]),
        [np.float32(1), np.float64(2.5)],
        [torch.tensor(1.0), torch.tensor(2.5)],
        SimpleNamespace(scores=[1, 2.5]),
        SimpleNamespace(scores=torch.tensor([1, 2.5]), parts=None),
    ],
)
def test_every_form_of_two_numbers_is_the_same_result(value):
    result = scored(returning(value), ["a", "b"], ["c", "c"])
    assert result.scores == [1.0, 2.5] and result.parts == {}
    assert all(type(score) is float for score in result.scores)


def test_none_and_numbers_that_are_not_finite_are_kept_and_parts_become_lists():
    given = SimpleNamespace(scores=[None, float("inf")], parts={"length": np.array([3, 4]), "tokens": [[1], [2, 3]]})
    result = scored(returning(given), ["a", "b"], None)
    assert result.scores == [None, float("inf")]
    assert result.parts == {"length": [3, 4], "tokens": [[1], [2, 3]]}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, r"returned None; return one number for each question"),
        (1.0, r"returned 1.0; return one number"),
        ("ab", r"returned 'ab'; return one number"),
        ({"scores": [1, 2]}, r"returned \{'scores': \[1, 2\]\}; return one number"),
        ([1.0], r"returned 1 scores for 2 questions"),
        (["1", "2"], r"returned '1' for a question; return a number or None"),
        ([[1.0], [2.0]], r"returned \[1.0\] for a question"),
        (np.ones((2, 1)), r"returned \[1.0\] for a question"),
        ([1j, 2], r"returned 1j for a question"),
        ([10**400, 2], r"returned 10+ for a question; return a number"),
        (SimpleNamespace(scores=[1, 2], parts=[3]), r"parts is \[3\]; give a mapping"),
        (SimpleNamespace(scores=[1, 2], parts={"a": [3]}), r"parts\['a'\] is \[3\]; give a list with one entry"),
    ],
)
def test_any_other_result_is_refused_in_one_line(value, message):
    with pytest.raises(WrongReward, match=message) as caught:
        scored(returning(value), ["a", "b"], ["c", "c"])
    assert isinstance(caught.value, MetricInputError) and "\n" not in str(caught.value)


class Whole:
    def score(self, questions, contexts, *, answers=None, references=None):
        raise KeyError("weights")


class TakesAnything:
    def score(self, *columns, **named):
        return [0.0] * len(columns[0])


def test_a_reward_is_called_as_it_says():
    check_reward(Whole())
    check_reward(TakesAnything())
    assert scored(TakesAnything(), ["a"], ["c"], answers=["d"], references=[["e"]]).scores == [0.0]


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (3, "has no method score"),
        (Whole, "has no method score"),  # the class in place of an object
        (SimpleNamespace(score=3), "has no method score"),
        (SimpleNamespace(score=lambda: []), r"score: too many positional arguments; it is called as score\("),
        (SimpleNamespace(score=lambda q, c: []), "score: got an unexpected keyword argument 'answers'"),
        (SimpleNamespace(score=lambda q, c, d, **k: []), "score: missing a required argument: 'd'"),
        (SimpleNamespace(score=TakesAnything().score, needs="contexts"), "needs is 'contexts'; name some of"),
        (SimpleNamespace(score=TakesAnything().score, needs={"passage"}), "needs is {'passage'}; name some of"),
        (
            SimpleNamespace(score=TakesAnything().score, bounds=(0,)),
            r"bounds is \(0,\); give \(smallest, largest\), or",
        ),
        (SimpleNamespace(score=TakesAnything().score, bounds=(1, 0)), r"bounds is \(1, 0\); give"),
        (SimpleNamespace(score=TakesAnything().score, bounds=(None, 1.0)), r"bounds is \(None, 1.0\); give"),
        (SimpleNamespace(score=TakesAnything().score, bounds=(math.nan, 1)), r"bounds is \(nan, 1\); give"),
        (SimpleNamespace(score=TakesAnything().score, bounds=(0, 10**400)), r"bounds is \(0, 1000"),
        (SimpleNamespace(score=TakesAnything().score, bounds=1), r"bounds is 1; give"),
        (SimpleNamespace(score=TakesAnything().score, signature=None), r"signature is None; give a text, or no such"),
    ],
)
def test_what_is_no_reward_is_refused_before_it_scores(reward, message):
    with pytest.raises(WrongReward, match=message):
        check_reward(reward)


def test_an_error_is_described_with_the_line_of_the_rewards_own_file():
    with pytest.raises(KeyError) as caught:
        scored(Whole(), ["a"], ["c"])
    line = Whole.score.__code__.co_firstlineno + 1
    assert failure(caught.value, Whole()).startswith("KeyError: 'weights' (")
    assert failure(caught.value, Whole()).endswith(f"test_contract.py, line {line})")


def test_a_reward_cannot_end_the_program_but_a_signal_can():
    class Signal(SystemExit):
        pass

    def ends(error):
        def score(questions, contexts, **columns):
            raise error

        return SimpleNamespace(score=score)

    with pytest.raises(RuntimeError, match=r"it ends the program \(SystemExit: 0\)"):
        scored(ends(SystemExit(0)), ["a"], ["c"])
    with pytest.raises(Signal):
        scored(ends(Signal(143)), ["a"], ["c"])
