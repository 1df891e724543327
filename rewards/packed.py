"""Linear layers in oneDNN's own layout, for frozen models on a CPU.

PyTorch multiplies float32 matrices with MKL, which on AMD processors reaches less than half of what oneDNN, shipped
with the same PyTorch, does with weights in its own layout (measured: 200 against 455 GFLOP/s on two cores of an
EPYC with AVX-512; on one with AVX2 alone it was the other way around; `experiments/speed`). Which layers are packed
follows from a rule (`rewards.arithmetic`). A frozen model's weights never change, so they are
converted once. Values differ from the usual ones by rounding only.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from rewards.arithmetic import packs

# Rows are padded to a multiple of it. oneDNN never drops the code that it compiles for each number of rows: without
# padding, memory grows by 20 MB with every 1,000 questions (measured with miniatures, QRelScore).
STEP = 64


class PackedLinear(nn.Module):
    """A linear layer without gradient: ``x`` [..., inputs] -> [..., outputs], in float32 or bfloat16 on a CPU.

    Args:
        weight: [outputs, inputs].
        bias: [outputs], or None.
        transposed: the weight came from a `Conv1D`, which holds it as [inputs, outputs].
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, transposed: bool = False) -> None:
        super().__init__()
        # Not a buffer: Module.to() does not know the layout. Models read `weight.dtype`, so the name must be `weight`.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self.bias = None if bias is None else bias.detach().clone()
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x @ weight.T + bias``."""
        rows = x.reshape(-1, x.shape[-1])
        count = len(rows)
        if padding := -count % STEP:
            rows = nn.functional.pad(rows, (0, 0, 0, padding))
        product = torch.ops.mkldnn._linear_pointwise(rows, self.weight, self.bias, "none", [], "")
        return product[:count].view(*x.shape[:-1], product.shape[-1])

    def unpacked(self) -> nn.Module:
        """Return the plain layer that this one was built from."""
        weight = self.weight.to_dense()
        with torch.device("meta"):  # no initial weights, which would take random numbers
            if self.transposed:
                layer: nn.Module = Conv1D(weight.shape[0], weight.shape[1])
            else:
                layer = nn.Linear(weight.shape[1], weight.shape[0], bias=self.bias is not None)
        if self.transposed:
            weight = weight.t().contiguous()
        layer.weight = nn.Parameter(weight, requires_grad=False)
        if self.bias is not None:
            layer.bias = nn.Parameter(self.bias, requires_grad=False)
        return layer

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "weight": self.weight.to_dense()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(state["weight"], None)


def can_pack(model: nn.Module) -> bool:
    """Return whether this PyTorch has the layout for the type of the model's numbers."""
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    dtype = next(model.parameters()).dtype
    return available and (
        dtype is torch.float32 or (dtype is torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def pack(model: nn.Module, *, every: bool = False) -> None:
    """Replace the linear layers of a frozen model on the CPU by packed ones, where the rule says so
    (`rewards.arithmetic.packs`, which may raise), or every one of them, one at a time to save memory.
    """
    child: Any
    for name, child in list(model.named_children()):
        if type(child) is nn.Linear or type(child) is Conv1D:
            if every or packs(child.weight.numel()):
                setattr(model, name, _packed(child))
        elif type(child) is NewGELUActivation:
            setattr(
                model, name, nn.GELU(approximate="tanh")
            )  # the same function, with one pass over memory instead of eight
        else:
            pack(child, every=every)


def _packed(layer: nn.Linear | Conv1D) -> PackedLinear:
    if isinstance(layer, Conv1D):
        return PackedLinear(layer.weight.t(), layer.bias, transposed=True)
    return PackedLinear(layer.weight, layer.bias)


def unpack(model: nn.Module) -> None:
    """Reverse `pack`, before the model moves to another device."""
    for name, child in list(model.named_children()):
        if isinstance(child, PackedLinear):
            setattr(model, name, child.unpacked())
        else:
            unpack(child)
