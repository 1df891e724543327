"""A part of the experiment: its options, its device and number types, and results that outlive a failure.

A measurement that fails, or that memory does not suffice for, is null in the file, with the reason under `skipped`;
the others go on. The same command makes again what is null, and nothing else.
"""

import argparse
import gc
import signal
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from measurements import Measurements, NotOnThisMachine
from metrics import best

PRECISIONS = ("float32", "TF32", "bf16")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
IS_GPU = DEVICE.type == "cuda"
NO_TIME = "no time was left: the same command goes on here"


def arguments(title: str) -> argparse.Namespace:
    """What `run.sh` gives to every part."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--output", type=Path, required=True, help="the file of results, which grows")
    parser.add_argument("--size", choices=("full", "tiny"), default="full")
    parser.add_argument("--minutes", type=float, default=8, help="after which no measurement begins")
    parser.add_argument("--models", type=Path, required=True, help="where models with random weights are kept")
    return parser.parse_args()


class Part:
    """The results of a part, in a file.

    Args:
        options: those of `arguments`.
        settings: what the numbers depend on besides the size.
    """

    def __init__(self, options: argparse.Namespace, settings: dict[str, Any]) -> None:
        transformers.logging.disable_progress_bar()
        warnings.simplefilter("ignore", FutureWarning)  # of libraries, one for each model
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what was started is ended
        self.end = time.monotonic() + 60 * options.minutes
        versions = {"transformers": transformers.__version__}
        self.results = Measurements(options.output, {"size": options.size, **settings, **versions})

    def measure(self, name: str, action: Callable[[], Any]) -> Any:
        """The result of that name, measured now if the file has none; None where it failed."""
        return self.results.measure(name, lambda: self._attempt(name, action))

    def _attempt(self, name: str, action: Callable[[], Any]) -> Any:
        if time.monotonic() > self.end:
            raise NotOnThisMachine(NO_TIME)
        free_memory()  # also what a failure before this one has held
        print(f"{name} …", flush=True)
        try:
            return action()
        except NotOnThisMachine:
            raise
        except (Exception, SystemExit) as error:  # the next measurements may well be possible
            if is_out_of_memory(error):
                reason = "out of memory"
            else:
                traceback.print_exc()
                reason = f"failed: {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
            raise NotOnThisMachine(reason) from None

    def finish(self) -> None:
        """Say what is missing; exit with 1 if something failed."""
        skipped = self.results.found["skipped"]
        failed = [name for name, reason in skipped.items() if reason.startswith("failed")]
        late = [name for name, reason in skipped.items() if reason == NO_TIME]
        print(f"{self.results.path}: {len(self.results.found['measured']) - len(skipped)} measured", end="")
        print(f", {len(skipped)} skipped ({len(failed)} failed, {len(late)} for want of time)" if skipped else "")
        sys.exit(bool(failed))


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in str(error)


def free_memory() -> None:
    gc.collect()
    if IS_GPU:
        torch.cuda.empty_cache()


def wait() -> None:
    """Until the GPU has done its work."""
    if IS_GPU:
        torch.cuda.synchronize()


def seconds_of(action: Callable[[], Any], repetitions: int = 3) -> float:
    """Median of several runs after one that is not counted."""
    action()
    times = []
    for _ in range(repetitions):
        wait()
        start = time.perf_counter()
        action()
        wait()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


@contextmanager
def products(precision: str) -> Iterator[None]:
    """Float32 products are made in TF32 within the block, if that is the precision."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "TF32" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def dtype_of(precision: str) -> torch.dtype:
    return torch.bfloat16 if precision == "bf16" else torch.float32


def product_rate(precision: str) -> float:
    """GFLOP/s of a product of large square matrices: the peak of which a floor is made."""
    width = 8192 if IS_GPU else 256
    a, b = (torch.randn(width, width, device=DEVICE, dtype=dtype_of(precision)) for _ in range(2))

    def multiply() -> None:
        torch.mm(a, b)
        wait()

    with products(precision):
        return 2 * width**3 / 1e9 / best(multiply)


def measure_peaks(part: Part) -> None:
    """Under `peak PRECISION`, GFLOP/s."""
    for precision in PRECISIONS:
        part.measure(f"peak {precision}", lambda precision=precision: round(product_rate(precision), 1))


@contextmanager
def memory_watched(found: dict[str, Any]) -> Iterator[None]:
    """Put the GPU's memory at its peak within the block into `found`, in GiB; None on a CPU."""
    if IS_GPU:
        torch.cuda.reset_peak_memory_stats()
    yield
    found["peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 2) if IS_GPU else None
