"""Encoders that label tokens: how one is loaded, its batches made, and how it is trained once and judged.

The extractor of answers (`rl_qg.generation.answers.extractor_stage`) and the keyphrase predictor (`rl_qg.readers.kpqa_stage`) are such.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    AutoModelForTokenClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
)

from rl_qg.readers.fine_tuning import fine_tuning_arguments
from rl_qg.runtime.checkpoints import CompleteCheckpoints, last_checkpoint
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.preemption import train_until_told
from rl_qg.runtime.processes import from_main, load_whole
from rl_qg.runtime.progress import show_progress
from rl_qg.runtime.sharded_weights import WholeModel
from rl_qg.settings import TrainAnswersSettings, TrainKPQASettings

IGNORED = -100  # what the loss of transformers leaves out
GOOD = "give an encoder such as distilbert, bert or roberta"


class TokenLabelTrainer(WholeModel, CompleteCheckpoints, Trainer):
    """A transformers trainer for token labels, whose loss is the library's: cross-entropy averaged over the tokens of
    a batch.
    """


@dataclass(frozen=True)
class Collator:
    """Pads windows on the right: `input_ids`, `attention_mask` and, where items have them, `labels`, each (batch,
    longest).
    """

    pad_id: int

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """The batch of some items."""
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
    at = f"{key}={path}"
    folder = Path(path).expanduser()
    if not folder.is_dir() and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise InputError(f"{at}: no such folder; check the path")
    try:
        config = AutoConfig.from_pretrained(str(folder) if folder.is_dir() else path)
        tokenizer = AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else path)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(f"{at}: no such model ({reason}); give the folder of one") from None
    if type(config) not in MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING or config.is_encoder_decoder:
        raise InputError(f"{at}: a model of type {config.model_type!r} cannot tag tokens: {GOOD}")
    if not tokenizer.is_fast or tokenizer.pad_token_id is None:
        raise InputError(f"{at}: its tokenizer gives no character offsets, or has no padding token: {GOOD}")
    return tokenizer


def longest_window(path: str, tokenizer: PreTrainedTokenizerBase) -> int:
    """How many tokens a model can read at once."""
    positions = getattr(AutoConfig.from_pretrained(path), "max_position_embeddings", None)
    return int(min(positions or tokenizer.model_max_length, tokenizer.model_max_length))


def load_model(path: str, labels: Sequence[str], seed: int) -> PreTrainedModel:
    """An encoder with a head for `labels`; a head that the checkpoint lacks is drawn from `seed`."""
    load_whole()
    transformers.set_seed(seed)
    names = dict(enumerate(labels))
    return AutoModelForTokenClassification.from_pretrained(
        path,
        id2label=names,
        label2id={name: number for number, name in names.items()},
        use_safetensors=True,
        dtype=torch.float32,
    )


def trained(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    items: Dataset[dict[str, Any]],
    collator: Collator,
    settings: TrainAnswersSettings | TrainKPQASettings,
    output_dir: Path,
    *,
    seed: int,
    use_cpu: bool,
    precision: str,
    title: str,
) -> TokenLabelTrainer:
    """Train on `items`, from the last checkpoint in `output_dir` where there is one; `title` is that of the bar."""
    trainer = TokenLabelTrainer(
        model=model,
        args=fine_tuning_arguments(settings, output_dir, seed=seed, use_cpu=use_cpu, precision=precision),
        data_collator=collator,
        train_dataset=items,
        processing_class=tokenizer,
    )
    show_progress(trainer, title)
    train_until_told(trainer, from_main(PartialState(cpu=use_cpu), lambda: last_checkpoint(output_dir)))
    return trainer


def trained_once(
    output_dir: Path,
    metrics: str,
    train: Callable[[], TokenLabelTrainer],
    judge: Callable[[torch.device], dict[str, Any]],
    *,
    use_cpu: bool,
) -> dict[str, Any]:
    """What the file `metrics` in `output_dir` holds; where it is missing, train, save the whole model there, judge it
    in the main process and write the file last. Every process calls this.
    """
    path = output_dir / metrics
    if not from_main(PartialState(cpu=use_cpu), path.exists):
        trainer = train()
        trainer.save_whole(output_dir)
        if trainer.is_world_process_zero():
            write_json(path, judge(trainer.args.device))
        trainer.accelerator.wait_for_everyone()
    if PartialState().is_main_process:
        for checkpoint in output_dir.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)
    found: dict[str, Any] = read_json(path)
    return found
