"""What can be wrong with a pretrained model of transformers, said in one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

NO_TOKENIZER = "it has no tokenizer (tokenizer.json, or a vocabulary; some need the package sentencepiece)"


class ModelFault(ValueError):
    """A model that cannot be loaded, or would not work: the reason, without the model's name."""

    @property
    def unreachable(self) -> bool:
        """Whether files of the model could not be read, rather than used."""
        return isinstance(self.__cause__, OSError)


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


def check_weights(model: nn.Module, tokenizer: Any | None, *, grows: bool = False) -> None:
    """Check a loaded model, and with it the tokenizer that it is used with, if one is given.

    Args:
        model: all or a part of its weights may be elsewhere (on the device `meta`); these are not checked.
        tokenizer: must not have more tokens than the model.
        grows: the model will get rows for the tokens that were added to its tokenizer.

    Raises:
        ModelFault: a weight is infinite or not a number, or the tokenizer has more tokens than the model.
    """
    for name, weight in model.named_parameters():
        if weight.is_meta:
            continue
        # A sum that is finite has finite terms, and is computed faster than asking each.
        if not torch.isfinite(weight.detach().sum()) and not torch.isfinite(weight.detach()).all():
            raise ModelFault(f"its weights {name} are not all finite numbers: it was damaged, or its training failed")
    if tokenizer is None:
        return
    embeddings: Any = model.get_input_embeddings()  # type: ignore[operator]
    added = tokenizer.get_added_vocab() if grows else {}
    rows = embeddings.weight.shape[0]
    largest = max(number for token, number in tokenizer.get_vocab().items() if token not in added)
    if largest >= rows:
        raise ModelFault(
            f"its tokenizer has {largest + 1:,} tokens, and the model {rows:,}: they do not belong together"
        )
