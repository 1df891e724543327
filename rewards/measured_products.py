"""Which product of matrices is faster here: PyTorch's own, or oneDNN's with a packed weight.

It depends on the processor: with AVX-512 the packed one was twice as fast, with AVX2 alone slower (172 against 208
GFLOP/s, both on an AMD EPYC). So both are timed, for each size of a layer, once on each machine. The times are kept
in ``~/.cache/rl-qg/products.json`` (below ``$XDG_CACHE_HOME`` where that is set), by processor, PyTorch, threads and
size. ``RL_QG_PACKED=always`` or ``never`` decides without timing; ``measure`` is the default.
"""

import contextlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from rewards.errors import MetricInputError

VARIABLE = "RL_QG_PACKED"
ROUNDS = 3
"""How often each product is timed, after one call that is not; in turn, and the fastest counts, because other work on
the machine can only slow a product down."""

MARGIN = 1.03
"""How many times faster the packed product must be: it takes memory and time of its own while loading."""

_known: dict[str, bool] = {}


def packed_is_faster(plain: nn.Module, packed: Callable[[], nn.Module], size: tuple[int, int], rows: int) -> bool:
    """Return whether a layer should be packed.

    Args:
        plain: the layer as the library has it, [outputs, inputs] numbers in its weight.
        packed: builds the same layer with a packed weight; called only where both have to be timed.
        size: inputs and outputs.
        rows: how many rows the layer multiplies at a time.

    Raises:
        MetricInputError: the environment variable `VARIABLE` has a value that does not exist.
    """
    choice = os.environ.get(VARIABLE, "measure")
    if choice not in ("always", "never", "measure"):
        raise MetricInputError(f"{VARIABLE}={choice!r} does not exist; use always, never or measure")
    if choice != "measure":
        return choice == "always"
    dtype = next(plain.parameters()).dtype
    key = "|".join(
        [_machine(), f"{torch.get_num_threads()} threads", f"{dtype}", f"{size[0]}x{size[1]}", f"{rows} rows"]
    )
    if key not in _known:
        times = _read(cache_file()).get(key)
        if times is None:
            times = milliseconds(plain, packed(), torch.randn(rows, size[0], dtype=dtype))
            _keep(cache_file(), key, times)
        _known[key] = times[0] > MARGIN * times[1]
    return _known[key]


def milliseconds(plain: nn.Module, packed: nn.Module, x: Tensor) -> tuple[float, float]:
    """Return the shortest time of each of two layers on ``x`` [rows, inputs]."""
    times: tuple[list[float], list[float]] = ([], [])
    with torch.inference_mode():
        for number in range(ROUNDS + 1):
            for layer, found in zip((plain, packed), times, strict=True):
                start = time.perf_counter()
                layer(x)
                if number:
                    found.append(1000 * (time.perf_counter() - start))
    return min(times[0]), min(times[1])


def cache_file() -> Path:
    """Return the file in which times are kept."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return folder / "rl-qg" / "products.json"


@cache
def _machine() -> str:
    """Return what can change which product is faster, besides threads and sizes."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return f"{name}|{torch.backends.cpu.get_cpu_capability()}|torch {torch.__version__}"


def _read(path: Path) -> dict[str, tuple[float, float]]:
    """Return the times in a file; none where there is no file, or where it is damaged."""
    try:
        times = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): (float(plain), float(packed)) for key, (plain, packed) in times.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep(path: Path, key: str, times: tuple[float, float]) -> None:
    """Add times to a file; where it cannot be written, the next process measures again."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        content = json.dumps({**_read(path), key: times}, indent=1)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
            file.write(content)
        Path(file.name).replace(path)
