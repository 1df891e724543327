"""What the parts need and this interpreter lacks, before anything is measured: one line, and exit code 2.

    python experiments/gpu/packages.py full parity step

Versions other than those of `pyproject.toml` are named in a line of their own, and tried.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
# Names of modules, and of what is installed where these differ.
MODELS = "torch transformers accelerate tokenizers safetensors numpy scipy yaml omegaconf jinja2".split()
COMMANDS = [*MODELS, "hydra", "sacrebleu", "tqdm"]
SERVER = [*COMMANDS, "fastapi", "uvicorn", "multipart", "prometheus_client", "httpx"]
TRAINING = [*COMMANDS, "matplotlib"]
NEEDED = {
    "parity": MODELS,
    "step": MODELS,
    "decode": MODELS,
    "rewards": MODELS,
    "launch": [*TRAINING, "peft"],
    "server": SERVER,
    "curve": TRAINING,
}
INSTALLED_AS = {
    "yaml": "pyyaml",
    "hydra": "hydra-core",
    "multipart": "python-multipart",
    "prometheus_client": "prometheus-client",
}


def missing(parts: Iterable[str]) -> list[str]:
    """The packages that some of the parts need and that are not installed, as `pip` names them."""
    modules = dict.fromkeys(name for part in parts for name in NEEDED[part])
    return [INSTALLED_AS.get(name, name) for name in modules if find_spec(name) is None]


def unusual(names: Iterable[str]) -> list[str]:
    """Packages whose version is below what the project asks for; only the two that change fast."""
    asked = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"]
    found = []
    for name in names:
        least = next((match[1] for line in asked if (match := re.match(rf"{name}>=([\d.]+)", line))), None)
        try:
            installed = version(name)
        except PackageNotFoundError:  # on the search path, without a record of its installation
            continue
        if least is not None and numbers(installed) < numbers(least):
            found.append(f"{name} {installed} (the project asks for {least})")
    return found


def numbers(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text.partition("+")[0])[:3]]


def fault(size: str, parts: Sequence[str]) -> str:
    """Why nothing can be measured; empty where it can."""
    if unknown := [part for part in parts if part not in NEEDED]:
        return f"no part {', '.join(unknown)}; there are {', '.join(NEEDED)}"
    if absent := missing(parts):
        return f"missing: {', '.join(absent)}; pip install -c constraints.txt {' '.join(absent)}"
    import torch

    if size == "full" and not torch.cuda.is_available():
        return "torch sees no GPU; --tiny runs with tiny sizes on a CPU"
    return ""


def main() -> None:
    size, *parts = sys.argv[1:]
    if said := fault(size, parts):
        print(f"run.sh: {said}", file=sys.stderr)
        sys.exit(2)
    if old := unusual(("accelerate", "transformers")):
        print(f"run.sh: {', '.join(old)}: tried all the same", file=sys.stderr)


if __name__ == "__main__":
    main()
