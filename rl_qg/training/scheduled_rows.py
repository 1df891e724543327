"""The trainer's rows by a schedule: sampler, count of passes and count of target tokens."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import Seq2SeqTrainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.data.examples import QAExample
from rl_qg.training.objectives import TOKENS_WITHOUT_QUESTION
from rl_qg.training.row_schedule import RowSchedule


class ScheduleSampler(Sampler[int]):
    """The rows of a schedule one by one. The library's batches of them are the same for any number of processes."""

    def __init__(self, schedule: RowSchedule) -> None:
        self.schedule = schedule

    def __iter__(self) -> Iterator[int]:
        for rows in self.schedule:
            yield from rows

    def __len__(self) -> int:
        return self.schedule.updates * self.schedule.update_size


class CountPasses(TrainerCallback):
    """Sets the trainer's epoch to the passes made: to the library a schedule is a single epoch."""

    def __init__(self, schedule: RowSchedule) -> None:
        self.schedule = schedule

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Called before the update is logged."""
        state.epoch = self.schedule.passes(state.global_step)


class ScheduledRows(Seq2SeqTrainer):
    """Mixin of the self-critical trainer, named before the trainer class. Without a schedule the library reads the
    examples.
    """

    args: Any
    schedule: RowSchedule | None
    gold_examples: int
    unlabelled: Sequence[QAExample]
    unlabelled_share: Fraction

    def row_schedule(self) -> RowSchedule:
        """The schedule of this trainer's arguments, examples and processes."""
        args = self.args
        return RowSchedule(
            gold=self.gold_examples,
            unlabelled=len(self.unlabelled),
            share=self.unlabelled_share,
            update_size=self._train_batch_size * args.gradient_accumulation_steps * self.accelerator.num_processes,
            ce_epochs=args.ce_epochs,
            scst_epochs=args.scst_epochs,
            max_steps=args.max_steps,
            updates_per_rollout=args.updates_per_rollout,
            seed=args.seed if args.data_seed is None else args.data_seed,
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """The library's, or that of the schedule."""
        if self.schedule is None:
            return super()._get_train_sampler(train_dataset)
        return ScheduleSampler(self.schedule)

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """The library's count of target tokens over all processes, in which a row without a question counts too."""
        counted = [{"labels": _counted(batch["labels"])} for batch in batch_samples]
        return super()._get_num_items_in_batch(counted, device)


def _counted(labels: Tensor) -> Tensor:
    """Labels of which the library counts `target_tokens(labels)`; the number itself would have to be read from the
    device.
    """
    real = labels.ne(-100)
    flags = torch.cat((real.flatten(), (~real.any(-1)).repeat(TOKENS_WITHOUT_QUESTION)))
    return torch.where(flags, 0, -100)
