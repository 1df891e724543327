"""The processes of a run: how they start, share results, load models, do with little memory, and end."""

import ctypes
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing import active_children, get_context
from threading import Thread
from typing import TypeVar

import torch
import transformers
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from accelerate.utils.memory import should_reduce_batch_size
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from rewards.pretrained import ModelFault, explained
from rl_qg.runtime.errors import InputError, LocalError

LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT".split()
)


def available_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def worker_pool(workers: int, threads: int) -> Iterator[ProcessPoolExecutor]:
    """A pool of new processes, each with so many threads; they end with this process, and when the block raises."""
    others = set(active_children())
    with ProcessPoolExecutor(workers, get_context("spawn"), _become_worker, (threads, os.getpid())) as pool:
        try:
            yield pool
        except BaseException:  # a signal, among others: the pool would wait until all is done
            for worker in set(active_children()) - others:
                worker.terminate()
            raise


def _become_worker(threads: int, parent: int) -> None:
    """Make this process a single one, whose parent may be a rank of a launcher, which it inherits."""
    for name in [*os.environ]:
        if name in LAUNCHER_VARIABLES or name.startswith(("ACCELERATE_", "TORCHELASTIC_")):
            del os.environ[name]
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers
    logging.getLogger("transformers").setLevel(logging.ERROR)
    transformers.utils.logging.disable_progress_bar()
    # DeepSpeed, where it is installed, warns at its import that there is no accelerator, and sets its own level.
    logging.getLogger("DeepSpeed").addFilter(lambda record: record.levelno >= logging.ERROR)
    Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which a SIGKILL gives no time to end its workers."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


# How long processes wait for one that works alone (a filter over millions of rows, an evaluation). If a process dies,
# the closed connection or the launcher ends the others at once.
TIMEOUT = timedelta(hours=2)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
Value = TypeVar("Value")
Row = TypeVar("Row")
log = logging.getLogger(__name__)


def processes(use_cpu: bool, *, computes: bool = True) -> PartialState:
    """The processes of this run; raise `InputError` where the launcher's are not connected. One that `computes` with
    models keeps the memory that it frees.
    """
    first = not torch.distributed.is_initialized()
    _rejoin()
    state = PartialState(cpu=use_cpu, timeout=TIMEOUT)
    if (
        first
        and use_cpu
        and state.is_main_process
        and os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    ):
        log.warning("FSDP: on CPU accelerate uses plain data parallelism; nothing is sharded")
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != launched:
        raise InputError(
            f"{launched} processes were started, but each sees {state.num_processes}, so all would do the same work; "
            "on a machine without accelerators set training.use_cpu=true"
        )
    if state.device.type == "cpu" and computes:
        keep_freed_memory()
    return state


def keep_freed_memory() -> None:
    """Let glibc keep the memory that is freed. It would return large blocks to the system, which clears each page when
    it is used again: a third of the time of an update with a large vocabulary (experiments/speed). But growing blocks
    then leave holes: arrays of millions of rows need twice the memory. No effect where the C library has no `mallopt`.
    """
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)  # never


def _rejoin() -> None:
    """Connect the processes of a restarted attempt under new keys.

    The launcher's store still holds the keys of the failed attempt, and with them half of the restarts hang (measured
    with torch 2.13 and gloo: 6 of 11; with new keys none of 12).
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or torch.distributed.is_initialized():
        return
    store, rank, size = next(torch.distributed.rendezvous("env://"))
    keys = torch.distributed.PrefixStore(f"attempt-{attempt}", store)
    torch.distributed.init_process_group(store=keys, rank=rank, world_size=size, timeout=TIMEOUT)


def from_main(state: PartialState, function: Callable[[], Value]) -> Value:
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
        value, fault = broadcast_object_list([value, fault])
    if fault is not None:
        raise InputError(fault)
    return value  # type: ignore[return-value]


def exit_process(code: int) -> None:
    """End this process. A single process returns instead, and the interpreter ends as usual.

    With several processes the shutdown of the interpreter sometimes aborts (threads of gloo; measured in one of twelve
    complete runs), and the launcher would report a failed run.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if code == 0:
            torch.distributed.barrier()  # no process ends while another still communicates with it
        for tracker in ("wandb", "trackio"):  # which would close themselves at the interpreter's shutdown
            if tracker in sys.modules:
                sys.modules[tracker].finish()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def load_unsharded() -> None:
    """Make `from_pretrained` load whole weights from now on.

    Once training arguments for ZeRO-3 exist, transformers shards every model that is loaded, also rewards and
    generators, whose weights are never gathered. The trained model is sharded when its trainer starts.
    """
    unset_hf_deepspeed_config()


@contextmanager
def loading(path: str, key: str, kind: str) -> Iterator[str]:
    """Give the name to load a model by, for a `path` (a local folder or a name on the Hugging Face Hub) that the
    setting `key` names; turn what goes wrong meanwhile with this `kind` of model into one line.
    """
    if not path:
        raise InputError(f"{key} has no value; give a folder, or a name on the Hugging Face Hub")
    setting, folder = f"{key}={path}", os.path.expanduser(path)  # pathlib raises for an unknown user, or a long name
    is_local = os.path.isdir(folder)
    if os.path.isfile(folder):
        raise InputError(f"{setting}: is a file; give the folder of a model")
    if not is_local and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise InputError(f"{setting}: no such folder; check the path")
    if is_local and not os.path.exists(os.path.join(folder, "config.json")):
        raise InputError(f"{setting}: no model folder (it has no config.json); name one that save_pretrained wrote")
    try:
        with explained():
            yield folder if is_local else path
    except ModelFault as fault:
        # what the library says where it cannot read a SentencePiece model, whose reader is another
        hint = "; for its tokenizer: pip install sentencepiece protobuf" if "tiktoken" in str(fault) else ""
        if is_local:
            raise InputError(f"{setting}: no {kind} in this folder can be loaded ({fault}{hint})") from None
        if not fault.unreachable:
            raise InputError(f"{setting}: cannot be used ({fault}{hint})") from None
        raise InputError(
            f"{setting}: the Hugging Face Hub could not be reached, or has no such model ({fault}); offline, give a "
            f"local folder with {key}=FOLDER, or run preset=quickstart, which needs no Hub"
        ) from None


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
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
        return results


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, on the accelerator or on the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    texts = ("CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and (
        should_reduce_batch_size(error) or any(text in str(error) for text in texts)
    )
