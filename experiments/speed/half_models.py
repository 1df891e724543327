"""Seconds of one forward pass of frozen models in float32 and bfloat16, on this processor or an older one.

    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 python experiments/speed/half_models.py --output avx2.json

One text of 128 tokens, random weights of the published sizes, one thread, processor time, the second of two passes.
"""

import argparse
import time
from pathlib import Path

import torch
from measurements import Measurements, count_cpu_seconds
from models import build

from rewards.frozen import FrozenModel


@torch.inference_mode()
def seconds(folder: str, kind: str, dtype: str) -> float:
    model = FrozenModel(folder, kind, device="cpu", dtype=dtype)
    ids = torch.arange(5, 133)[None]
    model.model(ids)
    start = time.perf_counter()
    model.model(ids)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared", help="folder with golden/models")
    parser.add_argument("--models", default="/tmp/rl-qg-speed", help="where models of real size are kept")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    count_cpu_seconds()
    results = Measurements(options.output, {"tokens": 128})
    for name, kind in (("bert-base", "encoder"), ("gpt2", "causal")):
        folder = build(name, Path(options.models), Path(options.shared) / "golden" / "models")
        for dtype in ("float32", "bfloat16"):
            found = results.measure(f"{name}, {dtype}", lambda given=(folder, kind, dtype): seconds(*given))
            print(name, dtype, round(found, 2), flush=True)


if __name__ == "__main__":
    main()
