"""`rl-qg serve` under 128 clients: requests and pairs a second, latencies, errors.

Servers and clients are those of `experiments/serving/load.py`, the models those of the package, and the passages of
the embedded corpus. Names of measurements: `MODEL | CLIENTS`.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from load import Load
from measurements import NotOnThisMachine
from part import IS_GPU, Part, arguments

from rl_qg.data.corpus import synthetic_examples
from rl_qg.miniatures.cache import QUESTIONS
from rl_qg.miniatures.packaged import ENGLISH, packaged_folder

MODELS = {"full": (QUESTIONS, ENGLISH), "tiny": (QUESTIONS,)}
CLIENTS = {"full": 128, "tiny": 4}
PASSAGES = {"full": 48, "tiny": 6}  # distinct; each is asked about once before the clock starts
SECONDS = {"full": 15.0, "tiny": 1.0}


def under_load(model: str, size: str) -> dict[str, Any]:
    """What `Load.clients` finds, and how many requests were neither answered nor told to come later."""
    if model == ENGLISH and not [*Path(packaged_folder(model)).glob("*.safetensors")]:
        raise NotOnThisMachine("its weights are not in this copy of the package")
    texts = dict.fromkeys(one.context for one in synthetic_examples(2 * PASSAGES[size], seed=0, prefix="gpu"))
    with tempfile.TemporaryDirectory() as folder:
        passages = Path(folder, "passages.txt")
        passages.write_text("\n".join(texts) + "\n", encoding="utf-8")
        options = argparse.Namespace(
            model=model,
            data=str(passages),
            characters=(100, 3000),
            passages=PASSAGES[size],
            number=5,
            seconds=SECONDS[size],
            gpu=IS_GPU,
        )
        found = Load(options).clients(CLIENTS[size])
    counts = found["counts"]
    return found | {"errors": sum(counts.values()) - counts.get("answered", 0) - counts.get("status 503", 0)}


def main() -> None:
    options = arguments(__doc__)
    size = options.size
    part = Part(options, {"seconds": SECONDS[size], "passages": PASSAGES[size]})
    for model in MODELS[size]:
        part.measure(f"{model} | {CLIENTS[size]}", partial(under_load, model, size))
    part.finish()


if __name__ == "__main__":
    main()
