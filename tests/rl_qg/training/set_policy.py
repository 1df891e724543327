"""A policy of sets small enough to enumerate: every text of up to four tokens from two words, separator and end."""

from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from rewards import MultiSetReward
from rl_qg.training.objectives import advantages, policy_gradient
from rl_qg.training.set_credit import question_advantages, question_of_token, token_advantages

END, SEPARATOR, WORDS, LENGTH = 0, 1, (2, 3), 4
VOCABULARY = (END, SEPARATOR, *WORDS)
PREFIXES = [prefix for size in range(LENGTH) for prefix in product(VOCABULARY[1:], repeat=size)]
TEXTS = [(*prefix, END) for prefix in PREFIXES] + list(product(VOCABULARY[1:], repeat=LENGTH))
GOLD = [["w2"], ["w3"]]

TOKENS = torch.tensor([[*text, *[END] * (LENGTH - len(text))] for text in TEXTS])
MASK = torch.tensor([[at < len(text) for at in range(LENGTH)] for text in TEXTS])
# The row of the table that holds the logits before each token.
BEFORE = torch.tensor([[PREFIXES.index(text[:at]) if at < len(text) else 0 for at in range(LENGTH)] for text in TEXTS])


def questions(text: Sequence[int]) -> list[str]:
    """Its questions; the last one of a text that does not end is cut, and counts as empty. A text without anything
    has none, as in `rl_qg.generation.sets.question_parts`.
    """
    parts: list[list[str]] = [[]]
    for token in text:
        if token == SEPARATOR:
            parts.append([])
        elif token != END:
            parts[-1].append(f"w{token}")
    if text[-1] != END:
        parts[-1] = []
    return [" ".join(part) for part in parts] if len(parts) > 1 or parts[0] else []


SETS = [questions(text) for text in TEXTS]
REFERENCES = [["w2", "w3"]] * len(TEXTS)
REWARDS = torch.tensor(MultiSetReward().score_sets(SETS, references=REFERENCES), dtype=torch.float64)


def autoregressive(seed: int = 0, size: float = 1.0) -> Tensor:
    """Logits (prefixes, vocabulary): every token looks at all before it."""
    table = size * torch.randn(len(PREFIXES), len(VOCABULARY), generator=torch.Generator().manual_seed(seed))
    return table.double().requires_grad_()


def factorised(table: Tensor) -> Tensor:
    """Logits (prefixes, vocabulary) of a policy that writes two questions of one word each, drawn independently, from
    its logits (2 questions, 2 words).
    """
    never = torch.full((len(VOCABULARY),), -torch.inf, dtype=torch.float64)
    rows = []
    for prefix in PREFIXES:
        row = never.clone()
        at = len(prefix)
        if at in (0, 2):
            row = torch.cat((row[:2], table[at // 2]))
        else:
            row[SEPARATOR if at == 1 else END] = 0.0
        rows.append(row)
    return torch.stack(rows)


def logprobs(logits: Tensor) -> Tensor:
    """Log-probabilities (texts, LENGTH) of the tokens; 0 after the end."""
    values = logits.log_softmax(-1)[BEFORE, TOKENS]
    return values.masked_fill(~MASK, 0.0)


def exact_loss(logits: Tensor) -> Tensor:
    """The expected negative reward."""
    return -(logprobs(logits).sum(-1).exp() * REWARDS).sum()


def token_advantages_of(credit: str, baseline: str, chosen: Tensor, greedy: int) -> Tensor:
    """Advantages (rows · k, LENGTH) of k texts of each of some contexts (rows, k), as the trainer computes them."""
    flat = chosen.flatten()
    rewards, level = REWARDS[chosen], REWARDS[greedy].expand(len(chosen))
    if credit == "whole":
        return advantages(rewards, baseline, level).flatten().unsqueeze(-1).expand(-1, LENGTH)
    credits = MultiSetReward().result(SETS, references=REFERENCES, credit=credit).credits
    rows = [credits[at] for at in flat.tolist()]
    of_greedy = [credits[greedy]] * len(chosen)
    advantage = question_advantages(credit, rewards, rows, baseline, greedy=level, greedy_credits=of_greedy)
    place = question_of_token(TOKENS[flat], MASK[flat], SEPARATOR)
    return token_advantages(advantage, place)


def tuples(k: int) -> Tensor:
    """Every choice of k texts, (texts^k, k)."""
    return torch.cartesian_prod(*[torch.arange(len(TEXTS))] * k).view(-1, k)


def expected_loss(logits: Tensor, credit: str, baseline: str, k: int) -> Tensor:
    """A loss whose gradient is the mean over every choice of k samples of the trainer's."""
    values, chosen = logprobs(logits), tuples(k)
    probability = values.sum(-1).exp().detach()
    advantage = token_advantages_of(credit, baseline, chosen, int(probability.argmax()))
    flat = chosen.flatten()
    losses = policy_gradient(values[flat], MASK[flat], advantage).view(-1, k).mean(-1)
    return (probability[chosen].prod(-1) * losses).sum()


def variance(logits: Tensor, credit: str, baseline: str, k: int) -> tuple[Tensor, float]:
    """The mean gradient (parameters,) of the trainer's estimate with k samples, and its total variance."""
    chosen = tuples(k)
    probability = logprobs(logits).sum(-1).exp().detach()
    advantage = token_advantages_of(credit, baseline, chosen, int(probability.argmax()))
    # ∇ log p of each token in the row of its prefix
    scores = torch.eye(len(VOCABULARY), dtype=torch.float64)[TOKENS] - logits.detach().softmax(-1)[BEFORE]
    table = torch.zeros(len(TEXTS), LENGTH, *logits.shape, dtype=torch.float64)
    table[torch.arange(len(TEXTS))[:, None], torch.arange(LENGTH), BEFORE] = scores * MASK.unsqueeze(-1)
    table = table.flatten(2)
    weights, mean, square = probability[chosen].prod(-1), torch.zeros(table.shape[-1], dtype=torch.float64), 0.0
    for part in torch.arange(len(chosen)).split(2000):
        own = advantage.view(len(chosen), k, LENGTH)[part]
        gradient = -torch.einsum("rkt,rktp->rp", own, table[chosen[part]]) / k
        mean += weights[part] @ gradient
        square += float(weights[part] @ gradient.square().sum(-1))
    return mean, square - float(mean.square().sum())
