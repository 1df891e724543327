"""The extractive reader: a transformers trainer for start and end positions, and loading what it trains."""

import inspect
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Subset
from transformers import (
    MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    AutoConfig,
    AutoModelForQuestionAnswering,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)

from rewards.pretrained import check_tokenizer, check_weights
from rewards.relevance.reading import SPAN_HEAD
from rl_qg.readers.encoders import GOOD_ENCODERS
from rl_qg.readers.features import WindowCollator, Windows
from rl_qg.runtime.checkpoints import CompleteCheckpoints
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.pretrained import loading
from rl_qg.runtime.processes import load_unsharded
from rl_qg.runtime.sharded_weights import WholeModel

log = logging.getLogger(__name__)
MODEL_KEY = "qa.model.path"
HEADS = ("softmax", "sigmoid")  # the first is that of configurations that do not say


class QATrainer(WholeModel, CompleteCheckpoints, Trainer):
    """A transformers trainer for start and end logits; trains on `Windows`.

    Loss: cross-entropy of the start and of the end position, averaged over both and over all windows of the update.
    Where the model's configuration has the `sigmoid` head (`rewards.relevance.reading.SPAN_HEAD`), each position is a
    decision of its own: binary cross-entropy, summed over the positions of a window, and averaged alike.
    """

    # The models average over their own batch, which the stock trainer takes for an average over the whole update: its
    # loss and gradients grow with accumulation and processes.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel,
        args: TrainingArguments,
        *,
        processing_class: PreTrainedTokenizerBase,
        train_dataset: Windows | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            model=model,
            args=args,
            data_collator=WindowCollator(processing_class.pad_token_id),
            train_dataset=train_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self._is_sigmoid = getattr(model.config, SPAN_HEAD, HEADS[0]) == "sigmoid"
        self.model_accepts_loss_kwargs = True  # makes the trainer count the labels of the whole update

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Summed cross-entropy over the number of labels (two a window) of the whole update, of all processes.

        Padding takes no part: the loss of a window does not depend on what it is batched with.
        """
        labels = inputs["labels"]
        outputs = model(**_without_labels(inputs))
        padding = inputs["attention_mask"] == 0
        loss = torch.zeros((), device=labels.device)
        for logits, positions in zip((outputs.start_logits, outputs.end_logits), labels.unbind(dim=1), strict=True):
            loss = loss + self._position_loss(logits.float(), positions, padding)
        loss = loss / (labels.numel() if num_items_in_batch is None else num_items_in_batch)
        if num_items_in_batch is not None and self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes  # undone by the mean over processes
        return (loss, outputs) if return_outputs else loss

    def _position_loss(self, logits: Tensor, positions: Tensor, padding: Tensor) -> Tensor:
        """The summed loss of one end of the spans: logits and padding (batch, longest), positions (batch,)."""
        if self._is_sigmoid:
            targets = functional.one_hot(positions, logits.shape[1]).to(logits.dtype)
            weights = (~padding).to(logits.dtype)
            return functional.binary_cross_entropy_with_logits(logits, targets, weights, reduction="sum")
        return functional.cross_entropy(logits.masked_fill(padding, float("-inf")), positions, reduction="sum")

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> Any:
        """As the library's, without labels: only the logits are needed."""
        return super().prediction_step(model, _without_labels(inputs), prediction_loss_only, ignore_keys)

    def predict_logits(self, windows: Windows) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Start and end logits, each (W, longest), of all windows, on every process."""
        order = np.argsort(-windows.lengths, kind="stable")  # neighbours of one length need little padding
        logits: Any = self.predict(Subset(windows, order.tolist())).predictions  # type: ignore[arg-type]
        back = np.argsort(order)
        return logits[0][back], logits[1][back]


def _without_labels(inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value for name, value in inputs.items() if name != "labels"}


def load_tokenizer(
    path: str, *, max_length: int, key: str = MODEL_KEY, length_key: str = "qa.max_length"
) -> tuple[PreTrainedTokenizerBase, bool]:
    """Load the tokenizer of a reader, and whether the model separates question and passage by token types.

    `path` is a local folder or a Hub name; the keys are the settings that hold it and `max_length`.

    Raises:
        InputError: there is no such model, it is no encoder, its tokenizer gives no character offsets, or it cannot
            read windows of `max_length` tokens.
    """
    setting = f"{key}={path}"
    with loading(path, key, "reader") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    model_class: Any = MODEL_FOR_QUESTION_ANSWERING_MAPPING.get(type(config), None)
    if model_class is None or config.is_encoder_decoder:
        raise InputError(f"{setting}: a model of type {config.model_type!r} is no extractive reader: {GOOD_ENCODERS}")
    with loading(path, key, "reader"):
        check_tokenizer(tokenizer)
    if not tokenizer.is_fast:
        raise InputError(f"{setting}: its tokenizer gives no character offsets: give a model with a tokenizer.json")
    if tokenizer.pad_token_id is None:
        raise InputError(f"{setting}: its tokenizer has no padding token: {GOOD_ENCODERS}")
    longest = min(getattr(config, "max_position_embeddings", None) or max_length, tokenizer.model_max_length)
    if max_length > longest:
        raise InputError(f"{length_key}={max_length} is above the {longest} tokens that {path} can read: lower it")
    arguments = inspect.signature(model_class.forward).parameters
    types = "token_type_ids" in tokenizer.model_input_names and "token_type_ids" in arguments
    return tokenizer, types and config.type_vocab_size > 1


def load_model(
    path: str, tokenizer: PreTrainedTokenizerBase | None = None, *, key: str = MODEL_KEY
) -> PreTrainedModel:
    """Load an encoder with a span head; a head that the checkpoint lacks starts from torch's global random state.

    Raises `InputError` when there is no such model, its weights cannot be read (safetensors only) or used, or the
    tokenizer has more tokens than it.
    """
    load_unsharded()
    with loading(path, key, "reader") as name, _quiet():
        model, info = AutoModelForQuestionAnswering.from_pretrained(
            name,
            num_labels=2,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
        check_weights(model, tokenizer)
    missing = sorted(key for key in info["missing_keys"] if not key.startswith("qa_outputs."))
    if missing:
        log.warning("%s: %d weights besides the span head start at random, such as %s", path, len(missing), missing[0])
    return model


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library from reporting the new span head, which is expected, and the unused language-model head."""
    level = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(level)
