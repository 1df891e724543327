"""What TF32 does to advantages, without a GPU: the inputs of every product are rounded to 10 bits of mantissa.

    python experiments/speed/tf32.py --shared ../shared --output experiments/speed/results/tf32.json

That is what a GPU's TF32 does: it multiplies such inputs and adds in float32. Beside it bfloat16, as it is. The
advantage of a candidate is its score minus the mean of the four candidates for its passage.
"""

import argparse
import math
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measurements import Measurements
from models import rows
from scipy.stats import spearmanr
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rewards import BARTScore, QAScore, QRelScore
from rl_qg.miniatures.cache import SHIPPED

METRICS = {
    "qrelscore": (QRelScore, ("bert", "gpt2")),
    "qascore": (QAScore, ("roberta",)),
    "bartscore": (BARTScore, ("bart",)),
}
CANDIDATES = 4
PRODUCTS = {
    torch.nn.functional.linear, torch.matmul, torch.bmm, torch.mm, torch.addmm, torch.baddbmm,
    Tensor.matmul, Tensor.__matmul__, Tensor.bmm, Tensor.mm,
}  # fmt: skip
ADDS_FIRST = {torch.addmm, torch.baddbmm}  # to whose first argument a product is added


def rounded(value: Tensor) -> Tensor:
    """Float32 numbers with 10 bits of mantissa of 23: the nearest ones, of two as near the one that is even."""
    bits = value.contiguous().view(torch.int32)
    half = 0xFFF + ((bits >> 13) & 1)
    return ((bits + half) & ~0x1FFF).view(torch.float32)


class Tf32(TorchFunctionMode):
    """Within the block every product of float32 has rounded inputs, those of attention too."""

    def __init__(self) -> None:
        super().__init__()
        self.products = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.nn.functional.scaled_dot_product_attention:
            return attended(*args, **kwargs)
        if function in PRODUCTS:
            self.products += 1
            first = 1 if function in ADDS_FIRST else 0
            inputs = [rounded(one) for one in args[first : first + 2]]
            args = (*args[:first], *inputs, *args[first + 2 :])
        return function(*args, **kwargs)


def attended(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention as two products and a softmax, whose inputs are rounded."""
    assert not dropout_p and not enable_gqa
    scores = rounded(query) @ rounded(key).transpose(-1, -2) * (scale or 1 / math.sqrt(query.shape[-1]))
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        boolean = attn_mask.dtype is torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if boolean else scores + attn_mask
    return rounded(scores.softmax(-1)) @ rounded(value)


def compare(metric: Any, models: list[str], data: dict[str, list[str]], dtype: str) -> dict[str, float]:
    columns = {name: data[name] for name in ("questions", "contexts", "answers")}
    exact = np.array(metric(*models).score(**columns).scores)
    mode = Tf32() if dtype == "tf32" else nullcontext()
    reward = metric(*models, dtype=dtype)
    with mode:
        rough = np.array(reward.score(**columns).scores)
    assert dtype != "tf32" or (mode.products and (exact != rough).any())
    one, other = (scores.reshape(-1, CANDIDATES) for scores in (exact, rough))
    one, other = ((groups - groups.mean(1, keepdims=True)).ravel() for groups in (one, other))
    return {
        "rows": len(exact),
        "advantage_correlation": float(np.corrcoef(one, other)[0, 1]),
        "same_sign": float((np.sign(one) == np.sign(other)).mean()),
        "relative_difference": float(np.linalg.norm(one - other) / np.linalg.norm(one)),
        "rank_correlation": float(spearmanr(exact, rough).statistic),
        "largest_difference": float(np.abs(exact - rough).max()),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shared", default="../shared")
    parser.add_argument("--contexts", type=int, default=60)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    os.environ["RL_QG_PACKED"] = "never"  # the library's own products, which can be seen
    results = Measurements(options.output, {"contexts": options.contexts, "candidates": CANDIDATES})
    shared = Path(options.shared)
    text = shared / "data" / "squadshifts" / "new_wiki_v1.0.json.gz"
    for data_name in ("miniatures", "golden"):
        for name, (metric, kinds) in METRICS.items():
            # A row of QAScore costs a pass for each token of the answer, which all questions of a passage share.
            data = rows(text, options.contexts // (6 if name == "qascore" else 1), CANDIDATES)
            data["answers"] = [answer for answer in data["answers"][::CANDIDATES] for _ in range(CANDIDATES)]
            golden = shared / "golden" / "models"
            models = [str(SHIPPED / kind if data_name == "miniatures" else golden / f"tiny-{kind}") for kind in kinds]
            for dtype in ("tf32", "bfloat16"):
                given = metric, models, data, dtype
                results.measure(f"{data_name}, {name}, {dtype}", lambda given=given: compare(*given))


if __name__ == "__main__":
    main()
