r"""Which part of the reward of a set each token of its text answers for (`scst.credit`).

A text y is a set of questions q_1 … q_m; R(Q) is its reward (`rewards.set_rewards`). Token t of question j has the
advantage A_t, and the update follows Σ_t A_t ∇ log p(y_t | y_<t). A term of A_t that is fixed once y_<t is known, or
that comes from other samples, adds nothing to the expectation, since E[∇ log p(y_t | y_<t) | y_<t] = 0: that is what a
baseline is. Below b is one; the n samples of a context are compared as `scst.baseline` says.

- **whole**: A_t = R(Q) − b for all tokens, the gradient of E[R]. A good question in a poor set is made less likely.
- **marginal**: A_t = d_j − b with d_j = R(Q) − R(Q \ q_j), the difference reward of question j (Wolpert and Tumer
  2001). To exchange R(Q) for d_j drops E[R(Q \ q_j) ∇ log p(q_j | y_<j)]. That is 0, so the gradient is that of E[R],
  where q_j has no effect on the other questions: where each question is drawn without a look at the earlier ones, and
  their number is fixed. A model that writes one question after the other does look back. What is dropped is then the
  effect of q_j on later questions and on their number, in so far as it changes R(Q \ q_j): the direction is biased.
  Most of all nobody answers for the number of questions: an end token belongs to the last question, as a separator
  does to the one before it, and both get the d_j of a question that was complete before them. R(∅) = 0, so a question
  alone has all of R, and one among others that say the like has little: sets become small, whatever more questions
  would add (measured in experiments/sets/credit.md, where the gradient points away from that of E[R]).
  b is a mean of *mean marginals* (1/m) Σ_j d_j of the other samples. It has the size of a d_j (their sum has m times
  that), and has no token of the sample in it.
- **to_go**: A_t = R(Q) − R(q_1 … q_{j−1}) − b_j, what the set gains from question j on. R(q_1 … q_{j−1}) is known
  before the first token of q_j, so it is a baseline, and the gradient is that of E[R] exactly, for any model: earlier
  questions, good or bad, drop out. A separator gets what this question and the later ones add, an end token what this
  one adds: the difference teaches the number of questions. (Neither may be compared with R(q_1 … q_j), as if it
  belonged to what follows: that q_j is complete is not known before the token, so it would be no baseline.)
  b_j is a mean over the other samples of their value at the same j, 0 where they have ended.

Shapes: b contexts, k samples of each, n = b · k sequences, t positions, m questions at most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_qg.generation.decoding import Decoded
from rl_qg.scoring.reward_scorer import ScoredBatch
from rl_qg.training.objectives import advantages, baseline_levels

Credits = Sequence[Sequence[float]]


@dataclass(frozen=True)
class ScoredRollout:
    """Texts of a rollout with their rewards (float32, NaN where there is none), all in the host's memory: what is
    computed from so few numbers would make the accelerator wait.

    Shapes: `sampled` b · k texts, the k of a context next to each other; `rewards` (b, k); `parts` (b · k,) each;
    `greedy` (b,) with its texts, None without greedy questions. `credits` b · k and
    `greedy_credits` b lists, a number for each question of a set; None for other texts.
    """

    sampled: list[str]
    greedy_texts: list[str]
    rewards: Tensor
    greedy: Tensor | None
    parts: Mapping[str, Tensor]
    credits: list[list[float]] | None = None
    greedy_credits: list[list[float]] | None = None

    @classmethod
    def of(cls, scored: ScoredBatch, sampled: list[str], greedy: list[str], *, copies: int) -> "ScoredRollout":
        scores, count, credits = torch.tensor(scored.scores), len(sampled), scored.credits
        return cls(
            sampled,
            greedy,
            scores[:count].view(-1, copies),
            scores[count:] if greedy else None,
            {name: torch.tensor(values[:count]) for name, values in scored.parts.items()},
            None if credits is None else credits[:count],
            None if credits is None else credits[count:],
        )


def advantages_of(scored: ScoredRollout, baseline: str, credit: str = "whole") -> Tensor:
    """The advantages of a rollout: of its samples (b, k), or of their questions (b, k, m)."""
    if credit == "whole" or scored.credits is None:
        return advantages(scored.rewards, baseline, scored.greedy)
    greedy_credits = scored.greedy_credits or ()
    return question_advantages(
        credit, scored.rewards, scored.credits, baseline, greedy=scored.greedy, greedy_credits=greedy_credits
    )


def of_questions(advantage: Tensor, samples: Decoded, separator: int) -> Tensor:
    """The advantages by which the log-probabilities of the tokens of n samples are weighed: (b, k, m) -> (n, t)."""
    return token_advantages(advantage, question_of_token(samples.tokens, samples.mask, separator))


def without_cut_part(texts: Sequence[str], decoded: Decoded, end: int, separator: str) -> list[str]:
    """Texts of parts, in which the last part of one that did not end within the longest length is left empty."""
    ended = (decoded.tokens.eq(end) & decoded.mask).any(-1).tolist()
    rows = zip(texts, ended, strict=True)
    return [text if whole else "".join(text.rpartition(separator)[:2]) for text, whole in rows]


def question_advantages(
    credit: str,
    rewards: Tensor,
    credits: Credits,
    baseline: str,
    *,
    greedy: Tensor | None = None,
    greedy_credits: Credits = (),
) -> Tensor:
    """The advantage of each question over its baseline: (b, k) and n lists, a number for each question -> (b, k, m),
    0 where a sample has no such question. A text without any question answers for R(∅) = 0 with all its tokens: it is
    compared with the others like a question that earned nothing.

    Args:
        credit: `marginal` or `to_go`.
        rewards: of the samples; where one is not finite, all its advantages are 0.
        credits: of each question, by the same credit (`rewards.set_rewards.SetReward.result`).
        baseline: one of `objectives.advantages`.
        greedy: rewards (b,) of the greedy set of each context, for `baseline="greedy"`.
        greedy_credits: of its questions, b lists.
    """
    copies = rewards.shape[-1]
    places = max((1, *(len(row) for row in (*credits, *greedy_credits))))
    values, numbers = (part.unflatten(0, (-1, copies)) for part in _padded(credits, rewards.flatten(), places))
    fixed, fixed_numbers = (None, None) if greedy is None else _padded(greedy_credits, greedy, places)
    position = torch.arange(places, device=rewards.device)
    if credit == "marginal":
        means = values.sum(-1) / numbers
        if fixed is not None and fixed_numbers is not None:
            fixed = fixed.sum(-1) / fixed_numbers
        level, usable = (part.unsqueeze(-1) for part in baseline_levels(means, baseline, fixed))
    else:
        levels = baseline_levels(values.transpose(1, 2), baseline, fixed)
        level, usable = (part.transpose(1, 2) for part in levels)
    usable = usable & (position < numbers.unsqueeze(-1))
    return ((values.masked_fill(~usable, 0.0) - level) * usable).to(rewards.dtype).detach()


def question_of_token(tokens: Tensor, mask: Tensor, separator: int) -> Tensor:
    """The place of the question that each token belongs to, from 0: (n, t), (n, t) -> (n, t). A separator belongs to
    the question that it closes, the end token to the last one.
    """
    separators = (tokens.eq(separator) & mask).long()
    return separators.cumsum(-1) - separators


def token_advantages(advantage: Tensor, place: Tensor) -> Tensor:
    """The advantage of each token: (b, k, m), (n, t) -> (n, t); 0 for questions that have none."""
    rows = torch.nn.functional.pad(advantage.flatten(0, 1), (0, 1))
    return rows.gather(1, place.clamp(max=rows.shape[1] - 1))


def _padded(credits: Credits, rewards: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Lists of at most `places` numbers as (lists, places) in float64, filled up with 0, and their lengths (lists,),
    at least 1; NaN where the reward (lists,) is not finite.
    """
    rows = [[*row, *[0.0] * (places - len(row))] for row in credits]
    values = torch.tensor(rows, dtype=torch.float64, device=rewards.device).view(len(rows), places)
    numbers = torch.tensor([max(1, len(row)) for row in credits], device=rewards.device)
    return values.masked_fill(~torch.isfinite(rewards).unsqueeze(-1), torch.nan), numbers
