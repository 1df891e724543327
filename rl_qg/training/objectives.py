"""The equations of self-critical training as pure functions of tensors (QRelScore paper, eq. 11-15).

Legend: b contexts, k samples of each, n sequences, t target positions, v vocabulary entries. A `mask` is True at real
tokens (the end token included) and False at padding and everything after the end. No gradient flows into a reward.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_qg.generation.logprobs import _wide, token_logprobs
from rl_qg.runtime.errors import InputError
from rl_qg.settings.training import BASELINES, SCHEDULES

TOKENS_WITHOUT_QUESTION = 16
"""Target tokens that a row without a gold question counts for: about the length of a question."""


def target_tokens(labels: Tensor) -> Tensor:
    """By what the loss of an update is divided: the gold tokens of `labels` (n, t), -100 at padding, and
    `TOKENS_WITHOUT_QUESTION` for each row without any, so that a sequence weighs the same with and without a question.
    """
    real = labels.ne(-100)
    return real.sum() + TOKENS_WITHOUT_QUESTION * (~real.any(-1)).sum()


def counted_labels(labels: Tensor) -> Tensor:
    """Labels (m,) with `target_tokens(labels)` that are not -100, for code that counts; reads no device."""
    real = labels.ne(-100)
    flags = torch.cat((real.flatten(), (~real.any(-1)).repeat(TOKENS_WITHOUT_QUESTION)))
    return torch.where(flags, 0, -100)


def cross_entropy(logits: Tensor, labels: Tensor, *, label_smoothing: float = 0.0) -> Tensor:
    """L_ce (eq. 14) summed over the tokens of each sequence: (n, t, v), (n, t) with -100 at padding -> (n,).

    With label smoothing ε the target is (1 − ε) on the label and ε spread evenly over the vocabulary.
    """
    real = labels != -100
    logprobs = token_logprobs(logits, labels.masked_fill(~real, 0))
    losses = -logprobs
    if label_smoothing:
        label_logits = _wide(logits.gather(-1, labels.masked_fill(~real, 0).unsqueeze(-1)).squeeze(-1))
        # log of the normaliser − mean logit: the loss of a uniform target
        uniform = (label_logits - logprobs) - logits.mean(-1, dtype=label_logits.dtype)
        losses = (1 - label_smoothing) * losses + label_smoothing * uniform
    return (losses * real).sum(-1)


def advantages(rewards: Tensor, baseline: str, greedy: Tensor | None = None) -> Tensor:
    """The advantage of each sample over its baseline: rewards (b, k), greedy rewards (b,) -> (b, k).

    - greedy: r − r(ŷ) with ŷ the greedy question (SCST: Rennie et al. 2017, eq. 7; QRelScore paper, eq. 11). Unbiased.
    - leave_one_out: r_i − mean of the other k − 1 samples of the context (Kool et al. 2019). Unbiased; needs k > 1.
    - mean: r_i − mean of all k samples, r_i included, which scales the gradient by 1 − 1/k.
    - none: r itself (REINFORCE). Unbiased, with a variance that grows with the mean reward.

    A reward that is not finite is left out of every baseline, and its advantage is 0. Differences are taken in
    float64, so that equal rewards have advantages of exactly 0.
    """
    level, usable = baseline_levels(rewards, baseline, greedy)
    known = rewards.masked_fill(~usable, 0.0).double()
    return ((known - level) * usable).to(rewards.dtype).detach()


def baseline_levels(rewards: Tensor, baseline: str, greedy: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """What `advantages` compares with, and which pairs are known: (…, k), (…) -> (…, k or 1) float64, (…, k) bool."""
    usable = torch.isfinite(rewards)
    rewards = rewards.masked_fill(~usable, 0.0).double()
    if baseline == "greedy":
        assert greedy is not None, "baseline=greedy needs greedy rewards"
        usable = usable & torch.isfinite(greedy).unsqueeze(-1)
        level = torch.nan_to_num(greedy, nan=0.0, posinf=0.0, neginf=0.0).unsqueeze(-1)
    elif baseline == "leave_one_out":
        others = usable.sum(-1, keepdim=True) - usable.int()
        level = (rewards.sum(-1, keepdim=True) - rewards) / others.clamp(min=1)
        usable = usable & (others > 0)
    elif baseline == "mean":
        level = rewards.sum(-1, keepdim=True) / usable.sum(-1, keepdim=True).clamp(min=1)
    elif baseline == "none":
        level = torch.zeros_like(rewards)
    else:
        raise ValueError(f"baseline={baseline} is not one of {', '.join(BASELINES)}")
    return level, usable


def shaped(
    advantage: Tensor,
    *,
    scale: float = 1.0,
    normalise: bool = False,
    spread: float | None = None,
    rewarded: Tensor | None = None,
    clip: float | None = None,
) -> Tensor:
    """Advantages (b, k, …) for the loss: scaled, then divided by their root mean square, then clipped to
    [−clip, clip].

    Normalisation subtracts no mean (that would be another baseline), so signs are kept. The root mean square is over
    the samples of the batch whose advantage is not 0, or it is `spread`, the one of earlier updates, which stands in
    for scale and batch; where that is 0 nothing is known of it yet, and all advantages are 0.

    With `rewarded` (b, k), which samples have a reward, those of each context are divided by ¾ of the root mean square
    of its samples with one, and ¼ of `spread`: steps are nearly equal where the reward is surer of some contexts than
    of others, as in GRPO (Shao et al. 2024), which divides by the context's own alone. The second part keeps groups
    small whose rewards hardly differ, such as those in which no sample is right.
    """
    if spread is not None:
        size: float | Tensor = spread
        if rewarded is not None:
            flat = advantage.flatten(1)  # sets of questions are filled up with 0
            count = (flat.ne(0) if advantage.dim() > 2 else rewarded).sum(1).clamp(min=1)
            own = (flat.square().sum(1) / count).sqrt()
            size = 0.75 * own.view(-1, *(1,) * (advantage.dim() - 1)) + 0.25 * spread
        advantage = advantage / size if spread > 0 else torch.zeros_like(advantage)
    else:
        advantage = scale * advantage
    if normalise:
        size = advantage.square().sum() / advantage.ne(0).sum().clamp(min=1)
        advantage = advantage / size.sqrt().clamp(min=1e-8)
    return advantage if clip is None else advantage.clamp(-clip, clip)


def policy_gradient(logprobs: Tensor, mask: Tensor, advantage: Tensor) -> Tensor:
    """L_scst = −advantage · Σ_t log p(sample_t) of each sequence (eq. 11): (…, t), (…, t), (…) -> (…); with an
    advantage of each token (…, t) −Σ_t advantage_t · log p(sample_t).

    Its gradient, averaged over samples, is an estimate of the gradient of the expected negative reward.
    """
    if advantage.dim() == logprobs.dim():
        return -(advantage.detach() * logprobs * mask).sum(-1)
    return -advantage.detach() * (logprobs * mask).sum(-1)


def clipped_policy_gradient(logprobs: Tensor, old: Tensor, mask: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """−Σ_t min(ρ_t A, clip(ρ_t, 1 − ε, 1 + ε) A) of each sequence, with ρ_t = p(sample_t) / p_old(sample_t) of each
    token and ε = `clip` (PPO: Schulman et al. 2017, eq. 7): (n, t), (n, t), (n, t), (n,) or (n, t) -> (n,).

    Where all ratios are 1, its gradient is that of `policy_gradient`.
    """
    ratio = ((logprobs - old.detach()) * mask).exp()
    advantage = advantage.detach() if advantage.dim() == logprobs.dim() else advantage.detach().unsqueeze(-1)
    return -(torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage) * mask).sum(-1)


def kl_from_samples(logprobs: Tensor, reference: Tensor) -> Tensor:
    """KL(policy ‖ reference) at each sampled token from its two log-probabilities, (…, t) -> (…, t): the estimator k3
    of Schulman (2020), e^d − d − 1 with d = log q − log p. Never negative, unbiased in value over samples of p.

    As a loss its expected gradient is that of the forward divergence Σ_v q log(q / p), which has the same minimum.
    """
    difference = reference - logprobs
    return difference.exp() - difference - 1


def kl_over_vocabulary(logits: Tensor, reference: Tensor) -> Tensor:
    """KL(policy ‖ reference) of the next-token distributions at each position: (n, t, v), (n, t, v) -> (n, t)."""
    policy = logits.float().log_softmax(-1)
    return (policy.exp() * (policy - reference.float().log_softmax(-1))).sum(-1)


# --- schedules: functions of the step alone, so that a resumed run continues them


def scst_weight(
    step: int, boundary: int, total: int, *, schedule: str = "linear", maximum: float = 1.0, warmup: float = 0.1
) -> float:
    """λ of eq. 15 in the update that completes `step` (from 1): 0 up to `boundary`, then by `schedule` to `maximum`.

    linear (the paper) and cosine (half a period) reach the maximum at `total`, warmup after the fraction `warmup` of
    the stage, constant at once.
    """
    if step <= boundary:
        return 0.0
    done = min(1.0, (step - boundary) / (total - boundary))
    fractions = {
        "linear": done,
        "cosine": (1 - math.cos(math.pi * done)) / 2,
        "warmup": min(1.0, done / warmup) if warmup else 1.0,
        "constant": 1.0,
    }
    if schedule not in fractions:
        raise ValueError(f"schedule={schedule} is not one of {', '.join(SCHEDULES)}")
    return maximum * fractions[schedule]


def learning_rate_factor(
    step: int, boundary: int, total: int, *, warmup: tuple[float, float], second: float, decays: bool = True
) -> float:
    """Factor of the learning rate after `step` updates of two stages, `boundary` in the first and `total` in both. It
    rises linearly for the fraction `warmup` of each to its peak, 1 and `second`, and then falls to 0 if it `decays`.
    """
    if step < boundary:
        return _triangle(step, boundary, warmup[0], decays)
    return second * _triangle(step - boundary, total - boundary, warmup[1], decays)


def _triangle(step: int, total: int, warmup: float, decays: bool) -> float:
    rising = warmup * total
    if step < rising:
        return (step + 1) / (rising + 1)
    if not decays:
        return 1.0
    return max(0.0, (total - step) / max(1.0, total - rising))


def divided_by_rate(
    groups: list[dict[str, Any]], names: Mapping[Tensor, str], factors: Mapping[str, float]
) -> list[dict[str, Any]]:
    """Groups of an optimiser's parameters, each divided by the factor on the learning rate: that of the longest of
    `factors` whose text a name contains, else 1, whose groups come first, as the first group's rate is logged.

    Raises `InputError` where a text is in no name of a parameter that learns.
    """
    divided, learning = [], [names[parameter] for group in groups for parameter in group["params"]]
    if unused := [text for text in factors if not any(text in name for name in learning)]:
        raise InputError(f"training.rate_factors: {', '.join(unused)}: in no name of a parameter that learns")
    for group in groups:
        by_factor: dict[float, list[Tensor]] = {1.0: []}
        for parameter in group["params"]:
            text = max((text for text in factors if text in names[parameter]), key=len, default="")
            by_factor.setdefault(factors.get(text, 1.0), []).append(parameter)
        divided += [group | {"params": own, "lr": factor * group["lr"]} for factor, own in by_factor.items() if own]
    return sorted(divided, key=lambda group: group["lr"] != groups[0]["lr"])


def adapted_coefficient(coefficient: float, divergence: float, target: float) -> float:
    """β for the next update, so that the divergence approaches `target` (Ziegler et al. 2019, section 2.2).

    One update changes β by at most 2 %.
    """
    error = max(-0.2, min(0.2, divergence / target - 1))
    return coefficient * (1 + 0.1 * error)
