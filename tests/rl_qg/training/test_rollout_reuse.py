"""Several updates from one rollout: the clipped objective, and which rollout an update learns from."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from rl_qg.training.objectives import clipped_policy_gradient, policy_gradient
from tests.rl_qg.training.word_task import WordReward, data, lines, trainer


def clipped_by_hand(new: list[float], old: list[float], advantage: float, clip: float) -> float:
    """−Σ_t min(ρ A, clip(ρ) A), one token at a time."""
    total = 0.0
    for log_p, log_old in zip(new, old, strict=True):
        ratio = math.exp(log_p - log_old)
        total -= min(ratio * advantage, max(1 - clip, min(1 + clip, ratio)) * advantage)
    return total


def test_the_clipped_objective_equals_the_formula() -> None:
    new = torch.tensor([[-0.1, -2.0, -1.0], [-0.5, -1.0, -9.0], [-0.3, -0.4, -0.5]])
    old = torch.tensor([[-0.9, -1.0, -1.1], [-0.4, -3.0, -1.0], [-0.3, -0.4, -0.5]])
    mask = torch.tensor([[True, True, True], [True, True, False], [True, True, True]])
    advantage = torch.tensor([1.5, -0.7, 2.0])
    found = clipped_policy_gradient(new, old, mask, advantage, 0.2)
    wanted = [
        clipped_by_hand(new[row][mask[row]].tolist(), old[row][mask[row]].tolist(), float(advantage[row]), 0.2)
        for row in range(3)
    ]
    assert found.tolist() == pytest.approx(wanted)
    assert found[2] == pytest.approx(-6.0)  # all ratios are 1


@pytest.mark.parametrize("advantage", [1.5, -1.5])
def test_beyond_the_clip_there_is_no_gradient_in_the_direction_of_the_advantage(advantage: float) -> None:
    """Ratios 0.5, 1 and 2: a good token is not made still likelier, a bad one not still less likely."""
    old = torch.zeros(1, 3)
    new = torch.tensor([[0.5, 1.0, 2.0]]).log().requires_grad_()
    clipped_policy_gradient(
        new, old, torch.ones(1, 3, dtype=torch.bool), torch.tensor([advantage]), 0.2
    ).sum().backward()
    assert new.grad is not None
    moves = [value != 0 for value in new.grad[0].tolist()]
    assert moves == ([True, True, False] if advantage > 0 else [False, True, True])


def test_at_equal_policies_the_gradient_is_that_of_the_plain_objective() -> None:
    generator = torch.Generator().manual_seed(0)
    values = -torch.rand(4, 5, generator=generator)
    mask = torch.arange(5) < torch.tensor([[5], [3], [1], [4]])
    advantage = torch.randn(4, generator=generator)
    gradients = []
    for loss in (
        lambda logprobs: clipped_policy_gradient(logprobs, values, mask, advantage, 0.2),
        lambda logprobs: policy_gradient(logprobs, mask, advantage),
    ):
        logprobs = values.clone().requires_grad_()
        gradients.append(torch.autograd.grad(loss(logprobs).sum(), logprobs)[0])
    torch.testing.assert_close(gradients[0], gradients[1])


class Counted(WordReward):
    calls = 0

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.calls += 1
        return super().score(questions, contexts)


def test_the_second_update_of_a_rollout_equals_a_slow_reference(tmp_path: Path) -> None:
    """One question at a time: λ · Σ −min(ρ A, clip(ρ) A) + L_ce, with ρ between the weights of both updates."""
    reward = Counted()
    subject = trainer(
        tmp_path, ce_epochs=0, max_steps=4, train_dataset=data(8), reward=reward, updates_per_rollout=2,
        clip_ratio=0.1, baseline="none", schedule="constant", watch_kl=False,
    )  # fmt: skip
    model, batch = subject.model, subject.encoder(data(8))
    model.train()
    subject.state.max_steps = 4
    rollouts: list[Any] = []
    original = subject.roll_out
    subject.roll_out = lambda *a, **k: rollouts.append(original(*a, **k)) or rollouts[-1]  # type: ignore[method-assign, func-returns-value]
    subject.compute_loss(model, dict(batch))

    def logprobs(row: int, tokens: list[int]) -> torch.Tensor:
        ids = subject.encoder.batch([data(8)[row]])["input_ids"]
        start = model.config.decoder_start_token_id
        logits = model(input_ids=ids, decoder_input_ids=torch.tensor([[start, *tokens[:-1]]])).logits[0]
        return logits.log_softmax(-1)[range(len(tokens)), tokens]

    samples = rollouts[0].samples
    tokens = [samples.tokens[row][samples.mask[row]].tolist() for row in range(8)]
    old = [logprobs(row, tokens[row]).tolist() for row in range(8)]
    with torch.no_grad():
        for number, value in enumerate(model.parameters()):
            value += 0.1 * torch.randn(value.shape, generator=torch.Generator().manual_seed(number))
    subject.state.global_step = 1
    loss = subject.compute_loss(model, dict(batch))
    assert (len(rollouts), reward.calls) == (1, 1)
    total = ratios = 0.0
    for row in range(8):
        text = subject.processing_class.decode(tokens[row], skip_special_tokens=True)
        advantage = WordReward().score([text], None).scores[0]
        new = logprobs(row, tokens[row]).tolist()
        ratios += sum(abs(math.exp(one - two) - 1) > 0.1 for one, two in zip(new, old[row], strict=True))
        total += clipped_by_hand(new, old[row], advantage, 0.1)
        total -= logprobs(row, subject.encoder.targets([data(8)[row]])[0]).sum().item()
    assert ratios > 3  # the weights have moved far enough for the clip to matter
    assert loss.item() == pytest.approx(total / int((batch["labels"] != -100).sum()), rel=1e-5)  # type: ignore[operator]
    subject.state.global_step = 2
    subject.compute_loss(model, dict(batch))
    assert (len(rollouts), reward.calls) == (2, 2)


@pytest.mark.parametrize("accumulation", [1, 2])
def test_each_rollout_is_scored_once_and_learned_from_m_times(tmp_path: Path, accumulation: int) -> None:
    """Also with a boundary that is no multiple of m: 3 updates of the first stage, then new rollouts after 4 and 6."""
    reward = Counted()
    subject = trainer(
        tmp_path, train_dataset=data(24), reward=reward, updates_per_rollout=2, eval_dataset=None,
        per_device_train_batch_size=8 // accumulation, gradient_accumulation_steps=accumulation,
    )  # fmt: skip
    subject.train()
    logged = lines(tmp_path / "metrics.jsonl")
    assert [line["stage"] for line in logged] == ["ce"] * 3 + ["scst"] * 5
    assert reward.calls == 3 * accumulation
    scored = [line["reward_sample"] for line in logged[3:]]
    assert scored[1] == scored[2] and scored[3] == scored[4]
    assert logged[3]["clip_fraction"] == 0 and all(0 <= line["clip_fraction"] <= 1 for line in logged[3:])
    assert logged[-1]["epoch"] == 2


def test_more_updates_learn_more_from_as_many_questions(tmp_path: Path) -> None:
    reached = []
    options: dict[str, Any] = {"ce_epochs": 0, "scst_epochs": 2, "scst_learning_rate": 3e-3, "schedule": "constant"}
    options |= {"baseline": "leave_one_out", "num_samples": 4, "normalise_advantage": "running", "ce_weight": "rest"}
    for updates in (1, 4):
        subject = trainer(
            tmp_path / str(updates),
            train_dataset=data(32),
            eval_dataset=data(24),
            updates_per_rollout=updates,
            **options,
        )
        subject.train()
        reached.append(subject.evaluate()["eval_reward_greedy"])
    assert reached[1] > reached[0]
