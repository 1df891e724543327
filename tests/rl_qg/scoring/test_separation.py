"""The separation test of a reward: shares of pairs, their intervals, and what is said about them."""

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rewards import load
from rl_qg.commands import training as training_commands
from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, passage_hash, write_squad
from rl_qg.data.splits import Splits
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.reward_scorer import RewardScorer
from rl_qg.scoring.separation import _facts, check_reward, doubts, separation, told, write_separation
from rl_qg.scoring.wrong_questions import KINDS, wrong_questions
from rl_qg.settings import ModelSettings, Settings
from rl_qg.stats.intervals import PassageDraws, interval_ends, mean_interval
from rl_qg.training.stages import is_checked_at_boundary
from tests.questions import example
from tests.toy_metrics import WordCount

EXAMPLES = list(synthetic_examples(15, seed=5))
ORDINARY = [
    example("Faust is a play by Goethe.", "Goethe", "Who wrote the play Faust?", id="a"),
    example("Paris lies on the Seine.", "Seine", "Which river runs through Paris?", id="b"),
]


class Told:
    """A reward that any function of question and answer gives."""

    needs = frozenset({"answers"})
    signature = "told"

    def __init__(self, rule: Callable[[str, str], float | None]) -> None:
        self.rule = rule

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[self.rule(*pair) for pair in zip(questions, answers, strict=True)])


def knowing(examples: list[QAExample]) -> Told:
    pairs = {(item.question, item.answers[0].text) for item in examples}
    return Told(lambda question, answer: float((question, answer) in pairs))


class Constant:
    """For the command line: one reward for all questions."""

    needs = frozenset[str]()
    signature = "constant<b>"

    def score(self, questions, contexts=None, *, answers=None, references=None) -> Any:
        return SimpleNamespace(scores=[0.25] * len(questions))


def test_a_reward_that_knows_orders_all_pairs_and_a_constant_one_none() -> None:
    known = separation(knowing(EXAMPLES), EXAMPLES)
    assert set(known["pairs"]) == set(KINDS)
    for share in (*known["pairs"].values(), known["auc"]):
        assert share["auc"] == share["high"] == 1.0
        assert 0.5 < share["low"] < 1.0  # the exact binomial end for so many passages
    assert known["mean"] == 1.0 and known["pairs"]["shuffled"]["mean"] == 0.0 and doubts(known) is None
    constant = separation(Told(lambda question, answer: 3.0), EXAMPLES)
    for share in (*constant["pairs"].values(), constant["auc"]):
        assert share["auc"] == share["low"] == share["high"] == 0.5
    line = doubts(constant)
    assert line is not None and "another answer's question" in line and "all kinds together" in line
    wrong_way = doubts(separation(Told(lambda question, answer: -knowing(EXAMPLES).rule(question, answer)), EXAMPLES))
    assert wrong_way is not None and "0.000" in wrong_way and "cannot tell" not in wrong_way
    assert wrong_way.startswith("the reward prefers the wrong one to the human question: another answer's question")


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.51, 0.7, "above"),
        (0.5, 0.7, "cannot tell"),
        (0.3, 0.5, "cannot tell"),
        (None, None, "cannot tell"),
        (0.05, 0.13, "prefers the wrong one"),
    ],
)
def test_an_interval_says_one_of_three_things(low: float | None, high: float | None, verdict: str) -> None:
    assert told(low, high) == verdict


def test_the_line_says_what_it_cannot_tell_and_what_it_prefers() -> None:
    share = {"auc": 0.52, "low": 0.45, "high": 0.59, "n": 90}
    wrong = {"auc": 0.09, "low": 0.05, "high": 0.13, "n": 80}
    record = {"passages": 10, "pairs": {"other_answer": wrong, "wrong_entity": share}, "auc": {**share, "low": 0.51}}
    assert doubts(record) == (
        "the reward cannot tell the human question from: the question with another name (0.520 [0.450, 0.590] of 90 "
        "pairs in order); the reward prefers the wrong one to the human question: another answer's question of the "
        "same passage (0.090 [0.050, 0.130] of 80 pairs in order)"
    )


def test_shares_are_those_of_a_count_by_hand() -> None:
    """5 words each: the fragment has 2, the template 5, the repeated one 8, the sentences 6 and 5."""
    record = separation(WordCount(), ORDINARY)
    shares = {kind: share["auc"] for kind, share in record["pairs"].items()}
    expected = {
        "other_passage": 0.5,
        "shuffled": 0.5,
        "fragment": 1.0,
        "repeated": 0.0,
        "copied": 0.25,
        "template": 0.5,
    }
    assert {kind: shares[kind] for kind in expected} == expected
    assert record["pairs"]["copied"]["mean"] == 5.5 and record["mean"] == 5.0
    assert "other_answer" not in shares and "wrong_attribute" not in shares  # each passage has one question
    counted = [share["auc"] for share in record["pairs"].values() for _ in range(share["n"])]
    assert record["auc"]["auc"] == pytest.approx(sum(counted) / len(counted))
    assert record["auc"]["n"] == len(counted) == sum(share["n"] for share in record["pairs"].values())
    assert (record["examples"], record["passages"], record["failed"]) == (2, 2, 0)


