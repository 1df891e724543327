"""Generators of real text that come with the package, by name: `packaged:english`. A reader of the same language
may lie in the folder of a generator: `packaged:english/reader`.

The package holds their weights as integers of 8 bits: each row of a matrix has a scale, its largest absolute value
over 127. `packaged_folder` writes them in float32 when a generator is first used, and keeps that folder beside the
miniatures. experiments/real-generator trains and packs them; a card names the data and their licences.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_qg.miniatures.cache import unpacked
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash

PREFIX = "packaged:"
ENGLISH = "packaged:english"
PACKAGED = Path(__file__).parent / "packaged_generators"
WEIGHTS, PACKED = "model.safetensors", "packed.safetensors"
SCALE = ".scale"
READER = "reader"


def packaged_generators() -> list[str]:
    return sorted(PREFIX + place.parent.name for place in PACKAGED.glob(f"*/{PACKED}"))


def packaged_reader(generator: str) -> str:
    """The reader that comes with a packaged generator; "" where there is none."""
    name = f"{generator}/{READER}"
    return name if is_packaged(name) and (PACKAGED / name.removeprefix(PREFIX) / PACKED).is_file() else ""


def is_packaged(path: str) -> bool:
    return path.startswith(PREFIX)


def packaged_folder(path: str, cache_dir: str | None = None) -> str:
    """The folder of a packaged generator; another path as it is. `InputError` for a name that the package lacks, or
    if the cache cannot be written (`cache_dir`; None: the default of `miniature.cache_dir`).
    """
    if not is_packaged(path):
        return path
    source = PACKAGED / path.removeprefix(PREFIX)
    if not (source / PACKED).is_file():
        raise InputError(f"{path}: the package has {', '.join(packaged_generators()) or 'no generator of real text'}")
    return unpacked(path, f"{source.name}-{file_hash(source / PACKED)[:16]}", partial(_unpack, source), cache_dir)


def _unpack(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(PACKED, READER))
    save_file(restored(load_file(source / PACKED)), folder / WEIGHTS, metadata={"format": "pt"})


def packed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices (r, c) as int8 with scales (r,) in float32; what has one dimension as float32."""
    found = dict[str, Tensor]()
    for name, weight in weights.items():
        if weight.dim() < 2:
            found[name] = weight.float()
            continue
        scale = weight.float().abs().amax(1).clamp(min=1e-12) / 127
        found[name] = (weight.float() / scale[:, None]).round().to(torch.int8)
        found[name + SCALE] = scale
    return found


def restored(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that `packed` made small, in float32, each within half a scale of what it was."""
    return {
        name: part.float() * parts[name + SCALE][:, None] if name + SCALE in parts else part
        for name, part in parts.items()
        if not name.endswith(SCALE)
    }
