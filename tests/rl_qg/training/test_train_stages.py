"""The training stage: checks before a model is loaded, adapters, the best model, the Hub."""

import importlib.util
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSeq2SeqLM

from rl_qg.commands.training import check_generator
from rl_qg.data.splits import Splits
from rl_qg.generation.prompts import LanguageCodes
from rl_qg.reports import model_card
from rl_qg.runtime.errors import InputError, NothingLearned
from rl_qg.runtime.files import read_json
from rl_qg.runtime.run_folder import TRAINED
from rl_qg.settings import CESettings, ModelSettings, PeftSettings, SCSTSettings, Settings, TrainingSettings
from rl_qg.training import stages as stage
from rl_qg.training.config import SelfCriticalConfig
from rl_qg.training.stages import check_training, train
from tests.rl_qg.training.word_task import WORDS, WordReward, data, lines
from tests.tiny_models import tiny_bart, word_tokenizer


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("start")
    tokenizer = word_tokenizer(WORDS)
    tiny_bart(len(tokenizer), seed=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def settings(folder: Path, start: str, **scst: Any) -> Settings:
    options: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-2, "max_new_tokens": 6}
    return Settings(
        output_dir=str(folder),
        model=ModelSettings(start, max_source_length=48, max_target_length=8),
        training=TrainingSettings(
            batch_size=8, logging_steps=1, eval_steps=1, eval_samples=4, save_steps=1, use_cpu=True, report_to="none"
        ),
        ce=CESettings(epochs=1, learning_rate=1e-2),
        scst=SCSTSettings(**{**options, **scst}),
    )


def splits() -> Splits:
    return Splits(data(16), [], data(4))


def test_every_setting_of_the_stage_reaches_the_trainer(tmp_path: Path, start: str) -> None:
    """Each value differs from its default, so a setting that is not passed on is noticed."""
    chosen = SCSTSettings(
        epochs=3.0, learning_rate=2e-5, warmup_fraction=0.2, baseline="leave_one_out", num_samples=3,
        reward_scale=2.0, normalise_advantage="batch", clip_advantage=1.5, schedule="cosine", lambda_max=0.5,
        lambda_warmup=0.3, ce_weight="rest", unlabelled_share=0.4,
        updates_per_rollout=2, clip_ratio=0.3, kl_coefficient=0.1, kl_target=0.02, kl_estimator="exact",
        watch_kl=False, on_bad_reward="stop", stop_on="bleu4", patience=5, max_new_tokens=9, min_new_tokens=2,
        temperature=0.9, top_k=7, top_p=0.8, no_repeat_ngram=3,
        pair_floor=-5.0, answer_weight=0.5, credit="to_go",
    )  # fmt: skip
    assert all(getattr(chosen, field.name) != field.default for field in fields(SCSTSettings))
    whole = replace(settings(tmp_path, start), scst=chosen)
    whole.training.gradient_checkpointing, whole.training.dataloader_num_workers = True, 3
    arguments = stage._arguments(whole)
    elsewhere = {"epochs": "scst_epochs", "learning_rate": "scst_learning_rate", "warmup_fraction": "scst_warmup"}
    for field in fields(SCSTSettings):
        assert getattr(arguments, elsewhere.get(field.name, field.name)) == getattr(chosen, field.name), field.name
    assert arguments.activation_checkpointing
    assert arguments.dataloader_num_workers == 3
    known = {field.name for field in fields(SelfCriticalConfig)}
    assert known >= stage.TRAINER_OPTIONS