def test_intervals_resample_passages_and_failures_are_left_out() -> None:
    rule = Told(lambda question, answer: None if "founded" in question else len(question) % 9)
    record = separation(rule, EXAMPLES, seed=3, resamples=500)
    wrong = wrong_questions(EXAMPLES, [], 3)
    draws = PassageDraws([passage_hash(item.context) for item in EXAMPLES], resamples=500)
    everything = []
    failed = sum("founded" in item.question for item in EXAMPLES)
    for kind, texts in wrong.items():
        outcomes = []
        for item, text in zip(EXAMPLES, texts, strict=True):
            failed += text is not None and "founded" in text
            if text is None or "founded" in item.question + text:
                outcomes.append(np.nan)
                continue
            a, b = len(item.question) % 9, len(text) % 9
            outcomes.append(1.0 if a > b else 0.5 if a == b else 0.0)
        interval = mean_interval(outcomes, draws)
        share = record["pairs"][kind]
        assert (share["auc"], share["low"], share["high"], share["n"]) == (
            pytest.approx(interval.mean),
            pytest.approx(max(0.0, interval.low)),
            pytest.approx(min(1.0, interval.high)),
            interval.n,
        )
        everything.append(outcomes)
    table = np.array(everything)
    won, known = np.nansum(table, axis=0), (~np.isnan(table)).sum(axis=0)
    sums = draws.sums(np.stack([won, known], axis=1))
    sizes = np.bincount(draws.passage_index, weights=known)
    low, high = interval_ends(sums[:, 0] / sums[:, 1], sizes.sum() ** 2 / (sizes**2).sum())
    assert (record["auc"]["low"], record["auc"]["high"]) == (pytest.approx(low), pytest.approx(high))
    assert record["failed"] == failed > 0
    json.dumps(record, allow_nan=False)


def test_what_cannot_be_tested_is_one_line() -> None:
    with pytest.raises(InputError, match="no example with a question"):
        separation(Constant(), [replace(item, question="") for item in EXAMPLES])
    with pytest.raises(InputError, match="compares with the human question"):
        separation(WordCount(needs=("references",)), EXAMPLES)
    with pytest.raises(InputError, match="fails on every question"):
        separation(Told(lambda question, answer: None), EXAMPLES)


def test_one_passage_has_shares_without_intervals_and_no_doubt() -> None:
    one = [item for item in EXAMPLES if item.context == EXAMPLES[0].context]
    record = separation(Constant(), one)
    assert record["auc"]["low"] is None and record["auc"]["auc"] == 0.5 and doubts(record) is None
    few = [item for item in EXAMPLES if int(item.id.split("-")[2]) < 9]
    assert doubts(separation(Constant(), few)) is None  # 9 passages say nothing either way
    more = [item for item in EXAMPLES if int(item.id.split("-")[2]) < 10]
    assert doubts(separation(Constant(), more)) is not None


def test_before_training_it_is_written_once_and_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    check_reward(Constant(), EXAMPLES, tmp_path, count=0, seed=0)
    check_reward(WordCount(needs=("references",)), EXAMPLES, tmp_path, count=9, seed=0)
    check_reward(Told(lambda question, answer: None), EXAMPLES, tmp_path, count=9, seed=0)
    assert not list(tmp_path.iterdir()) and "fails on every question" in caplog.text
    check_reward(Constant(), EXAMPLES, tmp_path, count=40, seed=0)
    record = json.loads((tmp_path / "separation.json").read_text())
    assert record["examples"] == 40 and record["passages"] >= 10 and record["auc"]["auc"] == 0.5
    assert "the reward cannot tell the human question from: another answer's question" in caplog.text
    check_reward(Constant(), EXAMPLES, tmp_path, count=9, seed=0)
    assert json.loads((tmp_path / "separation.json").read_text()) == record
    check_reward(knowing(EXAMPLES), EXAMPLES, tmp_path, count=9, seed=0)  # the file is about another reward
    assert json.loads((tmp_path / "separation.json").read_text())["examples"] == 9
    assert f"evaluation.check_reward=9: 9 of {len(EXAMPLES)} validation questions test the reward" in caplog.messages


