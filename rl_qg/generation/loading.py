"""Loading the question generator: any encoder-decoder or causal model of transformers with its tokenizer."""

import hashlib
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

from rewards.pretrained import check_tokenizer, check_weights
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.pretrained import loading
from rl_qg.runtime.processes import load_unsharded

KEY = "model.path"


def load_generator(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load an encoder-decoder or a causal model, as its config says.

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no model that generates text.
    """
    config, _ = _config_and_tokenizer(path)
    return load_seq2seq(path) if config.is_encoder_decoder else load_causal(path)


def check_model(path: str) -> None:
    """Check what can be checked of a model without its weights.

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no model with a tokenizer.
    """
    _config_and_tokenizer(path)


def load_seq2seq(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForSeq2SeqLM` with its tokenizer, from a local folder or the Hub (safetensors only).

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no seq2seq model.
    """
    config, tokenizer = _config_and_tokenizer(path)
    if not config.is_encoder_decoder:
        instead = "" if _only_fills_masks(config) else ", or train this one with algorithm=rloo or algorithm=grpo"
        raise InputError(
            f"model.path={path}: a {config.model_type} model is no seq2seq model; name one such as BART or T5{instead}"
        )
    model = _weights(AutoModelForSeq2SeqLM, path, config, tokenizer)
    if model.generation_config.decoder_start_token_id is None:
        model.generation_config.decoder_start_token_id = config.decoder_start_token_id or tokenizer.cls_token_id
        model.generation_config.pad_token_id = tokenizer.pad_token_id
        model.generation_config.eos_token_id = tokenizer.sep_token_id
    return model, tokenizer


def load_causal(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForCausalLM` with its tokenizer, ready for generation: it pads on the left, with the end
    token if there is no padding token.

    Raises:
        InputError: the Hub or the folder cannot be reached, or holds no causal model.
    """
    config, tokenizer = _config_and_tokenizer(path)
    if config.is_encoder_decoder:
        raise InputError(
            f"model.path={path}: a {config.model_type} model is an encoder-decoder, which TRL cannot train; "
            "use algorithm=scst, or name a causal model such as gpt2"
        )
    if _only_fills_masks(config):
        raise InputError(f"model.path={path}: a {config.model_type} model is no causal model; name one such as gpt2")
    if tokenizer.eos_token_id is None:
        raise InputError(f"model.path={path}: its tokenizer has no end token (eos_token), so no question would end")
    model = _weights(AutoModelForCausalLM, path, config, tokenizer)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model, tokenizer


def _config_and_tokenizer(path: str) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    with loading(path, KEY, "question generator") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        check_tokenizer(tokenizer)
    return config, tokenizer


def _weights(
    auto_class: Any, path: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    if type(config) not in auto_class._model_mapping:
        raise InputError(f"model.path={path}: a {config.model_type} model generates no text")
    load_unsharded()
    with loading(path, KEY, "question generator") as name:
        model = auto_class.from_pretrained(
            name, config=config, use_safetensors=True, dtype=torch.float32, trust_remote_code=False
        )
        check_weights(model, tokenizer, grows=True)  # `add_highlight` adds rows
    return model


def _only_fills_masks(config: PreTrainedConfig) -> bool:
    """Whether the model is a masked language model such as BERT, which the library would also load as a causal one."""
    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)


def weights_hash(path: str) -> str:
    """One hash of all weight files of a folder; for a Hub model its name."""
    files = sorted(Path(path).glob("*.safetensors"))
    return hashlib.sha256("".join(map(file_hash, files)).encode()).hexdigest() if files else path
