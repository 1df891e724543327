"""The processes of a run: what they must agree on, and how they end."""

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

# How long processes wait for one that works alone (a filter over millions of rows, an evaluation). A process that died
# ends the others at once by its closed connection, or by the launcher; nobody waits this long for it.
PATIENCE = timedelta(hours=2)
Value = TypeVar("Value")
log = logging.getLogger(__name__)


def processes(use_cpu: bool) -> PartialState:
    """The processes of this run.

    Raises:
        InputError: the launcher started several, but they do not see each other.
    """
    first = not torch.distributed.is_initialized()
    _meet_again()
    state = PartialState(cpu=use_cpu, timeout=PATIENCE)
    if first and use_cpu and os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        log.warning("FSDP: on CPU accelerate makes plain data parallelism of it; nothing is sharded")
    launched = int(os.environ.get("WORLD_SIZE", "1"))
    if state.num_processes != launched:
        raise InputError(
            f"{launched} processes were started, but each sees {state.num_processes}, and all would do the same work; "
            "on a machine without accelerators set training.use_cpu=true"
        )
    return state


def _meet_again() -> None:
    """Join the processes of a restarted attempt under keys of its own.

    The launcher's store still holds those of the attempt that failed, and with them half of the restarts hang
    (measured with torch 2.13 and gloo: 6 of 11; with this none of 12).
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    if attempt == "0" or torch.distributed.is_initialized():
        return
    store, rank, size = next(torch.distributed.rendezvous("env://"))
    keys = torch.distributed.PrefixStore(f"attempt-{attempt}", store)
    torch.distributed.init_process_group(store=keys, rank=rank, world_size=size, timeout=PATIENCE)


def from_main(state: PartialState, function: Callable[[], Value]) -> Value:
    """What `function` returns in the main process, which alone calls it, for every process.

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


def load_whole() -> None:
    """Make `from_pretrained` load whole weights from here on.

    Once there are training arguments for ZeRO-3, transformers spreads every model that is loaded over the processes:
    rewards and generators too, which nobody gathers. What is trained is spread when its trainer starts.
    """
    unset_hf_deepspeed_config()


def leave(code: int) -> None:
    """End this process. Returns only when it is alone, so that the interpreter ends as usual.

    With several processes the interpreter's shutdown sometimes aborts (gloo's threads, measured in one of twelve
    complete runs), which a launcher takes for a failed run.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        if code == 0:
            torch.distributed.barrier()  # nobody leaves while another still talks to it
        finish_trackers()
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
