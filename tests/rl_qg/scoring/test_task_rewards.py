"""Rewards of pairs and answers, worked by hand."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from rewards import load
from rl_qg.generation.tasks import TaskRow, join_answers, join_pairs, task_rows
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import RewardScorer
from rl_qg.scoring.task_scorers import TaskScorer, floor_of, pair_floor, valid_pairs
from tests.questions import example

CONTEXT = "Ada met Ben in Rome. Ben died in 1900."
EXAMPLES = [
    example(CONTEXT, "Ada", "Who met Ben?", "e1"),
    example(CONTEXT, "Rome", "Where did they meet?", "e2"),
    example(CONTEXT, "1900", "When did Ben die?", "e3"),
]
(PAIRS,) = task_rows("pairs", EXAMPLES)
FIRST, SECOND = task_rows("answers", EXAMPLES)


class WordsAndAnswer:
    """The number of words of the question, plus 100 for the answer `Rome`; none for `none`.

    Args:
        bounds: of its scores.
        shift: added to each score.
    """

    needs = frozenset({"contexts", "answers"})

    def __init__(self, bounds: tuple[float, float] = (0.0, math.inf), shift: float = 0.0) -> None:
        self.bounds, self.shift = bounds, shift
        self.rows: list[tuple[str, str, str]] = []

    def score(self, questions, contexts=None, *, answers=None, references=None) -> Any:
        self.rows += zip(questions, contexts, answers, strict=True)
        return [
            None if question == "none" else len(question.split()) + 100 * (answer == "Rome") + self.shift
            for question, answer in zip(questions, answers, strict=True)
        ]


def reward_of(text: str, row: TaskRow = PAIRS, **options: Any) -> float:
    return TaskScorer(WordsAndAnswer(), **options)([row], [text]).scores[0]


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("a b c", "Ada")], 3 / 3),  # one good pair of three that people asked for
        ([("a b c", "Ada"), ("d e", "1900"), ("f", "Ben")], 6 / 3),
        (
            [("a b c", "Ada"), ("d e", "1900"), ("f", "Ben"), ("g h", "Rome")],
            (6 + 102) / 4,
        ),  # more than gold: over four
        ([("a b c", "Ada"), ("d e", "Paris"), ("f", ""), ("", "Rome")], 3 / 4),  # not there, no answer, no question
        ([("a b c", "Ada"), ("A  b c", "Ada"), ("a b c", "ada")], 3 / 3),  # written twice; `ada` is not in the text
        ([("a b c", "Ada"), ("a b c", "Ben")], 6 / 3),  # the same question about another answer
        ([], 0.0),
    ],
)
def test_a_text_of_pairs_has_the_mean_over_its_places(pairs: list[tuple[str, str]], expected: float) -> None:
    assert reward_of(join_pairs(pairs)) == pytest.approx(expected)


def test_invalid_places_have_the_floor_and_no_valid_pair_is_below_it() -> None:
    text = join_pairs([("a b c", "Ada"), ("d", "1900"), ("e", "Paris")])
    # 3 - 10 = -7 and 1 - 10 = -9; the third place has the floor.
    negative = WordsAndAnswer((-math.inf, 0.0), shift=-10.0)
    assert TaskScorer(negative, floor=-8.0)([PAIRS], [text]).scores == pytest.approx([(-7 - 8 - 8) / 3])
    assert TaskScorer(negative, floor=-20.0)([PAIRS], [text]).scores == pytest.approx([(-7 - 9 - 20) / 3])


def test_more_good_pairs_win_and_bad_ones_lose() -> None:
    one, two = [("a b", "Ada")], [("a b", "Ada"), ("a c", "1900")]
    wrong = [("a b", word) for word in ("x", "y", "z")]
    assert reward_of(join_pairs(one)) < reward_of(join_pairs(two))
    assert reward_of(join_pairs(one + wrong)) < reward_of(join_pairs(one))
    assert reward_of(join_pairs(one * 5)) < reward_of(join_pairs(one))


def test_the_reward_gets_each_valid_pair_with_its_passage_and_parts_are_counted() -> None:
    reward = WordsAndAnswer()
    text = join_pairs([("a b c", "Ada"), ("d e", "Paris")])
    scored = TaskScorer(reward)([PAIRS, PAIRS], [text, ""])
    assert reward.rows == [("a b c", CONTEXT, "Ada")]
    assert scored.parts["written"] == [2.0, 0.0]
    assert scored.parts["valid"][0] == 0.5 and math.isnan(scored.parts["valid"][1])
    assert scored.faults == [None, None]


def test_a_text_with_a_pair_whose_reward_fails_has_none() -> None:
    text = join_pairs([("a b c", "Ada"), ("none", "1900")])
    scored = TaskScorer(WordsAndAnswer())([PAIRS, PAIRS], [text, join_pairs([("a", "Ada")])])
    assert math.isnan(scored.scores[0]) and scored.faults[0] == "the reward is None"
    assert scored.scores[1] == pytest.approx(1 / 3) and scored.faults[1] is None


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["Ada", "Rome"], 1.0),
        (["Rome", "Ada"], 1.0),
        (["Ada"], 2 / 3),
        (["in Rome"], 2 * (2 / 3) / 3),  # F1 of `in rome` and `rome`: precision 1/2, recall 1
        (["Ada", "Ada", "Rome"], 2 * 2 / 5),
        (["Ada", "Rome", "Paris"], 2 * 2 / 5),
        (["1900"], 0.0),  # in another sentence
        ([], 0.0),
    ],
)
def test_answers_are_compared_with_those_of_people(answers: list[str], expected: float) -> None:
    assert reward_of(join_answers(answers), FIRST) == pytest.approx(expected)
    assert reward_of(join_answers(answers), FIRST, answer_weight=0.25) == pytest.approx(expected / 4)


def test_rows_of_all_tasks_in_one_batch_keep_their_order() -> None:
    rows = [EXAMPLES[1], SECOND, PAIRS, EXAMPLES[0]]
    texts = ["a b", "1900", join_pairs([("a", "Ada")]), "a"]
    assert TaskScorer(WordsAndAnswer())(rows, texts).scores == pytest.approx([102, 1, 1 / 3, 1])


def test_examples_are_scored_as_before() -> None:
    texts = ["a b", "none", "c"]
    ours, plain = TaskScorer(WordsAndAnswer())(EXAMPLES, texts), RewardScorer(WordsAndAnswer())(EXAMPLES, texts)
    assert repr(ours) == repr(plain)


def test_the_floor_of_rewards() -> None:
    assert floor_of(load("rouge_l")) == 0.0
    assert floor_of(object()) == floor_of(SimpleNamespace(bounds=None)) == 0.0
    assert floor_of(WordsAndAnswer((-math.inf, 0.0))) is None
    assert pair_floor(WordsAndAnswer((-2.0, 0.0)), None) == -2.0
    with pytest.raises(InputError, match=r"scst\.pair_floor: the reward .* is never above 0"):
        pair_floor(WordsAndAnswer((-math.inf, 0.0)), None)
    with pytest.raises(InputError, match="compares with gold questions"):
        TaskScorer(load("rouge_l"))([PAIRS], [""])


def test_the_answer_of_a_valid_pair_is_as_the_text_has_it() -> None:
    ((question, answer),) = valid_pairs("in New\nYork", join_pairs([("Where?", "New York")]))
    assert (question, answer.text, answer.start) == ("Where?", "New\nYork", 3)
