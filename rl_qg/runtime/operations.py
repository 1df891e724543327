"""Operations of PyTorch, counted while they run on this machine, and what a model says they take on named GPUs."""

import time
from collections import Counter
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

# Assumed, until measured on a GPU: the shares that products and the memory reach of their peaks, seconds to start
# an operation from Python, and bytes of CUDA and of gaps in the allocator.
REACHED, BANDWIDTH, LAUNCH, CONTEXT = 0.4, 0.7, 12e-6, 1e9
ASSUMED = (
    f"products at {REACHED} of the peak, memory at {BANDWIDTH} of its bandwidth, {1e6 * LAUNCH:.0f} microseconds to "
    "start an operation; what is no operation takes as long as here"
)
POSITIONS = 1100  # a table of embeddings with more rows is a vocabulary, else one of positions or segments


class GPU(NamedTuple):
    """Peaks of a data sheet: operations/s (float32 without tensor cores, PyTorch's default), bytes/s, and bytes."""

    bf16: float
    float32: float
    bandwidth: float
    memory: float

    def seconds(self, operations: float, moved: float, half: bool) -> float:
        """Of one operation: its start, its products or what it reads and writes, whichever takes longest."""
        peak = self.bf16 if half else self.float32
        return max(LAUNCH, operations / (REACHED * peak), moved / (BANDWIDTH * self.bandwidth))


GPUS = {  # SXM modules where there are several
    "H200": GPU(989e12, 67e12, 4.8e12, 141e9),
    "H100": GPU(989e12, 67e12, 3.35e12, 80e9),
    "A100": GPU(312e12, 19.5e12, 2.04e12, 80e9),
    "L40S": GPU(362e12, 91.6e12, 0.864e12, 48e9),
    "L4": GPU(121e12, 30.3e12, 0.3e12, 24e9),
}
_aten = torch.ops.aten
FORMULAS = {  # of operations; PyTorch has no formula for the attention of a CPU, which is that of CUDA
    **flop_registry,
    _aten._scaled_dot_product_flash_attention_for_cpu: flop_registry[_aten._scaled_dot_product_flash_attention],
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: flop_registry[
        _aten._scaled_dot_product_flash_attention_backward
    ],
}


class OperationCounter(TorchDispatchMode):
    """Counts what runs in its block in this thread."""

    def __init__(self) -> None:
        super().__init__()
        self._sums: dict[str, float] = dict.fromkeys(("operations", "in_operations", *GPUS), 0.0)
        self._embedded: Counter[int] = Counter()  # tokens, by the rows of the table

    @property
    def counts(self) -> dict[str, float]:
        """Floating-point `operations` (two for each multiplication of a product), `tokens` that enter a model, seconds
        of the processor `in_operations`, and the seconds of each of `GPUS`, by what each computes, reads, writes.
        """
        least = min(POSITIONS, max(self._embedded, default=0))
        return self._sums | {"tokens": float(sum(n for rows, n in self._embedded.items() if rows >= least))}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, formula = kwargs or {}, FORMULAS.get(func.overloadpacket)
        if not formula:
            with self:  # in inference mode some arrive whole that are made of others
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        start = time.process_time()
        result = func(*args, **kwargs)
        self._sums["in_operations"] += time.process_time() - start
        if func.is_view:  # nothing is computed
            return result
        tensors = [one for one in tree_leaves((args, kwargs, result)) if isinstance(one, torch.Tensor)]
        if func is _aten.embedding.default:
            self._embedded[len(args[0])] += args[1].numel()
            moved = 2 * result.nbytes  # the rows that are read, not the table
        else:
            moved = sum(one.nbytes for one in tensors)
        operations = int(formula(*args, **kwargs, out_val=result)) if formula else 0
        self._sums["operations"] += operations
        half = any(one.dtype in (torch.bfloat16, torch.float16) for one in tensors)
        for name, gpu in GPUS.items():
            self._sums[name] += gpu.seconds(operations, moved, half)
        return result
