"""Progress of training: one bar with speed, remaining time and the most important metrics."""

from typing import Any

from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from rl_qg.runtime.bars import ProgressBar

SHOWN = {
    "loss": "loss",
    "lambda": "λ",
    "reward_greedy": "greedy",
    "reward_sample": "sample",
    "samples_per_second": "samples/s",
    "eval_loss": "held-out loss",
    "eval_reward_greedy": "held-out reward",
}


class TrainingBar(TrainerCallback):
    """A bar over all updates; a resumed run starts at its step. `position` is the line on the screen."""

    def __init__(self, title: str, *, position: int = 0) -> None:
        self.title = title
        self.position = position
        self.bar: ProgressBar | None = None
        self.shown: dict[str, str] = {}
        self.inner: ProgressBar | None = None  # bar of a running evaluation or prediction

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar at the step that the run resumes from."""
        if state.is_world_process_zero:
            self.bar = ProgressBar(
                total=state.max_steps, initial=state.global_step, desc=self.title, unit="step", position=self.position
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Advance by one update."""
        if self.bar is not None:
            self.bar.update()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Show the latest values."""
        if self.bar is not None and logs:
            self.shown |= {SHOWN[name]: f"{value:.3g}" for name, value in logs.items() if name in SHOWN}
            self.bar.set_postfix(self.shown, refresh=False)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Advance the bar of an evaluation or prediction, which is opened at the first batch."""
        if state.is_world_process_zero:
            if self.inner is None:
                batches = len(kwargs["eval_dataloader"])
                self.inner = ProgressBar(
                    total=batches, desc="held-out", unit="batch", leave=False, position=self.position + 1
                )
            self.inner.update()

    def _close_inner(self, *args: Any, **kwargs: Any) -> None:
        if self.inner is not None:
            self.inner.close()
            self.inner = None

    on_evaluate = _close_inner
    on_predict = _close_inner

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar, which stays on the screen."""
        if self.bar is not None:
            self.bar.close()


def show_progress(trainer: Any, title: str, *, position: int = 0) -> None:
    """Replace the progress bar or printer of the library by `TrainingBar`."""
    for library in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(library)
    trainer.add_callback(TrainingBar(title, position=position))
