"""The equations, against worked examples, slow references and derivatives computed in another way."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch

from rl_qg.generation.logprobs import shift_right, token_logprobs
from rl_qg.settings.training import BASELINES, SCHEDULES
from rl_qg.training.objectives import (
    adapted_coefficient,
    advantages,
    cross_entropy,
    kl_from_samples,
    kl_over_vocabulary,
    learning_rate_factor,
    policy_gradient,
    scst_weight,
    shaped,
)


def self_critical(logprobs: torch.Tensor, mask: torch.Tensor, sample: float, greedy: float) -> torch.Tensor:
    advantage = advantages(torch.tensor([[sample]]), "greedy", torch.tensor([greedy]))
    return policy_gradient(logprobs, mask, advantage.flatten())


def test_the_gradient_on_a_two_token_vocabulary_equals_the_derivation() -> None:
    # One token drawn from softmax([z, 0]); sample = token 0, p = sigmoid(z).
    # L = (r_greedy - r_sample) * log p, so dL/dz = (r_greedy - r_sample) * (1 - p) and dL/dz' = -(r_greedy - r_sample)
    # * (1 - p).
    z = torch.tensor([[[0.3, 0.0]]], requires_grad=True)
    logprobs = token_logprobs(z, torch.tensor([[0]]))
    loss = self_critical(logprobs, torch.tensor([[True]]), 0.9, 0.2)
    loss.sum().backward()
    p = 1 / (1 + math.exp(-0.3))
    expected = (0.2 - 0.9) * (1 - p)
    assert loss.item() == pytest.approx((0.2 - 0.9) * math.log(p), abs=1e-6)
    assert z.grad is not None
    assert z.grad.flatten().tolist() == pytest.approx([expected, -expected], abs=1e-6)


@pytest.mark.parametrize(("reward_sample", "likelier"), [(0.9, True), (0.1, False)])
def test_a_sample_with_a_higher_reward_than_greedy_becomes_more_likely(reward_sample: float, likelier: bool) -> None:
    logits = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    tokens, mask = torch.tensor([[1, 3, 0, 2]]), torch.ones(1, 4, dtype=torch.bool)
    before = token_logprobs(logits, tokens)
    self_critical(before, mask, reward_sample, 0.5).sum().backward()
    after = token_logprobs(logits.detach() - 0.1 * logits.grad, tokens)  # type: ignore[operator]
    assert (after.sum() > before.sum()).item() is likelier


def test_tokens_after_the_end_have_no_gradient() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0)).requires_grad_()
    mask = torch.tensor([[True, True, False], [True, False, False]])
    loss = policy_gradient(token_logprobs(logits, torch.ones(2, 3, dtype=torch.long)), mask, torch.ones(2))
    loss.sum().backward()
    assert logits.grad is not None
    assert logits.grad.abs().sum(-1).ne(0).equal(mask)


BAD = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("baseline", BASELINES)
def test_a_reward_that_is_not_finite_has_advantage_0_and_is_not_in_baselines(bad: float, baseline: str) -> None:
    rewards, greedy = torch.tensor([[1.0, 4.0, bad], [1.0, 2.0, 6.0]]), torch.tensor([0.5, 2.0])
    advantage = advantages(rewards, baseline, greedy)
    assert advantage[0, 2] == 0
    torch.testing.assert_close(advantage[0, :2], advantages(rewards[:1, :2], baseline, greedy[:1])[0])
    torch.testing.assert_close(advantage[1], advantages(rewards[1:], baseline, greedy[1:])[0])
    if baseline == "greedy":
        assert advantages(rewards, baseline, torch.tensor([bad, 2.0]))[0].eq(0).all()


def test_advantages_of_worked_cases() -> None:
    rewards, greedy = torch.tensor([[1.0, 2.0, 6.0]]), torch.tensor([2.0])
    wanted = {"greedy": [-1, 0, 4], "leave_one_out": [-3, -1.5, 4.5], "mean": [-2, -1, 3], "none": [1, 2, 6]}
    for baseline, values in wanted.items():
        assert advantages(rewards, baseline, greedy).tolist() == [values]
    assert advantages(torch.tensor([[1.0, math.nan]]), "leave_one_out").tolist() == [[0, 0]]  # no other sample
    with pytest.raises(ValueError, match="baseline=median is not one of greedy, leave_one_out, mean, none"):
        advantages(rewards, "median")


def test_shaping_scales_normalises_and_clips_in_that_order() -> None:
    values = torch.tensor([[3.0, 0.0], [-4.0, 0.0]])
    assert shaped(values, scale=2).tolist() == [[6, 0], [-8, 0]]
    normalised = shaped(values, scale=7, normalise=True)
    assert normalised[normalised != 0].square().mean().item() == pytest.approx(1)
    assert normalised.sign().equal(values.sign())
    assert shaped(values, scale=2, clip=5).tolist() == [[5, 0], [-5, 0]]
    assert shaped(torch.zeros(2, 2), normalise=True).eq(0).all()


def test_steps_of_groups_against_the_formula_by_hand() -> None:
    values = torch.tensor([[3.0, -3.0], [0.3, -0.3], [0.0, 0.0]])
    # divisors 0.75 · 3 + 0.25 · 1 and 0.75 · 0.3 + 0.25 · 1
    expected = torch.tensor([[1.2, -1.2], [0.3 / 0.475, -0.3 / 0.475], [0.0, 0.0]])
    torch.testing.assert_close(shaped(values, spread=1.0, rewarded=values.isfinite()), expected)
    # of tokens (b, k, t): the same for advantages that all tokens of a sample share
    of_tokens = shaped(values[..., None].expand(3, 2, 5), spread=1.0, rewarded=values.isfinite())
    torch.testing.assert_close(of_tokens, expected[..., None].expand(3, 2, 5))
    assert shaped(values, spread=0.0, rewarded=values.isfinite()).eq(0).all()


def test_a_sample_without_a_reward_does_not_change_the_step_of_the_others() -> None:
    rewards = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    failed = torch.cat((rewards, torch.full((2, 3), torch.nan)), 1)
    alone, beside = (
        shaped(advantages(one, "leave_one_out"), spread=0.1, rewarded=one.isfinite()) for one in (rewards, failed)
    )
    torch.testing.assert_close(beside, torch.nn.functional.pad(alone, (0, 3)))


@pytest.mark.parametrize("unit", [1e-3, 1.0, 50.0])
def test_steps_of_groups_do_not_depend_on_the_unit_of_the_reward(unit: float) -> None:
    values = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(
        shaped(unit * values, spread=0.7 * unit, rewarded=values.isfinite()),
        shaped(values, spread=0.7, rewarded=values.isfinite()),
    )


def test_rewards_get_no_gradient() -> None:
    reward = torch.tensor([[0.7]], requires_grad=True)
    logprobs = torch.tensor([[-1.0]], requires_grad=True)
    policy_gradient(logprobs, torch.tensor([[True]]), advantages(reward, "none")[0]).sum().backward()
    assert reward.grad is None and logprobs.grad is not None


def test_the_gradient_of_token_logprobs_follows_the_definition() -> None:
    logits = torch.randn(2, 3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).requires_grad_()
    tokens = torch.tensor([[0, 4, 2], [3, 3, 1]])
    assert torch.autograd.gradcheck(lambda x: token_logprobs(x, tokens), logits)
    half = logits.detach().bfloat16().requires_grad_()
    weights = torch.arange(6.0).view(2, 3)
    (token_logprobs(half, tokens) * weights).sum().backward()
    wide = half.detach().float().requires_grad_()
    (wide.log_softmax(-1).gather(-1, tokens[..., None])[..., 0] * weights).sum().backward()
    assert half.grad is not None and wide.grad is not None and half.grad.dtype == torch.bfloat16
    torch.testing.assert_close(half.grad, wide.grad.bfloat16())


def test_divergences_agree_with_the_library_and_each_other() -> None:
    generator = torch.Generator().manual_seed(5)
    logits, reference = torch.randn(2, 3, 4, generator=generator), torch.randn(2, 3, 4, generator=generator)
    exact = kl_over_vocabulary(logits, reference)
    policy, other = (torch.distributions.Categorical(logits=x) for x in (logits, reference))
    torch.testing.assert_close(exact, torch.distributions.kl_divergence(policy, other))
    # The expectation over tokens of the estimate from samples is the divergence.
    p, q = logits.log_softmax(-1), reference.log_softmax(-1)
    torch.testing.assert_close((p.exp() * kl_from_samples(p, q)).sum(-1), exact)
    assert (kl_from_samples(p, q) >= 0).all()
    assert kl_from_samples(p, p).eq(0).all()


def test_the_gradient_of_the_estimate_is_that_of_the_forward_divergence() -> None:
    reference = torch.tensor([0.3, -1.0, 0.5])
    logits = torch.tensor([1.0, 0.2, -0.4], requires_grad=True)
    p, q = logits.log_softmax(-1), reference.log_softmax(-1)
    (p.detach().exp() * kl_from_samples(p, q)).sum().backward()  # expectation over tokens that are not differentiated
    estimated = logits.grad
    logits.grad = None
    (q.exp() * (q - logits.log_softmax(-1))).sum().backward()
    torch.testing.assert_close(estimated, logits.grad)


def test_token_logprobs_equal_log_softmax() -> None:
    logits = torch.randn(3, 4, 7, generator=torch.Generator().manual_seed(1)) * 10
    tokens = torch.randint(7, (3, 4), generator=torch.Generator().manual_seed(2))
    expected = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    torch.testing.assert_close(token_logprobs(logits, tokens), expected)


def test_cross_entropy_sums_real_tokens_and_smooths_labels() -> None:
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
    labels = torch.tensor([[5, 6, -100], [7, -100, -100]])
    assert shift_right(labels, torch.tensor([[2], [2]]), pad_token=1).tolist() == [[2, 5, 6], [2, 7, 1]]
    two = shift_right(labels, torch.tensor([[2, 8], [2, 9]]), pad_token=1)  # the start token and a language code
    assert two.tolist() == [[2, 8, 5, 6], [2, 9, 7, 1]]


def test_lambda_over_all_steps() -> None:
    table = [scst_weight(step, boundary=3, total=8) for step in range(1, 9)]
    assert table == pytest.approx([0, 0, 0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert [scst_weight(step, boundary=0, total=2) for step in (1, 2)] == [0.5, 1.0]
    assert [scst_weight(step, boundary=4, total=4) for step in (1, 4)] == [0.0, 0.0]
    assert scst_weight(11, boundary=0, total=10) == 1.0


def test_schedules_of_lambda() -> None:
    def weights(**options: Any) -> list[float]:
        return [scst_weight(step, 2, 12, **options) for step in range(1, 13)]

    for schedule in SCHEDULES:
        values = weights(schedule=schedule, maximum=0.5)
        assert values[:2] == [0, 0] and values[-1] == pytest.approx(0.5)
        assert all(0 < first <= second for first, second in pairwise(values[2:]))
    assert set(weights(schedule="constant")[2:]) == {1.0}
    assert weights(schedule="warmup", warmup=0.4)[2:] == pytest.approx([0.25, 0.5, 0.75, *[1.0] * 7])
    assert weights(schedule="warmup", warmup=0.0)[2] == 1.0
    cosine = weights(schedule="cosine")[2:]
    assert cosine[4] == pytest.approx(0.5)
    assert [a + b for a, b in zip(cosine[:9], reversed(cosine[:9]), strict=True)] == pytest.approx([1.0] * 9)
    with pytest.raises(ValueError, match="schedule=steps is not one of linear, constant, cosine, warmup"):
        scst_weight(2, 1, 3, schedule="steps")


def test_the_kl_coefficient_moves_towards_its_target_by_at_most_2_percent() -> None:
    assert adapted_coefficient(1.0, 9.0, 0.1) == pytest.approx(1.02)
    assert adapted_coefficient(1.0, 0.0, 0.1) == pytest.approx(0.98)
    assert adapted_coefficient(1.0, 0.11, 0.1) == pytest.approx(1.01)
    assert adapted_coefficient(0.3, 0.1, 0.1) == pytest.approx(0.3)


def test_the_learning_rate_restarts_at_the_boundary() -> None:
    rates = [learning_rate_factor(s, 10, 30, warmup=(0.2, 0.25), second=0.5) for s in range(30)]
    first, second = rates[:10], rates[10:]
    assert max(first) == first[2] == 1.0
    assert max(second) == second[5] == 0.5
    assert first[-1] < first[5]
    assert second[0] < second[4]  # warming up again
    assert all(rate > 0 for rate in rates)
    assert learning_rate_factor(30, 10, 30, warmup=(0.2, 0.25), second=0.5) == 0.0


def test_a_constant_learning_rate_only_warms_up() -> None:
    rates = [learning_rate_factor(s, 10, 30, warmup=(0.2, 0.25), second=0.5, decays=False) for s in range(31)]
    assert rates[:2] == pytest.approx([1 / 3, 2 / 3]) and rates[2:10] == [1.0] * 8
    assert rates[10:15] == pytest.approx([k / 12 for k in range(1, 6)]) and rates[15:] == [0.5] * 16


def test_a_context_does_not_depend_on_the_longest_set_beside_it() -> None:
    """Advantages of questions, (contexts, samples, questions), are filled up with 0."""
    one = torch.tensor([[[2.0], [-2.0]]])
    long = torch.nn.functional.pad(one, (0, 5))
    short, beside = (shaped(given, spread=0.5, rewarded=one[..., 0].isfinite()) for given in (one, long))
    torch.testing.assert_close(beside[..., :1], short)
    torch.testing.assert_close(short, one / (0.75 * 2 + 0.25 * 0.5))
