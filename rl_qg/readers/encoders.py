"""Encoders to fine-tune or to ask: loaded with one clear line where a model does not fit, and windows padded."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from rewards.frozen import TOKEN_HEAD, longest_input, token_classifier
from rewards.pretrained import check_tokenizer, check_weights
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_unsharded, loading

GOOD_ENCODERS = "give an encoder such as distilbert, bert or roberta"
FLOAT32: dict[str, Any] = {"use_safetensors": True, "dtype": torch.float32}
UNFIT = {
    "encoder": "cannot label tokens",
    "reader": "is no extractive reader",
    "retriever": "is no encoder of texts",
}  # what is said of other models
IGNORED = -100  # the label that the loss of transformers leaves out


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
    models: Any = transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
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
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    config.architectures = config.architectures or []  # which the library goes through where a type has several models
    with torch.device("meta"):  # without weights
        model = AutoModel.from_config(config, trust_remote_code=False)
    return min(longest_input(model, tokenizer), int(tokenizer.model_max_length))


def load_model(
    path: str,
    key: str,
    tokenizer: PreTrainedTokenizerBase,
    labels: Sequence[str] | None = None,
    seed: int = 0,
    head: str | None = None,
) -> PreTrainedModel:
    """An encoder with a head for `labels`, or for its own (None); a head that the checkpoint lacks is initialised from
    `seed`. `key` is the setting that names `path`; `head` is one of `rewards.frozen.HEADS`, or None: the folder's.
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
