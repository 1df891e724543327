"""Which arithmetic a CPU uses here: by rule, from its features, a layer's size and one variable, never by the clock.

The same command on the same machine so gives the same digits. Measurements behind the rule: `experiments/speed`.

- **Packed products** (`PackedLinear`) of frozen models and our rollouts (`packed`), on AMD processors: for layers of
  `SMALLEST` weights or more where oneDNN may use AVX-512 or the model decodes, which multiplies few rows; else for
  those with `VOCABULARY` outputs or more. Elsewhere, and in updates, PyTorch's own. ``RL_QG_PACKED=always`` or
  ``never`` decides for every layer; ``rule`` is the default.
- **16 bits**: what the settings say, with a warning where the processor has no instructions for them.
"""

import logging
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import NewGELUActivation
from transformers.pytorch_utils import Conv1D

from rewards.errors import MetricInputError

logger = logging.getLogger(__name__)

VARIABLE = "RL_QG_PACKED"
SMALLEST = 1 << 17  # weights of a layer that is packed: 192 x 768 has more, and gains; 128 x 512 has fewer, and loses
VOCABULARY = 8000  # outputs of a layer that is packed on AVX2: 384 x 8,000 gains, 128 x 2,000 and 768 x 3,072 do not

_warned: set[tuple[torch.dtype, str]] = set()


def packs(outputs: int, inputs: int, *, decodes: bool = False) -> bool:
    """Return whether a layer of this size, of a frozen model or of a policy that `decodes`, is packed on a CPU."""
    choice = _choice()
    large = outputs * inputs >= SMALLEST if decodes or _onednn_has("bf16") else outputs >= VOCABULARY
    return choice == "always" or (choice == "rule" and large and _is_amd())


