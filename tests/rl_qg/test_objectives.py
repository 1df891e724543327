"""The equations against worked examples, slow references and derivatives taken another way."""

import math

import pytest
import torch

from rl_qg.objectives import (
    cross_entropy,
    linear_lambda,
    restarting_rate,
    self_critical,
    shift_right,
    token_logprobs,
)


def test_gradient_on_a_two_token_vocabulary_equals_the_one_derived_by_hand() -> None:
    # One token drawn from softmax([z, 0]); sample = token 0, p = sigmoid(z).
    # L = (r_greedy - r_sample) * log p, so dL/dz = (r_greedy - r_sample) * (1 - p) and dL/dz' = -(r_greedy - r_sample)
    # * (1 - p).
    z = torch.tensor([[[0.3, 0.0]]], requires_grad=True)
    logprobs = token_logprobs(z, torch.tensor([[0]]))
    loss = self_critical(logprobs, torch.tensor([[True]]), torch.tensor([0.9]), torch.tensor([0.2]))
    loss.sum().backward()
    p = 1 / (1 + math.exp(-0.3))
    expected = (0.2 - 0.9) * (1 - p)
    assert loss.item() == pytest.approx((0.2 - 0.9) * math.log(p), abs=1e-6)
    assert z.grad is not None
    assert z.grad.flatten().tolist() == pytest.approx([expected, -expected], abs=1e-6)


@pytest.mark.parametrize(("reward_sample", "likelier"), [(0.9, True), (0.1, False)])
def test_a_sample_above_greedy_becomes_likelier_and_one_below_less_likely(
    reward_sample: float, likelier: bool
) -> None:
    logits = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tokens, mask = torch.tensor([[1, 3, 0, 2]]), torch.ones(1, 4, dtype=torch.bool)
    before = token_logprobs(logits, tokens)
    self_critical(before, mask, torch.tensor([reward_sample]), torch.tensor([0.5])).sum().backward()
    after = token_logprobs(logits.detach() - 0.1 * logits.grad, tokens)  # type: ignore[operator]
    assert (after.sum() > before.sum()).item() is likelier


def test_tokens_behind_the_end_carry_no_gradient() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss = self_critical(
        token_logprobs(logits, torch.ones(2, 3, dtype=torch.long)), mask, torch.ones(2), torch.zeros(2)
    )
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum(-1).ne(0).equal(mask)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_teaches_nothing(bad: float) -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    logprobs = token_logprobs(logits, torch.ones(2, 3, dtype=torch.long))
    self_critical(
        logprobs, torch.ones(2, 3, dtype=torch.bool), torch.tensor([bad, 1.0]), torch.zeros(2)
    ).sum().backward()
    assert logits.grad is not None
    assert logits.grad[0].eq(0).all()
    assert logits.grad[1].ne(0).any()


def test_rewards_get_no_gradient() -> None:
    reward = torch.tensor([0.7], requires_grad=True)
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    self_critical(logprobs, torch.tensor([[True]]), reward, torch.tensor([0.1])).sum().backward()
    assert reward.grad is None


def test_token_logprobs_equal_log_softmax() -> None:
    logits = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(1)) * 10
    tokens = torch.randint(7, (3, 4), generator=torch.Generator().manual_seed(2))
    expected = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    torch.testing.assert_close(token_logprobs(logits, tokens), expected)


def test_cross_entropy_sums_real_tokens_only_and_smooths_as_written() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(3))
    labels = torch.tensor([[1, 4, -100], [2, -100, -100]])
    log_p = logits.log_softmax(-1)
    plain = [-(log_p[0, 0, 1] + log_p[0, 1, 4]), -log_p[1, 0, 2]]
    torch.testing.assert_close(cross_entropy(logits, labels), torch.stack(plain))
    smooth = [
        0.9 * plain[0] - 0.1 * (log_p[0, 0].mean() + log_p[0, 1].mean()),
        0.9 * plain[1] - 0.1 * log_p[1, 0].mean(),
    ]
    torch.testing.assert_close(cross_entropy(logits, labels, label_smoothing=0.1), torch.stack(smooth))


def test_shift_right_puts_the_start_token_first_and_never_feeds_the_ignore_index() -> None:
    shifted = shift_right(torch.tensor([[5, 6, -100], [7, -100, -100]]), start_token=2, pad_token=1)
    assert shifted.tolist() == [[2, 5, 6], [2, 7, 1]]


def test_lambda_over_all_steps() -> None:
    table = [linear_lambda(step, boundary=3, total=8) for step in range(1, 9)]
    assert table == pytest.approx([0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert [linear_lambda(step, boundary=0, total=2) for step in (1, 2)] == [0.5, 1.0]
    assert [linear_lambda(step, boundary=4, total=4) for step in (1, 4)] == [0.0, 0.0]
    assert linear_lambda(11, boundary=0, total=10) == 1.0


def test_learning_rate_starts_anew_at_the_boundary_and_stays_between_0_and_each_peak() -> None:
    rates = [restarting_rate(s, 10, 30, warmup=(0.2, 0.25), second=0.5) for s in range(30)]
    first, second = rates[:10], rates[10:]
    assert max(first) == first[2] == 1.0
    assert max(second) == second[5] == 0.5
    assert first[-1] < first[5]
    assert second[0] < second[4]  # warming up again
    assert all(rate > 0 for rate in rates)
    assert restarting_rate(30, 10, 30, warmup=(0.2, 0.25), second=0.5) == 0.0
