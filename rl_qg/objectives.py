"""The equations of self-critical training as pure functions of tensors (QRelScore paper, eq. 11-15).

Legend: b sequences, t target positions, v vocabulary entries. A `mask` is True at real tokens (the end token included)
and False at padding and everything after the end.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def shift_right(labels: Tensor, start_token: int, pad_token: int) -> Tensor:
    """Decoder input of teacher forcing: `labels` one position later, behind the start token. Shape (b, t); -100
    becomes padding.
    """
    shifted = labels.roll(1, dims=1)
    shifted[:, 0] = start_token
    return shifted.masked_fill(shifted == -100, pad_token)


def token_logprobs(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log p of each token under the unscaled distribution. `logits` (b, t, v), `tokens` (b, t) -> (b, t), float32.

    The normaliser is subtracted after the gather, so that no second (b, t, v) tensor is kept.
    """
    chosen = logits.gather(-1, tokens.unsqueeze(-1)).squeeze(-1).float()
    return chosen - logits.float().logsumexp(-1)


def cross_entropy(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """L_ce (eq. 12) summed over the tokens of each sequence: (b, t, v), (b, t) with -100 at padding -> (b,)."""
    losses = F.cross_entropy(
        logits.float().transpose(1, 2), labels, ignore_index=-100, reduction="none", label_smoothing=label_smoothing
    )
    return losses.sum(-1)


def self_critical(logprobs: Tensor, mask: Tensor, reward_sample: Tensor, reward_greedy: Tensor) -> Tensor:
    """L_scst = (r(greedy) - r(sample)) * sum_t log p(sample_t) for each sequence (eq. 14). No gradient flows into the
    rewards.

    Shapes: `logprobs`, `mask` (b, t); rewards (b,) -> (b,). A row whose rewards are not finite teaches nothing: its
    loss is 0.
    """
    advantage = torch.nan_to_num(reward_sample - reward_greedy, nan=0.0, posinf=0.0, neginf=0.0).detach()
    return -advantage * (logprobs * mask).sum(-1)


def linear_lambda(step: int, boundary: int, total: int) -> float:
    """λ of eq. 15 in the update that completes `step` (from 1): 0 up to `boundary`, then linear to 1 at `total`.

    A function of the step alone, so that a resumed run continues the schedule.
    """
    if step <= boundary:
        return 0.0
    return min(1.0, (step - boundary) / (total - boundary))


def restarting_rate(step: int, boundary: int, total: int, *, warmup: tuple[float, float], second: float) -> float:
    """Learning-rate factor: linear warm-up and decay in each of two stages, the second starting anew.

    Args:
        step: updates done.
        boundary: updates of the first stage.
        total: updates of both.
        warmup: share of each stage spent warming up.
        second: peak of the second stage relative to the first.
    """
    if step < boundary:
        return _triangle(step, boundary, warmup[0])
    return second * _triangle(step - boundary, total - boundary, warmup[1])


def _triangle(step: int, total: int, warmup: float) -> float:
    rising = warmup * total
    if step < rising:
        return (step + 1) / (rising + 1)
    return max(0.0, (total - step) / max(1.0, total - rising))
