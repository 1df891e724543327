"""Where a reward's frozen models are: accelerator, host, or partly on the first within a share of its memory."""

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from rewards.combine import Combined
from rewards.frozen import FrozenModel, loading_on
from rewards.set_rewards import SetReward
from rl_qg.runtime.processes import load_unsharded

log = logging.getLogger(__name__)


def loading_where(placement: str | float, device: torch.device) -> AbstractContextManager[None]:
    """Inside, frozen models load whole, to `device`, or to the host if `place_reward` may keep some there."""
    load_unsharded()
    return loading_on(device if placement == "device" else "cpu")


def place_reward(reward: Any, placement: str | float, device: torch.device) -> None:
    """Move a reward's models as `training.reward_placement` says; scores stay the same, up to rounding.

    `placement` is `device`, `cpu`, or a fraction in (0, 1] of the accelerator's memory, for weights only and for each
    process: layers that fit into it stay there, the others stay on the host and are copied for each pass. A reward
    without frozen models of `rewards/` moves as a whole if it has a method `to`; a fraction has no effect on it.
    """
    memory = None if isinstance(placement, str) else _memory(device)
    offloaded: list[FrozenModel] = []
    for part in _parts(reward):
        models = frozen_models(part)
        if memory is not None and models:
            offloaded += models
            continue
        if not isinstance(placement, str):
            reason = "there is no accelerator" if memory is None else f"{type(part).__name__} has no frozen models"
            log.warning("training.reward_placement=%s has no effect on the reward: %s", placement, reason)
        if hasattr(part, "to"):
            part.to("cpu" if placement == "cpu" else device)
    if memory is not None and not isinstance(placement, str):
        offload(offloaded, device, int(placement * memory))


def frozen_models(metric: Any) -> list[FrozenModel]:
    return [value for value in getattr(metric, "__dict__", {}).values() if isinstance(value, FrozenModel)]


def _parts(reward: Any) -> list[Any]:
    if isinstance(reward, Combined | SetReward):
        return [inner for metric in reward.metrics for inner in _parts(metric)]
    return [reward]


def _memory(device: torch.device) -> int | None:
    if device.type in ("cpu", "mps"):
        return None
    return int(torch.get_device_module(device).get_device_properties(device).total_memory)


def offload(models: Sequence[FrozenModel], device: torch.device, budget: int) -> None:
    """Keep as much of frozen models on `device` as fits into `budget` bytes, and copy the other layers when they run.

    Each model gets a part of the budget in proportion to its size: first for weights outside layers (embeddings and
    head stay) and for one layer that is being copied, then for layers that stay. A budget too small for the first two
    is exceeded, which is logged.
    """
    sizes = [_bytes(model.plain()) for model in models]
    fits = sum(sizes) <= budget
    for model, size in zip(models, sizes, strict=True):
        if fits:
            model.to(device)
        else:
            _offload(model, device, budget * size // sum(sizes))


def _offload(model: FrozenModel, device: torch.device, budget: int) -> None:
    layers = _layers(model.plain())
    sizes = [_bytes(layer) for layer in layers]
    used = _bytes(model.plain()) - sum(sizes) + max(sizes, default=0)
    staying = 0
    while staying < len(layers) and used + sizes[staying] <= budget:
        used += sizes[staying]
        staying += 1
    model.dispatch(device, lambda module: _distribute(module, layers[staying:], device))
    log.info(
        "%s: %d of %d layers stay on the host and are copied to %s for each pass; the others and one of these take "
        "%.2f GB there%s",
        *(model.name, len(layers) - staying, len(layers), device, used / 1e9),
        "" if used <= budget else f", more than the {budget / 1e9:.2f} GB that training.reward_placement gives",
    )


def _layers(module: nn.Module) -> list[nn.Module]:
    """The elements of the outermost module lists, which are the layers of encoder and decoder."""
    layers: list[nn.Module] = []
    for child in module.children():
        layers += list(child) if isinstance(child, nn.ModuleList) else _layers(child)
    return layers


def _bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


def _distribute(module: nn.Module, on_host: Sequence[nn.Module], device: torch.device) -> None:
    """Move a model to `device`, except the layers on the host, which are there only while they run.

    accelerate's `dispatch_model` does the same, but not for a plan that keeps no layer on the accelerator (a KeyError
    at the first pass, accelerate 1.15).
    """
    for layer in on_host:
        _keep_on_host(layer, device)
    for weight in module.parameters():
        weight.data = weight.data.to(device)
    for part in module.modules():
        for name, buffer in part.named_buffers(recurse=False):
            setattr(part, name, buffer.to(device))


def _keep_on_host(layer: nn.Module, device: torch.device) -> None:
    weights = list(layer.parameters())
    # Page-locked memory is copied to a GPU about twice as fast, and without blocking the host.
    host_data = [weight.data.pin_memory() if device.type == "cuda" else weight.data for weight in weights]
    # Empty, but on the device: models read the device and the type of their weights.
    empty = [torch.empty(0, dtype=weight.dtype, device=device) for weight in weights]

    def fetch(*_: Any) -> None:
        for weight, data in zip(weights, host_data, strict=True):
            weight.data = data.to(device, non_blocking=True, copy=True)

    def release(*_: Any) -> None:
        for weight, nothing in zip(weights, empty, strict=True):
            weight.data = nothing

    release()
    layer.register_forward_pre_hook(fetch)
    layer.register_forward_hook(release, always_call=True)  # also after an out-of-memory error
