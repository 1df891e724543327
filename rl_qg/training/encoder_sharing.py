"""One pass of the encoder for several rows of the decoder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn


@contextmanager
def encoded_once(model: nn.Module, mask: Tensor, context: Tensor) -> Iterator[None]:
    """Within the block, `model` encodes each context once and decodes one row for each entry of `context`.

    It is called with b contexts (`input_ids`), and with `attention_mask` and `decoder_input_ids` of n rows. Both
    happen in one call of the outermost module: DDP, ZeRO-3 and FSDP see a whole forward pass, which they rely on, and
    mixed precision holds for all of it.

    Args:
        model: the bare encoder-decoder.
        mask: (b, s), the contexts' attention mask.
        context: (n,), the context of each row.
    """
    if len(context) == len(mask):
        yield
        return

    def once(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return args, {**kwargs, "attention_mask": mask}

    def for_each_row(module: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        output["last_hidden_state"] = output["last_hidden_state"][context]
        return output

    encoder: nn.Module = model.get_encoder()  # type: ignore[operator]
    hooks = [
        encoder.register_forward_pre_hook(once, with_kwargs=True),
        encoder.register_forward_hook(for_each_row),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
