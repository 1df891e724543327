"""Several rows of a decoder over one copy of the keys and values of a passage: beams, or samples, of one example.

The library copies keys and values of cross attention for each row. Here they stay one row for each example, and the
rows of an example, side by side, are queries of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SHARED = "beams_beside_each_other"  # name under which `shared_attention` is registered
# Models whose decoder works with fewer rows of keys than of queries; the tests compare each with `generate`.
FAMILIES = frozenset(
    {"bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5"}
)
DECODERS = frozenset({"bert", "gpt2", "roberta"})  # of an `EncoderDecoderModel`


def share_passages(model: PreTrainedModel) -> bool:
    """Prepare the model for decoding with shared passages; return False and leave it unchanged if its type is not
    supported.

    Everything else that the model computes stays the same.
    """
    if not _can_share(model):
        return False
    model.set_attn_implementation(SHARED)
    return True


def is_sharing(model: PreTrainedModel) -> bool:
    """Whether the model is prepared."""
    return bool(model.config._attn_implementation == SHARED)


@contextmanager
def sharing_passages(model: PreTrainedModel) -> Iterator[bool]:
    """Within the block, decoding shares passages, if the model's type is supported; yields whether it does."""
    already = is_sharing(model)
    shares = already or share_passages(model)
    try:
        yield shares
    finally:
        if shares and not already:
            model.set_attn_implementation("sdpa")


def _can_share(model: PreTrainedModel) -> bool:
    config = model.config
    known = config.model_type in FAMILIES or (
        config.model_type == "encoder-decoder" and config.decoder.model_type in DECODERS
    )
    return known and config._attn_implementation == "sdpa"


def shared_attention(
    module: torch.nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor, **options: Any
) -> tuple[Tensor, None]:
    """The attention of the library; if `key` has one row for n rows of `query`, these are n queries of one row.

    (b · n, heads, 1, d), (b, heads, s, d), mask (b, 1, n or 1, s) -> (b · n, 1, heads, d).
    """
    examples, rows = len(key), len(query)
    if examples == rows:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    beams = rows // examples
    if options.get("position_bias") is not None and attention_mask.shape[-2] == beams:
        steps = (torch.arange(key.shape[-2], device=key.device) + beams - 1) // beams  # in which each key was added
        options["position_bias"] = options["position_bias"][..., steps]  # of T5: by the position in the beam
    query = query.view(examples, beams, *query.shape[1:]).squeeze(3).transpose(1, 2)
    attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    return attended.reshape(rows, 1, *attended.shape[2:]), None


AttentionInterface.register(SHARED, shared_attention)
AttentionMaskInterface.register(SHARED, sdpa_mask)
