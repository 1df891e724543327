"""Callbacks of training: their effect on weights, files and the length of a run."""

import json
import math
import shutil
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState

from rl_qg.runtime.errors import InputError, NothingLearned
from rl_qg.runtime.trainer_base import FiniteUpdates
from tests.rl_qg.training.word_task import WordReward, data, lines, trainer
from tests.tiny_models import tiny_bart


class Failing(WordReward):
    """A reward that fails at step 2 in one of several ways."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.rollouts = 0

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        scores: list[Any] = super().score(questions, contexts).scores
        self.rollouts += len(questions) > 1
        if self.rollouts == 2 and self.how == "raise":
            raise RuntimeError(f"cannot score {questions[0]!r}")
        if self.rollouts == 2:
            scores[0] = {"nan": math.nan, "none": None, "inf": math.inf}[self.how]
        return SimpleNamespace(scores=scores)


def state_of(subject: Any) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in subject.model.state_dict().items()}


@pytest.mark.parametrize("how", ["nan", "none", "inf", "raise"])
def test_a_failed_reward_is_logged_counted_and_does_not_reach_the_weights(tmp_path: Path, how: str) -> None:
    subject = trainer(tmp_path, ce_epochs=0, scst_epochs=2, reward=Failing(how), eval_dataset=None)
    subject.train()
    assert all(torch.isfinite(value).all() for value in state_of(subject).values())
    failed = [row for row in lines(tmp_path / "samples.jsonl") if "fault" in row]
    assert failed and {row["step"] for row in failed} == {2}
    assert all(row["id"].startswith("e") and isinstance(row["sample"], str) for row in failed)
    logged = lines(tmp_path / "metrics.jsonl")
    assert [line["rewards_failed"] > 0 for line in logged] == [False, True, False, False]
    assert all((line["reward_sample"] is None) == (line["rewards_failed"] == 1) for line in logged)


@pytest.mark.parametrize("how", ["nan", "raise"])
def test_a_run_can_stop_at_a_failed_reward(tmp_path: Path, how: str) -> None:
    subject = trainer(tmp_path, ce_epochs=0, scst_epochs=2, reward=Failing(how), on_bad_reward="stop")
    with pytest.raises(InputError, match=r"step 2, example e\d+: no reward for '.*': .*correct the reward, or skip"):
        subject.train()
    assert any("fault" in row for row in lines(tmp_path / "samples.jsonl"))  # the text is saved before the run ends


@pytest.mark.slow
def test_a_step_in_which_every_reward_fails_is_plain_cross_entropy(tmp_path: Path) -> None:
    class Broken(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            raise RuntimeError("no model")

    class Zero(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[0.0] * len(questions))

    ends = []
    for name, reward in {"broken": Broken(), "zero": Zero()}.items():
        subject = trainer(tmp_path / name, ce_epochs=0, reward=reward, eval_dataset=None)
        subject.train()
        ends.append(state_of(subject))
    assert all(ends[0][name].equal(ends[1][name]) for name in ends[0])


def test_a_run_whose_first_rollouts_have_no_reward_ends(tmp_path: Path) -> None:
    class Silent(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return [None] * len(questions)

    subject = trainer(tmp_path, ce_epochs=0, scst_epochs=3, reward=Silent(), eval_dataset=None)
    with pytest.raises(
        InputError, match=r"none of the first 64 sampled questions has a reward \(the reward is None\)"
    ):
        subject.train()
    assert subject.state.global_step == 3 and not (tmp_path / "scst").exists()


def test_a_reward_that_works_at_first_may_fail_later(tmp_path: Path) -> None:
    class Late(WordReward):
        rollouts = 0

        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            self.rollouts += 1
            return super().score(questions, contexts).scores if self.rollouts < 2 else [None] * len(questions)

    subject = trainer(tmp_path, ce_epochs=0, scst_epochs=3, reward=Late(), eval_dataset=None)
    subject.train()
    assert subject.state.global_step == 6
    assert "NaN" not in (tmp_path / "metrics.jsonl").read_text()  # which is no JSON
    assert lines(tmp_path / "metrics.jsonl")[-1]["reward_sample"] is None


def test_a_run_in_which_no_gradient_is_finite_ends_with_an_error(tmp_path: Path) -> None:
    class Huge(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return [3e38] * len(questions)

    options = {"baseline": "none", "normalise_advantage": "none", "reward_scale": 10.0}
    subject = trainer(tmp_path, ce_epochs=0, reward=Huge(), eval_dataset=None, max_grad_norm=1.0, **options)
    with pytest.raises(NothingLearned, match=r"2 of 2 updates were skipped, as their gradient was not finite; no mod"):
        subject.train()


@pytest.mark.parametrize("clips", [1.0, 0.0])
def test_the_norm_of_a_gradient_is_computed_once(
    tmp_path: Path, clips: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, norms = torch._foreach_norm, []

    def counted(*args: Any) -> Any:
        norms.append(args)
        return compute(*args)

    monkeypatch.setattr(torch, "_foreach_norm", counted)
    subject = trainer(tmp_path, scst_epochs=0, eval_dataset=None, max_grad_norm=clips)
    subject.train()
    assert len(norms) == subject.state.global_step == 2


@pytest.mark.parametrize("clips", [1.0, 0.0])
def test_an_update_whose_norm_overflows_is_skipped(tmp_path: Path, clips: float) -> None:
    """Its numbers are finite; to clip them would make all of them 0."""
    subject = trainer(tmp_path, scst_epochs=0, eval_dataset=None, max_grad_norm=clips)
    next(subject.model.parameters()).register_hook(lambda gradient: gradient * 1e30)
    with pytest.raises(NothingLearned, match="2 of 2 updates were skipped"):
        subject.train()


class Spoil(TrainerCallback):
    """Makes one weight NaN when training has ended, or the loss of one evaluation."""

    def __init__(self, step: int | None = None) -> None:
        self.step = step

    def on_train_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.step is None:
            next(kwargs["model"].parameters()).data[0] = torch.nan

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == self.step:
            state.log_history[-1]["eval_loss"] = float("nan")


def test_weights_that_are_not_finite_are_no_model(tmp_path: Path) -> None:
    subject = trainer(tmp_path, scst_epochs=0, eval_dataset=None)
    subject.add_callback(Spoil())
    with pytest.raises(NothingLearned, match="weights of the model are not finite after 2 updates; no model is saved"):
        subject.train()


@pytest.mark.parametrize(("step", "best", "refused"), [(1, False, False), (4, False, True), (4, True, False)])
def test_a_model_without_a_finite_validation_loss_is_none(
    tmp_path: Path, step: int, best: bool, refused: bool
) -> None:
    """The last loss counts, or that of the best model."""
    subject = trainer(tmp_path, ce_epochs=2, scst_epochs=0, eval_strategy="steps", eval_steps=1)
    subject.args.load_best_model_at_end = best
    subject.add_callback(Spoil(step))
    with pytest.raises(NothingLearned, match=r"loss is not finite after 4 updates") if refused else nullcontext():
        subject.train()


@pytest.mark.parametrize("spoilt", [True, False])
def test_a_stage_without_a_finite_validation_loss_leaves_no_model_to_the_next(tmp_path: Path, spoilt: bool) -> None:
    subject = trainer(tmp_path, ce_epochs=2, scst_epochs=1, eval_strategy="steps", eval_steps=100)
    subject.callback_handler.callbacks.insert(0, Spoil(4 if spoilt else 1))
    with pytest.raises(NothingLearned, match=r"loss is not finite after 4 updates") if spoilt else nullcontext():
        subject.train()
    assert (tmp_path / "ce").exists() != spoilt


@pytest.mark.parametrize(("backoff", "skipped"), [(0.5, 8), (1e-30, 1)])
def test_updates_that_a_gradient_scaler_skips_count_too(tmp_path: Path, backoff: float, skipped: int) -> None:
    """The scaler of fp16, on a CPU, from a scale at which every gradient is infinite."""
    subject = trainer(tmp_path, ce_epochs=4, scst_epochs=0, eval_dataset=None)
    subject.args.fp16 = True
    subject.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=3e38, backoff_factor=backoff)
    most = pytest.raises(NothingLearned, match="8 of 8 updates were skipped, as their gradient was not finite")
    with most if skipped == 8 else nullcontext():
        subject.train()
    assert subject.finite_updates.skipped == skipped and subject.state.global_step == 8


@pytest.mark.parametrize("finite", [True, False])
def test_updates_that_deepspeed_skips_count_too(finite: bool) -> None:
    """Its gradients are no attributes of the parameters; its optimizer says whether it skipped."""
    updates, args = FiniteUpdates(), SimpleNamespace(fp16=False)
    objects = {"model": torch.nn.Linear(1, 1), "optimizer": SimpleNamespace(step_was_skipped=not finite)}
    for event in (updates.on_pre_optimizer_step, updates.on_optimizer_step):
        event(args, TrainerState(), TrainerControl(), **objects)
    assert updates.skipped == (not finite)


def test_an_update_whose_gradient_is_not_finite_is_skipped(tmp_path: Path) -> None:
    """A huge but finite reward overflows the loss: only that update is skipped, weights and moments do not change."""

    class Huge(WordReward):
        rollouts = 0

        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            self.rollouts += 1
            scores = super().score(questions, contexts).scores
            return SimpleNamespace(scores=[3e38 if self.rollouts == 2 else score for score in scores])

    seen: list[dict[str, torch.Tensor]] = []

    class Record(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            seen.append({name: value.detach().clone() for name, value in kwargs["model"].named_parameters()})

    subject = trainer(
        tmp_path,
        ce_epochs=0,
        scst_epochs=2,
        reward=Huge(),
        baseline="none",
        max_grad_norm=1.0,
        eval_dataset=None,
        reward_scale=10.0,
    )
    subject.add_callback(Record())
    subject.train()
    assert all(seen[1][name].equal(seen[0][name]) for name in seen[0])
    assert any(not seen[2][name].equal(seen[1][name]) for name in seen[0])
    assert all(torch.isfinite(value).all() for value in seen[-1].values())
    assert [line["updates_skipped"] for line in lines(tmp_path / "metrics.jsonl")] == [0, 1, 1, 1]
    assert subject.state.stateful_callbacks is not None and subject.finite_updates.state()["attributes"] == {
        "skipped": 1
    }


@pytest.mark.slow
@pytest.mark.parametrize(("target", "up"), [(1e-9, True), (50.0, False)])
def test_the_kl_coefficient_is_adapted_and_resumed(tmp_path: Path, target: float, up: bool) -> None:
    options = {
        **{"ce_epochs": 0, "scst_epochs": 4, "kl_coefficient": 0.5, "kl_target": target},
        **{"save_strategy": "steps", "save_steps": 5, "scst_learning_rate": 0.05},
    }
    whole = trainer(tmp_path / "whole", **options)
    whole.train()
    values = [line["kl_coefficient"] for line in lines(tmp_path / "whole" / "metrics.jsonl")]
    assert (values[-1] > 0.5) is up and values[-1] != 0.5
    assert all(0.979 < second / first < 1.021 for first, second in pairwise(values))
    cut = trainer(tmp_path / "cut", **options)
    cut.args.max_steps = -1
    stop = Stop(6)
    cut.add_callback(stop)
    cut.train()
    again = trainer(tmp_path / "cut", model=tiny_bart(25, seed=7), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-5"))
    assert again.kl_coefficient.value == whole.kl_coefficient.value
    first, second = state_of(whole), state_of(again)
    assert all(first[name].equal(second[name]) for name in first)


def test_dropout_is_no_divergence(tmp_path: Path) -> None:
    """Of weights that do not move it is 0, and no token of a second update is beyond the limit of its ratio."""
    options = {"ce_epochs": 0, "scst_epochs": 4, "num_samples": 2, "updates_per_rollout": 2, "eval_strategy": "no"}
    options |= {"scst_learning_rate": 1e-12, "kl_coefficient": 0.05, "kl_target": 0.1}
    subject = trainer(tmp_path, model=tiny_bart(25, seed=1, dropout=0.1), **options)
    subject.train()
    logged = lines(tmp_path / "metrics.jsonl")[:-1]
    assert [line["kl"] for line in logged] == pytest.approx([0.0] * len(logged), abs=1e-6)
    assert {line["clip_fraction"] for line in logged} == {0.0}
    assert subject.kl_coefficient.value < 0.05


def test_limits_of_rewards_go_on_after_a_kill(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Rewards differ before the kill and are equal after it: they are not equal."""

    class First(WordReward):
        calls = 0

        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            First.calls += len(questions) > 1
            return SimpleNamespace(scores=[float(First.calls == 1 and n == 0) for n in range(len(questions))])

    options = {"ce_epochs": 0, "scst_epochs": 6, "save_strategy": "steps", "save_steps": 5, "eval_strategy": "no"}
    cut = trainer(tmp_path / "cut", reward=First(), **options)
    cut.add_callback(Stop(5))
    cut.train()
    assert cut.equal_rewards.state()["args"]["limits"][0] == 0.0 < cut.equal_rewards.state()["args"]["limits"][1]
    older = tmp_path / "older"  # of a version that did not store them
    shutil.copytree(tmp_path / "cut", older)
    state = json.loads((older / "checkpoint-5/trainer_state.json").read_text())
    del state["stateful_callbacks"]["EqualRewards"]
    (older / "checkpoint-5/trainer_state.json").write_text(json.dumps(state))
    trainer(older, reward=First(), **options).train(resume_from_checkpoint=str(older / "checkpoint-5"))
    assert (older / "checkpoint-10").is_dir()
    caplog.clear()
    again = trainer(tmp_path / "cut", reward=First(), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "cut" / "checkpoint-5"))
    assert again.state.global_step > 10 and "every reward of the first" not in caplog.text
    trainer(tmp_path / "whole", reward=First(), **options).train()  # calls are above 1 from the start
    assert caplog.text.count("every reward of the first 10 updates is 0") == 1


