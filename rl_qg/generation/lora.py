"""LoRA adapters (Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", 2022) through peft."""

import copy
import importlib.util
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from rl_qg.runtime.errors import InputError
from rl_qg.settings import PeftSettings

if TYPE_CHECKING:
    from peft import LoraConfig, PeftModel

# Names of query and value projections, for architectures without a default in peft.
PROJECTIONS = (("q_proj", "v_proj"), ("q", "v"), ("query", "value"), ("c_attn",))


def check_lora(settings: PeftSettings) -> None:
    """Raise `InputError` if LoRA is set and its settings are invalid or peft is not installed; loads nothing."""
    if settings.method == "none":
        return
    if importlib.util.find_spec("peft") is None:
        raise InputError(f'peft={settings.method}: peft is not installed; install it: pip install "rl-qg[peft]"')
    if settings.r < 1 or not 0 <= settings.dropout < 1 or settings.learning_rate_factor <= 0:
        raise InputError(
            f"peft.r={settings.r} must be at least 1, peft.dropout={settings.dropout} in [0, 1), "
            f"peft.learning_rate_factor={settings.learning_rate_factor} above 0"
        )


def lora_config(settings: PeftSettings, model: PreTrainedModel, tokens: Sequence[int] = ()) -> "LoraConfig":
    """The LoRA configuration of `model`: for the layers of the settings, else for the default layers of peft for this
    architecture, else for its query and value projections.

    Args:
        settings: rank, scale, dropout and layers.
        model: encoder-decoder or causal.
        tokens: ids whose rows of the embedding matrix are trained without an adapter, such as that of the new token
            `<hl>`.

    Raises:
        InputError: peft is not installed, or the model has no layer of these names.
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
            layers = sorted({name.rpartition(".")[2] for name, module in model.named_modules() if _is_linear(module)})
            raise InputError(
                f"peft.target_modules: this {model.config.model_type} model has no layer {', '.join(unknown)}; "
                f"it has {', '.join(layers)}"
            )
        return settings.target_modules
    known = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(model.config.model_type)
    for names in (known, *PROJECTIONS):
        if names and set(names) <= leaves:
            return list(names)
    raise InputError(
        f"peft.target_modules: no default for a {model.config.model_type} model; name layers, such as [q_proj,v_proj]"
    )


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def add_lora(model: PreTrainedModel, settings: PeftSettings, tokens: Sequence[int] = ()) -> "PeftModel":
    """`model` frozen, with new adapters (see `lora_config`); `model` itself is changed."""
    config = lora_config(settings, model, tokens)
    from peft import get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft uses a deprecated name of transformers
        adapted = get_peft_model(model, config)
    # With the name of the base model, peft would ask the Hub at each checkpoint whether the vocabulary has grown. It
    # has (by `<hl>`), and peft would save all embeddings with the adapters.
    adapted.peft_config[adapted.active_adapter].base_model_name_or_path = ""
    return adapted


def has_lora(model: nn.Module) -> bool:
    """Whether the model has adapters."""
    return hasattr(model, "merge_and_unload")


def merge_lora(model: nn.Module) -> PreTrainedModel:
    """A copy of the model with the adapters merged into its weights.

    A copy, because removing merged adapters leaves rounding errors, which would change further training.
    """
    merged: PreTrainedModel = copy.deepcopy(model).merge_and_unload()  # type: ignore[operator]
    return merged
