"""Encoders that label tokens: loading one, making its batches, training it once and evaluating it.

The answer extractor (`rl_qg.readers.train_answers`) and the keyphrase predictor
(`rl_qg.readers.kpqa`) are such encoders.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import PartialState
from torch import Tensor
from torch.utils.data import Dataset
from transformers import (
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)

from rewards.arithmetic import warn_if_slow
from rewards.frozen import TOKEN_HEAD, token_classifier
from rewards.pretrained import check_tokenizer, check_weights
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.runtime.processes import from_main, load_unsharded
from rl_qg.runtime.trainer_base import (
    CompleteCheckpoints,
    WholeModel,
    last_checkpoint,
    loading,
    show_progress,
    train_until_preempted,
)
from rl_qg.settings import QASettings, TrainAnswersSettings, TrainKPQASettings, TrainSentencesSettings

# What all encoders that are fine-tuned here share: the arguments of training.


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


IGNORED = -100  # the label that the loss of transformers leaves out


class TokenLabelTrainer(WholeModel, CompleteCheckpoints, Trainer):
    """A transformers trainer for token labels, whose loss is the library's: cross-entropy averaged over the tokens of
    a batch.
    """


@dataclass(frozen=True)
class TokenLabelCollator:
    """Pads windows on the right: `input_ids`, `attention_mask` and, where items have them, `labels`, each (batch,
    longest).
    """

    pad_id: int

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of `items`."""
        padding = {"input_ids": self.pad_id, "labels": IGNORED}
        batch = {
            name: torch.nn.utils.rnn.pad_sequence(
                [torch.as_tensor(item[name]) for item in items], batch_first=True, padding_value=value
            )
            for name, value in padding.items()
            if name in items[0]
        }
        lengths = torch.tensor([len(item["input_ids"]) for item in items])
        batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
        return batch


def load_tokenizer(path: str, key: str) -> PreTrainedTokenizerBase:
    """The tokenizer of an encoder; `key` is the setting that names `path`.

    Raises:
        InputError: there is no such model, it is no encoder, or its tokenizer gives no character offsets.
    """
    setting = f"{key}={path}"
    with loading(path, key, "encoder") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        check_tokenizer(tokenizer)
    if type(config) not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING or config.is_encoder_decoder:
        raise InputError(f"{setting}: a model of type {config.model_type!r} cannot label tokens: {GOOD_ENCODERS}")
    if not tokenizer.is_fast or tokenizer.pad_token_id is None:
        raise InputError(f"{setting}: its tokenizer gives no character offsets, or no padding token: {GOOD_ENCODERS}")
    return tokenizer


def longest_window(path: str, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens a model can read at once."""
    positions = getattr(AutoConfig.from_pretrained(path, trust_remote_code=False), "max_position_embeddings", None)
    return int(min(positions or tokenizer.model_max_length, tokenizer.model_max_length))


def load_model(
    path: str,
    key: str,
    tokenizer: PreTrainedTokenizerBase,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    head: str | None = None,
) -> PreTrainedModel:
    """An encoder with a head for `labels`, or for its own (None); a head that the checkpoint lacks is initialised from
    `seed`. `key` is the setting that names `path`; `head` is one of `rewards.frozen.HEADS`, or the folder's own
    (None).

    Raises:
        InputError: its weights cannot be read or used, or its tokenizer has more tokens than it.
    """
    load_unsharded()
    transformers.set_seed(seed)
    names = dict(enumerate(labels or ()))
    heads = {"id2label": names, "label2id": {name: number for number, name in names.items()}} if labels else {}
    with loading(path, key, "encoder") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **heads)
        if head is not None and head != getattr(config, TOKEN_HEAD, "linear"):
            setattr(config, TOKEN_HEAD, head)
        model = token_classifier(config).from_pretrained(
            name, config=config, use_safetensors=True, dtype=torch.float32, trust_remote_code=False
        )
        check_weights(model, tokenizer)
    return model


def train_token_classifier(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    items: Dataset[dict[str, Any]],
    collator: TokenLabelCollator,
    settings: TrainAnswersSettings | TrainKPQASettings,
    output_dir: Path,
    *,
    seed: int,
    use_cpu: bool,
    precision: str,
    title: str,
    development: Dataset[dict[str, Any]] | None = None,
) -> TokenLabelTrainer:
    """Train on `items`, from the last checkpoint in `output_dir` if there is one; `title` names the progress bar.

    With `development` the model is that of the epoch with the lowest loss on these items, else the last one.
    """
    arguments = fine_tuning_arguments(
        *(settings, output_dir), seed=seed, use_cpu=use_cpu, precision=precision, save_steps=settings.save_steps
    )
    if development is not None:
        arguments = keeping_best(arguments)
    trainer = TokenLabelTrainer(
        model=model,
        args=arguments,
        data_collator=collator,
        train_dataset=items,
        eval_dataset=development,
        processing_class=tokenizer,
    )
    show_progress(trainer, title)
    train_until_preempted(trainer, from_main(PartialState(cpu=use_cpu), lambda: last_checkpoint(output_dir)))
    return trainer


def train_once(
    output_dir: Path,
    metrics: str,
    train: Callable[[], WholeModel],
    evaluate: Callable[[torch.device], dict[str, Any]],
    *,
    use_cpu: bool,
) -> dict[str, Any]:
    """Return what the file `metrics` in `output_dir` holds. Where there is none, train, save the whole model there,
    evaluate it in the main process, and write the file last. Every process calls this.
    """
    path = output_dir / metrics
    if not from_main(PartialState(cpu=use_cpu), path.exists):
        trainer = train()
        trainer.save_whole(output_dir)
        if trainer.is_world_process_zero():
            write_json(path, evaluate(trainer.args.device))
        trainer.accelerator.wait_for_everyone()
    if PartialState().is_main_process:
        for checkpoint in output_dir.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    evaluated: dict[str, Any] = read_json(path)
    return evaluated