class Stop(TrainerCallback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_training_stop = state.global_step >= self.step


@pytest.mark.slow
def test_the_kl_penalty_keeps_the_policy_near_its_start(tmp_path: Path) -> None:
    ends = {}
    for name, coefficient in {"free": 0.0, "held": 20.0}.items():
        subject = trainer(
            tmp_path / name, ce_epochs=0, scst_epochs=6, kl_coefficient=coefficient, kl_estimator="exact"
        )
        subject.train()
        ends[name] = subject.evaluate()["eval_kl"]
    assert 0 <= ends["held"] < 0.5 * ends["free"]


def test_early_stopping_by_a_held_out_measure_saves_the_best_model(tmp_path: Path) -> None:
    """The measure is scripted: best at the second evaluation."""
    script = iter([1.0, 3.0, 2.0, 2.5, 9.0])
    subject = trainer(
        tmp_path,
        ce_epochs=0,
        scst_epochs=8,
        eval_strategy="steps",
        eval_steps=2,
        stop_on="bleu4",
        patience=2,
    )
    assert subject.held_out_questions is not None
    collect = subject.held_out_questions.collect
    subject.held_out_questions.collect = lambda: {**collect(), "bleu4": next(script)}  # type: ignore[method-assign]
    kept: dict[int, Any] = {}

    class Record(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            kept[state.global_step] = state_of(subject)

    subject.add_callback(Record())
    subject.train()
    assert subject.state.global_step == 8  # evaluations at 2, 4, 6, 8
    from rl_qg.generation.loading import load_seq2seq

    best, _ = load_seq2seq(str(tmp_path / "best"))
    assert all(value.equal(kept[4][name]) for name, value in best.state_dict().items())
    with pytest.raises(ValueError, match="bleu5"):
        trainer(tmp_path / "other", stop_on="bleu5")


def test_a_measure_that_is_never_a_number_ends_no_stage_and_keeps_no_model(tmp_path: Path) -> None:
    class Silent(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return [None] * len(questions)

    evaluated = {"held_out": Silent(), "eval_strategy": "steps", "eval_steps": 1}
    subject = trainer(tmp_path, ce_epochs=0, scst_epochs=2, stop_on="held_out", patience=1, **evaluated)
    subject.train()
    assert subject.state.global_step == 4 and not (tmp_path / "best").exists()


@pytest.mark.slow
def test_a_stage_that_stopped_early_stops_at_the_same_step_after_a_kill(tmp_path: Path) -> None:
    """Killed after the stop, before the run was complete: the last checkpoint is from before the stop."""
    options = {**{"ce_epochs": 0, "scst_epochs": 8, "eval_strategy": "steps", "eval_steps": 2, "patience": 2}}
    options |= {"save_strategy": "steps", "save_steps": 2, "stop_on": "bleu4"}
    values = {2: 1.0, 4: 3.0, 6: 2.0, 8: 2.5, 10: 9.0}
    ends = []
    for resume in (False, True):
        subject = trainer(tmp_path, **options)
        assert subject.held_out_questions is not None
        collect = subject.held_out_questions.collect
        subject.held_out_questions.collect = lambda s=subject, c=collect: {**c(), "bleu4": values[s.state.global_step]}  # type: ignore[method-assign, misc]
        last = max(tmp_path.glob("checkpoint-*"), key=lambda path: int(path.name[11:])) if resume else None
        subject.train(resume_from_checkpoint=last and str(last))
        ends.append(subject.state.global_step)
    assert ends == [8, 8]


def test_held_out_measures_are_computed_on_the_greedy_questions(tmp_path: Path) -> None:
    from rl_qg.scoring.held_out import held_out_measures

    subject = trainer(tmp_path, held_out=WordReward(), eval_dataset=data(7), per_device_eval_batch_size=3)
    found = subject.evaluate()
    rollouts = [subject.roll_out(subject.encoder([item]), samples=0, greedy=True) for item in data(7)]
    texts = [subject.texts(r.greedy, [item])[0] for r, item in zip(rollouts, data(7), strict=True)]
    wanted = held_out_measures(texts, [item.question for item in data(7)], [item.context for item in data(7)])
    assert {name: found[f"eval_{name}"] for name in wanted} == pytest.approx(wanted)
    rewards = WordReward().score(texts, None).scores
    assert found["eval_reward_greedy"] == found["eval_held_out"] == pytest.approx(sum(rewards) / 7)
    json.dumps(found)


@pytest.mark.parametrize(
    ("bleu4", "expected"),
    [
        (
            [0.4, 0.4, 0.4, 0.1, 0.1, 0.1],
            "the reward rose (1 -> 4) while held-out measures got worse (bleu4 0.4 -> 0.1",
        ),
        ([0.4, 0.4, 0.4, 0.41, 0.4, 0.4], ""),
    ],
)
def test_a_hacked_reward_is_one_line_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, bleu4: list[float], expected: str
) -> None:
    """Of the stage's evaluations alone: those before the boundary do not count."""
    rewards = [1.0, 1.0, 1.0, 4.0, 4.0, 4.0]
    values = [(9.0, 0.9), *zip(rewards, bleu4, strict=True)]
    script = iter([{"reward_greedy": reward, "bleu4": value} for reward, value in values])
    subject = trainer(tmp_path, ce_epochs=2, scst_epochs=5, eval_strategy="steps", eval_steps=2)
    assert subject.held_out_questions is not None
    collect = subject.held_out_questions.collect
    subject.held_out_questions.collect = lambda: (collect(), next(script))[1]  # type: ignore[method-assign]
    subject.train()
    lines_of = [record.message for record in caplog.records if "held-out measures got worse" in record.message]
    assert len(lines_of) == bool(expected)
    assert not expected or lines_of[0].startswith(expected)
