"""Log-probabilities of given tokens under a model's logits."""

from typing import Any

import torch
from torch import Tensor


def shift_right(labels: Tensor, start_token: int, pad_token: int) -> Tensor:
    """Decoder input of teacher forcing: `labels` one position later, behind the start token. Shape (n, t); -100
    becomes padding.
    """
    shifted = labels.roll(1, dims=1)
    shifted[:, 0] = start_token
    return shifted.masked_fill(shifted == -100, pad_token)


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log p of each token under the unscaled distribution: `logits` (n, t, v), `tokens` (n, t) -> (n, t), at least
    float32.
    """
    return _TokenLogprobs.apply(logits, tokens)


class _TokenLogprobs(torch.autograd.Function):
    """log softmax and gather in one, so that the only tensors of size (n, t, v) kept between forward and backward are
    the logits themselves, in their own precision; the library's cross-entropy keeps a float32 log softmax beside them.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, tokens: Tensor) -> Tensor:
        normaliser = _wide(logits).logsumexp(-1)
        ctx.save_for_backward(logits, tokens, normaliser)
        return _wide(logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)) - normaliser

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        logits, tokens, normaliser = ctx.saved_tensors
        gradient = gradient.unsqueeze(-1)
        back = (_wide(logits) - normaliser.unsqueeze(-1)).exp_().mul_(-gradient)
        back.scatter_add_(-1, tokens.unsqueeze(-1), gradient)
        return back.to(logits.dtype), None


def _wide(values: Tensor) -> Tensor:
    return values.float() if values.dtype in (torch.bfloat16, torch.float16) else values
