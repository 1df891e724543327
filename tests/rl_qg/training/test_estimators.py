"""Bias of the gradient estimators, by exact enumeration.

The policy is a table of logits over every question of up to two tokens from a vocabulary of three with an end token;
each question has a known probability and reward. The expected gradient of an estimator is the sum over all k-tuples of
samples of their probability times the gradient of the trainer's loss; the exact one is the derivative of the expected
reward.
"""

from itertools import product

import pytest
import torch

from rl_qg.generation.logprobs import token_logprobs
from rl_qg.training.objectives import advantages, policy_gradient, shaped

END, LENGTH = 0, 2
SEQUENCES = [[END], *([first, second] for first in (1, 2) for second in (0, 1, 2))]
REWARDS = torch.tensor([0.3, 1.0, -0.5, 0.2, 2.0, 0.9, -1.2], dtype=torch.float64)


def tables() -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (7, 2) and their mask."""
    tokens = torch.tensor([[*sequence, *[0] * (LENGTH - len(sequence))] for sequence in SEQUENCES])
    mask = torch.tensor([[position < len(sequence) for position in range(LENGTH)] for sequence in SEQUENCES])
    return tokens, mask


def policy() -> torch.Tensor:
    """Logits (4, 3): the row is the previous token, or 3 at the start."""
    return torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()


def logprobs(table: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (7, 2) of every question's tokens."""
    tokens, _ = tables()
    before = torch.cat((torch.full((len(tokens), 1), 3), tokens[:, :-1]), 1)
    return token_logprobs(table[before], tokens)


def exact(table: torch.Tensor) -> torch.Tensor:
    _, mask = tables()
    probability = (logprobs(table) * mask).sum(-1).exp()
    assert probability.sum().item() == pytest.approx(1)
    (gradient,) = torch.autograd.grad(-(probability * REWARDS).sum(), table)
    return gradient


def expected(table: torch.Tensor, baseline: str, k: int, **shape: float | bool) -> torch.Tensor:
    """The mean gradient over every k-tuple of samples."""
    _, mask = tables()
    values = logprobs(table)
    probability = (values * mask).sum(-1).exp().detach()
    greedy = REWARDS[probability.argmax()].expand(1)
    total = torch.zeros((), dtype=torch.float64)
    for chosen in product(range(len(SEQUENCES)), repeat=k):
        rows = list(chosen)
        advantage = shaped(advantages(REWARDS[rows].unsqueeze(0), baseline, greedy), **shape)  # type: ignore[arg-type]
        loss = policy_gradient(values[rows], mask[rows], advantage[0]).mean()
        total = total + probability[rows].prod() * loss
    (gradient,) = torch.autograd.grad(total, table)
    return gradient


@pytest.mark.parametrize(
    ("baseline", "k"),
    [("greedy", 1), ("greedy", 2), ("none", 1), ("none", 3), ("leave_one_out", 2), ("leave_one_out", 3)],
)
def test_unbiased_estimators(baseline: str, k: int) -> None:
    table = policy()
    torch.testing.assert_close(expected(table, baseline, k), exact(table))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_mean_baseline_scales_the_gradient_by_1_minus_1_over_k(k: int) -> None:
    table = policy()
    torch.testing.assert_close(expected(table, "mean", k), (1 - 1 / k) * exact(table))


def test_clipping_is_biased() -> None:
    """The other tests would also pass if `expected` did not depend on the advantages."""
    table = policy()
    assert (expected(table, "greedy", 1, clip=0.2) - exact(table)).norm() > 0.1 * exact(table).norm()
