"""The results of an evaluation during training: the loss of the gold questions, and measures of the greedy ones."""

from typing import Any

from accelerate.utils import gather_object
from transformers import Seq2SeqTrainer

from rl_qg.data.examples import QAExample
from rl_qg.training.step_metrics import HeldOutQuestions, StepMetrics


class GreedyEvaluation(Seq2SeqTrainer):
    """Mixin of the self-critical trainer, named before the trainer class."""

    held_out_questions: HeldOutQuestions | None
    step_metrics: StepMetrics
    eval_losses: list[tuple[QAExample, float]]

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
