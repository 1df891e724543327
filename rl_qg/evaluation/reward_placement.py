"""Where the frozen models of a reward are kept: on the accelerator, on the host, or as much on the accelerator as a
share of its memory holds.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn

from rewards.combine import Combined
from rewards.frozen import FrozenModel, loading_on

log = logging.getLogger(__name__)

ACCELERATOR, HOST = "device", "cpu"


def loading(placement: str | float, device: torch.device) -> AbstractContextManager[None]:
    """Inside, frozen models load straight to `device`, or to the host when `place` is to leave some of them there."""
    return loading_on(device if placement == ACCELERATOR else HOST)


def place(reward: Any, placement: str | float, device: torch.device) -> None:
    """Put a reward's models where `training.reward_placement` says; scores stay the same, up to rounding.

    Args:
        reward: any reward. What has no frozen models of `rewards/` in it moves as a whole, or, without a method `to`,
            not at all; a share has no effect on it, and the log says so.
        placement: ``device``, ``cpu``, or a share in (0, 1] of the accelerator's memory. Layers that fit into the
            share stay on the accelerator, the others wait on the host and are copied in for each pass. The share
            holds weights alone, and every process takes one.
        device: the accelerator of this process, or its CPU.
    """
    memory = None if isinstance(placement, str) else _memory(device)
    shared: list[FrozenModel] = []
    for part in _parts(reward):
        models = frozen_models(part)
        if memory is not None and models:
            shared += models
            continue
        if not isinstance(placement, str):
            why = "there is no accelerator" if memory is None else f"{type(part).__name__} has no frozen models"
            log.warning("training.reward_placement=%s has no effect on the reward: %s", placement, why)
        if hasattr(part, "to"):
            part.to(HOST if placement == HOST else device)
    if memory is not None and not isinstance(placement, str):
        stream(shared, device, int(placement * memory))


def stream(models: Sequence[FrozenModel], device: torch.device, room: int) -> None:
    """Keep as much of frozen models on `device` as `room` bytes hold, and copy the other layers in as they run.

    Each model takes of the room in proportion to its size: first for what is not a layer (embeddings and head stay)
    and for one layer on its way, then for layers that stay. A room too small for the first two is exceeded, which the
    log says.
    """
    sizes = [_bytes(model.plain()) for model in models]
    if sum(sizes) <= room:
        for model in models:
            model.to(device)
        return
    for model, size in zip(models, sizes, strict=True):
        _stream(model, device, room * size // sum(sizes))


def frozen_models(metric: Any) -> list[FrozenModel]:
    """The frozen models among a metric's attributes."""
    return [value for value in getattr(metric, "__dict__", {}).values() if isinstance(value, FrozenModel)]


def _parts(reward: Any) -> Iterator[Any]:
    """The metrics that a combined reward is made of, or the reward itself."""
    if not isinstance(reward, Combined):
        yield reward
        return
    for part in reward.parts.values():
        yield from _parts(part.metric)


def _stream(model: FrozenModel, device: torch.device, room: int) -> None:
    layers = _layers(model.plain())
    sizes = [_bytes(layer) for layer in layers]
    taken = _bytes(model.plain()) - sum(sizes) + max(sizes, default=0)
    staying = 0
    while staying < len(layers) and taken + sizes[staying] <= room:
        taken += sizes[staying]
        staying += 1
    model.dispatch(device, lambda module: _spread(module, layers[staying:], device))
    log.info(
        "%s: %d of %d layers wait on the host and are copied to %s for each pass; the others and one of these take "
        "%.2f GB there%s",
        *(model.name, len(layers) - staying, len(layers), device, taken / 1e9),
        "" if taken <= room else f", more than the {room / 1e9:.2f} GB that training.reward_placement gives",
    )


def _spread(module: nn.Module, waiting: Sequence[nn.Module], device: torch.device) -> None:
    """Move a model to `device`, but for the waiting layers, which come for the time they run.

    accelerate's `dispatch_model` does as much, but not for a plan that keeps nothing on the accelerator (a KeyError at
    the first pass, accelerate 1.15).
    """
    for layer in waiting:
        _wait_on_host(layer, device)
    for weight in module.parameters():
        weight.data = weight.data.to(device)
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer.to(device))


def _wait_on_host(layer: nn.Module, device: torch.device) -> None:
    weights = list(layer.parameters())
    # Page-locked memory goes to a GPU at about twice the speed, and without the host waiting for it.
    kept = [weight.data.pin_memory() if device.type == "cuda" else weight.data for weight in weights]
    # Empty, not on the host: models ask a weight for its device and its type.
    empty = [torch.empty(0, dtype=weight.dtype, device=device) for weight in weights]

    def fetch(module: nn.Module, arguments: Any) -> None:
        _assign(weights, [data.to(device, non_blocking=True, copy=True) for data in kept])

    def release(module: nn.Module, arguments: Any, output: Any) -> None:
        _assign(weights, empty)

    _assign(weights, empty)
    layer.register_forward_pre_hook(fetch)
    layer.register_forward_hook(release, always_call=True)  # also when memory runs out inside


def _assign(weights: Sequence[nn.Parameter], values: Sequence[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.data = value


def _layers(module: nn.Module) -> list[nn.Module]:
    """The elements of the outermost lists of modules, which are the layers, of encoder and decoder."""
    found: list[nn.Module] = []
    for child in module.children():
        found += list(child) if isinstance(child, nn.ModuleList) else _layers(child)
    return found


def _bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


def _memory(device: torch.device) -> int | None:
    """Bytes of the accelerator's own memory; None where it has none."""
    if device.type in ("cpu", "mps"):
        return None
    return int(torch.get_device_module(device).get_device_properties(device).total_memory)
