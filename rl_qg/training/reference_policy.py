"""The policy as it stood when the self-critical stage began, for the divergence from it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rl_qg.runtime.errors import InputError

FILE = "reference.safetensors"


class ReferencePolicy:
    """A frozen copy of the parameters that training moves, run through the live model.

    Under LoRA these are the adapters alone, so the reference costs no second copy of the weights; a fresh adapter
    makes it the model with its adapters off.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = dict(weights)

    @classmethod
    def of(cls, model: nn.Module) -> "ReferencePolicy":
        """The policy as `model` stands now."""
        trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        return cls({name: value.detach().clone() for name, value in trained.items()})

    @classmethod
    def at_the_boundary(cls, model: nn.Module, folder: Path, *, resumed: bool, write: bool) -> "ReferencePolicy":
        """The policy that the stage began with: `model` as it stands, kept in the run folder by the process that may
        `write`; for a run `resumed` inside the stage the one that was kept.

        Raises:
            InputError: the run resumes and the file is gone.
        """
        path = folder / FILE
        if not resumed:
            reference = cls.of(model)
            if write:
                folder.mkdir(parents=True, exist_ok=True)
                partial = path.with_suffix(".part")
                save_file({name: value.contiguous() for name, value in reference.weights.items()}, partial)
                partial.replace(path)
            return reference
        if not path.exists():
            raise InputError(
                f"{path}: not there, so the divergence from the start of the stage is unknown; start the stage anew, "
                "or set scst.watch_kl=false and scst.kl_coefficient=0"
            )
        device = next(model.parameters()).device
        return cls(load_file(path, device=str(device)))

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Within the block `model` is the reference policy, without gradient and dropout; behind it, what it was.

        The numbers change places, not the parameters, so weights that layers share stay shared and a loss that was
        computed before can still be differentiated after. (`torch.func.functional_call` leaves the wrong weights
        behind where two modules are one, as the embeddings of BART are.)
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
        torch.clear_autocast_cache()  # it knows casts by their parameter, whose numbers are others now
