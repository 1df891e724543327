"""Processes that train small models side by side on the cores of this machine."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from threading import Thread

import torch
import transformers

LAUNCHER_VARIABLES = frozenset(
    "RANK LOCAL_RANK GROUP_RANK ROLE_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE ROLE_WORLD_SIZE "
    "MASTER_ADDR MASTER_PORT".split()
)


def available_cores() -> int:
    """How many cores this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
