"""A training that stops after some of its passes is bit for bit the beginning of the whole one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from rl_qg.data.examples import QAExample
from rl_qg.data.splits import Splits
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.held_out import held_out_measures
from rl_qg.settings import CESettings, ModelSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training.stages import train
from tests.rl_qg.training.word_task import WORDS, WordReward, data, lines
from tests.tiny_models import tiny_bart, word_tokenizer


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("start")
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer), seed=1, dropout=0.1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def settings(
    folder: Path, start: str, stop: float | None, *, stages: str = "ce", epochs: float = 3, **ce: Any
) -> Settings:
    return Settings(
        output_dir=str(folder),
        stages=stages,
        model=ModelSettings(start, max_source_length=48, max_target_length=8),
        training=TrainingSettings(
            batch_size=8, logging_steps=3, eval_steps=3, eval_samples=4, save_steps=100, use_cpu=True,
            report_to="none", stop_after=stop, rate_schedule=ce.pop("rate_schedule", "linear"),
        ),
        ce=CESettings(**{"epochs": epochs, "learning_rate": 1e-2, **ce}),
        scst=SCSTSettings(epochs=epochs, learning_rate=1e-2, max_new_tokens=6, kl_coefficient=0.1, kl_target=0.1),
    )  # fmt: skip


def splits() -> Splits:
    return Splits(data(16), [], data(4))  # two updates a pass


def assert_equal_models(first: Path, second: Path) -> None:
    weights = [load_file(folder / "model.safetensors") for folder in (first, second)]
    assert weights[0].keys() == weights[1].keys()
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=0, atol=0)


def differ(first: Path, second: Path) -> bool:
    return (first / "model.safetensors").read_bytes() != (second / "model.safetensors").read_bytes()


def greedy(folder: Path, examples: list[QAExample]) -> list[str]:
    return CandidateGenerator(folder, device=torch.device("cpu")).greedy(examples, max_new_tokens=6)


def without_times(path: Path) -> list[dict[str, Any]]:
    return [{key: value for key, value in line.items() if "second" not in key and "runtime" not in key}
            for line in lines(path)]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("stages", ["ce", "scst"])
def test_a_run_that_stops_and_goes_on_is_the_uninterrupted_one(tmp_path: Path, start: str, stages: str) -> None:
    """The last checkpoint of the plan is not the last evaluated one, and stops lie between log lines."""
    reward = WordReward() if stages == "scst" else None
    whole = train(settings(tmp_path / "whole", start, None, stages=stages), splits(), reward)
    for stop in (1, 2):
        stopped = train(settings(tmp_path / "cut", start, stop, stages=stages), splits(), reward)
        assert stopped == tmp_path / "cut" / f"epoch-{stop}"
        assert not (tmp_path / "cut" / "trained.json").exists()
    again = train(settings(tmp_path / "cut", start, None, stages=stages), splits(), reward)
    assert again == tmp_path / "cut" / stages
    assert_equal_models(whole, again)
    assert without_times(tmp_path / "cut" / "metrics.jsonl") == without_times(tmp_path / "whole" / "metrics.jsonl")
    assert differ(tmp_path / "cut" / "epoch-1", tmp_path / "cut" / "epoch-2")


@pytest.mark.slow
def test_a_stop_is_measured_once_and_a_kill_before_that_costs_no_update(tmp_path: Path, start: str) -> None:
    folder = train(settings(tmp_path, start, 1), splits(), None)
    record = json.loads((folder / "measures.json").read_text())
    assert (record["epochs"], record["planned"], record["step"], record["examples"]) == (1, 3, 2, 4)
    examples = data(4)
    questions = greedy(folder, examples)
    expected = held_out_measures(questions, [row.question for row in examples], [row.context for row in examples])
    assert {name: record["measures"][name] for name in expected} == pytest.approx(expected)
    assert record["measures"]["loss"] > 0 and "reward_greedy" not in record["measures"]
    before = (folder / "model.safetensors").read_bytes()
    (folder / "measures.json").unlink()  # as if it was killed while it measured
    train(settings(tmp_path, start, 1), splits(), None)
    assert json.loads((folder / "measures.json").read_text())["measures"]["bleu4"] == record["measures"]["bleu4"]
    assert (folder / "model.safetensors").read_bytes() == before
    (folder / "model.safetensors").write_bytes(b"kept")
    train(settings(tmp_path, start, 1), splits(), None)
    assert (folder / "model.safetensors").read_bytes() == b"kept"  # what is measured is left alone


@pytest.mark.slow
def test_with_a_constant_rate_a_longer_plan_begins_with_the_shorter_one(tmp_path: Path, start: str) -> None:
    constant: dict[str, Any] = {"rate_schedule": "constant", "warmup_fraction": 0.0}
    stops = [
        train(settings(tmp_path / str(plan), start, 2, epochs=plan, **constant), splits(), None) for plan in (2, 4)
    ]
    assert_equal_models(*stops)
    changed = train(settings(tmp_path / "linear", start, 2, epochs=4), splits(), None)
    assert differ(stops[0], changed)


@pytest.mark.slow
def test_label_smoothing_has_an_effect_from_the_first_epoch(tmp_path: Path, start: str) -> None:
    """The search of lmqg left it out of its first phase, so that it compared equal models."""
    none, some = (
        train(settings(tmp_path / str(value), start, 1, label_smoothing=value), splits(), None)
        for value in (0.0, 0.15)
    )
    assert differ(none, some)


@pytest.mark.slow
def test_a_held_out_reward_is_measured_after_cross_entropy(tmp_path: Path, start: str) -> None:
    folder = train(settings(tmp_path, start, 1), splits(), None, WordReward())
    record = json.loads((folder / "measures.json").read_text())
    examples = data(4)
    questions = greedy(folder, examples)
    expected = sum(question.split()[:2].count("w3") for question in questions) / len(questions)
    assert record["measures"]["held_out"] == expected and record["held_out"] == "word-reward"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stop": 4}, r"training.stop_after=4: 3 passes are planned"),
        ({"stop": 2, "early_stopping_patience": 2}, r"ce.early_stopping_patience=2 may end the stage before"),
    ],
)
def test_a_stop_that_cannot_be_is_an_error_before_a_model_is_loaded(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(settings(tmp_path, "no/such/model", change.pop("stop"), **change), splits(), None)
    wrong = settings(tmp_path, "no/such/model", 2)
    with pytest.raises(InputError, match=r"stop_after=2: scst\.stop_on=bleu4 may end"):
        stop_on = replace(wrong, stages="scst", scst=replace(wrong.scst, stop_on="bleu4"))
        train(stop_on, splits(), WordReward())


@pytest.mark.slow
def test_a_stop_is_after_passes_and_not_after_a_share_of_the_updates(tmp_path: Path, start: str) -> None:
    """One update makes a pass of the first stage, several one of the second."""
    rows = data(10)
    given = Splits(rows[:8], [replace(row, question="") for row in rows] * 4, data(4))
    own = settings(tmp_path, start, 2, stages="both", epochs=2)

    def measured(stop: float) -> tuple[Path, dict[str, Any]]:
        chosen = replace(own, training=replace(own.training, stop_after=stop))
        path = train(chosen, given, WordReward()) / "measures.json"
        return path, json.loads(path.read_text())

    _, at_boundary = measured(2)
    assert (at_boundary["epochs"], at_boundary["step"]) == (2, 2)
    path, later = measured(3)
    with pytest.raises(InputError, match=r"training\.stop_after=2\.5: the run has made \d+ updates"):
        measured(2.5)
    path.unlink()  # as a kill between the checkpoint and the measures leaves it
    _, again = measured(3)
    assert again["step"] == later["step"] > 3 and again["measures"].keys() == later["measures"].keys()
