"""Put a trained generator into the package.

    python experiments/real-generator/pack.py MODEL NAME

`MODEL` is the folder of a model, such as `RUN/ce`; `packaged:NAME` becomes its name.
"""

import json
import shutil
import sys
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
    model, folder = Path(sys.argv[1]), PACKAGED / sys.argv[2]
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        data = json.loads((model / name).read_text(encoding="utf-8"))
        text = json.dumps(without_paths(data), ensure_ascii=False, indent=None if name == "tokenizer.json" else 2)
        (folder / name).write_text(text + "\n", encoding="utf-8")
    save_file(packed(load_file(model / WEIGHTS)), folder / PACKED)
    (folder / PACKED).chmod(0o644)
    shutil.copy(Path(__file__).parent / f"card-{sys.argv[2]}.md", folder / "README.md")
    print(f"{folder}: {sum(path.stat().st_size for path in folder.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
