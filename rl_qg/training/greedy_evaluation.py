"""Evaluation during training: the loss of the gold questions, and measures of the greedy ones."""

from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import Seq2SeqTrainer

from rl_qg.data.examples import QAExample
from rl_qg.training import objectives
from rl_qg.training.eval_metrics import HeldOutQuestions
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.step_metrics import StepMetrics


class GreedyEvaluation(Seq2SeqTrainer):
    """Mixin of the self-critical trainer, named before the trainer class."""

    held_out_questions: HeldOutQuestions | None
    reference: ReferencePolicy | None
    step_metrics: StepMetrics
    eval_losses: list[tuple[QAExample, float]]
    _logits: Any
    _reference_logits: Any
    _roll_out: Any
    _texts: Any

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Tensor, None, None]:
        """Cross-entropy per token, averaged over questions (so that it does not depend on the batches). Greedy
        questions are collected for `evaluation_loop`, with their divergence from the reference policy.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            labels = inputs["labels"]
            losses = objectives.cross_entropy(self._logits(model, inputs, labels), labels) / labels.ne(-100).sum(-1)
            self.eval_losses += zip(inputs["examples"], losses.tolist(), strict=True)
            if self.held_out_questions is not None:
                greedy = self._roll_out(inputs, samples=0, greedy=True).greedy
                assert greedy is not None
                divergence = None
                if self.reference is not None:
                    reference = self._reference_logits(inputs, greedy)
                    divergence = objectives.kl_over_vocabulary(self._logits(model, inputs, greedy.tokens), reference)
                self.held_out_questions.add(inputs["examples"], self._texts(greedy), greedy.mask, divergence)
        return losses.mean(), None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The library's loop; reward, held-out reward and held-out measures of the greedy questions are added to the
        metrics (`docs/explanation/method.md`).
        """
        with self.step_metrics.paused():
            output = super().evaluation_loop(*args, **kwargs)
            prefix = kwargs.get("metric_key_prefix", "eval")
            losses = dict(gather_object(self.eval_losses)).values()  # the library's mean depends on the batches
            output.metrics[f"{prefix}_loss"] = sum(losses) / len(losses)
            self.eval_losses = []
            if self.held_out_questions is not None:
                measures = self.held_out_questions.collect()
                output.metrics.update({f"{prefix}_{name}": value for name, value in measures.items()})
        return output
