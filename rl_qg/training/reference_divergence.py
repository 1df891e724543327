"""The divergence from the policy at the start of the self-critical stage: as a penalty, and in evaluations."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Seq2SeqTrainer

from rl_qg.generation.decoding import Decoded
from rl_qg.generation.logprobs import token_logprobs
from rl_qg.training import objectives
from rl_qg.training.callbacks import KLCoefficient
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.step_metrics import StepMetrics


class ReferenceDivergence(Seq2SeqTrainer):
    """Mixin of the self-critical trainer, named before the trainer class."""

    boundary: Any
    reference: ReferencePolicy | None
    kl_coefficient: KLCoefficient
    step_metrics: StepMetrics
    whole_model: Any
    _reference_logits: Any

    def _keep_reference(self) -> None:
        """Copy the policy at the boundary, if a divergence from it is optimised or reported."""
        reported = self.args.watch_kl and self.eval_dataset is not None
        if (self.args.kl_coefficient > 0 or reported) and self.reference is None:
            with self.whole_model() as policy:
                self.reference = ReferencePolicy.at_stage_start(
                    policy,
                    Path(self.args.output_dir),
                    resumed=self.state.global_step > self.boundary,
                    write=self.is_world_process_zero(),
                )

    def _kl_penalty(self, inputs: dict[str, Any], samples: Decoded, logits: Tensor, logprobs: Tensor) -> Tensor:
        """β · KL from the reference policy, summed over the batch."""
        reference = self._reference_logits(inputs, samples)
        if self.args.kl_estimator == "exact":
            kl = objectives.kl_over_vocabulary(logits, reference)
        else:
            # After the end both are set equal: an infinite value there would remain NaN when it is masked later.
            reference_logprobs = token_logprobs(reference, samples.tokens)
            kl = objectives.kl_from_samples(logprobs, torch.where(samples.mask, reference_logprobs, logprobs.detach()))
        kl = kl * samples.mask
        total = (kl.detach().sum(), samples.mask.sum())
        self.kl_coefficient.add(*total)
        self.step_metrics.add(kl=total)
        return self.kl_coefficient.value * kl.sum() / self.args.num_samples