@pytest.mark.parametrize("trained", [False, True])
def test_training_tests_the_reward_first(trained: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    monkeypatch.setattr("rl_qg.training.stages.train", lambda *_: order.append("train") or tmp_path)
    monkeypatch.setattr("rl_qg.scoring.separation.check_reward", lambda *_, **options: order.append(options["count"]))
    settings = SimpleNamespace(
        stages="both",
        model=SimpleNamespace(path="ce"),
        algorithm="scst",
        task="questions",
        scst=SimpleNamespace(credit="whole"),
        training=SimpleNamespace(stop_after=None),
        evaluation=SimpleNamespace(check_reward=7),
        data=SimpleNamespace(seed=1),
    )
    alone: Any = {"is_main_process": True, "num_processes": 1, "device": "cpu"}
    state = SimpleNamespace(**alone, wait_for_everyone=lambda: None)
    splits = SimpleNamespace(gold=[], validation=EXAMPLES)
    if trained:
        (tmp_path / "trained.json").touch()
    run: Any = SimpleNamespace(
        settings=settings, state=state, splits=splits, folder=tmp_path, reward=Constant, held_out=lambda: None
    )
    training_commands.train_generator(run)
    run.settings.stages = "ce"
    training_commands.train_generator(run)
    assert order == (["train", "train"] if trained else [7, "train", "train"])
    order.clear()
    monkeypatch.setattr("rl_qg.training.stages.check_on_samples", lambda *given: order.append(given[3]))
    run.settings.stages = "scst"
    training_commands.train_generator(run)
    assert order == (["train"] if trained else ["ce", "train"])  # the given model's own questions


@pytest.mark.parametrize(
    ("changes", "processes", "deepspeed", "again"),
    [
        ({}, 1, "false", True),
        ({}, 1, "true", False),
        ({}, 2, "false", False),
        ({"stages": "scst"}, 1, "false", False),
        ({"algorithm": "best_of_n"}, 1, "false", False),
        ({"model": ModelSettings(path="m", task="pairs")}, 1, "false", False),
    ],
)
def test_a_doubt_waits_for_the_boundary_only_where_the_reward_is_tested_there(
    changes: dict[str, Any],
    processes: int,
    deepspeed: str,
    again: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", deepspeed)
    settings = replace(Settings(), **changes)
    assert is_checked_at_boundary(settings, processes) is again
    seen = []
    monkeypatch.setattr("rl_qg.training.stages.check_on_samples", lambda *_: seen.append("samples"))
    monkeypatch.setattr("rl_qg.scoring.separation.check_reward", lambda *_, **options: seen.append(options["again"]))
    state = SimpleNamespace(num_processes=processes, device="cpu")
    run: Any = SimpleNamespace(settings=settings, state=state, splits=Splits([], [], EXAMPLES), folder=tmp_path)
    training_commands._check_reward(run, Constant())
    assert seen == (["samples"] if "stages" in changes else [again])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    write_squad(tmp_path / "dev.json", EXAMPLES)
    return tmp_path


TOY = ["reward._target_=tests.rl_qg.scoring.test_separation.Constant", "training.use_cpu=true"]


def test_the_command_writes_record_page_and_table(files: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    data = [f"data.train={files / 'no.json'}", f"data.validation={files / 'dev.json'}"]
    output = files / "out"
    run_command("separate", [*TOY, "reward=custom", *data, f"output={output}", "max_examples=20", "resamples=100"])
    assert f"separate.max_examples=20: 20 of {len(EXAMPLES)} questions are used" in caplog.messages
    record = json.loads((output / "separation.json").read_text())
    assert record["reward"] == "constant<b>" and record["examples"] == 20 and record["auc"]["auc"] == 0.5
    page = (output / "separation.html").read_text()
    assert "constant&lt;b&gt;" in page and "constant<b>" not in page and KINDS["fragment"] in page
    lines = (output / "tables" / "separation.csv").read_text().splitlines()
    assert len(lines) == 2 + len(KINDS) and lines[0].startswith("kind,auc")
    assert "all kinds together" in caplog.text and "done: open" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "output has no value"),
        (["output=out", "max_examples=0"], r"separate\.max_examples=0 must be at least 1"),
        (["output=dev.json"], "output=dev.json: cannot be a folder"),
        (["output=out", "data.validation=none.json"], "none.json"),
        (["output=out", "data.validation=plain.json"], "question"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], message: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    write_squad(files / "plain.json", [replace(item, question="") for item in EXAMPLES])
    data = ["data.train=dev.json", "data.validation=dev.json"]
    with pytest.raises(InputError, match=message):
        run_command("separate", ["reward=custom", *TOY, *data, *arguments])


def test_text_of_the_data_is_escaped_on_the_page(tmp_path: Path) -> None:
    evil = [replace(item, question=f"<script>{item.question}") for item in ORDINARY]
    write_separation(tmp_path, separation(Constant(), evil))
    page = (tmp_path / "separation.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_questions_without_a_reward_are_named_where_there_are_some() -> None:
    record = {"examples": 30, "passages": 5, "seed": 0}
    assert not any("no reward" in fact for fact in _facts({**record, "failed": 0}))
    assert "2 questions have no reward and are left out" in _facts({**record, "failed": 2})


def test_a_reward_that_reads_titles_gets_those_of_the_passages() -> None:
    asked = [replace(item, title=title) for item, title in zip(ORDINARY, ("Hamlet", "Rome"), strict=True)]
    scorer = RewardScorer(load("faithfulness", titles=True))
    assert scorer(asked, ["Who wrote Hamlet?", "Who wrote Hamlet?"]).scores == [1.0, 0.0]
