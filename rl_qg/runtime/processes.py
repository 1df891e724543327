"""The processes of a run: how they start, load models, and end."""

import ctypes
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from datetime import timedelta
from multiprocessing import active_children, get_context
from threading import Thread
from typing import TypeVar

import torch
import transformers
from accelerate import PartialState
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from rewards.pretrained import ModelFault, explained
from rl_qg.runtime.errors import InputError

LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT".split()
)
# How long processes wait for one that works alone (a filter over millions of rows, an evaluation). If a process dies,
# the closed connection or the launcher ends the others at once.
TIMEOUT = timedelta(hours=2)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of malloc.h
log = logging.getLogger(__name__)
Item = TypeVar("Item")
Value = TypeVar("Value")


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


def side_by_side(function: Callable[[Item], Value], items: Sequence[Item], cores: int) -> list[Value]:
    """`function` of each item, in their order; where PyTorch has one thread, on so many cores at a time. An error is
    raised in the order of the items, and calls that have not begun by then never do.
    """
    if min(cores, len(items)) < 2 or torch.get_num_threads() > 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        contexts = [copy_context() for _ in items]  # none of which two calls may use at a time
        return list(pool.map(lambda item, context: context.run(function, item), items, contexts))


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


def exit_process(code: int) -> None:
    """End this process. A single process returns instead, and the interpreter ends as usual.

    With several processes the shutdown of the interpreter sometimes aborts (threads of gloo; measured in one of twelve
    complete runs), and the launcher would report a failed run.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if code == 0:
            torch.distributed.barrier()  # no process ends while another still communicates with it
        for tracker, close in (("wandb", "finish"), ("trackio", "finish"), ("mlflow", "end_run")):  # else at shutdown
            if tracker in sys.modules:
                getattr(sys.modules[tracker], close)()
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
        with explained(folder if is_local else path):
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
