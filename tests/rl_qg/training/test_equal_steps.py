"""Advantages divided by their own running size: the unit of a reward has no effect."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerControl, TrainerState

from rl_qg.training.callbacks import DECAY, AdvantageScale
from rl_qg.training.objectives import shaped
from tests.rl_qg.training.word_task import WordReward, data, lines, trainer


class Scaled(WordReward):
    """The words shared with the context, each with its own weight, times a unit."""

    def __init__(self, unit: float) -> None:
        self.unit = unit

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        scores = [
            sum(
                (1 + len(word)) / (position + 1.7) for position, word in enumerate(question.split()) if word in context
            )
            for question, context in zip(questions, contexts, strict=True)
        ]
        return SimpleNamespace(scores=[self.unit * score for score in scores])


def weights(folder: Path, unit: float, **options: Any) -> torch.Tensor:
    """The change of all weights in two epochs of the stage by plain gradient steps."""
    subject = trainer(
        folder, ce_epochs=0, scst_epochs=3, schedule="constant", reward=Scaled(unit), optim="sgd", weight_decay=0.0,
        eval_dataset=None, **options,
    )  # fmt: skip
    start = torch.cat([value.detach().flatten().clone() for value in subject.model.parameters()])
    subject.train()
    return torch.cat([value.detach().flatten() for value in subject.model.parameters()]) - start


@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "greedy", "normalise_advantage": "running"},
        {"baseline": "leave_one_out", "num_samples": 3, "clip_advantage": 1.5, "normalise_advantage": "running"},
        {"baseline": "leave_one_out", "num_samples": 3, "normalise_advantage": "group"},
    ],
    ids=["greedy", "leave_one_out", "group"],
)
def test_the_unit_of_a_reward_changes_no_weight(tmp_path: Path, options: dict[str, Any]) -> None:
    one = weights(tmp_path / "one", 1.0, **options)
    assert one.norm() > 1e-2
    for unit in (1024.0, 2.0**-10):  # products with powers of two are exact
        assert weights(tmp_path / str(unit), unit, **options).equal(one)
    for unit in (1000.0, 0.001):
        other = weights(tmp_path / str(unit), unit, **options)
        assert (other - one).norm() < 1e-5 * one.norm()
    options |= {"normalise_advantage": "none"}
    raw, tenfold = (weights(tmp_path / f"raw {unit}", unit, **options) for unit in (1.0, 10.0))
    assert (raw - tenfold).norm() > 0.1 * raw.norm()  # the unit does matter without


def test_the_first_update_only_measures(tmp_path: Path) -> None:
    """Its advantages count 0, so it is an update by cross-entropy alone."""
    subject = trainer(
        tmp_path, ce_epochs=0, max_steps=3, reward=Scaled(3.0), normalise_advantage="running", baseline="none",
        schedule="constant", eval_dataset=None,
    )  # fmt: skip
    subject.train()
    logged = lines(tmp_path / "metrics.jsonl")
    assert logged[0]["loss_scst"] == 0 != logged[1]["loss_scst"]
    assert logged[0]["loss"] == pytest.approx(logged[0]["loss_ce"], abs=1e-4)
    assert all(line["advantage_scale"] > 0 for line in logged)


def test_the_scale_is_the_moving_root_mean_square_of_earlier_updates() -> None:
    updates = [[3.0, -4.0, 0.0], [0.0, 0.0], [1.0, 2.0, 2.0], [5.0]]
    subject, state = AdvantageScale(), TrainerState()
    assert subject.value == 0
    squares = count = 0.0
    for values in updates:
        before = subject.value
        for part in (values[:1], values[1:]):  # two accumulated batches
            subject.add(torch.tensor(part))
        assert subject.value == before
        subject.on_step_end(None, state, TrainerControl())  # type: ignore[arg-type]
        real = [value for value in values if value]
        if real:
            squares = DECAY * squares + (1 - DECAY) * sum(value**2 for value in real)
            count = DECAY * count + (1 - DECAY) * len(real)
        assert subject.value == pytest.approx(math.sqrt(squares / count))
    state.global_step = 4
    state.stateful_callbacks = {"AdvantageScale": subject.state()}
    resumed = AdvantageScale()
    resumed.on_train_begin(None, state, TrainerControl())  # type: ignore[arg-type]
    assert resumed.value == subject.value


def test_the_mean_after_one_update_is_that_of_the_update() -> None:
    """No bias towards the value at the start."""
    subject = AdvantageScale()
    subject.add(torch.tensor([2.0, -2.0, 0.0]))
    subject.on_step_end(None, TrainerState(), TrainerControl())  # type: ignore[arg-type]
    assert subject.value == pytest.approx(2.0)


def test_advantages_are_divided_by_the_spread_then_clipped() -> None:
    values = torch.tensor([[3.0, -4.0]])
    assert shaped(values, scale=7, spread=2.0, clip=1.75).tolist() == [[1.5, -1.75]]
    assert shaped(values, spread=0.0).eq(0).all()


def test_a_reward_that_never_varies_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Constant(WordReward):
        def score(self, questions, contexts, *, answers=None, references=None) -> Any:
            return SimpleNamespace(scores=[0.5] * len(questions))

    for reward in (Constant(), Scaled(1.0)):
        options = {"train_dataset": data(8), "ce_epochs": 1, "scst_epochs": 12, "eval_dataset": None}
        trainer(tmp_path / type(reward).__name__, reward=reward, **options).train()
        expected = "every reward of the first 10 updates is 0.5: there is nothing to learn"
        assert caplog.text.count("every reward of the first") == caplog.text.count(expected) == 1


@pytest.mark.parametrize(("given", "meant"), [(True, "batch"), (False, "none"), ("running", "running")])
def test_the_former_switch_is_understood(tmp_path: Path, given: Any, meant: str) -> None:
    assert trainer(tmp_path, normalise_advantage=given).args.normalise_advantage == meant
