"""Rewards of the texts that generators of sets write."""

import math

import pytest

from rewards import CoverageSetReward, MetricInputError, MultiSetReward, load
from rl_qg.data.examples import Answer, QAExample
from rl_qg.generation.sets import join_questions, set_rows
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import RewardScorer
from rl_qg.scoring.task_scorers import SetScorer, scorer_of
from tests.rl_qg.training.word_task import WordReward

CONTEXT = "Ida wrote the novel. It was printed in 1932."
ASKED = {"Who wrote the novel?": "Ida", "When was it printed?": "1932"}
EXAMPLES = [
    QAExample(f"e{number}", "", CONTEXT, question, (Answer(answer, CONTEXT.index(answer)),))
    for number, (question, answer) in enumerate(ASKED.items())
]


def rows(granularity="paragraph", mode="one2many"):
    return set_rows(granularity, mode, EXAMPLES)


def test_a_text_is_a_set_and_the_sources_are_its_references() -> None:
    (row,) = rows()
    text = join_questions(["Who wrote the novel?", "", "who wrote the novel"])
    (whole,) = SetScorer(MultiSetReward())([row], [row.question]).scores
    assert whole == 1
    scored = SetScorer(MultiSetReward(), credit="marginal")([row] * 3, [text, "", text])
    assert scored.scores == pytest.approx([2 / 5, 0, 2 / 5])
    assert scored.credits is not None
    assert scored.credits[0] == scored.credits[2] == pytest.approx([2 / 5 - 2 / 4] * 3)
    assert scored.credits[1] == [] and scored.faults == [None] * 3
    assert scored.parts["written"] == [3, 0, 3] and scored.parts["valid"][0] == pytest.approx(1 / 3)
    assert scored.parts["recall"] == pytest.approx([1 / 2, 0, 1 / 2])


def test_without_credit_there_are_no_credits() -> None:
    assert SetScorer(MultiSetReward())(rows(), [rows()[0].question]).credits is None


def test_a_row_of_a_sentence_is_about_that_sentence() -> None:
    first, second = rows("sentence")
    scorer = SetScorer(CoverageSetReward(per_sentence=1))
    texts = ["Who wrote the novel?", "When was it printed?"]
    assert scorer([first, second], texts).parts["coverage"] == [1, 1]
    assert scorer([first, second], texts[::-1]).parts["coverage"] == [0, 0]
    assert scorer(rows(), texts[:1]).parts["coverage"] == [0.5]


def test_a_row_of_one_question_is_compared_with_all_of_its_unit() -> None:
    first, second = rows(mode="one2one")
    assert SetScorer(MultiSetReward())([first, second], list(ASKED)).scores == pytest.approx([2 / 3, 2 / 3])


def test_a_reward_that_fails_on_one_text_leaves_it_without_a_score() -> None:
    class Broken(MultiSetReward):
        def result(self, predictions, *columns, **named):
            if any("boom" in text for group in predictions for text in group):
                raise ValueError("no")
            return super().result(predictions, *columns, **named)

    (row,) = rows()
    scored = SetScorer(Broken(), credit="to_go")([row] * 2, ["boom", row.question])
    assert math.isnan(scored.scores[0]) and scored.scores[1] == 1
    assert scored.credits == [[], pytest.approx([1, 1 - 2 / 3])] and "no" in str(scored.faults[0])


def test_each_kind_of_reward_has_its_scorer() -> None:
    with pytest.raises(InputError, match="scores single questions, and the model writes sets of them; use multi_set"):
        SetScorer(WordReward())
    with pytest.raises(InputError, match="scores single questions"):
        SetScorer(load("rouge_l"))
    with pytest.raises(MetricInputError, match="multi_set: scores sets of questions, and single ones are asked for"):
        RewardScorer(load("multi_set"))
    with pytest.raises(InputError, match=r"is no subclass of rewards\.SetReward"):
        SetScorer(type("Loose", (), {"score_sets": lambda *columns: []})())
    options = {"credit": "whole", "pair_floor": None, "answer_weight": 1.0}
    assert isinstance(scorer_of(load("question_set"), "sets", **options), SetScorer)  # type: ignore[arg-type]
    assert type(scorer_of(WordReward(), "questions", **options)) is RewardScorer  # type: ignore[arg-type]