def arithmetic() -> dict[str, Any]:
    """Return what decides the last digits on a CPU, for the record of a run; raises as `packs`."""
    choice = _choice()
    large = (
        f"{SMALLEST} weights or more where oneDNN may use AVX-512 or the model decodes, else of {VOCABULARY} outputs"
    )
    of_rule = f": on an AMD processor layers of {large} or more"
    return {
        "packed": packs(VOCABULARY, SMALLEST),
        "reason": f"{VARIABLE}={choice}{of_rule if choice == 'rule' else ''}",
        "amd": _is_amd(),
        "mkldnn_bf16": _onednn_has("bf16"),
        "onednn_max_isa": os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def warn_if_slow(dtype: torch.dtype, device: torch.device, instead: str) -> None:
    """Log once for each type and setting that a CPU has no instructions for a type; ``instead`` gives float32."""
    if device.type != "cpu" or (dtype, instead) in _warned:
        return
    fast = True
    if dtype is torch.float16:
        fast = _onednn_has("fp16")
    elif dtype is torch.bfloat16:
        # On x86 oneDNN has bfloat16 with AVX-512 alone too, but slowly.
        x86 = platform.machine() in ("x86_64", "AMD64")
        own = not x86 or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        fast = _onednn_has("bf16") and own
    if fast:
        return
    _warned.add((dtype, instead))
    logger.warning(
        "this processor has no instructions for products in %s, so it is slower than float32: set %s to be faster",
        str(dtype).removeprefix("torch."),
        instead,
    )


def _choice() -> str:
    choice = os.environ.get(VARIABLE, "rule")
    if choice not in ("rule", "always", "never"):
        raise MetricInputError(f"{VARIABLE}={choice!r} does not exist; use rule, always or never")
    return choice


def _onednn_has(kind: str) -> bool:
    """Whether oneDNN multiplies ``bf16`` (on x86: may use AVX-512) or ``fp16``, within the limit of a user."""
    supported = getattr(torch.ops.mkldnn, f"_is_mkldnn_{kind}_supported", None)
    return torch.backends.mkldnn.is_available() and supported is not None and bool(supported())


@cache
def _is_amd() -> bool:
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return "AuthenticAMD" in platform.processor()  # as Windows names it


# PyTorch multiplies float32 matrices with MKL, which on AMD processors reaches less than half of what oneDNN, shipped
# with the same PyTorch, does with weights in its own layout (measured: 200 against 455 GFLOP/s on two cores of an
# EPYC with AVX-512; with AVX2 alone only layers that end in a vocabulary gain). A frozen model's weights never
# change, so they are converted once. Values differ from the usual ones by rounding only.
#
# Rows are padded to a multiple of STEP, few ones of FEW. oneDNN never drops the code that it compiles for each number
# of rows: without padding, memory grows by 20 MB with every 1,000 questions (measured with miniatures, QRelScore).
STEP, FEW = 64, 8


def _linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")


@cache
def _step_of_few(inputs: int, outputs: int, dtype: torch.dtype) -> int:
    """FEW where the kernels for few rows compute each row as the one for STEP rows does, to the last digit; else STEP.
    On AVX2 they do; other processors have other kernels.
    """
    drawn = torch.Generator().manual_seed(0)
    rows, weight = (torch.rand(count, inputs, generator=drawn).to(dtype) for count in (STEP, outputs))
    weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    whole = _linear(rows, weight)
    alike = all(torch.equal(_linear(rows[:few], weight), whole[:few]) for few in (FEW, 3 * FEW, STEP - FEW))
    return FEW if alike else STEP


class PackedLinear(nn.Module):
    """A linear layer without gradient: ``x`` [..., inputs] -> [..., outputs], in float32 or bfloat16 on a CPU; weight
    [outputs, inputs], ``transposed`` where it came from a `Conv1D`, which holds it as [inputs, outputs].
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, *, transposed: bool = False) -> None:
        super().__init__()
        # Not a buffer: Module.to() does not know the layout. Models read `weight.dtype`, so the name must be `weight`.
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), None)
        self.bias = None if bias is None else bias.detach().to(weight.dtype, copy=True)
        self.transposed = transposed

    def forward(self, x: Tensor) -> Tensor:
        # Of an input with a gradient oneDNN may have its reference code alone: 80 s for a head of 30,523 words.
        rows = x.detach().reshape(-1, x.shape[-1]).to(self.weight.dtype)  # as autocast does
        count = len(rows)
        few = count <= STEP - FEW
        step = _step_of_few(x.shape[-1], self.weight.shape[0], rows.dtype) if few else STEP
        if padding := -count % step:
            rows = nn.functional.pad(rows, (0, 0, 0, padding))
        product = _linear(rows, self.weight, self.bias)
        return product[:count].view(*x.shape[:-1], product.shape[-1])

    def unpacked(self) -> nn.Module:
        weight = self.weight.to_dense()
        outputs, inputs = weight.shape
        with torch.device("meta"):  # no initial weights, which would take random numbers
            layer: nn.Module = (
                Conv1D(outputs, inputs) if self.transposed else nn.Linear(inputs, outputs, bias=self.bias is not None)
            )
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


def can_pack(dtype: torch.dtype) -> bool:
    """Return whether this PyTorch has the layout for numbers of this type."""
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return available and (dtype is torch.float32 or (dtype is torch.bfloat16 and _onednn_has("bf16")))


def pack(model: nn.Module, *, every: bool = False, decodes: bool = False) -> None:
    """Replace linear layers of a frozen model by packed ones, one at a time: by the rule (`packs`), or every one."""
    child: Any
    for name, child in list(model.named_children()):
        if type(child) in (nn.Linear, Conv1D):
            is_conv = type(child) is Conv1D
            weight = child.weight.t() if is_conv else child.weight
            if every or packs(*weight.shape, decodes=decodes):
                setattr(model, name, PackedLinear(weight, child.bias, transposed=is_conv))
        elif type(child) is NewGELUActivation:
            setattr(model, name, nn.GELU(approximate="tanh"))  # the same, in one pass over memory instead of eight
        else:
            pack(child, every=every, decodes=decodes)


@contextmanager
def packed(policy: nn.Module) -> Iterator[None]:
    """Within, the `nn.Linear` of a policy on a CPU are packed copies, of autocast's type and without gradient: a
    rollout packs its weights once and reads them for every token.
    """
    first, replaced = next(policy.parameters()), list[tuple[nn.Module, str, nn.Module]]()
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else first.dtype
    try:
        for parent in list(policy.modules()) if first.device.type == "cpu" and can_pack(dtype) else ():
            reads_weight = hasattr(parent, "trainable_tokens_delta")  # as peft's layer of single rows does
            for name, child in list(parent.named_children()):
                if type(child) is nn.Linear and packs(*child.weight.shape, decodes=True) and not reads_weight:
                    setattr(parent, name, PackedLinear(child.weight.to(dtype), child.bias))
                    replaced.append((parent, name, child))
        yield
    finally:
        for parent, name, child in replaced:
            setattr(parent, name, child)


def unpack(model: nn.Module) -> None:
    for name, child in list(model.named_children()):
        if isinstance(child, PackedLinear):
            setattr(model, name, child.unpacked())
        else:
            unpack(child)
