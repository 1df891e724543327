"""The processes of a command as each of them sees them, and what one does with little memory; without PyTorch."""

import gc
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from rl_qg.runtime.errors import InputError, LocalError

if TYPE_CHECKING:
    from accelerate import PartialState

Ranks: TypeAlias = "PartialState | OneProcess"
Value = TypeVar("Value")
Row = TypeVar("Row")
log = logging.getLogger(__name__)


class OneProcess:
    """A command of a single process that loads no models, for which accelerate's `PartialState` would load PyTorch."""

    num_processes, process_index, is_main_process, device = 1, 0, True, None

    def main_process_first(self) -> AbstractContextManager[None]:
        return nullcontext()


def from_main(state: Ranks, function: Callable[[], Value]) -> Value:
    """Call `function` in the main process only; return its result, or raise its `InputError`, in every process."""
    value, fault = None, None
    if state.is_main_process:
        try:
            value = function()
        except InputError as error:
            if state.num_processes == 1:
                raise
            fault = str(error)
    if state.num_processes > 1:
        from accelerate.utils import broadcast_object_list

        value, fault = broadcast_object_list([value, fault])
    if fault is not None:
        raise InputError(fault)
    return value  # type: ignore[return-value]


class OutOfMemoryRetry:
    """Runs a function over rows in as few parts as fit into memory.

    A part that does not fit is halved until it does. The size that fitted is kept for later calls, so memory runs out
    once and not in every batch. Only for functions whose result for a row does not depend on the other rows, and that
    do not communicate with other processes. The log names the `title`, and as the `remedy` what the user can do when a
    single row does not fit.
    """

    def __init__(self, title: str, remedy: str) -> None:
        self.title = title
        self.remedy = remedy
        self.limit: int | None = None  # rows in a part; None: memory has never run out

    def __call__(self, function: Callable[[Sequence[Row]], Value], rows: Sequence[Row]) -> list[Value]:
        """The results of `function` for consecutive parts of `rows`; a single one while everything fits. Raises
        `LocalError` where a single row does not fit.
        """
        results: list[Value] = []
        start = 0
        while start < len(rows):
            part = rows[start : start + (self.limit or len(rows))]
            try:
                results.append(function(part))
                start += len(part)
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(part) == 1:
                    raise LocalError(f"{self.title}: a single row does not fit into memory; {self.remedy}") from None
            # Not in the handler: there the exception still holds the tensors of the failed part.
            if self.limit is None:
                log.warning(
                    "%s: %d rows do not fit into memory; continuing with fewer at a time", self.title, len(part)
                )
            self.limit = len(part) // 2
            gc.collect()
            if (torch := sys.modules.get("torch")) and torch.cuda.is_available():
                torch.cuda.empty_cache()
        return results


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the accelerator or on the host."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    from accelerate.utils.memory import should_reduce_batch_size

    texts = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    out = type(error).__name__ == "OutOfMemoryError"  # torch's
    return out or should_reduce_batch_size(error) or any(text in str(error) for text in texts)
