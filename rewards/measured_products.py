"""Which product of matrices is faster here: PyTorch's own, or oneDNN's with a packed weight.

It depends on the processor: with AVX-512 the packed one was twice as fast, with AVX2 alone slower (172 against 208
GFLOP/s, both on an AMD EPYC). So both are timed, for each size of a layer, once on each machine. The times are kept
in ``~/.cache/rl-qg/products.json`` (below ``$XDG_CACHE_HOME`` where that is set), by processor, PyTorch and size.
``RL_QG_PACKED=always`` or ``never`` decides without timing; ``measure`` is the default.

What is timed is the processor's time of one thread. By the clock, and with several threads, other work on the machine
would decide: with ten processes on two cores a layer of 0.03 GFLOP took 90 or 130 ms, and the choice would be kept.
"""

import contextlib
import fcntl
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
"""How often each product is timed, after one call that is not; in turn, and the fastest counts."""

MARGIN = 1.05
"""How many times faster than the packed product PyTorch's own must be to be chosen. Near a tie the packed one is:
where two hardware threads share a core, other work takes from the wide instructions that it uses (measured, of one
layer: 2.3 times as fast on a quiet machine, 1.2 times beside ten busy processes)."""

_known: dict[str, tuple[float, float]] = {}


def packed_is_faster(
    plain: nn.Module, packed: Callable[[], nn.Module], size: tuple[int, int], rows: int, *, kind: str = "packed"
) -> bool:
    """Return whether a layer should be packed; times that are not in `cache_file` are measured and kept there.

    Args:
        plain: the layer as the library has it, [outputs, inputs] numbers in its weight.
        packed: builds the same layer with a packed weight; called only where both have to be timed.
        size: inputs and outputs.
        rows: how many rows the layer multiplies at a time.
        kind: another name for another way than packing, whose times are kept apart.

    Raises:
        MetricInputError: the environment variable `VARIABLE` has a value that does not exist.
    """
    if not measures():
        return os.environ[VARIABLE] == "always"
    dtype = next(plain.parameters()).dtype
    what = f"{dtype}|{size[0]}x{size[1]}|{rows} rows" + ("" if kind == "packed" else f"|{kind}")
    times = kept_times(what, lambda: milliseconds(plain, packed(), torch.randn(rows, size[0], dtype=dtype)))
    return times[1] < MARGIN * times[0]


def measures() -> bool:
    """Return whether products are timed; raise `MetricInputError` if `VARIABLE` has a value that does not exist."""
    choice = os.environ.get(VARIABLE, "measure")
    if choice not in ("always", "never", "measure"):
        raise MetricInputError(f"{VARIABLE}={choice!r} does not exist; use always, never or measure")
    return choice == "measure"


def kept_times(what: str, measure: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    """Return two times of this machine, in milliseconds: those in `cache_file`, or new ones, which are kept there.

    Args:
        what: is timed; the key in the file, beside the machine.
        measure: called where the file has no such times; it may use random numbers.
    """
    key = f"{_machine()}|{what}"
    if key not in _known:
        times = _read(cache_file()).get(key)
        if times is None:
            with torch.random.fork_rng(devices=[]):  # a run is the same whether it has to measure or not
                times = measure()
            times = _keep(cache_file(), key, times)
        _known[key] = times
    return _known[key]


def milliseconds(plain: nn.Module, packed: nn.Module, x: Tensor) -> tuple[float, float]:
    """Return the shortest processor time of each of two layers on ``x`` [rows, inputs], with one thread."""
    times: tuple[list[float], list[float]] = ([], [])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for number in range(ROUNDS + 1):
                for layer, found in zip((plain, packed), times, strict=True):
                    start = time.thread_time()
                    layer(x)
                    if number:
                        found.append(1000 * (time.thread_time() - start))
    finally:
        torch.set_num_threads(threads)
    return min(times[0]), min(times[1])


def cache_file() -> Path:
    """Return the file in which times are kept."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    except RuntimeError:  # a user without a home, as in some containers
        folder = Path(tempfile.gettempdir())
    return folder / "rl-qg" / "products.json"


@cache
def _machine() -> str:
    """Return what can change which product is faster, besides the sizes."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        found = dict(reversed([[part.strip() for part in line.split(":", 1)] for line in lines if ":" in line]))
        # On virtual machines processors of different generations have one name, and a home may be shared.
        name = " ".join(found[key] for key in ("model name", "cpu family", "model") if key in found) or name
    machine = f"{name}|{torch.backends.cpu.get_cpu_capability()}|torch {torch.__version__}"
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA")
    return f"{machine}|oneDNN {limit}" if limit else machine  # limited to older instructions than the processor has


def _read(path: Path) -> dict[str, tuple[float, float]]:
    """Return the times in a file; none where there is no file, or where it is damaged."""
    try:
        times = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): (float(plain), float(packed)) for key, (plain, packed) in times.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _keep(path: Path, key: str, times: tuple[float, float]) -> tuple[float, float]:
    """Add times to a file, unless another process has added its own meanwhile; return those that are in the file.

    So processes that start together make the same choice. Where the file cannot be written, each makes its own.
    """
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            known = _read(path)
            if key in known:
                return known[key]
            with tempfile.TemporaryDirectory(dir=path.parent) as folder:
                written = Path(folder) / path.name
                written.write_text(json.dumps({**known, key: times}, indent=1), encoding="utf-8")
                written.replace(path)
    return times
