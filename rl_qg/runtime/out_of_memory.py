"""Batches that do not fit into memory are run in halves."""

import gc
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from accelerate.utils.memory import should_reduce_batch_size

from rl_qg.runtime.errors import LocalError

log = logging.getLogger(__name__)
Row = TypeVar("Row")
Result = TypeVar("Result")


class Halving:
    """Runs a function over rows in as few pieces as fit into memory.

    A piece that does not fit is halved until it does; the size that fitted is kept for later calls, so memory runs out
    once and not at every batch. Only for functions whose result for a row does not depend on the other rows, and that
    talk to no other process.

    Args:
        what: the part at work, as the log is to call it.
        remedy: what the user can do when a single row does not fit.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        self.remedy = remedy
        self.limit: int | None = None  # rows at a time; None: memory has never run out

    def __call__(self, function: Callable[[Sequence[Row]], Result], rows: Sequence[Row]) -> list[Result]:
        """The results of `function` for consecutive pieces of `rows`; a single one while everything fits.

        Raises:
            LocalError: one row alone does not fit.
        """
        results: list[Result] = []
        start = 0
        while start < len(rows):
            piece = rows[start : start + (self.limit or len(rows))]
            try:
                results.append(function(piece))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(piece) == 1:
                    raise LocalError(f"{self.what}: a single row does not fit into memory; {self.remedy}") from None
                self._halve(len(piece))
            else:
                start += len(piece)
                continue
            _release()  # only here: the exception, which holds the failed batch's tensors, is gone
        return results

    def _halve(self, size: int) -> None:
        if self.limit is None:
            log.warning("%s: %d rows do not fit into memory; going on with fewer at a time", self.what, size)
        self.limit = size // 2


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the accelerator or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    texts = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and (
        should_reduce_batch_size(error) or any(text in str(error) for text in texts)
    )


def _release() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
