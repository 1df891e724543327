"""Loading the question generator: any encoder-decoder or causal model of transformers with its tokenizer."""

import copy
import hashlib
import importlib.util
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
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
from transformers.pytorch_utils import Conv1D

from rewards.pretrained import ModelFault, check_tokenizer, check_weights, lacking
from rl_qg.generation.prefix_model import ENCODERS, PrefixLM
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash
from rl_qg.runtime.processes import load_unsharded, loading
from rl_qg.settings import PeftSettings

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel


log = logging.getLogger(__name__)

KEY = "model.path"
# Names of query and value projections, for architectures without a default in peft.
PROJECTIONS = (("q_proj", "v_proj"), ("q", "v"), ("query", "value"), ("c_attn",))
# Names of the rates of dropout of hidden states, and of those that are lower or 0 in most models.
DROPOUTS = {"dropout", "dropout_rate", "hidden_dropout_prob", "resid_pdrop", "embd_pdrop"}
INNER_DROPOUTS = {"attention_dropout", "attention_probs_dropout_prob", "attn_pdrop", "activation_dropout"}


# --- LoRA adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2022) through peft


def check_lora(settings: PeftSettings) -> None:
    """Raise `InputError` if LoRA is set and its settings are invalid or peft is not installed; loads nothing."""
    if settings.method == "none":
        return
    if importlib.util.find_spec("peft") is None:
        raise InputError(f'peft={settings.method}: peft is not installed; install it: pip install "rl-qg[peft]"')
    settings.check()


def lora_config(settings: PeftSettings, model: PreTrainedModel, tokens: Sequence[int] = ()) -> "LoraConfig":
    """The LoRA configuration of `model`: for the layers of the settings, else for the default layers of peft for this
    architecture, else for its query and value projections. The rows of `tokens`, such as `<hl>`, in the embedding
    matrix are trained without an adapter.
    """
    check_lora(settings)
    from peft import LoraConfig, TaskType

    pair = model.config.is_encoder_decoder
    return LoraConfig(
        task_type=TaskType.SEQ_2_SEQ_LM if pair else TaskType.CAUSAL_LM,
        r=settings.r,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=_target_modules(settings, model),
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
        trainable_token_indices=list(tokens) or None,
    )


def _target_modules(settings: PeftSettings, model: PreTrainedModel) -> list[str]:
    from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

    leaves = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if settings.target_modules:
        unknown = [name for name in settings.target_modules if name.rpartition(".")[2] not in leaves]
        if unknown:
            modules = model.named_modules()
            layers = sorted({name.rpartition(".")[2] for name, one in modules if isinstance(one, nn.Linear | Conv1D)})
            raise InputError(
                f"peft.target_modules: this {model.config.model_type} model has no layer {', '.join(unknown)}; "
                f"it has {', '.join(layers)}"
            )
        return settings.target_modules
    for names in (TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(model.config.model_type), *PROJECTIONS):
        if names and set(names) <= leaves:
            return list(names)
    raise InputError(
        f"peft.target_modules: no default for a {model.config.model_type} model; name layers, such as [q_proj,v_proj]"
    )


def add_lora(model: PreTrainedModel, settings: PeftSettings, tokens: Sequence[int] = ()) -> "PeftModel":
    """`model` frozen, with new adapters (see `lora_config`); `model` itself is changed."""
    config = lora_config(settings, model, tokens)
    from peft import get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        adapted = get_peft_model(model, config)
    head: Any = adapted.get_base_model().get_output_embeddings()
    tied = getattr(head, "token_adapter", None)  # where head and embeddings are one, peft leaves out the head's bias
    if tied is not None and getattr(tied.base_layer, "bias", None) is not None:
        head.register_forward_hook(lambda module, given, logits: logits + module.token_adapter.base_layer.bias)
    # With the name of the base model, peft would ask the Hub at each checkpoint whether the vocabulary has grown. It
    # has (by `<hl>`), and peft would save all embeddings with the adapters.
    adapted.peft_config[adapted.active_adapter].base_model_name_or_path = ""
    return adapted


def merge_lora(model: nn.Module) -> PreTrainedModel:
    """A copy of the model with the adapters merged into its weights: removing merged adapters would leave rounding
    errors, which would change further training. A model without adapters as it is.
    """
    return copy.deepcopy(model).merge_and_unload() if hasattr(model, "merge_and_unload") else model  # type: ignore[operator]


