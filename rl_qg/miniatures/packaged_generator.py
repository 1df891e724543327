"""`miniature:questions`: a generator of the embedded corpus that comes with the package, trained for `multitask`.

The package holds what it differs in from the packaged `bart`, each matrix of the difference by its largest singular
values: a sixth of the size of a whole model. `generator_folder` adds them up when the model is first used, and keeps
the result beside the other miniatures. `experiments/quickstart/build_generator.py` trains it.
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from rl_qg.generation.loading import load_seq2seq
from rl_qg.generation.prompts import Prompt, add_highlight
from rl_qg.miniatures.cache import QUESTIONS, SHIPPED
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.settings import MiniatureSettings

BASE = SHIPPED / "bart"
DIFFERENCE = SHIPPED / "questions" / "difference.safetensors"
PROMPT = Prompt(task="multitask")
LEFT, RIGHT, ROWS = ".left", ".right", ".rows"


def generator_folder(path: str, cache_dir: str | None = None) -> str:
    """The folder of `miniature:questions`, which is made when it is first asked for; another path as it is.

    Args:
        path: of a generator.
        cache_dir: where miniatures are kept; None: the default of `miniature.cache_dir`.

    Raises:
        InputError: the folder cannot be written.
    """
    if path != QUESTIONS:
        return path
    key = file_hash(DIFFERENCE)[:8] + file_hash(BASE / "model.safetensors")[:8]
    folder = Path(cache_dir or MiniatureSettings().cache_dir).expanduser() / f"questions-{key}"
    try:
        if not folder.exists():
            _make(folder)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{QUESTIONS}: {folder.parent} cannot be written ({reason}); set HOME to a folder that can be, or give "
            "another model"
        ) from None
    return str(folder)


def _make(folder: Path) -> None:
    """Write the model beside its folder, and move it there once it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as temporary:
        complete = Path(temporary) / "questions"
        _write(complete)
        try:
            complete.rename(folder)
        except OSError:
            if not folder.exists():  # else another command has made the same model meanwhile
                raise


def _write(folder: Path) -> None:
    model, tokenizer = load_seq2seq(str(BASE))
    add_highlight(tokenizer, model, PROMPT.task)
    add_difference(model, load_file(DIFFERENCE))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    PROMPT.save(folder)


def difference(base: PreTrainedModel, trained: PreTrainedModel, rank: int) -> dict[str, Tensor]:
    """What `trained` differs in from `base`, in half precision: of a matrix (m, n) the factors (m, r) and (r, n) of
    the best approximation of rank r (Eckart and Young 1936), the rows that it has in addition; other weights whole.
    """
    parts: dict[str, Tensor] = {}
    before = base.state_dict()
    for name, weight in _weights(trained).items():
        rows = len(before[name])
        change = weight[:rows] - before[name]
        if len(weight) > rows:
            parts[name + ROWS] = weight[rows:]
        if change.dim() == 2 and min(change.shape) > rank:
            u, s, v = torch.linalg.svd(change, full_matrices=False)
            root = s[:rank].sqrt()
            parts[name + LEFT], parts[name + RIGHT] = u[:, :rank] * root, root[:, None] * v[:rank]
        elif change.any():
            parts[name] = change
    return {name: part.half().contiguous() for name, part in parts.items()}


@torch.no_grad()
def add_difference(model: PreTrainedModel, parts: Mapping[str, Tensor]) -> None:
    """Add a `difference` to the weights of its base, whose embeddings have the additional rows already."""
    for name, weight in _weights(model).items():
        if name + LEFT in parts:
            change = parts[name + LEFT].float() @ parts[name + RIGHT].float()
            weight[: len(change)] += change
        if name in parts:
            weight[: len(parts[name])] += parts[name].float()
        if name + ROWS in parts:
            weight[-len(parts[name + ROWS]) :] = parts[name + ROWS].float()


def _weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """The trained weights by name, each once where several names share it."""
    return {name: parameter.data for name, parameter in model.named_parameters()}
