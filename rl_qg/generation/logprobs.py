"""Log-probabilities of given tokens under the logits of a model."""

from typing import Any

import torch
from torch import Tensor


def shift_right(labels: Tensor, starts: Tensor, pad_token: int) -> Tensor:
    """Decoder input of teacher forcing, (n, p - 1 + t): `starts` (n, p), then `labels` (n, t) but the last; -100
    becomes padding. The last t outputs are about the labels.
    """
    shifted = torch.cat((starts, labels[:, :-1]), 1)
    return shifted.masked_fill(shifted == -100, pad_token)


def about_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """The logits (n, t, v) of `labels` (n, t) among those after the input of `shift_right`, (n, p - 1 + t, v)."""
    extra = logits.shape[1] - labels.shape[1]
    return logits[:, extra:] if extra else logits  # a slice of everything would be copied in the backward pass


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability (n, t), at least float32, of each of `tokens` (n, t) under softmax(`logits`), (n, t, v)."""
    return _TokenLogprobs.apply(logits, tokens)


class _TokenLogprobs(torch.autograd.Function):
    """log softmax and gather in one function. Of tensors of size (n, t, v), only the logits are kept for the backward
    pass, in their own precision; the cross-entropy of PyTorch also keeps a float32 log softmax.
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
