"""Put a trained generator, or the reader that checks its pairs, into the package.

    python experiments/real-generator/pack.py RUN/ce english
    python experiments/real-generator/pack.py READER english/reader

`packaged:english` and `packaged:english/reader` become their names.
"""

import argparse
import json
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from rl_qg.miniatures.packaged import PACKAGED, PACKED, WEIGHTS, packed

FILES = ("config.json", "generation_config.json", "prompt.json", "tokenizer.json", "tokenizer_config.json")
LOCAL = ("_name_or_path", "is_local", "local_files_only", "name_or_path")  # of the machine that trained it


def without_paths(value: object) -> object:
    if isinstance(value, dict):
        return {key: without_paths(item) for key, item in value.items() if key not in LOCAL}
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("name")
    given = parser.parse_args()
    folder = PACKAGED / given.name
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        if (given.model / name).is_file():
            data = json.loads((given.model / name).read_text(encoding="utf-8"))
            text = json.dumps(without_paths(data), ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
            (folder / name).write_text(text + "\n", encoding="utf-8")
    save_file(packed(load_file(given.model / WEIGHTS)), folder / PACKED)
    (folder / PACKED).chmod(0o644)
    card = Path(__file__).parent / f"card-{given.name}.md"
    if card.is_file():
        shutil.copy(card, folder / "README.md")
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
