"""SIGTERM during training (a cluster takes its machine back): a checkpoint, then the end."""

import logging
import signal
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.runtime.errors import Terminated
from rl_qg.runtime.processes import PATIENCE

log = logging.getLogger(__name__)


class Preemption(TrainerCallback):
    """Saves a checkpoint behind the update under way when any process gets SIGTERM, and ends training there."""

    def __init__(self) -> None:
        self.asked = False
        self.agreed = False
        self._before: Any = None
        self._group: Any = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Listen from now on."""
        self._before = signal.signal(signal.SIGTERM, self._ask)
        if PartialState().num_processes > 1:
            # On the host: an accelerator would have to finish its work before the answer is there.
            self._group = torch.distributed.new_group(backend="gloo", timeout=PATIENCE)

    def _ask(self, number: int, frame: object) -> None:
        self.asked = True

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """All processes stop behind the same update, whichever heard first."""
        asked = torch.tensor(int(self.asked))
        if self._group is not None:
            torch.distributed.all_reduce(asked, torch.distributed.ReduceOp.MAX, group=self._group)
        if asked:
            self.agreed = True
            control.should_save = control.should_training_stop = True

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Listen no longer."""
        signal.signal(signal.SIGTERM, self._before)


def train_until_told(trainer: Any, checkpoint: str | None) -> None:
    """Train from `checkpoint` (None: from the start) to the end.

    Raises:
        Terminated: SIGTERM came; there is a checkpoint of the last update.
    """
    preemption = Preemption()
    trainer.callback_handler.callbacks.insert(0, preemption)  # the others see that a checkpoint is wanted
    trainer.train(resume_from_checkpoint=checkpoint)
    trainer.remove_callback(preemption)
    if preemption.asked or preemption.agreed:  # the signal may have come behind the last update
        log.info(
            "stopped at step %d of %d; the same command goes on", trainer.state.global_step, trainer.state.max_steps
        )
        raise Terminated