def test_adapters_multiply_both_rates(tmp_path: Path, start: str) -> None:
    whole = replace(settings(tmp_path, start), peft=PeftSettings("lora", learning_rate_factor=4.0))
    arguments = stage._arguments(whole)
    assert (arguments.learning_rate, arguments.scst_learning_rate) == pytest.approx((4e-2, 4e-2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"baseline": "best"}, r"settings: scst.baseline=best is not one of greedy"),
        ({"top_p": 0.0, "patience": 0}, r"scst.patience=0 must be at least 1; scst.top_p=0.0 is not in"),
        ({"stop_on": "bleu5"}, r"scst.stop_on: bleu5 is not a measure .* bleu4"),
        ({"stop_on": "held_out"}, r"scst.stop_on=held_out: .*held_out=bartscore"),
    ],
)
def test_invalid_settings_are_errors_before_a_model_is_loaded(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        train(settings(tmp_path, "no/such/model", **change), splits(), WordReward())


def test_keys_without_effect_are_named(tmp_path: Path, start: str, caplog: pytest.LogCaptureFixture) -> None:
    plain = settings(tmp_path, start)
    check_generator(plain)
    assert "no effect" not in caplog.text
    scst = replace(plain.scst, reward_scale=3.0, normalise_advantage="running", patience=5, lambda_warmup=0.5)
    scst = replace(scst, clip_ratio=0.4, kl_coefficient=0.0, kl_estimator="exact")
    scst = replace(scst, pair_floor=0.0, answer_weight=2.0)
    chosen = replace(plain, scst=scst, ce=replace(plain.ce, early_stopping_patience=2), peft=PeftSettings(r=8))
    check_training(check_generator(chosen))  # both are called; each key is named once
    assert [record.message for record in caplog.records if "no effect" in record.message] == [
        "scst.reward_scale=3 has no effect without scst.normalise_advantage=none",
        "scst.patience=5 has no effect without scst.stop_on",
        "scst.lambda_warmup=0.5 has no effect without scst.schedule=warmup",
        "scst.clip_ratio=0.4 has no effect without scst.updates_per_rollout above 1",
        "scst.kl_estimator=exact has no effect without scst.kl_coefficient above 0",
        "scst.pair_floor=0.0 has no effect without model.task=pairs",
        "scst.answer_weight=2.0 has no effect without model.task=answers or multitask",
        "peft.r=8 has no effect without peft=lora",
        "ce.early_stopping_patience=2 has no effect without stages=ce",
    ]


def test_a_language_without_codes_has_no_effect_and_is_named(start: str, caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = word_tokenizer(WORDS)
    assert not LanguageCodes(tokenizer, "xx") and "language=xx has no effect: the model has no" in caplog.text


def test_a_model_that_has_learned_nothing_is_not_saved(tmp_path: Path, start: str) -> None:
    plain = settings(tmp_path, start)
    for name, ce in {"rate": {"learning_rate": 1e30}, "decay": {"weight_decay": 1e30}}.items():
        training = replace(plain.training, weight_decay=ce.pop("weight_decay", 0.0))
        changed = replace(
            plain, output_dir=str(tmp_path / name), ce=replace(plain.ce, epochs=4, **ce), training=training
        )
        for stages in ("both", "ce"):  # the same command, once more, does not save it either
            with pytest.raises(NothingLearned, match=r"no model is saved: lower the learning rate"):
                train(replace(changed, stages=stages), splits(), WordReward())
            assert not (tmp_path / name / "ce").exists() and not (tmp_path / name / TRAINED).exists()


def test_a_file_where_the_model_belongs_is_one_line(tmp_path: Path, start: str) -> None:
    (tmp_path / "ce").write_text("mine")
    with pytest.raises(InputError, match=r"output_dir=.*ce: cannot be written .*; name another folder"):
        train(replace(settings(tmp_path, start), stages="ce"), splits(), None)
    assert (tmp_path / "ce").read_text() == "mine"


def test_a_missing_tracker_is_one_error_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "wandb" else found(name))
    chosen = settings(tmp_path, "no/such/model")
    chosen.training.report_to = "wandb"
    with pytest.raises(InputError, match=r"wandb is not installed; install it: pip install wandb, or .*=none"):
        train(chosen, splits(), WordReward())
    chosen.training.report_to = "excel"
    with pytest.raises(InputError, match=r"report_to=excel is not one of .*, mlflow, .*, wandb, none"):
        check_training(chosen)
    chosen.training.report_to, chosen.training.hub_model = "none", "me/bart qg"
    with pytest.raises(InputError, match=r"training.hub_model=me/bart qg: not a name of a Hub repository"):
        check_training(chosen)


@pytest.mark.parametrize("tracker", ["mlflow", "trackio"])
def test_trackers_get_project_and_run_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str) -> None:
    found: Callable[[str], Any] = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if name == tracker else found(name))
    variables = ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "COMET_PROJECT_NAME")
    for variable in variables:
        monkeypatch.delenv(variable, raising=False)
    chosen = settings(tmp_path / "first", "no/such/model")
    chosen.training.report_to = tracker
    check_training(chosen)
    arguments = stage._arguments(chosen)
    assert (arguments.report_to, arguments.project, arguments.run_name) == ([tracker], "rl-qg", "first")
    assert [os.environ[variable] for variable in variables] == ["rl-qg"] * 3
    assert arguments.trackio_space_id is None  # nothing leaves the machine


