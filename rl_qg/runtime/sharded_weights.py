"""Whole weights of a model whose parameters ZeRO-3 or FSDP spread over the processes."""

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
    """Stands before a trainer: gives out its model with whole weights."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.is_fsdp_enabled and self.accelerator.state.fsdp_plugin.fsdp_version == 1:
            raise InputError("FSDP 1 is not supported: set fsdp_version: 2, as configs/accelerate/fsdp.yaml does")
        self._whole: WholeWeights | None = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As the library's, which shards the model at the start."""
        if self._whole is None and (self.is_fsdp_enabled or is_deepspeed_zero3_enabled()):
            self._whole = WholeWeights(self.model)
        return super().train(*args, **kwargs)

    def whole_model(self) -> AbstractContextManager[Any]:
        """The bare model, for as long as the block lasts with whole weights. Every process must come here."""
        bare = self.accelerator.unwrap_model(self.model_wrapped)
        return nullcontext(bare) if self._whole is None else self._whole.of(bare)

    def save_whole(self, folder: Path) -> None:
        """Put model and tokenizer into `folder`, `config.json` last: with it the model is whole. Every process must
        come here.
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
    """A plain copy of a model, into which its weights are gathered when they are needed whole.

    A rollout takes a forward pass per token, and on the sharded model each would gather every layer; it also has its
    own length on every process, and a process that ends early would leave the others waiting. On the copy it talks to
    nobody. Between uses the copy holds no weights.

    Args:
        model: before it is sharded.

    Raises:
        InputError: `model` is sharded already.
    """

    def __init__(self, model: nn.Module) -> None:
        if any(hasattr(value, "ds_id") for value in model.parameters()):
            raise InputError("ZeRO-3 has sharded the model already: load it before the training arguments are made")
        self._copy = copy.deepcopy(model).cpu()
        self._release()

    @contextmanager
    def of(self, model: nn.Module) -> Iterator[Any]:
        """Within the block, the copy with the weights that `model` has now. Every process must come here."""
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
    """A copy of the whole of one parameter; every process must call this for the same one."""
    if isinstance(value, DTensor):
        return value.full_tensor().detach().clone()
    if hasattr(value, "ds_id"):
        from deepspeed.runtime.zero import GatheredParameters

        with GatheredParameters([value]):
            return value.data.detach().clone()
    return value.detach().clone()
