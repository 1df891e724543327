"""Put a trained generator, or the reader that checks its pairs, into the package.

    python experiments/real-generator/pack.py AGAIN/ce LONGER/checkpoint-800 english
    python experiments/real-generator/pack.py READER english/reader

`packaged:english` and `packaged:english/reader` become their names. Of several models the mean of the weights is
packed, with the files of the first.
"""

import argparse
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_qg.miniatures.packaged import PACKAGED, PACKED, SCALE, WEIGHTS

COLUMNS = 32  # that share a scale
FILES = ("config.json", "generation_config.json", "prompt.json", "tokenizer.json", "tokenizer_config.json")
LOCAL = ("_name_or_path", "is_local", "local_files_only", "name_or_path")  # of the machine that trained it


def without_paths(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items() if key not in LOCAL}
    return value


def packed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices (r, c) as int8 with scales (r, c / 32 or 1) in float16; what has one dimension as float32."""
    found = dict[str, Tensor]()
    for name, weight in weights.items():
        if weight.dim() < 2:
            found[name] = weight.float()
            continue
        parts = weight.float().view(len(weight), -1, COLUMNS if weight.shape[1] % COLUMNS == 0 else weight.shape[1])
        scale = (parts.abs().amax(2) / 127 * (1 + 2**-10) + 2**-24).half()  # rounded, but never to a smaller one
        found[name] = (parts / scale.float()[..., None]).round().to(torch.int8).view(weight.shape)
        found[name + SCALE] = scale
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("name")
    given = parser.parse_args()
    folder = PACKAGED / given.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (given.models[0] / name).is_file():
            data = json.loads((given.models[0] / name).read_text(encoding="utf-8"))
            text = json.dumps(without_paths(data), ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
            (folder / name).write_text(text + "\n", encoding="utf-8")
    means: dict[str, Tensor] = {}
    for model in given.models:
        for name, value in load_file(model / WEIGHTS).items():
            means[name] = means.get(name, 0.0) + value.double() / len(given.models)
    save_file(packed({name: value.float() for name, value in means.items()}), folder / PACKED)
    (folder / PACKED).chmod(0o644)
    card = Path(__file__).parent / f"card-{given.name}.md"
    if card.is_file():
        shutil.copy(card, folder / "README.md")
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
