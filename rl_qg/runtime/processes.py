"""The processes of a run: how they start, share results and end."""

import logging
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trackers import finish_trackers

# How long processes wait for one that works alone (a filter over millions of rows, an evaluation). If a process dies,
# the closed connection or the launcher ends the others at once.
TIMEOUT = timedelta(hours=2)
Value = TypeVar("Value")
log = logging.getLogger(__name__)


def processes(use_cpu: bool) -> PartialState:
    """The processes of this run.

    Raises:
        InputError: the launcher started several processes that are not connected.
    """
    first = not torch.distributed.is_initialized()
    _rejoin()
    state = PartialState(cpu=use_cpu, timeout=TIMEOUT)
    if first and use_cpu and os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        log.warning("FSDP: on CPU accelerate uses plain data parallelism; nothing is sharded")
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != launched:
        raise InputError(
            f"{launched} processes were started, but each sees {state.num_processes}, so all would do the same work; "
            "on a machine without accelerators set training.use_cpu=true"
        )
    return state


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
    """Call `function` in the main process only and return its result in every process.

    Raises:
        InputError: in every process, when `function` raises it.
    """
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


def load_unsharded() -> None:
    """Make `from_pretrained` load whole weights from now on.

    Once training arguments for ZeRO-3 exist, transformers shards every model that is loaded, also rewards and
    generators, whose weights are never gathered. The trained model is sharded when its trainer starts.
    """
    unset_hf_deepspeed_config()


def exit_process(code: int) -> None:
    """End this process. A single process returns instead, and the interpreter ends as usual.

    With several processes the shutdown of the interpreter sometimes aborts (threads of gloo; measured in one of twelve
    complete runs), and the launcher would report a failed run.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if code == 0:
            torch.distributed.barrier()  # no process ends while another still communicates with it
        finish_trackers()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
