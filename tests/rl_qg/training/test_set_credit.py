"""Credit of questions for the reward of their set: gradients by enumeration, tables by hand."""

import math

import pytest
import torch
from torch import Tensor

from rewards import MultiSetReward
from rl_qg.training.objectives import advantages, clipped_policy_gradient, policy_gradient
from rl_qg.training.set_credit import question_advantages, question_of_token, token_advantages
from tests.rl_qg.training.set_policy import (
    END,
    MASK,
    REFERENCES,
    SEPARATOR,
    SETS,
    TOKENS,
    autoregressive,
    exact_loss,
    expected_loss,
    factorised,
    logprobs,
    variance,
)

BASELINES = [("none", 1), ("greedy", 1), ("leave_one_out", 2)]


def gradient(loss: Tensor, table: Tensor) -> Tensor:
    (value,) = torch.autograd.grad(loss, table)
    return value


def test_the_toy_is_a_distribution_over_sets() -> None:
    assert logprobs(autoregressive()).sum(-1).exp().sum().item() == pytest.approx(1)
    assert len({tuple(group) for group in SETS}) > 40


@pytest.mark.parametrize("credit", ["whole", "to_go"])
@pytest.mark.parametrize(("baseline", "k"), BASELINES)
def test_whole_and_to_go_follow_the_gradient_of_the_expected_reward(credit: str, baseline: str, k: int) -> None:
    table = autoregressive()
    want = gradient(exact_loss(table), table)
    torch.testing.assert_close(gradient(expected_loss(table, credit, baseline, k), table), want)


@pytest.mark.parametrize(("baseline", "k"), BASELINES)
def test_marginal_credit_does_where_questions_are_drawn_independently(baseline: str, k: int) -> None:
    table = torch.tensor([[0.3, -0.4], [1.0, 0.2]], dtype=torch.float64, requires_grad=True)
    want = gradient(exact_loss(factorised(table)), table)
    assert want.norm() > 0.05
    torch.testing.assert_close(gradient(expected_loss(factorised(table), "marginal", baseline, k), table), want)


@pytest.mark.parametrize(("baseline", "k"), BASELINES)
def test_what_marginal_credit_drops_where_they_are_not(baseline: str, k: int) -> None:
    """Its gradient is that of the expected reward less E[Σ_j R(Q without q_j) ∇ log p(q_j)], whatever the baseline."""
    table = autoregressive()
    values = logprobs(table)
    place = question_of_token(TOKENS, MASK, SEPARATOR)
    without = torch.zeros(values.shape, dtype=torch.float64)
    for row, group in enumerate(SETS):
        for at in range(values.shape[1]):
            rest = [text for other, text in enumerate(group) if other != place[row, at]]
            without[row, at] = MultiSetReward().score_sets([rest], references=REFERENCES[:1])[0]
    dropped = -(values.sum(-1).exp().detach() * (without * values).sum(-1)).sum()
    lost = gradient(dropped, table)
    want = gradient(exact_loss(table), table) - lost
    torch.testing.assert_close(gradient(expected_loss(table, "marginal", baseline, k), table), want)
    assert lost.norm() > 0.05 * want.norm()


def test_credit_of_questions_lowers_the_variance() -> None:
    """Of the estimate with two samples, on the toy; `to_go` without bias."""
    table = autoregressive()
    whole, to_go = (variance(table, credit, "leave_one_out", 2) for credit in ("whole", "to_go"))
    torch.testing.assert_close(whole[0], to_go[0])
    assert to_go[1] < whole[1]


def test_to_which_question_a_token_belongs() -> None:
    tokens = torch.tensor([[5, SEPARATOR, 6, 7, END, END], [5, 6, SEPARATOR, SEPARATOR, 7, 8]])
    mask = torch.tensor([[True] * 5 + [False], [True] * 6])
    place = question_of_token(tokens, mask, SEPARATOR)
    assert place.tolist() == [[0, 0, 1, 1, 1, 1], [0, 0, 0, 1, 2, 2]]


