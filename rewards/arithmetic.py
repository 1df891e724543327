"""Which arithmetic a CPU uses here: by rule, from its features, a layer's size and one variable, never by the clock.

The same command on the same machine so gives the same digits. Measurements behind the rule: `experiments/speed`.

- **Packed products** (`rewards.packed`) of frozen models: on AMD processors, where oneDNN may use AVX-512, for layers
  of `SMALLEST` weights or more. Elsewhere, and always in training, PyTorch's own. ``RL_QG_PACKED=always`` or ``never``
  decides for every layer; ``rule`` is the default.
- **16 bits**: what the settings say, with a warning where the processor has no instructions for them.
"""

import logging
import os
import platform
from functools import cache
from pathlib import Path
from typing import Any

import torch

from rewards.errors import MetricInputError

logger = logging.getLogger(__name__)

VARIABLE = "RL_QG_PACKED"

SMALLEST = 1 << 17
"""Weights of the smallest layer that the rule packs: 192 x 768 has more, and gains; 128 x 512 has fewer, and loses."""

_warned: set[tuple[torch.dtype, str]] = set()


def packs(weights: int) -> bool:
    """Return whether a frozen layer of so many weights is packed on a CPU.

    Raises:
        MetricInputError: the environment variable `VARIABLE` has a value that does not exist.
    """
    choice = _choice()
    return choice == "always" or (choice == "rule" and weights >= SMALLEST and _is_amd() and _onednn_has("bf16"))


def arithmetic() -> dict[str, Any]:
    """Return what decides the last digits on a CPU, for the record of a run; raises as `packs`."""
    choice = _choice()
    of_rule = f": layers of {SMALLEST} weights or more, on an AMD processor where oneDNN may use AVX-512"
    return {
        "packed": packs(SMALLEST),
        "reason": f"{VARIABLE}={choice}{of_rule if choice == 'rule' else ''}",
        "amd": _is_amd(),
        "mkldnn_bf16": _onednn_has("bf16"),
        "onednn_max_isa": os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA"),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
    }


def warn_if_slow(dtype: torch.dtype, device: torch.device, instead: str) -> None:
    """Log one warning for each type and setting in a process, if this CPU has no instructions for a type of 16 bits.

    Args:
        dtype: what models are run in.
        device: where; nothing is said of others than a CPU.
        instead: the setting that gives float32, for the message.
    """
    if device.type != "cpu" or (dtype, instead) in _warned or _is_fast(dtype):
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


def _is_fast(dtype: torch.dtype) -> bool:
    if dtype is torch.float16:
        return _onednn_has("fp16")
    if dtype is not torch.bfloat16:
        return True
    x86 = platform.machine() in ("x86_64", "AMD64")  # there oneDNN has bfloat16 with AVX-512 alone too, but slowly
    return _onednn_has("bf16") and (
        not x86 or torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    )


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
