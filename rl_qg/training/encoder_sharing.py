"""One pass of the encoder for several rows of the decoder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def share_encoder_pass(model: nn.Module, mask: Tensor, context: Tensor) -> Iterator[None]:
    """Within the block, `model` encodes each context once and decodes one row for each entry of `context`.

    Call the model with b contexts (`input_ids`), and with `attention_mask` and `decoder_input_ids` of n rows. It stays
    one call of the outermost module: DDP, ZeRO-3 and FSDP rely on a complete forward pass, and mixed precision
    applies to all of it.

    Args:
        model: the encoder-decoder, without the wrappers of accelerate.
        mask: (b, s), the attention mask of the contexts.
        context: (n,), the context of each row.
    """
    if len(context) == len(mask):
        yield
        return

    def with_context_mask(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": mask}

    def one_state_for_each_row(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"][context]
        return output

    encoder: nn.Module = model.get_encoder()  # type: ignore[operator]
    hooks = [
        encoder.register_forward_pre_hook(with_context_mask, with_kwargs=True),
        encoder.register_forward_hook(one_state_for_each_row),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