@pytest.mark.filterwarnings("error::UserWarning")
def test_lora_saves_two_models_without_adapters(tmp_path: Path, start: str) -> None:
    pytest.importorskip("peft")
    chosen = replace(settings(tmp_path, start), peft=PeftSettings("lora", r=4))
    assert train(chosen, splits(), WordReward()) == tmp_path / "scst"
    ce, scst = (AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name).state_dict() for name in ("ce", "scst"))
    plain = AutoModelForSeq2SeqLM.from_pretrained(start).state_dict()
    assert ce.keys() == scst.keys() == plain.keys()
    moved = {name for name, value in scst.items() if not ce[name].equal(value)}
    assert {name.split(".")[-2] for name in moved} >= {"q_proj", "v_proj", "shared"}
    assert not any("fc1" in name or "layer_norm" in name for name in moved)
    checkpoint = load_file(tmp_path / "checkpoint-4" / "adapter_model.safetensors")
    assert all("lora_" in name or value.shape[0] == 1 for name, value in checkpoint.items())
    kept = json.loads((tmp_path / "trained.json").read_text())
    assert kept == {"model": "scst", "steps": 4, "reward": "word-reward"}


@pytest.mark.slow
def test_initial_adapters_depend_only_on_the_seed(tmp_path: Path, start: str) -> None:
    pytest.importorskip("peft")
    weights = []
    for name in ("a", "b"):
        torch.manual_seed(len(weights))
        chosen = replace(settings(tmp_path / name, start), peft=PeftSettings("lora", r=4), stages="ce")
        train(chosen, splits(), None)
        weights.append(AutoModelForSeq2SeqLM.from_pretrained(tmp_path / name / "ce").state_dict())
    assert all(weights[1][key].equal(value) for key, value in weights[0].items())


class BestAtThird(WordReward):
    """Held-out reward that is highest at the third evaluation, the first after the boundary."""

    signature = "best-at-third"

    def __init__(self) -> None:
        self.calls = 0

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.calls += 1
        return SimpleNamespace(scores=[5.0 if self.calls == 3 else 1.0] * len(questions))


@pytest.mark.slow
def test_the_best_model_by_the_held_out_measure_is_the_final_one(tmp_path: Path, start: str) -> None:
    chosen = settings(tmp_path, start, stop_on="held_out", patience=2, epochs=4)
    chosen.held_out = {"_target_": "best-at-third"}
    train(chosen, splits(), WordReward(), BestAtThird())
    trained = json.loads((tmp_path / "trained.json").read_text())
    assert trained["kept"] == {"measure": "held_out", "value": 5.0, "step": 3}
    assert (trained["steps"], trained["held_out"]) == (5, "best-at-third")
    assert not (tmp_path / "best").exists()
    checkpoints = {path.name for path in tmp_path.glob("checkpoint-*")}
    assert "checkpoint-4" in checkpoints
    assert "checkpoint-5" not in checkpoints  # a run killed now would stop at this step again
    final = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "scst").state_dict()
    last = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "checkpoint-4").state_dict()
    assert any(not last[name].equal(value) for name, value in final.items())
    other = settings(tmp_path / "other", start, epochs=4)  # the same run without early stopping
    other.training.save_total_limit = 9
    train(other, splits(), WordReward())
    expected = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "other" / "checkpoint-3").state_dict()
    assert all(expected[name].equal(value) for name, value in final.items())
    steps = [line["step"] for line in lines(tmp_path / "metrics.jsonl") if "eval_held_out" in line]
    assert steps == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_batches_made_by_other_processes_are_the_same(tmp_path: Path, start: str, share: float) -> None:
    """In the library's order, and in that of a schedule; evaluations read theirs so, too."""
    given = Splits(data(11), [replace(item, id=f"u-{item.id}") for item in data(9)], data(4))
    for workers in (0, 2):
        chosen = settings(tmp_path / str(workers), start, unlabelled_share=share)
        chosen.training.dataloader_num_workers = workers
        train(chosen, given, WordReward(), WordReward())
    ours, theirs = (load_file(tmp_path / name / "scst" / "model.safetensors") for name in ("0", "2"))
    assert all(theirs[name].equal(value) for name, value in ours.items())
    first, second = (lines(tmp_path / name / "metrics.jsonl") for name in ("0", "2"))
    assert [line.get("eval_loss") for line in first] == [line.get("eval_loss") for line in second]