def load_generator(path: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    config, _ = load_config_and_tokenizer(path)
    return load_seq2seq(path) if config.is_encoder_decoder else load_causal(path)


def load_seq2seq(path: str, dropout: float | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForSeq2SeqLM` with its tokenizer, from a local folder or the Hub (safetensors only). Of an
    encoder such as BERT, a new prefix model is made. `dropout` as in `model.dropout`.
    """
    config, tokenizer = load_config_and_tokenizer(path, dropout)
    if config.model_type in ENCODERS and _only_fills_masks(config):
        return _prefix_model(path, config, tokenizer), tokenizer
    if not config.is_encoder_decoder:
        instead = "" if _only_fills_masks(config) else ", or train this one with algorithm=rloo or algorithm=grpo"
        raise InputError(
            f"model.path={path}: a {config.model_type} model is no seq2seq model; name one such as BART or T5{instead}"
        )
    model = _weights(AutoModelForSeq2SeqLM, path, config, tokenizer)
    _complete_token_ids(path, model, tokenizer)
    _check_token_ids(path, model)
    return model, tokenizer


def _prefix_model(path: str, stack: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase) -> PrefixLM:
    with loading(path, KEY, "question generator") as name:
        model = PrefixLM.from_encoder(name, stack)
        check_weights(model, tokenizer, grows=True)
    special = {"decoder_start_token_id": tokenizer.mask_token_id, "eos_token_id": tokenizer.sep_token_id}
    model.generation_config.update(pad_token_id=tokenizer.pad_token_id, **special)
    log.info("model.path=%s: an encoder; its layers read the passage and write the question (a prefix model)", path)
    return model


def load_causal(path: str, dropout: float | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load any `AutoModelForCausalLM` with its tokenizer, which pads on the left, with the end token if need be."""
    config, tokenizer = load_config_and_tokenizer(path, dropout)
    named = f"model.path={path}: a {config.model_type} model is"
    if config.is_encoder_decoder:
        raise InputError(
            f"{named} an encoder-decoder, which TRL cannot train; use algorithm=scst, or name a causal model such as "
            "gpt2"
        )
    if _only_fills_masks(config):
        raise InputError(f"{named} no causal model; name one such as gpt2")
    if tokenizer.eos_token_id is None:
        raise InputError(f"model.path={path}: its tokenizer has no end token (eos_token), so no question would end")
    model = _weights(AutoModelForCausalLM, path, config, tokenizer)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model, tokenizer


def load_config_and_tokenizer(
    path: str, dropout: float | None = None
) -> tuple[PreTrainedConfig, PreTrainedTokenizerBase]:
    with loading(path, KEY, "question generator") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        check_tokenizer(tokenizer)
    if dropout is not None:
        parts = [config, *(getattr(config, name) for name in config.sub_configs)]
        rates = [(part, name) for part in parts for name in (DROPOUTS | INNER_DROPOUTS) & vars(part).keys()]
        for part, name in rates:
            setattr(part, name, dropout if name in DROPOUTS else min(dropout, getattr(part, name)))
        if DROPOUTS.isdisjoint(name for _, name in rates):
            log.warning("model.dropout=%g: a %s model has none of hidden states to set", dropout, config.model_type)
    return config, tokenizer


def _weights(
    auto_class: Any, path: str, config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    if type(config) not in auto_class._model_mapping:
        raise InputError(f"model.path={path}: a {config.model_type} model generates no text")
    load_unsharded()
    with loading(path, KEY, "question generator") as name:
        options = {"config": config, "dtype": torch.float32, "output_loading_info": True}
        model, report = auto_class.from_pretrained(name, trust_remote_code=False, use_safetensors=True, **options)
        check_weights(model, tokenizer, grows=True)  # `add_highlight` adds rows
        if missing := [key for key in lacking(model, report) if ".pooler." not in key]:
            raise ModelFault(f"it lacks {missing[0]!r}, of {len(missing)}; save it again by {auto_class.__name__}")
    return model


def token_ids(config: Any) -> dict[str, Any]:
    """The special tokens of a configuration, by field: an id, or a list of ids."""
    return {
        name: value
        for name, value in config.to_dict().items()
        if name.endswith("_token_id") and (type(value) is int or (isinstance(value, list) and value))
    }


def _complete_token_ids(path: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Give the model the tokens for decoding that it lacks, from its configuration, else from its tokenizer, or the
    other way round where nothing says how a text begins, as in a pair of BERTs; and the tokenizer its padding.
    """
    own, config = model.generation_config, model.config
    starts = {own.decoder_start_token_id, getattr(config, "decoder_start_token_id", None)}
    end = tokenizer.eos_token_id if tokenizer.sep_token_id is None else tokenizer.sep_token_id
    last = {"decoder_start": tokenizer.cls_token_id, "eos": end, "pad": tokenizer.pad_token_id}
    for field, other in ((f"{name}_token_id", other) for name, other in last.items()):
        named = [getattr(own, field), getattr(config, field, None), other]
        if starts == {None}:
            named.reverse()
        if (number := next((one for one in named if one is not None), None)) is None:
            raise InputError(f"model.path={path}: its configuration has no {field}; add it to generation_config.json")
        setattr(own, field, number)
    if isinstance(own.eos_token_id, list) and len(own.eos_token_id) > 1:
        log.warning("model.path=%s: of its end tokens %s only the first ends a question", path, own.eos_token_id)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(own.pad_token_id)


def _check_token_ids(path: str, model: PreTrainedModel) -> None:
    """Raise `InputError` where a special token is none of the vocabulary. Causal models may name others: their prompts
    and ends have the tokens of the tokenizer. The token of a prefix model that marks answers may be added later.
    """
    rows = (model.get_output_embeddings() or model.get_input_embeddings()).weight.shape[0]
    for config in (model.config, model.generation_config):
        for name, value in token_ids(config).items():
            for number in value if isinstance(value, list) else [value]:
                if not 0 <= number < rows and name != "highlight_token_id":
                    raise InputError(
                        f"model.path={path}: its configuration has {name}={number}, and its vocabulary {rows} tokens; "
                        "correct config.json and generation_config.json"
                    )


def _only_fills_masks(config: PreTrainedConfig) -> bool:
    """Whether the model is a masked language model such as BERT, which the library would also load as a causal one."""
    return config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES and not getattr(config, "is_decoder", False)


def weights_hash(path: str) -> str:
    """One hash of all weight files of a folder; for a Hub model its name."""
    files = sorted(Path(path).expanduser().glob("*.safetensors"))
    return hashlib.sha256("".join(map(file_hash, files)).encode()).hexdigest() if files else path
