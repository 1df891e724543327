"""Rollouts: greedy and sampled questions decoded together, over one pass of the encoder.

Sampling is on-policy: nothing but the model's own distribution decides (no top-k, no repetition rules, no forced
tokens, whatever the checkpoint's generation config says). Each row draws from random numbers of its own example, so a
rollout does not depend on how examples are spread over batches or processes, and a resumed run draws the same again.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput


@dataclass(frozen=True)
class Decoded:
    """Generated tokens without the start token. `tokens` (b, t), padding after the end; `mask` (b, t), True up to and
    including the end token.
    """

    tokens: Tensor
    mask: Tensor


@dataclass(frozen=True)
class SpecialTokens:
    """The three ids that decoding needs."""

    start: int
    end: int
    pad: int

    @classmethod
    def of(cls, model: PreTrainedModel) -> "SpecialTokens":
        """Read them from the model's generation config, where transformers keeps them."""
        config: GenerationConfig = model.generation_config
        end = config.eos_token_id
        return cls(
            start=config.decoder_start_token_id,
            end=end[0] if isinstance(end, list) else end,
            pad=config.pad_token_id,
        )


def uniforms(keys: Sequence[str], count: int, *, seed: int, step: int) -> Tensor:
    """Random numbers in [0, 1), shape (len(keys), count): a function of seed, step and the example's key alone."""
    rows = []
    for key in keys:
        digest = hashlib.sha256(f"{seed}|{step}|{key}".encode()).digest()
        rows.append(
            np.random.Generator(np.random.PCG64(int.from_bytes(digest[:16], "little"))).random(count, np.float32)
        )
    return torch.from_numpy(np.stack(rows))


def choose(logits: Tensor, uniform: Tensor) -> Tensor:
    """Draw a token from softmax(logits) by inverting its distribution function. (b, v), (b,) -> (b,)."""
    cumulative = logits.float().softmax(-1).cumsum(-1)
    # Scaled by the last entry: rounding leaves it next to 1, and a draw beyond it would name a token that does not
    # exist.
    return (
        torch.searchsorted(cumulative, (uniform * cumulative[:, -1]).unsqueeze(-1), right=True)
        .squeeze(-1)
        .clamp(max=logits.shape[-1] - 1)
    )


@torch.no_grad()
def decode(
    model: PreTrainedModel,
    encoder_states: Tensor,
    attention_mask: Tensor,
    *,
    draws: Tensor | None,
    max_new_tokens: int,
) -> tuple[Decoded, Decoded | None]:
    """Greedy questions, and sampled ones when `draws` is given, decoded in one batch with a key-value cache.

    Args:
        model: an encoder-decoder in eval mode (rollouts use no dropout).
        encoder_states: (b, s, h), the encoder's output, computed once by the caller.
        attention_mask: (b, s).
        draws: (b, max_new_tokens) random numbers in [0, 1) for the sampled half, or None for greedy alone.
        max_new_tokens: longest question in tokens, the end token included.

    Returns:
        The greedy and the sampled half; the second is None without `draws`.
    """
    special = SpecialTokens.of(model)
    batch = encoder_states.shape[0]
    if draws is not None:
        encoder_states = torch.cat((encoder_states, encoder_states))
        attention_mask = torch.cat((attention_mask, attention_mask))
    rows = encoder_states.shape[0]
    latest = torch.full((rows, 1), special.start, device=encoder_states.device)
    open_rows = torch.ones(rows, dtype=torch.bool, device=latest.device)
    tokens, masks, cache = [], [], None
    for position in range(max_new_tokens):
        output = model(
            encoder_outputs=BaseModelOutput(last_hidden_state=encoder_states),
            attention_mask=attention_mask,
            decoder_input_ids=latest,
            past_key_values=cache,
            use_cache=True,
        )
        cache, logits = output.past_key_values, output.logits[:, -1]
        chosen = logits.argmax(-1)
        if draws is not None:
            chosen[batch:] = choose(logits[batch:], draws[:, position].to(logits.device))
        chosen = chosen.masked_fill(~open_rows, special.pad)
        tokens.append(chosen)
        masks.append(open_rows)
        open_rows = open_rows & (chosen != special.end)
        if not open_rows.any():
            break
        latest = chosen.unsqueeze(-1)
    both = Decoded(torch.stack(tokens, 1), torch.stack(masks, 1))
    if draws is None:
        return both, None
    return _trim(both, slice(0, batch)), _trim(both, slice(batch, None))


def _trim(both: Decoded, rows: slice) -> Decoded:
    """One half, without the columns in which only the other half still had tokens."""
    mask = both.mask[rows]
    length = int(mask.any(0).sum())
    return Decoded(both.tokens[rows, :length], mask[:, :length])
