"""SIGTERM during training, as when a cluster preempts a job: save a checkpoint and stop."""

import logging
import signal
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.runtime.errors import Terminated
from rl_qg.runtime.processes import TIMEOUT

log = logging.getLogger(__name__)


class Preemption(TrainerCallback):
    """Saves a checkpoint after the current update when any process gets SIGTERM, and ends training."""

    def __init__(self) -> None:
        self.signalled = False
        self.stopping = False
        self._earlier_handler: Any = None
        self._group: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Install the signal handler."""
        self._earlier_handler = signal.signal(signal.SIGTERM, self._on_signal)
        if PartialState().num_processes > 1:
            # Over the host: on an accelerator the exchange would wait for its queued work.
            self._group = torch.distributed.new_group(backend="gloo", timeout=TIMEOUT)

    def _on_signal(self, number: int, frame: object) -> None:
        self.signalled = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop all processes after the same update, whichever got the signal first."""
        signalled = torch.tensor(int(self.signalled))
        if self._group is not None:
            torch.distributed.all_reduce(signalled, torch.distributed.ReduceOp.MAX, group=self._group)
        if signalled:
            self.stopping = True
            control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore the earlier signal handler."""
        signal.signal(signal.SIGTERM, self._earlier_handler)


class _EndedWithinEpoch(TrainerCallback):
    """Where SIGTERM has ended an epoch early, the library would evaluate and save as at its end: a loss that no other
    run has could become the best. The last of the callbacks, after the library's own.
    """

    def __init__(self, preemption: Preemption) -> None:
        self._preemption = preemption

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave out what belongs to the end of an epoch."""
        if self._preemption.stopping and state.epoch != int(state.epoch or 0):
            control.should_evaluate = control.should_save = control.should_log = False


def train_until_preempted(trainer: Any, checkpoint: str | None) -> None:
    """Train from `checkpoint` (None: from the start) to the end.

    Raises:
        Terminated: SIGTERM came; the last update has a checkpoint.
    """
    preemption = Preemption()
    trainer.callback_handler.callbacks.insert(0, preemption)  # before the others, which must see `should_save`
    trainer.add_callback(ended := _EndedWithinEpoch(preemption))
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.remove_callback(preemption)
    trainer.remove_callback(ended)
    if preemption.signalled or preemption.stopping:  # the signal may have come after the last update
        log.info(
            "stopped at step %d of %d; the same command continues", trainer.state.global_step, trainer.state.max_steps
        )
        raise Terminated
