"""Put a trained generator, or the reader that checks its pairs, into the package.

    python experiments/real-generator/pack.py AGAIN/ce LONGER/checkpoint-800 english
    python experiments/real-generator/pack.py READER english/reader

`packaged:english` and `packaged:english/reader` become their names. Of several models the mean of the weights is
packed, with the files of the first.
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from rl_qg.miniatures.packaged import PACKAGED, PACKED, WEIGHTS, packed

FILES = ("config.json", "generation_config.json", "prompt.json", "tokenizer.json", "tokenizer_config.json")
LOCAL = ("_name_or_path", "is_local", "local_files_only", "name_or_path")  # of the machine that trained it


def without_paths(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items() if key not in LOCAL}
    return value


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
