"""What each update of the trainer is made of: its stage, its examples, its weights and its learning rate."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch.utils.data import Sampler
from transformers import Seq2SeqTrainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.data.examples import QAExample
from rl_qg.training import objectives
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


class UpdateSchedule(Seq2SeqTrainer):
    """Mixin of the self-critical trainer, named before the trainer class: functions of the step alone. Without a
    schedule of rows the library reads the examples.
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

    @property
    def boundary(self) -> int:
        """Last step of the cross-entropy stage."""
        return self.args.boundary(self.state.max_steps) if self.schedule is None else self.schedule.boundary

    def scst_weight(self, step: int) -> float:
        """λ in the update that completes `step`."""
        args = self.args
        return objectives.scst_weight(
            step,
            self.boundary,
            self.state.max_steps,
            schedule=args.schedule,
            maximum=args.lambda_max,
            warmup=args.lambda_warmup,
        )

    def ce_weight(self, step: int) -> float:
        """The weight of L_ce in the update that completes `step`."""
        return 1.0 if self.args.ce_weight == "one" else 1.0 - self.scst_weight(step)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Linear warm-up in each stage, then linear decay or none (`rate_schedule`)."""
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = self.lr_scheduler  # type: ignore[has-type]
        if scheduler is None:
            args = self.args
            boundary = args.boundary(num_training_steps) if self.schedule is None else self.schedule.boundary
            scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer,
                lambda step: objectives.learning_rate_factor(
                    step,
                    boundary,
                    num_training_steps,
                    warmup=(args.ce_warmup, args.scst_warmup),
                    second=args.scst_learning_rate / args.learning_rate,
                    decays=args.rate_schedule == "linear",
                ),
            )
            self.lr_scheduler = scheduler
            self._created_lr_scheduler = True
        return scheduler
