"""The policy at the start of the self-critical stage, for the divergence from it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rl_qg.runtime.errors import InputError

FILE = "reference.safetensors"


class ReferencePolicy:
    """A frozen copy of the trainable parameters, which is evaluated by swapping it into the model in training.

    With LoRA only the adapters are trainable, so there is no second copy of the weights; if the stage starts with new
    adapters, the reference is the model without adapters.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = dict(weights)

    @classmethod
    def copy_of(cls, model: nn.Module) -> "ReferencePolicy":
        trainable = {name: value for name, value in model.named_parameters() if value.requires_grad}
        return cls({name: value.detach().clone() for name, value in trainable.items()})

    @classmethod
    def at_stage_start(cls, trainer: Any, *, resumed: bool) -> "ReferencePolicy":
        """The policy at the start of the stage: a copy of the trainer's model, which is stored in the run folder; the
        stored one where the run has `resumed` inside the stage. Every process calls this.
        """
        path = Path(trainer.args.output_dir) / FILE
        with trainer.whole_model() as model:
            if not resumed:
                reference = cls.copy_of(model)
                if trainer.is_world_process_zero():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    partial = path.with_suffix(".part")
                    save_file({name: value.contiguous() for name, value in reference.weights.items()}, partial)
                    partial.replace(path)
                return reference
            if not path.exists():
                raise InputError(
                    f"{path}: not there, so the divergence from the start of the stage is unknown; start the stage "
                    "anew, or set scst.watch_kl=false and scst.kl_coefficient=0"
                )
            return cls(load_file(path, device=str(next(model.parameters()).device)))

    @contextmanager
    def swapped_into(self, model: nn.Module) -> Iterator[None]:
        """Within the block `model` is the reference policy, without gradient and dropout.

        Only the data of the parameters is swapped, so tied weights stay tied, and a loss computed before the block can
        be differentiated after it. (`torch.func.functional_call` restores wrong weights if two modules are the same
        object, such as the embeddings of BART.)
        """
        training = model.training
        model.eval()
        self._swap(model)
        try:
            with torch.no_grad():
                yield
        finally:
            self._swap(model)
            model.train(training)

    def _swap(self, model: nn.Module) -> None:
        parameters = dict(model.named_parameters())
        for name, value in self.weights.items():
            self.weights[name], parameters[name].data = parameters[name].data, value
        torch.clear_autocast_cache()  # it caches casts by parameter, and their data has changed
