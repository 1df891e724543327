"""Whole weights of a model whose parameters are sharded over the processes by ZeRO-3 or FSDP."""

import copy
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from transformers import Trainer
from transformers.integrations import is_deepspeed_zero3_enabled

from rl_qg.runtime.errors import InputError

WRAPPER = "_checkpoint_wrapped_module."  # put into names by FSDP's activation checkpointing


class WholeModel(Trainer):
    """Mixin of trainers, named before the trainer class: gives access to the model with whole weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.is_fsdp_enabled and self.accelerator.state.fsdp_plugin.fsdp_version == 1:
            raise InputError("FSDP 1 is not supported: set fsdp_version: 2, as configs/accelerate/fsdp.yaml does")
        self._whole: WholeWeights | None = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in the library, which shards the model at the start."""
        if self._whole is None and (self.is_fsdp_enabled or is_deepspeed_zero3_enabled()):
            self._whole = WholeWeights(self.model)
        return super().train(*args, **kwargs)

    def whole_model(self) -> AbstractContextManager[Any]:
        """A context manager that gives the unwrapped model with whole weights. Every process must call this."""
        bare = self.accelerator.unwrap_model(self.model_wrapped)
        return nullcontext(bare) if self._whole is None else self._whole.of(bare)

    def save_whole(self, folder: Path) -> None:
        """Save model and tokenizer in `folder`, `config.json` last: a folder with it is complete. Every process must
        call this.
        """
        partial = folder / "model.part"
        with self.whole_model() as model:
            if self.is_world_process_zero():
                shutil.rmtree(partial, ignore_errors=True)
                model.save_pretrained(partial)
                self.processing_class.save_pretrained(partial)
                for path in sorted(partial.iterdir(), key=lambda path: path.name == "config.json"):
                    path.replace(folder / path.name)
                partial.rmdir()
        self.accelerator.wait_for_everyone()


class WholeWeights:
    """A plain copy of a model, into which the whole weights are gathered when they are needed.

    A rollout needs a forward pass per token, and on the sharded model each pass would gather every layer. Its length
    also differs between processes, and those that are longer would wait for the others forever. On the copy a rollout
    needs no communication. Between uses the copy holds no weights.

    Args:
        model: before it is sharded.

    Raises:
        InputError: `model` is already sharded.
    """

    def __init__(self, model: nn.Module) -> None:
        if any(hasattr(value, "ds_id") for value in model.parameters()):
            raise InputError("ZeRO-3 has already sharded the model: load it before the training arguments are created")
        self._copy = copy.deepcopy(model).cpu()
        self._release()

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[Any]:
        """Within the block, the copy with the present weights of `model`. Every process must call this."""
        whole = dict(self._copy.named_parameters())
        device = None
        for name, value in model.named_parameters():
            gathered = gather(value)
            device = gathered.device
            whole[name.replace(WRAPPER, "")].data = gathered
        for buffer in self._copy.buffers():
            buffer.data = buffer.data.to(device)
        self._copy.train(model.training)
        try:
            yield self._copy
        finally:
            self._release()

    def _release(self) -> None:
        for value in self._copy.parameters():
            value.data = torch.empty(0, dtype=value.dtype, device=value.device)


def gather(value: Tensor) -> Tensor:
    """A copy of one whole parameter; every process must call this for the same parameter."""
    if isinstance(value, DTensor):
        return value.full_tensor().detach().clone()
    if hasattr(value, "ds_id"):
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([value]):
            return value.data.detach().clone()
    return value.detach().clone()
