"""Fine-tuning of encoders, once for the readers (`rl_qg.readers.train_reader`), the answer extractor
(`answer_extractor`), the keyphrase predictor (`kpqa`) and the classifiers of sentences (`train_sentences`): arguments,
training from the last checkpoint, evaluation, one file last.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from rl_qg.readers.encoders import IGNORED, padded
from rl_qg.runtime.errors import NothingLearned
from rl_qg.runtime.files import read_record, write_json
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.trainer_base import Resumable, checkpoints, resume_training


@dataclass(frozen=True)
class FineTuning:
    """The fine-tuning of one model in one folder."""

    settings: Any  # the section of the command: `QASettings`, `TrainAnswersSettings`, …
    output_dir: Path
    seed: int
    use_cpu: bool = False
    precision: str = "no"

    def arguments(self) -> TrainingArguments:
        """Linear decay after a warm-up, one checkpoint kept every `save_steps` updates, no tracker."""
        settings = self.settings
        return TrainingArguments(
            output_dir=str(self.output_dir),
            num_train_epochs=settings.epochs,
            max_steps=settings.max_steps,
            learning_rate=settings.learning_rate,
            weight_decay=getattr(settings, "weight_decay", 0.0),
            lr_scheduler_type="linear",
            warmup_steps=min(settings.warmup_fraction, math.nextafter(1, 0)),  # below 1 a fraction of all steps
            per_device_train_batch_size=settings.batch_size,
            per_device_eval_batch_size=settings.batch_size,
            save_strategy="steps",
            save_steps=getattr(settings, "save_steps", 500),
            save_total_limit=1,
            logging_steps=50,
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=torch.cuda.is_available() and not self.use_cpu,
            seed=self.seed,
            use_cpu=self.use_cpu,
            bf16=self.precision == "bf16",
            fp16=self.precision == "fp16",
        )

    def result(
        self,
        metrics: str,
        title: str,
        make_trainer: Callable[[], Resumable],
        evaluate: Callable[[Resumable], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return what the file `metrics` in the folder holds. Where there is none, train, save the whole model there,
        evaluate it in the main process, and write the file last. Every process calls this.
        """
        path = self.output_dir / metrics
        if not from_main(PartialState(cpu=self.use_cpu), path.exists):
            trainer = make_trainer()
            resume_training(trainer, title)
            check_loss(trainer)
            trainer.save_whole(self.output_dir)
            if trainer.is_world_process_zero():
                write_json(path, evaluate(trainer))
            trainer.accelerator.wait_for_everyone()
        if PartialState().is_main_process:
            delete_checkpoints(self.output_dir)
        return read_record(path)


def check_loss(trainer: Resumable) -> None:
    """Raise `NothingLearned` where the loss of a batch is not finite: finite weights may be too large for a forward
    pass. Every process must call this.
    """
    inputs = trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
    with torch.no_grad():
        loss = trainer.compute_loss(trainer.model_wrapped, inputs)
    if not math.isfinite(float(trainer.accelerator.gather(loss.detach().reshape(1)).sum())):
        raise NothingLearned(
            "the loss after the last update is not finite; no model is saved: lower the learning rate"
        )


def delete_checkpoints(folder: Path) -> None:
    for checkpoint in checkpoints(folder):
        shutil.rmtree(checkpoint)


def keeping_best(arguments: TrainingArguments) -> TrainingArguments:
    """The same arguments, with an evaluation and a checkpoint after each epoch; the weights of the lowest loss win."""
    return replace(
        arguments,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        greater_is_better=False,
        prediction_loss_only=True,
    )


def token_label_trainer(
    tuning: FineTuning,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    items: Sequence[Mapping[str, Any]],
    development: Sequence[Mapping[str, Any]] | None = None,
    *,
    segments: bool = False,
) -> Resumable:
    """A trainer on `items`, whose loss is the library's: cross-entropy averaged over the tokens of a batch. With
    `development` the model is that of the epoch with the lowest loss on these items, else the last one; `segments`: it
    reads `token_type_ids`.
    """
    arguments = tuning.arguments()
    padding = {"input_ids": tokenizer.pad_token_id, "labels": IGNORED} | ({"token_type_ids": 0} if segments else {})
    return Resumable(
        model=model,
        args=arguments if development is None else keeping_best(arguments),
        data_collator=partial(padded, padding=padding),
        train_dataset=items,
        eval_dataset=development,
        processing_class=tokenizer,
    )
