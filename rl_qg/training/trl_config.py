"""The arguments of TRL's trainers from our settings, and the settings that TRL does not support."""

from dataclasses import fields
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.trackers import PROJECT
from rl_qg.settings import SCSTSettings, Settings
from rl_qg.training.config import check_input, check_stop_on

NUM_SAMPLES = 4
BASELINES = {"rloo": "leave_one_out", "grpo": "mean"}  # of the algorithms themselves
NOT_IN_TRL = (
    *("clip_advantage", "schedule", "lambda_max", "lambda_warmup", "ce_weight", "kl_target", "kl_estimator"),
    *("updates_per_rollout", "clip_ratio", "credit"),
)


def check_algorithm(settings: Settings) -> None:
    """Refuse wrong settings, and changed `scst.*` settings that the algorithm cannot honour.

    Raises:
        InputError: naming all of them.
    """
    scst, name = settings.scst, settings.algorithm
    default = {field.name: field.default for field in fields(SCSTSettings)}
    faults = [f"scst.{key}={getattr(scst, key)}" for key in NOT_IN_TRL if getattr(scst, key) != default[key]]
    if scst.baseline not in (default["baseline"], BASELINES[name]):
        faults.append(f"scst.baseline={scst.baseline} (it is {BASELINES[name]} by definition)")
    if (name, scst.normalise_advantage) in (("grpo", "batch"), ("rloo", "group")):
        what = "each group" if name == "grpo" else "the batch"
        faults.append(f"scst.normalise_advantage={scst.normalise_advantage} (it divides by the spread of {what})")
    if scst.unlabelled_share not in (None, 0, 1):
        faults.append(f"scst.unlabelled_share={scst.unlabelled_share} (null, 0 or 1: examples are drawn alike)")
    if settings.training.stop_after is not None:
        faults.append(f"training.stop_after={settings.training.stop_after:g}")
    if faults:
        raise InputError(
            f"algorithm={name}: cannot honour {', '.join(faults)}; leave the default, or use algorithm=scst"
        )
    if samples_of(settings) < 2:
        raise InputError(f"algorithm={name}: compares samples, so scst.num_samples must be at least 2")
    settings.check()
    check_stop_on(settings)
    check_input(settings)


def samples_of(settings: Settings) -> int:
    """Questions sampled per context."""
    return NUM_SAMPLES if settings.scst.num_samples is None else settings.scst.num_samples


def common_arguments(settings: Settings, output_dir: str) -> dict[str, Any]:
    """What both stages share, as in `rl_qg.training.stages`; TRL's own defaults differ (bf16, checkpointing)."""
    common = settings.training
    return {
        "output_dir": output_dir,
        "per_device_eval_batch_size": common.eval_batch_size,
        "gradient_accumulation_steps": common.gradient_accumulation_steps,
        "gradient_checkpointing": common.gradient_checkpointing,
        "weight_decay": common.weight_decay,
        "max_grad_norm": common.max_grad_norm,
        "bf16": common.precision == "bf16",
        "fp16": common.precision == "fp16",
        "use_cpu": common.use_cpu,
        "logging_steps": common.logging_steps,
        "eval_strategy": "steps",
        "eval_steps": common.eval_steps,
        "save_strategy": "steps",
        "save_steps": common.save_steps,
        "save_total_limit": common.save_total_limit,
        "lr_scheduler_type": "linear" if common.rate_schedule == "linear" else "constant_with_warmup",
        "report_to": common.report_to,
        "project": PROJECT,
        "seed": settings.seed,
        "data_seed": settings.seed,
        "remove_unused_columns": False,
    }


def cross_entropy_arguments(settings: Settings, output_dir: str) -> dict[str, Any]:
    """Arguments of `SFTConfig`."""
    ce, alone = settings.ce, settings.stages == "ce"
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss", "greater_is_better": False}
    return {
        **common_arguments(settings, output_dir),
        "per_device_train_batch_size": settings.training.batch_size,
        "num_train_epochs": ce.epochs,
        "learning_rate": ce.learning_rate * rate_factor(settings),
        "warmup_steps": ce.warmup_fraction,
        "label_smoothing_factor": ce.label_smoothing,
        "max_length": None,  # the prompt is cut around its answer, not at its end
        "dataset_kwargs": {"skip_prepare_dataset": True},
        **({**best, "save_steps": settings.training.eval_steps} if alone else {}),
    }


def reward_arguments(settings: Settings, output_dir: str) -> dict[str, Any]:
    """Arguments of `RLOOConfig` or `GRPOConfig`. TRL counts a batch in samples, rl-qg in contexts."""
    scst, samples = settings.scst, samples_of(settings)
    limits = {"min_new_tokens": scst.min_new_tokens, "no_repeat_ngram_size": scst.no_repeat_ngram}
    return {
        **common_arguments(settings, output_dir),
        "per_device_train_batch_size": settings.training.batch_size * samples,
        "num_generations": samples,
        "num_generations_eval": 1,
        "num_train_epochs": scst.epochs,
        "learning_rate": scst.learning_rate * rate_factor(settings),
        "warmup_steps": scst.warmup_fraction,
        "beta": scst.kl_coefficient,
        "reward_weights": [scst.reward_scale],
        "max_completion_length": scst.max_new_tokens,
        "temperature": scst.temperature,
        "top_k": scst.top_k,
        "top_p": scst.top_p,
        "generation_kwargs": {name: value for name, value in limits.items() if value},
        "disable_dropout": True,  # TRL samples in training mode: with dropout it would not sample from the policy
        # The library has no running mean; its batch is the nearest.
        **({"normalize_advantages": scst.normalise_advantage != "none"} if settings.algorithm == "rloo" else {}),
    }


def rate_factor(settings: Settings) -> float:
    """The factor on learning rates: 1 without adapters."""
    return 1.0 if settings.peft.method == "none" else settings.peft.learning_rate_factor
