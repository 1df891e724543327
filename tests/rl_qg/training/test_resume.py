"""A stopped and resumed run equals an uninterrupted one bitwise, and writes no line twice."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from rl_qg.runtime.errors import Terminated
from rl_qg.runtime.trainer_base import last_checkpoint, train_until_preempted
from rl_qg.training.callbacks import HeldOutStopping
from rl_qg.training.trainer import SelfCriticalTrainer
from tests.rl_qg.training.word_task import WordReward, data, lines, trainer
from tests.tiny_models import tiny_bart


class StatefulReward(WordReward):
    """A reward whose scores depend on earlier calls, like rounding when a cache changes the batches."""

    calls = 0

    def score(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        result = super().score(*args, **kwargs)
        result.scores = [score + self.calls / 100 for score in result.scores]
        return result

    def reset_cache(self) -> None:
        self.calls = 0


def assert_equal_runs(
    whole: SelfCriticalTrainer,
    again: SelfCriticalTrainer,
    files: tuple[str, ...] = ("metrics.jsonl", "samples.jsonl"),
) -> None:
    for name, value in whole.model.state_dict().items():
        torch.testing.assert_close(again.model.state_dict()[name], value, rtol=0, atol=0)
    for name in files:
        both = [
            [
                {k: v for k, v in line.items() if "second" not in k and "runtime" not in k}
                for line in lines(Path(run.args.output_dir) / name)
            ]
            for run in (whole, again)
        ]
        assert both[0] == both[1] and both[0]


@pytest.mark.slow
@pytest.mark.parametrize("logging_steps", [1, 4])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, logging_steps: int) -> None:
    """Stopped in the self-critical stage: weights, λ, log and samples continue without gaps or repetitions, also if a
    log line spans the checkpoint; and the caches of the reward are the same.
    """
    options = {"save_strategy": "steps", "save_steps": 3, "train_dataset": data(32), "logging_steps": logging_steps}
    dropout = lambda seed: tiny_bart(25, seed=seed, dropout=0.1)  # noqa: E731
    whole = trainer(tmp_path / "whole", model=dropout(1), reward=StatefulReward(), **options)
    whole.train()
    cut = trainer(tmp_path / "cut", model=dropout(1), reward=StatefulReward(), **options)

    class Kill(Exception):
        pass

    update = cut.training_step

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if cut.state.global_step == 7:
            raise Kill
        return update(*args, **kwargs)

    cut.training_step = step  # type: ignore[method-assign]
    with pytest.raises(Kill):
        cut.train()
    with (tmp_path / "cut" / "metrics.jsonl").open("a") as stream:
        stream.write('{"step": 8, "torn')  # an incomplete line, as after a kill
    again = trainer(tmp_path / "cut", model=dropout(9), reward=StatefulReward(), **options)
    again.train(resume_from_checkpoint=last_checkpoint(tmp_path / "cut"))
    assert_equal_runs(whole, again)
    if logging_steps == 1:
        weights = [line["lambda"] for line in lines(tmp_path / "cut" / "metrics.jsonl")]
        assert weights == [0, 0, 0, 0, 0.25, 0.5, 0.75, 1]


@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 5])
def test_sigterm_saves_the_current_update_and_the_run_resumes_from_it(tmp_path: Path, at: int) -> None:
    options = {"save_strategy": "steps", "save_steps": 3, "train_dataset": data(32), "logging_steps": 4}
    whole = trainer(tmp_path / "whole", model=tiny_bart(25, seed=1, dropout=0.1), **options)
    train_until_preempted(whole, None)
    stopped = trainer(tmp_path / "stopped", model=tiny_bart(25, seed=1, dropout=0.1), **options)
    update = stopped.training_step

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if stopped.state.global_step == at:
            os.kill(os.getpid(), signal.SIGTERM)
        return update(*args, **kwargs)

    stopped.training_step = step  # type: ignore[method-assign]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated) as end:
        train_until_preempted(stopped, None)
    assert end.value.code == 143 and signal.getsignal(signal.SIGTERM) is before
    checkpoint = last_checkpoint(tmp_path / "stopped")
    assert checkpoint == str(tmp_path / "stopped" / f"checkpoint-{at + 1}")
    again = trainer(tmp_path / "stopped", model=tiny_bart(25, seed=9, dropout=0.1), **options)
    train_until_preempted(again, checkpoint)
    assert_equal_runs(whole, again)


@pytest.mark.slow
@pytest.mark.parametrize("epochs", [{"ce_epochs": 0.75, "scst_epochs": 0.5}, {}])
def test_a_complete_training_makes_no_further_update(tmp_path: Path, epochs: dict[str, float]) -> None:
    """Resumed from its last checkpoint, also if that is in the middle of an epoch."""
    options = {"save_strategy": "steps", "save_steps": 1, "train_dataset": data(32), **epochs}
    trainer(tmp_path, **options).train()
    before = lines(tmp_path / "metrics.jsonl")
    again = trainer(tmp_path, **options)
    again.train(resume_from_checkpoint=last_checkpoint(tmp_path))
    assert again.state.global_step == before[-1]["step"] == again.state.max_steps
    assert lines(tmp_path / "metrics.jsonl") == before


@pytest.mark.slow
def test_early_stopping_by_the_loss_is_the_same_after_a_kill(tmp_path: Path) -> None:
    def subject(name: str) -> SelfCriticalTrainer:
        result = trainer(
            tmp_path / name, train_dataset=data(32), eval_dataset=data(4), scst_epochs=0, ce_epochs=8,
            learning_rate=0.5, save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1,
            load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False,
        )  # fmt: skip
        result.add_callback(HeldOutStopping("loss", 2))
        return result

    whole = subject("whole")
    whole.train()
    losses = [line["eval_loss"] for line in lines(tmp_path / "whole" / "metrics.jsonl") if "eval_loss" in line]
    assert len(losses) < 32 and len(losses) - 1 - losses.index(min(losses)) == 2
    cut = subject("cut")
    update, stop = cut.training_step, len(losses) - 1

    def step(*args: Any, **kwargs: Any) -> torch.Tensor:
        if cut.state.global_step == stop:
            raise KeyboardInterrupt
        return update(*args, **kwargs)

    cut.training_step = step  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        cut.train()
    for _ in range(2):  # the second time the stage has stopped already
        again = subject("cut")
        again.train(resume_from_checkpoint=last_checkpoint(tmp_path / "cut"))
        assert_equal_runs(whole, again, files=("metrics.jsonl",))


def test_a_run_folder_with_another_name_keeps_its_best_model(tmp_path: Path) -> None:
    def subject(name: str) -> SelfCriticalTrainer:
        return trainer(
            tmp_path / name, train_dataset=data(32), eval_dataset=data(4), scst_epochs=0, ce_epochs=6,
            learning_rate=0.5, save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1,
            load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False,
        )  # fmt: skip

    whole = subject("whole")
    whole.train()
    assert whole.state.best_global_step < whole.state.global_step
    (tmp_path / "whole").rename(tmp_path / "moved")
    moved = subject("moved")
    moved.train(resume_from_checkpoint=last_checkpoint(tmp_path / "moved"))
    best = whole.model.state_dict()
    assert all(torch.equal(value, best[name]) for name, value in moved.model.state_dict().items())


def test_a_damaged_best_checkpoint_is_named(tmp_path: Path, caplog) -> None:
    subject = trainer(
        tmp_path, train_dataset=data(8), eval_dataset=data(4), max_steps=2, scst_epochs=0,
        save_strategy="steps", save_steps=1, eval_strategy="steps", eval_steps=1,
        load_best_model_at_end=True, metric_for_best_model="eval_loss", greater_is_better=False,
    )  # fmt: skip

    class Damage(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                (Path(state.best_model_checkpoint) / "model.safetensors").write_bytes(b"")

    subject.add_callback(Damage())
    subject.train()
    assert "model.safetensors: has 0 bytes instead of" in caplog.text


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_writes_no_line_twice(tmp_path: Path) -> None:
    options = {"train_dataset": data(16), "eval_dataset": data(4), "eval_on_start": True, "eval_strategy": "steps"}
    for _ in range(2):  # the second run finds the files of the first and starts from the beginning
        subject = trainer(tmp_path, max_steps=2, eval_steps=1, **options)
        subject.train()
    steps = [(line["step"], "eval_loss" in line) for line in lines(tmp_path / "metrics.jsonl")]
    assert steps == [(0, True), (1, False), (1, True), (2, False), (2, True)]
