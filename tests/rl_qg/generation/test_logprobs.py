"""Log-probabilities of half-precision logits are exact to float32."""

import pytest
import torch

from rl_qg.generation.logprobs import token_logprobs


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_in_the_logits_alone(dtype: torch.dtype) -> None:
    """Neither the log-probabilities nor their gradient are computed in it: a sum of 2,000 terms is off by 1 %."""
    logits = torch.randn(2, 3, 2000, generator=torch.Generator().manual_seed(4)).to(dtype).requires_grad_()
    tokens = torch.tensor([[0, 1999, 2], [30, 30, 1]])
    found = token_logprobs(logits, tokens)
    exact = logits.detach().double().requires_grad_()
    expected = exact.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(found.sum(), logits)
    (slow,) = torch.autograd.grad(expected.sum(), exact)
    one_rounding = torch.finfo(dtype).eps / 2
    torch.testing.assert_close(gradient.double(), slow, rtol=1.01 * one_rounding, atol=1e-7)


def test_float64_stays_float64() -> None:
    logits = torch.zeros(1, 1, 3, dtype=torch.float64)
    found = token_logprobs(logits, torch.tensor([[1]]))
    assert found.dtype is torch.float64 and found.item() == pytest.approx(-(torch.tensor(3.0).double().log().item()))
