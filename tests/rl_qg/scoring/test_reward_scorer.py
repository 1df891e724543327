"""Scoring by rewards that fail, compared with rewards that do not."""

import math
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from rewards.contract import scored
from rl_qg.data.examples import QAExample
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import RewardScorer, signature_of
from rl_qg.training.set_credit import ScoredRollout
from rl_qg.training.step_metrics import reward_metrics, sample_rows
from tests.questions import example

HERE = Path(__file__).relative_to(Path.cwd()) if Path(__file__).is_relative_to(Path.cwd()) else __file__
EXAMPLES = [example(f"w{k} is here", f"w{k}", "what is here", id=f"e{k}") for k in range(4)]


class Length:
    """The number of characters; a question may make it fail."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.calls.append(list(questions))
        if "raise" in questions:
            raise RuntimeError("too hard")
        scores = [None if text == "none" else math.inf if text == "inf" else float(len(text)) for text in questions]
        parts = {"twice": [2.0 * len(text) for text in questions], "list": [[1]] * len(questions)}
        return SimpleNamespace(scores=scores, parts=parts)


def about(questions: list[str]) -> list[QAExample]:
    return [EXAMPLES[k % 4] for k in range(len(questions))]


def test_scores_and_parts_come_in_the_order_of_the_questions() -> None:
    scored = RewardScorer(Length())(about(["a", "bbb", "cc"]), ["a", "bbb", "cc"])
    assert scored.scores == [1, 3, 2]
    assert scored.parts == {"twice": [2, 6, 4]}  # parts that are no number per question are left out
    assert scored.faults == [None] * 3


def test_the_same_question_about_the_same_example_is_scored_once() -> None:
    reward = Length()
    examples = [EXAMPLES[0], EXAMPLES[1], EXAMPLES[0], EXAMPLES[0]]
    scored = RewardScorer(reward)(examples, ["aa", "aa", "aa", "b"])
    assert scored.scores == [2, 2, 2, 1]
    assert reward.calls == [["aa", "aa", "b"]]


def test_a_reward_that_raises_costs_only_the_question_that_made_it_raise() -> None:
    scored = RewardScorer(Length())(about(["a", "raise", "cc", "none", "inf"]), ["a", "raise", "cc", "none", "inf"])
    assert [score for score in scored.scores if math.isfinite(score)] == [1, 2]
    assert math.isnan(scored.parts["twice"][1]) and scored.parts["twice"][2] == 4
    raised = f"RuntimeError: too hard ({HERE}, line 35)"
    assert scored.faults == [None, raised, None, "the reward is None", "the reward is inf"]


def test_examples_are_distinguished_by_more_than_their_id() -> None:
    class ContextLength(Length):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[float(len(text)) for text in contexts])

    twins = [example("w1 is here", "w1", "?", id="x"), example("w1 is here too", "w1", "?", id="x")]
    assert RewardScorer(ContextLength())(twins, ["a", "a"]).scores == [10, 14]


def test_a_part_that_one_question_lacks_is_kept_for_the_others() -> None:
    class Gap(Length):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[1.0, 1.0], parts={"grg": [0.5, None]})

    parts = RewardScorer(Gap())(about(["a", "b"]), ["a", "b"]).parts
    assert parts["grg"][0] == 0.5 and math.isnan(parts["grg"][1])


def test_a_batch_that_fails_where_its_questions_do_not_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class OneAtATime(Length):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            if len(questions) > 1:
                raise TypeError("too many")
            return super().score(questions, contexts)

    scorer = RewardScorer(OneAtATime())
    for _ in range(2):
        assert scorer(about(["a", "bb"]), ["a", "bb"]).scores == [1, 2]
    assert len(re.findall(r"failed on 2 questions \(TypeError: too many \(.*, line \d+\)\)", caplog.text)) == 1


def test_a_reward_without_needs_gets_the_questions_that_there_are_whatever_is_beside_them() -> None:
    class Given:
        calls: ClassVar[list[Any]] = []

        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            self.calls.append((list(questions), references))
            return [0.0 if references is None else len(references[row][0]) for row in range(len(questions))]

    asked, silent = EXAMPLES[0], replace(EXAMPLES[1], question="")
    scorer = RewardScorer(Given())
    mixed = scorer([silent, asked, silent], ["a", "b", "c"])
    assert mixed.scores == [0.0, len(asked.question), 0.0]
    assert [scorer([item], [text]).scores[0] for item, text in ((silent, "a"), (asked, "b"))] == mixed.scores[:2]
    assert Given.calls[:2] == [(["b"], [[asked.question]]), (["a", "c"], None)]
    assert RewardScorer(Given(), references=False)([asked], ["b"]).scores == [0.0]


@pytest.mark.slow
def test_a_reward_that_runs_out_of_memory_gets_fewer_questions_and_returns_the_same(caplog) -> None:
    class Small(Length):
        sizes: ClassVar[list[int]] = []

        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            self.sizes.append(len(questions))
            if len(questions) > 3:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
            return super().score(questions, contexts)

    texts = ["a" * (1 + number % 6) for number in range(11)]
    items = [replace(item, id=f"e{number}") for number, item in enumerate(about(texts))]
    scorer = RewardScorer(Small())
    assert scorer(items, texts) == RewardScorer(Length())(items, texts)
    Small.sizes.clear()
    assert scorer(items, texts).scores == [len(text) for text in texts] and max(Small.sizes) == 2
    assert caplog.text.count("do not fit into memory") == 1


def test_a_reward_of_the_wrong_length_is_refused() -> None:
    class Short(Length):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[0.0])

    with pytest.raises(InputError, match="returned 1 scores for 3 questions"):
        RewardScorer(Short())(about(["a", "b", "c"]), ["a", "b", "c"])


def test_a_reward_without_signature_is_another_one_when_its_code_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (file := tmp_path / "reward_of_mine.py").write_text("class Mine: pass")
    reward = import_module("reward_of_mine").Mine()
    first = signature_of(reward)
    file.write_text("class Mine: 'changed'")
    assert first.startswith("Mine|code:") and signature_of(reward) != first
    assert signature_of(SimpleNamespace(signature="own")) == "own"  # type: ignore[arg-type]


def test_a_score_that_float32_does_not_hold_is_a_fault() -> None:
    class Huge(Length):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return [1e300 if question == "b" else -3e38 for question in questions]

    batch = RewardScorer(Huge())(about(["a", "b"]), ["a", "b"])
    assert batch.faults == [None, "the reward is inf"]


def test_a_reward_may_change_the_lists_that_it_is_given() -> None:
    class Clearing(Length):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            scores = super().score(questions, contexts).scores
            questions.clear(), contexts.clear(), answers.clear()
            return scores

    questions, contexts = ["a", "bb"], ["c", "d"]
    assert scored(Clearing(), questions, contexts, answers=["e", "f"]).scores == [1, 2]
    assert (questions, contexts) == (["a", "bb"], ["c", "d"])


def test_a_rollout_divides_scores_into_sampled_and_greedy() -> None:
    texts = ["a", "bb", "none", "dddd"]
    examples = [EXAMPLES[0], EXAMPLES[0], EXAMPLES[1], EXAMPLES[1]]
    scored = RewardScorer(Length())([*examples, *EXAMPLES[:2]], [*texts, "xyz", "xy"])
    rollout = ScoredRollout.of(scored, texts, ["xyz", "xy"], copies=2)
    assert rollout.rewards[0].tolist() == [1, 2] and math.isnan(rollout.rewards[1, 0]) and rollout.rewards[1, 1] == 4
    assert rollout.greedy is not None and rollout.greedy.tolist() == [3, 2]
    measures = reward_metrics(rollout, torch.tensor([[-2.0, -1.0], [0.0, 2.0]]))
    means = {name: float(total) / float(weight) for name, (total, weight) in measures.items()}
    assert means["reward_sample"] == pytest.approx(7 / 3)
    assert means["reward_greedy"] == pytest.approx((3 + 3 + 2) / 3)  # once for each sample it is compared with
    assert means["advantage"] == pytest.approx(means["reward_sample"] - means["reward_greedy"])
    assert means["advantage_abs"] == pytest.approx(5 / 3)
    assert means["rewards_failed"] == 0.25
    rows = sample_rows(rollout, EXAMPLES[:2])
    assert rows[0] == {
        **{"id": "e0", "sample": "a", "reward_sample": 1.0, "greedy": "xyz", "reward_greedy": 3.0},
        "twice_sample": 2.0,
    }
    assert rows[1]["reward_sample"] is None
