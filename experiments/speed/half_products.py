"""What the three products of a linear layer reach in float32, bfloat16 and float16, on this processor or an older one.

    python experiments/speed/half_products.py --output half.json
    ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 python experiments/speed/half_products.py --output avx2.json

GFLOP/s of one thread for 512 rows by 768 x 768, by the processor's clock: the output (`x @ weight.T`), the gradient of
the input (`g @ weight`), and that of the weight (`g.T @ x`); PyTorch's default routines.
"""

import argparse
from pathlib import Path

import torch
from measurements import Measurements, count_cpu_seconds
from metrics import best

ROWS, WIDTH = 512, 768


@torch.inference_mode()
def rates(dtype: torch.dtype) -> dict[str, float]:
    """GFLOP/s of each product, the best of five calls."""
    x, weight, gradient = (torch.randn(size, WIDTH, dtype=dtype) for size in (ROWS, WIDTH, ROWS))
    actions = {
        "output": lambda: x @ weight.t(),
        "gradient of the input": lambda: gradient @ weight,
        "gradient of the weight": lambda: gradient.t() @ x,
    }
    return {name: 2 * ROWS * WIDTH**2 / 1e9 / best(action) for name, action in actions.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    count_cpu_seconds()
    results = Measurements(options.output, {"rows": ROWS, "width": WIDTH})
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        print(dtype, results.measure(str(dtype), lambda dtype=dtype: rates(dtype)), flush=True)


if __name__ == "__main__":
    main()
