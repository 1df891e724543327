"""One pass of the encoder, and one projection of its states in each layer, for several rows of the decoder.

The library copies keys and values of cross attention for each row, such as the beams or samples of one example. Here
they stay one row for each example, and the rows of an example, side by side, are queries of it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

SHARED = "beams_beside_each_other"  # name under which `shared_attention` is registered
# Models whose decoder works with fewer rows of keys than of queries; the tests compare each with `generate`.
FAMILIES = frozenset(
    {"bart", "blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "umt5"}
)
DECODERS = frozenset({"bert", "gpt2", "roberta"})  # of an `EncoderDecoderModel`
# Names of the modules of cross attention, and of its projections of the encoder's states to keys and values, in BART
# and its relatives, in T5, and in BERT as a decoder. In other models each row has its own projection.
CROSS_ATTENTION = frozenset({"encoder_attn", "EncDecAttention", "crossattention"})
PROJECTIONS = frozenset({"k_proj", "v_proj", "k", "v", "key", "value"})


def share_passages(model: PreTrainedModel) -> bool:
    """Prepare the model for decoding with shared passages, which changes nothing else that it computes; return False
    and leave it unchanged if its type is not supported.
    """
    if not is_sharing(model) and _can_share(model):
        model.set_attn_implementation(SHARED)
    return is_sharing(model)


def _can_share(model: Any) -> bool:
    config = model.config
    pair = config.model_type == "encoder-decoder" and config.decoder.model_type in DECODERS
    return (config.model_type in FAMILIES or pair) and config._attn_implementation in ("sdpa", SHARED)


def unread_mask(model: Any, mask: Tensor) -> Tensor:
    """A mask of padding (b, s), on an accelerator as (b, 1, 1, s) where the model takes it: the library reads masks of
    two dimensions to see whether they mask anything, and so waits.
    """
    return mask[:, None, None].bool() if mask.device.type != "cpu" and _can_share(model) else mask


def is_sharing(model: PreTrainedModel) -> bool:
    """Whether the model is prepared; prefix models always are."""
    return bool(model.config._attn_implementation == SHARED or model.config.model_type == "prefix-lm")


@contextmanager
def sharing_passages(model: PreTrainedModel) -> Iterator[None]:
    """Within the block, decoding shares passages, if the model's type is supported."""
    only_here = not is_sharing(model) and share_passages(model)
    try:
        yield
    finally:
        if only_here:
            model.set_attn_implementation("sdpa")


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


@contextmanager
def share_encoder_pass(model: nn.Module, mask: Tensor, context: Tensor) -> Iterator[None]:
    """Within the block, `model` (without the wrappers of accelerate) encodes each of b contexts, with their `mask`
    (b, …), once, and decodes one row for each entry of `context` (n,), in the host's memory. The keys and values of
    cross attention are computed once for each context too; without this, k samples of a context would cost k
    projections of all its tokens in every layer, and their gradients.

    Call the model with b contexts (`input_ids`), and with `attention_mask` and `decoder_input_ids` of n rows. It stays
    one call of the outermost module: DDP, ZeRO-3 and FSDP rely on a complete forward pass, and mixed precision
    applies to all of it.
    """
    if len(context) == len(mask):
        yield
        return

    row_of = context.to(mask.device, non_blocking=True)

    def with_context_mask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": mask}

    # `index_select`, because the gradient of indexing with a tensor is far slower on a CPU.
    def one_state_for_each_row(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"].index_select(0, row_of)
        return output

    encoder: nn.Module = model.get_encoder()  # type: ignore[operator]
    hooks = [
        encoder.register_forward_pre_hook(with_context_mask, with_kwargs=True),
        encoder.register_forward_hook(one_state_for_each_row),
        *_shared_projections(model, len(mask), context, row_of),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _shared_projections(model: nn.Module, contexts: int, context: Tensor, row_of: Tensor) -> list[Any]:
    """Hooks with which the projections of cross attention read one row for each context and return n rows; `row_of` is
    `context` on the model's device.
    """
    if getattr(model, "is_gradient_checkpointing", False) and model.training:
        return []  # layers run again in the backward pass, where these hooks are gone
    first = context.new_full((contexts,), len(context)).scatter_reduce(
        0, context, context.new_tensor(range(len(context))), "amin"
    )
    if bool((first == len(context)).any()):
        return []  # a context without rows
    first = first.to(row_of.device, non_blocking=True)

    def read_once(module: nn.Module, args: tuple[Any, ...]) -> Any:
        return (args[0].index_select(0, first), *args[1:])

    def repeat(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> Tensor:
        return output.index_select(0, row_of)

    return [
        hook
        for layer in cross_attention_projections(model)
        for hook in (layer.register_forward_pre_hook(read_once), layer.register_forward_hook(repeat))
    ]


def cross_attention_projections(model: nn.Module) -> list[nn.Module]:
    """The modules that project the encoder's states to keys and values, adapters included."""
    paths = ((name.split("."), module) for name, module in model.named_modules())
    return [module for path, module in paths if path[-1] in PROJECTIONS and CROSS_ATTENTION & {*path[-3:-1]}]