@pytest.mark.parametrize("unlabelled", [0, 9])
def test_the_first_stage_alone_is_that_of_both(tmp_path: Path, unlabelled: int) -> None:
    """Bit for bit with dropout, in passes that do not end with an update; the losses fall, so the last model is best.
    Passages without questions decide the order of rows in both stages.
    """
    tokenizer = word_tokenizer(WORDS)
    for part in (tiny_bart(len(tokenizer), seed=1, dropout=0.1), tokenizer):
        part.save_pretrained(tmp_path / "start")
    given = Splits(data(11), [replace(item, id=f"u-{item.id}") for item in data(unlabelled)], data(4))
    for stages in ("both", "ce"):
        chosen = settings(tmp_path / stages, str(tmp_path / "start"))
        chosen = replace(chosen, stages=stages, ce=CESettings(epochs=3, learning_rate=3e-3))
        train(chosen, given, WordReward() if stages == "both" else None)
    both, alone = (
        [(line["step"], line["epoch"], line.get("loss"), line.get("eval_loss")) for line in logged]
        for logged in (lines(tmp_path / stages / "metrics.jsonl") for stages in ("both", "ce"))
    )
    assert alone == both[: len(alone)] and alone[-1][1] == 3
    losses = [loss for *_, loss in alone if loss is not None]
    assert min(losses) == losses[-1]
    weights = [(tmp_path / stages / "ce" / "model.safetensors").read_bytes() for stages in ("both", "ce")]
    assert weights[0] == weights[1]
    assert "unlabelled" not in json.loads((tmp_path / "ce" / "trained.json").read_text())


def test_the_first_stage_alone_says_where_its_model_is_not_the_last(
    tmp_path: Path, start: str, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = replace(settings(tmp_path, start), stages="ce", ce=CESettings(epochs=3, learning_rate=1.0))
    chosen.training.rate_schedule = "constant"
    with caplog.at_level("INFO"):
        train(chosen, splits(), None)
    losses = {line["step"]: line["eval_loss"] for line in lines(tmp_path / "metrics.jsonl") if "eval_loss" in line}
    best = min(losses, key=lambda step: losses[step])
    assert best < 6, losses
    assert f"the model of step {best} is kept, not that of the last step, 6: it has the lowest valid" in caplog.text


def test_a_complete_run_is_published_once(tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Path, str | None]] = []

    def publish(folder: Path, name: str | None) -> None:
        sent.append((folder, name))
        (folder / "ce" / "README.md").write_text("a card", encoding="utf-8")

    monkeypatch.setattr(model_card, "publish", publish)
    chosen = replace(settings(tmp_path, start), stages="ce")
    chosen.training.hub_model = "me/bart-qg"
    train(chosen, splits(), None)
    train(chosen, splits(), None)
    assert sent == [(tmp_path, "me/bart-qg")]


def averaged(folder: Path, start: str, count: int, **ce: Any) -> Settings:
    chosen = replace(settings(folder, start), stages="ce", ce=CESettings(epochs=3, learning_rate=1e-2, average=count))
    return replace(chosen, ce=replace(chosen.ce, **ce))


def test_the_model_is_the_mean_over_checkpoints(tmp_path: Path, start: str, caplog: pytest.LogCaptureFixture) -> None:
    """Six updates with a checkpoint each; the mean of the last three, counted by hand from their files."""
    train(averaged(tmp_path / "mean", start, 3), splits(), None)
    found = load_file(tmp_path / "mean" / "ce" / "model.safetensors")
    parts = [load_file(tmp_path / "mean" / f"checkpoint-{step}" / "model.safetensors") for step in (4, 5, 6)]
    for name, value in found.items():
        torch.testing.assert_close(value, torch.stack([part[name] for part in parts]).mean(0), rtol=1e-6, atol=1e-7)
    assert not found["model.decoder.layers.0.fc1.weight"].equal(parts[-1]["model.decoder.layers.0.fc1.weight"])
    assert read_json(tmp_path / "mean" / TRAINED)["averaged"] == [4, 5, 6]
    # A run that was killed before the model was saved gives the same one.
    (tmp_path / "mean" / TRAINED).unlink()
    shutil.rmtree(tmp_path / "mean" / "ce")
    train(averaged(tmp_path / "mean", start, 3), splits(), None)
    again = load_file(tmp_path / "mean" / "ce" / "model.safetensors")
    assert all(again[name].equal(value) for name, value in found.items())
    train(averaged(tmp_path / "few", start, 9), splits(), None)
    assert "6 checkpoints instead of 9" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": "both"}, "is not for stages=both"),
        ({"peft": PeftSettings("lora")}, "is not for peft.method=lora"),
        ({"ce": CESettings(average=2, early_stopping_patience=3)}, "is not for ce.early_stopping_patience=3"),
    ],
)
def test_a_mean_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=f"ce.average=2: {message}"):
        check_training(replace(averaged(tmp_path, "no/such/model", 2), **change))
