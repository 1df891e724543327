"""What can be wrong with a pretrained model of transformers, said in one line."""

import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import RLock
from typing import Any

import torch
from huggingface_hub import constants
from torch import Tensor, nn

from rewards.errors import first_line
from rewards.hub import hub_answers

OWN_CODE = (
    "it needs code of its own (auto_map), which is not run; give one whose type and tokenizer transformers knows"
)
_OFFLINE = RLock()
NO_SAFETENSORS = (
    "it has no weights in safetensors, and pickled ones (pytorch_model.bin) are not read; if you trust them, save the "
    "model again, by the class of its task: AutoModelForSeq2SeqLM.from_pretrained(…).save_pretrained(…)"
)
NO_TOKENIZER = "it has no tokenizer (tokenizer.json, or a vocabulary; some need the package sentencepiece)"


class ModelFault(ValueError):
    """A model that cannot be loaded, or would not work: the reason, without the model's name."""

    @property
    def unreachable(self) -> bool:
        """Whether files of the model could not be read, rather than used."""
        return isinstance(self.__cause__, OSError)


@contextmanager
def without_hub(name: str) -> Iterator[None]:
    """Where `name` is no local path and the Hugging Face Hub does not answer, models are loaded from the cache within
    the block, or refused at once. Without this the libraries try again for half a minute.
    """
    if constants.HF_HUB_OFFLINE or os.path.exists(name) or hub_answers():
        yield
        return
    with _OFFLINE:  # else the first of two threads to end would decide what the other one restores
        constants.HF_HUB_OFFLINE = True
        try:
            yield
        finally:
            constants.HF_HUB_OFFLINE = False


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Within the block, which loads the model of a folder or Hub name, every error of a library, `Exception` itself
    among them, becomes a `ModelFault` of one line.
    """
    try:
        with without_hub(name):
            yield
    except (ModelFault, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:
        reason = first_line(error).rstrip(". ")
        if _is_out_of_files():
            reason = "too many files and connections are open; raise the limit (ulimit -n), or lower the load"
        elif "instantiate the backend tokenizer" in reason:
            reason = NO_TOKENIZER
        elif "trust_remote_code" in str(error):  # the argument that the library asks for
            reason = OWN_CODE
        elif "named model.safetensors" in reason:
            reason = NO_SAFETENSORS
        raise ModelFault(reason) from error


def _is_out_of_files() -> bool:
    """Whether the process can open no more files, which libraries take for files that are missing."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return True
    return False


def load_weights(model: nn.Module, path: Path) -> None:
    """Replace all weights of a model by those of a torch file, as `torch.save(model.state_dict(), path)` writes it.

    Only tensors are read: a file that would run code is refused, and so is one that is damaged, of another kind, or
    has the weights of another model. A weight that the model shares with another one may be missing.
    """
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise ModelFault(f"it cannot be read ({error.strerror})") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it was written by another version
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # torch raises errors of many types for a broken file
        raise ModelFault("it is damaged, or no torch file of weights alone (a state dict)") from error
    if not isinstance(state, Mapping) or not all(isinstance(weight, Tensor) for weight in state.values()):
        raise ModelFault("it holds no state dict: names with their weights")
    own = model.state_dict()
    shared = {own[name].data_ptr() for name in own.keys() & state.keys()}
    missing = sorted(name for name in own.keys() - state.keys() if own[name].data_ptr() not in shared)
    other = sorted(name for name in own.keys() & state.keys() if own[name].shape != state[name].shape)
    unknown = sorted(state.keys() - own.keys())
    for what, names in (("it lacks the", missing), ("it has other", unknown), ("other sizes of", other)):
        if names:
            raise ModelFault(f"it does not belong to this model ({what} weights {names[0]!r}, of {len(names)})")
    model.load_state_dict(state, strict=False)


def lacking(model: nn.Module, report: Mapping[str, Any]) -> list[str]:
    """The weights that the library drew at random, by its report; those of positions (PEGASUS, FSMT) it computes."""
    drawn = {name for name, _ in model.named_parameters(remove_duplicate=False)}  # no buffers
    made = {f"{name}.weight" for name, one in model.named_modules() if {"create_weight", "make_weight"} & {*dir(one)}}
    return sorted({*report["missing_keys"]} & drawn - made)


def check_tokenizer(tokenizer: Any) -> None:
    """Raise `ModelFault` for a tokenizer without words: the library makes one where the files of it are missing."""
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ModelFault(NO_TOKENIZER)


def check_weights(model: nn.Module, tokenizer: Any | None, *, grows: bool = False) -> None:
    """Raise `ModelFault` where a weight of a loaded model is infinite or not a number, or a tokenizer has more tokens.

    Weights may be elsewhere (on the device `meta`); these are not checked. A model that ``grows`` will get rows for
    the tokens that were added to its tokenizer.
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
