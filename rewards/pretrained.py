"""What can be wrong with a pretrained model of transformers, said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

NO_TOKENIZER = "it has no tokenizer (tokenizer.json, or a vocabulary)"


class ModelFault(ValueError):
    """A model that cannot be loaded, or would not work: the reason, without the model's name."""


@contextmanager
def explained() -> Iterator[None]:
    """Within the block, which only loads a model, every error of a library becomes a `ModelFault` of one line.

    The libraries raise errors of many types for a broken file, `Exception` itself among them.
    """
    try:
        yield
    except (ModelFault, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(". ")
        raise ModelFault(NO_TOKENIZER if "instantiate the backend tokenizer" in reason else reason) from error


def check_tokenizer(tokenizer: Any) -> None:
    """Raise `ModelFault` for a tokenizer without words: the library makes one where the files of it are missing."""
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ModelFault(NO_TOKENIZER)


def check_weights(model: nn.Module, tokenizer: Any | None) -> None:
    """Check a loaded model, and with it the tokenizer that it is used with, if one is given.

    Raises:
        ModelFault: a weight is infinite or not a number, or the tokenizer has more tokens than the model.
    """
    for name, weight in model.named_parameters():
        # A sum that is finite has finite terms, and is computed faster than asking each.
        if not torch.isfinite(weight.detach().sum()) and not torch.isfinite(weight.detach()).all():
            raise ModelFault(f"its weights {name} are not all finite numbers: it was damaged, or its training failed")
    if tokenizer is None:
        return
    embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
    rows, largest = embeddings.weight.shape[0], max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise ModelFault(
            f"its tokenizer has {largest + 1:,} tokens, and the model {rows:,}: they do not belong together"
        )
