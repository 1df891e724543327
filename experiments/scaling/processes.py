"""What two real processes send and hold in one update: DDP, and ZeRO-1 to 3 of DeepSpeed, on CPU with gloo.

    for way in cpu2 zero1 zero2 zero3; do
        DS_ACCELERATOR=cpu accelerate launch --num_processes 2 --main_process_port 0 \\
            --config_file configs/accelerate/$way.yaml experiments/scaling/processes.py $way
    done

Sent: the bytes that this process hands to each collective of `torch.distributed` in the third update; DDP's come from
a communication hook, as its reducer calls none of them. Held: the bytes of all tensors that Python can see behind the
backward pass and behind the update.
"""

import gc
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

COLLECTIVES = {
    "all_reduce": "tensor",
    "reduce": "tensor",
    "broadcast": "tensor",
    "all_gather_into_tensor": "output_tensor",
    "all_gather": "tensor_list",
    "reduce_scatter_tensor": "input",
    "all_to_all_single": "output",
}
"""The argument of each that is whole; a ring sends (N - 1) / N of its bytes on, for all_reduce twice that."""

SMALL = {
    "reduce_bucket_size": 2_000_000,
    "allgather_bucket_size": 2_000_000,
    "stage3_prefetch_bucket_size": 0,
    "stage3_max_live_parameters": 0,
    "stage3_max_reuse_distance": 0,
    "stage3_param_persistence_threshold": 0,
}

sent: Counter[str] = Counter()


def count_calls() -> None:
    """Before DeepSpeed is imported, which keeps some of the functions."""
    for name, whole in COLLECTIVES.items():
        setattr(dist, name, _counting(name, whole, getattr(dist, name)))


def _counting(name: str, whole: str, real: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(real)

    def counting(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments[whole]
        sent[name] += sum(tensor.nbytes for tensor in given) if isinstance(given, list) else given.nbytes
        return real(*args, **kwargs)

    return counting


def held() -> int:
    """Bytes of the storages of all living tensors."""
    gc.collect()
    found: dict[int, int] = {}
    for item in gc.get_objects():
        if issubclass(type(item), torch.Tensor) and item.layout is torch.strided and item.device.type == "cpu":
            storage = item.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return sum(found.values())


def main(way: str) -> None:
    count_calls()
    from accelerate import Accelerator, PartialState
    from measure import AutoModelForSeq2SeqLM, bart, batch, write

    torch.manual_seed(0)
    model = AutoModelForSeq2SeqLM.from_config(bart(256, 3, vocabulary=30_000))
    count = sum(weight.numel() for weight in model.parameters())
    sharded = way != "cpu2"
    PartialState(cpu=True)  # as TrainingArguments does; otherwise each process is alone
    accelerator = Accelerator(mixed_precision="bf16" if sharded else "no")
    if sharded:
        options = accelerator.state.deepspeed_plugin.deepspeed_config
        options |= {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
        options["zero_optimization"] |= SMALL  # otherwise room for models a hundred times as large
    engine, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    if not sharded:
        engine.register_comm_hook(None, _all_reduce)
    found: dict[str, Any] = {}
    for _ in range(3):
        sent.clear()
        logits = engine(**batch(1, 16, 8, 1)).logits
        loss = logits.float().logsumexp(-1).mean()
        if sharded:
            engine.backward(loss)
        else:
            accelerator.backward(loss)
        del logits, loss
        found["held_behind_backward"] = held() / count
        (engine if sharded else optimizer).step()
        optimizer.zero_grad()
    found |= {"sent": {name: size / count for name, size in sent.items()}, "held_behind_update": held() / count}
    if accelerator.is_main_process:
        print(way, count, found)
        write({f"two_processes_{way}": {"parameters": count, **found}})
    accelerator.wait_for_everyone()
    os._exit(0)


def _all_reduce(state: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What DDP does by itself, through the function that is counted."""
    return allreduce_hook(dist.group.WORLD, bucket)


if __name__ == "__main__":
    main(sys.argv[1])