@pytest.mark.parametrize("credit", ["marginal", "to_go"])
@pytest.mark.parametrize("baseline", ["none", "greedy", "leave_one_out", "mean"])
def test_of_sets_of_one_question_all_credits_are_the_same(credit: str, baseline: str) -> None:
    rewards = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    greedy = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    credits = [[value] for value in rewards.flatten().tolist()]
    got = question_advantages(
        credit, rewards, credits, baseline, greedy=greedy, greedy_credits=[[value] for value in greedy.tolist()]
    )
    torch.testing.assert_close(got.squeeze(-1), advantages(rewards, baseline, greedy))


CREDITS = [[0.5, 0.1], [0.3], [0.2, 0.2, 0.8], []]  # of two contexts with two samples each
REWARDS = torch.tensor([[0.6, 0.3], [0.9, 0.0]], dtype=torch.float64)


def test_marginals_are_compared_with_the_mean_marginal_of_the_other_sample() -> None:
    got = question_advantages("marginal", REWARDS, CREDITS, "leave_one_out")
    want = [[[0.5 - 0.3, 0.1 - 0.3, 0], [0.3 - 0.3, 0, 0]], [[0.2, 0.2, 0.8], [-0.4, 0, 0]]]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))


def test_values_to_go_are_compared_at_the_same_place() -> None:
    got = question_advantages("to_go", REWARDS, CREDITS, "leave_one_out")
    want = [[[0.5 - 0.3, 0.1, 0], [0.3 - 0.5, 0, 0]], [[0.2, 0.2, 0.8], [-0.2, 0, 0]]]
    torch.testing.assert_close(got, torch.tensor(want, dtype=torch.float64))


@pytest.mark.parametrize(("credit", "level"), [("marginal", [0.25, 0.25]), ("to_go", [0.4, 0.1])])
def test_the_greedy_set_as_baseline(credit: str, level: list[float]) -> None:
    rewards, greedy = torch.tensor([[0.6]]), torch.tensor([0.4])
    got = question_advantages(credit, rewards, [[0.5, 0.2]], "greedy", greedy=greedy, greedy_credits=[[0.4, 0.1]])
    assert got[0, 0].tolist() == pytest.approx([0.5 - level[0], 0.2 - level[1]])


@pytest.mark.parametrize("credit", ["marginal", "to_go"])
def test_a_failed_reward_teaches_nothing(credit: str) -> None:
    rewards = torch.tensor([[0.6, math.nan, 0.3]])
    got = question_advantages(credit, rewards, [[0.5, 0.1], [], [0.3]], "leave_one_out")
    assert got.isfinite().all() and not got[0, 1].any()
    without = question_advantages(credit, rewards[:, [0, 2]], [[0.5, 0.1], [0.3]], "leave_one_out")
    torch.testing.assert_close(got[:, [0, 2]], without)
    failed = torch.tensor([math.nan])
    assert not question_advantages(
        credit, rewards, [[0.5], [], [0.3]], "greedy", greedy=failed, greedy_credits=[[]]
    ).any()


def test_tokens_take_the_advantage_of_their_question() -> None:
    advantage = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    place = torch.tensor([[0, 0, 1, 1], [0, 1, 2, 7]])
    assert token_advantages(advantage, place).tolist() == [[1, 1, 2, 2], [3, 4, 0, 0]]


def test_losses_take_advantages_of_tokens() -> None:
    """Equal ones are those of the sequence; others weigh each token."""
    values, mask = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)), torch.ones(3, 4, dtype=torch.bool)
    advantage = torch.tensor([0.5, -1.0, 2.0])
    each = advantage.unsqueeze(-1).expand(-1, 4)
    torch.testing.assert_close(policy_gradient(values, mask, each), policy_gradient(values, mask, advantage))
    for loss in (each, each * torch.tensor([1.0, 0.0, 0.0, 0.0])):
        want = -(values * loss).sum(-1)
        torch.testing.assert_close(policy_gradient(values, mask, loss), want)
    old = values + 0.1
    torch.testing.assert_close(
        clipped_policy_gradient(values, old, mask, each, 0.2),
        clipped_policy_gradient(values, old, mask, advantage, 0.2),
    )
