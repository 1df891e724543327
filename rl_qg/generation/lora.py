"""Low-rank adapters (LoRA, Hu et al. 2022) through peft: which layers get one, and whole models back from them."""

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

# Query and value projections by the names that architectures give them, for those that peft does not know.
PROJECTIONS = (("q_proj", "v_proj"), ("q", "v"), ("query", "value"), ("c_attn",))


def check_adapters(settings: PeftSettings) -> None:
    """Raise `InputError` when adapters are wanted and cannot be had; loads nothing."""
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
    """The adapters of `model`: on the layers that the settings name, else on those that peft knows for the
    architecture, else on its query and value projections.

    Args:
        settings: rank, scale, dropout and layers.
        model: encoder-decoder or causal.
        tokens: ids whose rows of the embedding matrix are trained as they are. A new token such as `<hl>` belongs
            here: its row knows nothing yet, and no adapter reaches it.

    Raises:
        InputError: peft is not installed, or the model has no layer of these names.
    """
    check_adapters(settings)
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


def with_adapters(model: PreTrainedModel, settings: PeftSettings, tokens: Sequence[int] = ()) -> "PeftModel":
    """`model` frozen, with fresh adapters (see `lora_config`); `model` itself is changed."""
    config = lora_config(settings, model, tokens)
    from peft import get_peft_model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by a name of yesterday
        adapted = get_peft_model(model, config)
    # By the name of the base, peft asks the Hub at each checkpoint whether the vocabulary has grown, and as it has (by
    # `<hl>`), saves all embeddings with the adapters.
    adapted.peft_config[adapted.active_adapter].base_model_name_or_path = ""
    return adapted


def has_adapters(model: nn.Module) -> bool:
    """Whether peft has wrapped the model."""
    return hasattr(model, "merge_and_unload")


def merged(model: nn.Module) -> PreTrainedModel:
    """A whole model with the adapters merged into its weights.

    It is a copy: taking a merged adapter out again leaves rounding errors behind, and training would no longer be what
    it is without an export.
    """
    whole: PreTrainedModel = copy.deepcopy(model).merge_and_unload()  # type: ignore[operator]
    return whole
