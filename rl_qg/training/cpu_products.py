"""The products of an update by oneDNN, on processors where that is faster than PyTorch's own choice (MKL).

The library for float32 products is fixed in PyTorch, and on processors of another maker than its own it does not use
their widest instructions. oneDNN, shipped with the same PyTorch, does. A layer that is trained cannot keep its weight
in oneDNN's layout (`rewards.packed`), since it changes with every update; oneDNN reads it as it is. In bfloat16
PyTorch uses oneDNN already.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rewards.measured_products import packed_is_faster
from rewards.packed import NUMBERS, STEP

ROWS = 512  # tokens with which a layer is timed, about those of a batch


def use_fastest_products(model: nn.Module) -> int:
    """Let the linear layers of a model in float32 on the CPU use oneDNN where that is faster here; return how many do.

    Values differ by rounding only. The choice is kept for each machine and size, as for frozen models
    (`rewards.measured_products`), so that a resumed run makes the same one.
    """
    if not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return 0
    count = 0
    for layer in model.modules():
        if type(layer) is nn.Linear and _on_cpu(layer.weight) and _is_faster(layer):
            layer.__class__ = OneDnnLinear
            count += 1
    return count


class OneDnnLinear(nn.Linear):
    """A linear layer whose three products (output, gradient of the input, gradient of the weight) are oneDNN's.

    Under mixed precision, on another device, or with numbers other than float32 it is a plain layer.
    """

    def forward(self, input: Tensor) -> Tensor:
        """``x`` [..., inputs] -> [..., outputs]."""
        plain = torch.is_autocast_enabled(input.device.type) or not (_on_cpu(input) and _on_cpu(self.weight))
        if plain or not input.numel():
            return super().forward(input)
        output: Tensor = _Product.apply(input.reshape(-1, input.shape[-1]), self.weight, self.bias)
        return output.view(*input.shape[:-1], output.shape[-1])


class _Product(torch.autograd.Function):
    """``x @ weight.T + bias`` for x [n, inputs] and weight [outputs, inputs]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)  # not the padded rows: layers that read the same x share one copy
        return _multiply(_padded(x), weight, bias)[: len(x)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        whole = _padded(gradient)
        of_input, of_weight, of_bias = ctx.needs_input_grad
        return (
            _multiply(whole, weight.t(), None)[: len(x)] if of_input else None,
            _multiply(whole.t(), _padded(x).t(), None) if of_weight else None,
            gradient.sum(0) if of_bias else None,
        )


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def _padded(rows: Tensor) -> Tensor:
    """More than `STEP` rows with rows of zeros up to a multiple of it: oneDNN keeps the code that it compiles for each
    number of rows. The few rows of a decoding step stay as they are: these numbers are few too.
    """
    missing = -len(rows) % STEP if len(rows) > STEP else 0
    return nn.functional.pad(rows, (0, 0, 0, missing)) if missing else rows.contiguous()


def _on_cpu(values: Tensor) -> bool:
    return values.device.type == "cpu" and values.dtype is torch.float32


def _is_faster(layer: nn.Linear) -> bool:
    """By the time of the output alone: the gradients are products of the same sizes."""

    def by_onednn() -> nn.Module:
        other = OneDnnLinear(layer.in_features, layer.out_features, layer.bias is not None)
        other.load_state_dict(layer.state_dict())
        return other

    size = (layer.in_features, layer.out_features)
    rows = min(ROWS, max(STEP, NUMBERS // max(size)))
    return packed_is_faster(layer, by_onednn, size, rows, kind="trained")
