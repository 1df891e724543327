"""Batches that do not fit into memory are split in halves and tried again."""

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


class OutOfMemoryRetry:
    """Runs a function over rows in as few parts as fit into memory.

    A part that does not fit is halved until it does. The size that fitted is kept for later calls, so memory runs out
    once and not in every batch. Only for functions whose result for a row does not depend on the other rows, and that
    do not communicate with other processes.

    Args:
        title: what is computed, for the log.
        remedy: what the user can do when a single row does not fit.
    """

    def __init__(self, title: str, remedy: str) -> None:
        self.title = title
        self.remedy = remedy
        self.limit: int | None = None  # rows in a part; None: memory has never run out

    def __call__(self, function: Callable[[Sequence[Row]], Result], rows: Sequence[Row]) -> list[Result]:
        """The results of `function` for consecutive parts of `rows`; a single one while everything fits.

        Raises:
            LocalError: a single row does not fit.
        """
        results: list[Result] = []
        start = 0
        while start < len(rows):
            part = rows[start : start + (self.limit or len(rows))]
            try:
                results.append(function(part))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(part) == 1:
                    raise LocalError(f"{self.title}: a single row does not fit into memory; {self.remedy}") from None
                self._halve(len(part))
            else:
                start += len(part)
                continue
            _release()  # not in the handler: there the exception still holds the tensors of the failed part
        return results

    def _halve(self, size: int) -> None:
        if self.limit is None:
            log.warning("%s: %d rows do not fit into memory; continuing with fewer at a time", self.title, size)
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
