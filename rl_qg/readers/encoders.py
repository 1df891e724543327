"""What all encoders that are fine-tuned here share: the arguments of training."""

from dataclasses import replace
from pathlib import Path

import torch
from transformers import TrainingArguments

from rewards.arithmetic import warn_if_slow
from rl_qg.settings import QASettings, TrainAnswersSettings, TrainKPQASettings, TrainSentencesSettings

GOOD_ENCODERS = "give an encoder such as distilbert, bert or roberta"


def fine_tuning_arguments(
    settings: QASettings | TrainAnswersSettings | TrainKPQASettings | TrainSentencesSettings,
    output_dir: Path,
    *,
    seed: int,
    use_cpu: bool,
    precision: str,
    save_steps: int = 500,
) -> TrainingArguments:
    """Linear decay after a warm-up, one checkpoint kept every `save_steps` updates, no tracker."""
    arguments = TrainingArguments(
        output_dir=str(output_dir),
        num_train_epochs=settings.epochs,
        max_steps=settings.max_steps,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=settings.warmup_fraction,  # below 1 it is a fraction of all steps
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=settings.batch_size,
        save_strategy="steps",
        save_steps=save_steps,
        save_total_limit=1,
        logging_steps=50,
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        dataloader_pin_memory=torch.cuda.is_available() and not use_cpu,
        seed=seed,
        use_cpu=use_cpu,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
    )
    if arguments.bf16:
        warn_if_slow(torch.bfloat16, arguments.device, "training.precision=no")
    return arguments


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
