"""A GPU that is not there: tensors of the CPU that say they are on cuda:0.

`moved` gives such a tensor, `move_model` does it to the weights of a model. In `with PretendedGPU() as gpu:` an
operation on tensors of both devices raises, as on a GPU, and `gpu.waits` counts where our code made the host wait, by
reading what is there or by sending without `non_blocking`.
What this cannot show: kernels, streams, mixed precision. `torch.inference_mode` does not work within.
"""

import traceback
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

CUDA = torch.device("cuda:0")
ROOT = Path(__file__).parents[1]
OURS = (str(ROOT / "rl_qg"), str(ROOT / "rewards"))
WAITS = {
    "aten._local_scalar_dense.default",
    "aten.nonzero.default",
    "aten.masked_select.default",
    "aten.equal.default",
}
COPIES = {"aten._to_copy.default", "aten.copy_.default"}


class Moved(Tensor):
    """A tensor that says it is on the GPU; its numbers are in `payload`, on the CPU."""

    payload: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, payload: Tensor) -> "Moved":
        made: Moved = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            payload.size(),
            strides=payload.stride(),
            storage_offset=payload.storage_offset(),
            dtype=payload.dtype,
            device="meta",
        )
        made.payload = payload
        return made

    device = property(lambda self: CUDA)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {}, Counter())

    def __setitem__(self, index: Any, value: Any) -> None:
        values = [value, *(index if isinstance(index, tuple) else (index,))]
        if any(isinstance(one, Tensor) and one.dim() and not isinstance(one, Moved) for one in values):
            raise RuntimeError(f"tensors of two devices in an assignment, {_place()}")
        self.payload[tree_map(_payload, index)] = _payload(value)

    def tolist(self) -> Any:
        _CURRENT[-1][f"tolist, {_place()}"] += 1
        return self.payload.tolist()

    def numpy(self, **options: Any) -> Any:
        raise TypeError(f"numpy() of a tensor on the GPU, {_place()}")


_CURRENT: list[Counter[str]] = [Counter()]


class PretendedGPU(TorchDispatchMode):
    """Within the block there is a GPU; `waits` counts the places at which the host waited for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()
        self._patches = [
            patch.object(torch, "tensor", _made(torch.tensor)),
            patch.object(Tensor, "to", _to(Tensor.to)),
            patch.object(Tensor, "new_tensor", _new(Tensor.new_tensor, torch.tensor)),
            patch.object(torch.cuda, "_lazy_init", lambda: None),
        ]

    def __enter__(self) -> "PretendedGPU":
        for one in self._patches:
            one.start()
        _CURRENT.append(self.waits)
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _CURRENT.pop()
        for one in self._patches:
            one.stop()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(function, args, kwargs or {}, self.waits)


def moved(value: Any) -> Any:
    return Moved(value) if isinstance(value, Tensor) and not isinstance(value, Moved) else value


def move_model(model: nn.Module) -> nn.Module:
    """Put weights and buffers on the GPU; weights that modules share stay shared."""
    seen: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                new = nn.Parameter(Moved(weight.data), requires_grad=weight.requires_grad)
                module._parameters[name] = seen.setdefault(id(weight), new)
        for name, buffer in module._buffers.items():
            module._buffers[name] = moved(buffer)
    return model


def _run(function: Any, args: Any, kwargs: dict[str, Any], waits: Counter[str]) -> Any:
    name, device = str(function), kwargs.get("device")
    given = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    on_gpu = [value for value in given if isinstance(value, Moved)]
    to_gpu = device is not None and torch.device(device).type in ("cuda", "meta")
    if name in COPIES:
        return _copy(name, args, kwargs, to_gpu, waits)
    if on_gpu and any(value.dim() for value in given if not isinstance(value, Moved)):
        raise RuntimeError(f"tensors of two devices in {name}, {_place()}")
    if on_gpu and (name in WAITS or _is_by_boolean(name, args)):
        waits[f"{name}, {_place()}"] += 1
    if function is torch.ops.aten.detach.default and on_gpu:
        return Moved(args[0].payload.detach())
    plain_args, plain = tree_map(_payload, args), tree_map(_payload, kwargs)
    output = function(*plain_args, **(plain | {"device": torch.device("cpu")} if to_gpu else plain))
    if not on_gpu and not to_gpu:
        return output
    same = {id(value.payload): value for value in on_gpu}  # an operation in place returns what it was given
    return tree_map(lambda value: same[id(value)] if id(value) in same else moved(value), output)


def _copy(name: str, args: Any, kwargs: dict[str, Any], to_gpu: bool, waits: Counter[str]) -> Any:
    if name == "aten.copy_.default":
        target, source = args[:2]
        if isinstance(source, Moved) and not isinstance(target, Moved):
            waits[f"copy, {_place()}"] += 1
        _payload(target).copy_(_payload(source))
        return target
    source, device = args[0], kwargs.get("device")
    stays = to_gpu or (isinstance(source, Moved) and device is None)
    if isinstance(source, Moved) and not stays:
        waits[f"copy, {_place()}"] += 1
    options = {key: value for key, value in kwargs.items() if key not in ("device", "non_blocking", "pin_memory")}
    output = torch.ops.aten._to_copy.default(_payload(source), **options)
    return Moved(output) if stays else output


def _is_by_boolean(name: str, args: Any) -> bool:
    """Whether an index has booleans, whose number the host has to know."""
    indices = args[1] if name.startswith("aten.index") and len(args) > 1 else ()
    return isinstance(indices, list | tuple) and any(
        isinstance(index, Tensor) and index.dtype is torch.bool for index in indices
    )


def _payload(value: Any) -> Any:
    if isinstance(value, torch.device) and value.type in ("cuda", "meta"):
        return torch.device("cpu")
    return value.payload if isinstance(value, Moved) else value


def _place() -> str:
    """The line of our code that is running."""
    frames = [frame for frame in traceback.extract_stack() if frame.filename.startswith(OURS)]
    return f"{Path(frames[-1].filename).name}: {frames[-1].line}" if frames else "a library"


def _sent(values: Tensor) -> None:
    """What goes to the GPU without `non_blocking` waits for what runs there; nothing to send does not."""
    if values.numel():
        _CURRENT[-1][f"copy to the GPU, {_place()}"] += 1


def _made(make: Any) -> Any:
    def tensor(data: Any, *args: Any, device: Any = None, **options: Any) -> Tensor:
        made: Tensor = make(data, *args, **options)
        if device is None or torch.device(device).type != "cuda":
            return made
        _sent(made)
        return Moved(made)

    return tensor


def _to(move: Any) -> Any:
    def to(self: Tensor, *args: Any, **options: Any) -> Any:
        device = options.get("device", next((one for one in args if isinstance(one, str | torch.device)), None))
        like = next((one for one in args if isinstance(one, Moved)), None)
        if like is None and (device is None or torch.device(device).type != "cuda"):
            return move(self, *args, **options)
        kinds = [
            options.get("dtype"),
            *(one for one in args if isinstance(one, torch.dtype)),
            getattr(like, "dtype", None),
        ]
        kind = next((one for one in kinds if one is not None), self.dtype)
        if not isinstance(self, Moved) and not options.get("non_blocking"):
            _sent(self)
        return move(self if isinstance(self, Moved) else Moved(self.detach()), kind)

    return to


def _new(new: Any, make: Any) -> Any:
    def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
        if not isinstance(self, Moved):
            return new(self, data, **options)  # type: ignore[no-any-return]
        made = make(data, dtype=options.get("dtype", self.dtype))
        _sent(made)
        return Moved(made)

    return new_tensor
