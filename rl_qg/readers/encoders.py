"""What all encoders that are fine-tuned here share: how a pretrained one is found, and the arguments of training."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from transformers import TrainingArguments

from rewards.slow_precision import warn_if_slower
from rl_qg.runtime.errors import InputError
from rl_qg.settings import QASettings, TrainAnswersSettings, TrainKPQASettings

GOOD_ENCODERS = "give an encoder such as distilbert, bert or roberta"


@contextmanager
def loading(path: str, key: str, kind: str) -> Iterator[str]:
    """Give the name to load a model by, and turn what goes wrong meanwhile into one clear line.

    Args:
        path: a local folder or a name on the Hugging Face hub.
        key: the setting that names `path`.
        kind: what is loaded, for the message.

    Raises:
        InputError: there is no such folder, or no such model can be loaded.
    """
    setting, folder = f"{key}={path}", Path(path).expanduser()
    is_local = folder.is_dir()
    if not is_local and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise InputError(f"{setting}: no such folder; check the path")
    try:
        yield str(folder) if is_local else path
    except InputError:
        raise
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if is_local:
            raise InputError(f"{setting}: no {kind} in this folder can be loaded ({reason})") from None
        raise InputError(
            f"{setting}: the Hugging Face hub could not be reached or has no such model ({reason}): "
            f"give a local folder with {key}=FOLDER"
        ) from None


def fine_tuning_arguments(
    settings: QASettings | TrainAnswersSettings | TrainKPQASettings,
    output_dir: Path,
    *,
    seed: int,
    use_cpu: bool,
    precision: str,
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
        save_steps=settings.save_steps,
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
        warn_if_slower(torch.bfloat16, arguments.device, "training.precision=no", trained=True)
    return arguments
