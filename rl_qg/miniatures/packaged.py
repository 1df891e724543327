"""Generators of real text that come with the package, by name: `packaged:english`. A reader of the same language
may lie in the folder of a generator: `packaged:english/reader`.

The package holds their weights as integers of 8 bits: each 32 columns of a row have a scale, their largest absolute
value over 127. (With one scale for a row, nearly half of what reinforcement had changed was rounded away.)
`packaged_folder` writes them in float32 when a generator is first used, and keeps that folder beside the miniatures.
experiments/real-generator trains and packs them; a card names the data and their licences.
"""

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path

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
        names = sorted(PREFIX + place.parent.name for place in PACKAGED.glob(f"*/{PACKED}"))
        raise InputError(f"{path}: the package has {', '.join(names) or 'no generator of real text'}")
    return unpacked(path, f"{source.name}-{file_hash(source / PACKED)[:16]}", partial(_unpack, source), cache_dir)


def _unpack(source: Path, folder: Path) -> None:
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(PACKED, READER))
    save_file(restored(load_file(source / PACKED)), folder / WEIGHTS, metadata={"format": "pt"})


def restored(parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights that were packed, in float32, each within half a scale of what it was; scales (r,) too."""
    found = {name: part for name, part in parts.items() if not name.endswith(SCALE)}
    for name, part in found.items():
        if name + SCALE in parts:
            scale = parts[name + SCALE].float().view(len(part), -1, 1)
            found[name] = (part.float().view(len(part), scale.shape[1], -1) * scale).view(part.shape)
    return found
