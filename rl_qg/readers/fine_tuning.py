"""Fine-tuning of encoders, once for the readers (`rl_qg.readers.train_reader`), the answer extractor
(`answer_extractor`), the keyphrase predictor (`kpqa`) and the classifiers of sentences (`train_sentences`): arguments,
training from the last checkpoint, evaluation, one file last. Below it: encoders that label tokens.
"""

import math
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import transformers
from accelerate import PartialState
from torch import Tensor
from transformers import (
    MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)

from rewards.frozen import TOKEN_HEAD, token_classifier
from rewards.pretrained import check_tokenizer, check_weights
from rl_qg.runtime.errors import InputError, NothingLearned
from rl_qg.runtime.files import read_record, write_json
from rl_qg.runtime.processes import load_unsharded, loading
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.trainer_base import Resumable, checkpoints, resume_training
from rl_qg.settings import (
    QASettings,
    RetrieveSettings,
    TrainAnswersSettings,
    TrainKPQASettings,
    TrainSentencesSettings,
)

GOOD_ENCODERS = "give an encoder such as distilbert, bert or roberta"
FLOAT32: dict[str, Any] = {"use_safetensors": True, "dtype": torch.float32}
UNFIT = {
    "encoder": "cannot label tokens",
    "reader": "is no extractive reader",
    "retriever": "is no encoder of texts",
}  # what is said of other models


@dataclass(frozen=True)
class FineTuning:
    """The fine-tuning of one model in one folder."""

    settings: QASettings | TrainAnswersSettings | TrainKPQASettings | TrainSentencesSettings | RetrieveSettings
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
            warmup_steps=settings.warmup_fraction,  # below 1 it is a fraction of all steps
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
        evaluated: dict[str, Any] = read_record(path)
        return evaluated


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


IGNORED = -100  # the label that the loss of transformers leaves out


@dataclass(frozen=True)
class TokenLabelCollator:
    """Pads windows on the right: `input_ids`, `attention_mask` and, where items have them, `labels` and (for models
    that have `segments`) `token_type_ids`, each (batch, longest).
    """

    pad_id: int
    segments: bool = False

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        padding = {"input_ids": self.pad_id, "labels": IGNORED} | ({"token_type_ids": 0} if self.segments else {})
        return padded(items, padding)


def padded(items: Sequence[Mapping[str, Any]], padding: Mapping[str, int]) -> dict[str, Tensor]:
    """`attention_mask`, and the sequences of each name that items have, padded on the right with its value: each
    (batch, longest), whatever side the tokenizer prefers.
    """
    batch = {
        name: torch.nn.utils.rnn.pad_sequence(
            [torch.as_tensor(item[name]).long() for item in items], batch_first=True, padding_value=value
        )
        for name, value in padding.items()
        if name in items[0]
    }
    lengths = torch.tensor([len(item["input_ids"]) for item in items])
    batch["attention_mask"] = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    return batch


def load_tokenizer(
    path: str,
    key: str,
    max_length: int | None = None,
    *,
    kind: str = "encoder",
    models: Any = MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    length_key: str = "",
) -> PreTrainedTokenizerBase:
    """The tokenizer of an encoder; `key` is the setting that names `path`, such as `train_kpqa.model.path`,
    `length_key` that of `max_length` ("": `train_kpqa.max_length`), `kind` one of `UNFIT`. `InputError` for one that
    is none of `models`, whose tokenizer gives no character offsets, or that cannot read `max_length` tokens.
    """
    setting = f"{key}={path}"
    with loading(path, key, kind) as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    if type(config) not in models or config.is_encoder_decoder:
        raise InputError(f"{setting}: a model of type {config.model_type!r} {UNFIT[kind]}: {GOOD_ENCODERS}")
    with loading(path, key, kind):
        check_tokenizer(tokenizer)
    if not tokenizer.is_fast:
        raise InputError(f"{setting}: its tokenizer gives no character offsets: give a model with a tokenizer.json")
    if tokenizer.pad_token_id is None:
        raise InputError(f"{setting}: its tokenizer has no padding token: {GOOD_ENCODERS}")
    if max_length is not None and max_length > (longest := longest_window(name, tokenizer)):
        length = f"{length_key or key.partition('.')[0] + '.max_length'}={max_length}"
        raise InputError(f"{length} is above the {longest} tokens that {path} can read: lower it")
    return tokenizer


def longest_window(path: str, tokenizer: PreTrainedTokenizerBase) -> int:
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
    """
    load_unsharded()
    transformers.set_seed(seed)
    names = dict(enumerate(labels or ()))
    heads = {"id2label": names, "label2id": {name: number for number, name in names.items()}} if labels else {}
    with loading(path, key, "encoder") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **heads)
        if head is not None and head != getattr(config, TOKEN_HEAD, "linear"):
            setattr(config, TOKEN_HEAD, head)
        model = token_classifier(config).from_pretrained(name, config=config, trust_remote_code=False, **FLOAT32)
        check_weights(model, tokenizer)
    return model


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
    `development` the model is that of the epoch with the lowest loss on these items, else the last one.
    """
    arguments = tuning.arguments()
    return Resumable(
        model=model,
        args=arguments if development is None else keeping_best(arguments),
        data_collator=TokenLabelCollator(tokenizer.pad_token_id, segments),
        train_dataset=items,
        eval_dataset=development,
        processing_class=tokenizer,
    )
