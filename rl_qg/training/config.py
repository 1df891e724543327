"""The training arguments of `SelfCriticalTrainer`: those of transformers, and those of self-critical training."""

import logging
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from transformers import Seq2SeqTrainingArguments
from transformers.integrations import integration_utils

from rl_qg.generation.decoding import DecodingRules
from rl_qg.generation.loading import check_lora, load_config_and_tokenizer
from rl_qg.generation.prompts import WHOLE, Prompt
from rl_qg.generation.published import OWN, check_repository, format_of, published_prompt
from rl_qg.miniatures.cache import is_miniature
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.held_out import improves
from rl_qg.scoring.reward_scorer import Reward, RewardScorer
from rl_qg.scoring.task_scorers import scorer_of
from rl_qg.settings import ModelSettings, SelfCriticalOptions, Settings
from rl_qg.settings.keys import key

log = logging.getLogger(__name__)
PROJECT = "rl-qg"  # of trackers
# Keys of `SelfCriticalOptions` that a loss by reward alone reads; a preset's way to normalise it is not worth a line.
OF_UPDATES = ("baseline", "clip_advantage", "schedule", "lambda_max", "ce_weight", "kl_coefficient", "kl_target")
# All of transformers but those of which it does not say whether they are installed.
TRACKERS = sorted({*integration_utils.INTEGRATION_TO_CALLBACK} - {"azure_ml", "flyte"})


def check_settings(settings: Settings) -> None:
    """Refuse, before anything is loaded, what cannot be trained."""
    check_tracker(settings.training.report_to)
    check_lora(settings.peft)
    check_repository("training.hub_model", settings.training.hub_model)
    check_stops(settings)
    check_input(settings)


def check_tracker(name: str) -> None:
    """Check that a tracker is known and installed; name its project."""
    if name == "none":
        return
    if name not in TRACKERS:
        raise InputError(f"training.report_to={name} is not one of {', '.join(TRACKERS)}, none")
    if name not in integration_utils.get_available_reporting_integrations():
        raise InputError(
            f"training.report_to={name}: {name} is not installed; install it: pip install {name}, "
            "or use none: training.report_to=none"
        )
    for variable in ("WANDB_PROJECT", "MLFLOW_EXPERIMENT_NAME", "COMET_PROJECT_NAME"):  # no argument does it
        os.environ.setdefault(variable, PROJECT)


def rate_factor(settings: Settings) -> float:
    """The factor on learning rates: 1 without adapters."""
    return 1.0 if settings.peft.method == "none" else settings.peft.learning_rate_factor


@dataclass
class SelfCriticalConfig(SelfCriticalOptions, Seq2SeqTrainingArguments):
    """Training arguments of transformers, the options of `SelfCriticalOptions`, and the fields below.

    `learning_rate` and `ce_warmup` belong to the cross-entropy stage. `num_train_epochs` is the sum of both stages;
    with `max_steps` their epochs give the fraction of steps of each. `rl_qg.training.objectives` has the equations.
    """

    ce_epochs: float = key(0.0, "passes over the data by cross-entropy alone (lambda = 0)")
    scst_epochs: float = key(2.0, "passes with lambda above 0")
    scst_learning_rate: float = key(1e-5, "peak of the schedule that starts anew at the self-critical stage")
    ce_warmup: float = key(0.05, "fraction of the cross-entropy stage in which the learning rate rises")
    by_length: bool = key(False, "updates of the cross-entropy stage have inputs of similar length")
    scst_warmup: float = key(0.05, "fraction of the self-critical stage in which the learning rate rises")
    rate_schedule: str = key("linear", "the learning rate after the warm-up of a stage: linear (to 0) or constant")
    rate_factors: dict[str, float] = key({}, "factors on the learning rate, by a part of the names of parameters")
    stop_after: float | None = key(None, "passes over the data, of those planned, after which training stops")
    task: str = key("questions", "what the model writes, see rl_qg.generation.tasks")
    granularity: str = key("", "of the task sets, see rl_qg.generation.sets")
    mode: str = key("", "of the task sets: one2one or one2many")
    input: str = key(WHOLE, "what is read of an example, see rl_qg.generation.prompts")
    language: str = key("", "a code such as de, for models with language codes")
    format: str = key("", "of inputs and texts, see rl_qg.generation.published; empty: that of this package")
    prefix: str = key("", "text before every input, see rl_qg.generation.prompts.Prompt")
    max_source_length: int = key(512, "tokens; a longer context is cut to a window around the answer")
    max_target_length: int = key(64, "tokens of a gold question")
    samples_logged: int = key(4, "rollouts written to samples.jsonl at each logging step")

    def __post_init__(self) -> None:
        SelfCriticalOptions.__post_init__(self)
        options = {item.name: getattr(self, item.name) for item in fields(SelfCriticalOptions)}
        faults = list(SelfCriticalOptions(**options).faults())
        if self.ce_epochs < 0 or self.scst_epochs < 0 or self.ce_epochs + self.scst_epochs == 0:
            faults.append(f"ce_epochs={self.ce_epochs}, scst_epochs={self.scst_epochs}: none negative, one above 0")
        if faults:
            raise ValueError("; ".join(faults))
        if self.num_samples is None:
            self.num_samples = 1 if self.baseline in ("greedy", "none") else 4
        self.num_train_epochs = self.ce_epochs + self.scst_epochs
        self.remove_unused_columns = False  # the collator reads all fields of an example
        self.logging_nan_inf_filter = False  # it reads every loss, for a mean that `StepMetrics` replaces
        Seq2SeqTrainingArguments.__post_init__(self)
        file = getattr(self.deepspeed_plugin, "deepspeed_config", {})
        factors = self.rate_factors and "training.rate_factors"
        for own, lost in (("optimizer", factors), ("scheduler", "the rates of each stage")):
            if lost and own in file:
                raise ValueError(f"the file of DeepSpeed has its own {own}, which ignores {lost}; remove it there")

    def boundary(self, max_steps: int) -> int:
        """The last step of the cross-entropy stage, of `max_steps` in all."""
        return round(max_steps * self.ce_epochs / (self.ce_epochs + self.scst_epochs))

    def prompt(self) -> Prompt:
        return Prompt(**_values_of(Prompt, self))

    def scorer_of(self, reward: Reward | None, *, optimised: bool = True) -> RewardScorer | None:
        """What scores the texts of this task by a reward. Only the one that is `optimised` credits single questions of
        a set; the other is the held-out reward.
        """
        if reward is None:
            return None
        return scorer_of(
            reward,
            self.task,
            "reward" if optimised else "held-out reward",
            credit=self.credit if optimised else "whole",
            pair_floor=self.pair_floor,
            answer_weight=self.answer_weight,
        )

    def decoding_rules(self) -> DecodingRules:
        return DecodingRules(**_values_of(DecodingRules, self))


def _values_of(cls: Any, source: Any) -> dict[str, Any]:
    return {field.name: getattr(source, field.name) for field in fields(cls) if hasattr(source, field.name)}


def prompt_of(settings: Settings, *, prefix: str = "", separator: str = "") -> Prompt:
    model, ask = settings.model, settings.ask
    return Prompt(
        prefix,
        model.max_source_length,
        model.max_target_length,
        separator,
        task=settings.task,
        granularity=ask.granularity or "",
        mode=ask.mode if ask.granularity else "",
        input=model.input,
        language=language_of(settings),
        format="" if model.format in (None, OWN) else model.format,
    )


def with_format(settings: Settings) -> Settings:
    """The settings of a run that goes on with a published generator, or with one trained from it: the fields of its
    prompt (`Prompt.of`) in place of the keys that have their defaults. Other models, and those that are to learn
    another task or input, keep the format of this package.
    """
    model, plain, path = settings.model, ModelSettings(), settings.model.path
    stored = Prompt.stored(path) if model.format is None else None
    known = asdict(stored) if stored and stored.format else {}
    if not stored and settings.algorithm not in ("rloo", "grpo") and not is_miniature(path):
        with suppress(*() if model.format else (InputError,)):  # it is refused where it is needed
            known = published_prompt(path, *load_config_and_tokenizer(path), model.format)
    tasks, inputs = ((getattr(plain, name), known.get(name)) for name in ("task", "input"))
    if not known or settings.task not in tasks or model.input not in inputs:
        if format_of(model.format or ""):
            raise InputError(f"model.format={model.format}: is not for this model, model.task or model.input")
        return settings
    if known["task"] == "sets":
        if settings.scst.credit != "whole":
            raise InputError(f"scst.credit={settings.scst.credit}: format {known['format']} needs scst.credit=whole")
        settings = replace(settings, ask=replace(settings.ask, granularity=known["granularity"], mode=known["mode"]))
    names = [name for name in known if hasattr(model, name) and getattr(model, name) == getattr(plain, name)]
    changed = {name: known[name] for name in names if name != "prefix" or known["task"] != "multitask"}
    scst, usual = settings.scst, type(settings.scst).max_new_tokens
    if scst.max_new_tokens == usual:
        scst = replace(scst, max_new_tokens=max(usual, known["max_target_length"]))
    return replace(settings, model=replace(model, **changed), scst=scst)


def check_input(settings: Settings) -> None:
    stored, given = Prompt.stored(settings.model.path), prompt_of(settings)
    if settings.stages != "scst" or stored is None:
        return
    for entry, name in (("model.input", "input"), ("model.task", "task"), ("ask.granularity", "granularity")):
        if (trained := getattr(stored, name)) != (wanted := getattr(given, name)):
            raise InputError(
                f"model.path={settings.model.path}: was trained with {entry}={trained or None}, not {wanted or None}; "
                f"give {entry}={trained or None}, or train both stages"
            )


def language_of(settings: Settings) -> str:
    """`model.language`, else the language that the model was trained with, else ""."""
    if settings.model.language is not None:
        return settings.model.language
    stored = Prompt.stored(settings.model.path)
    return "" if stored is None else stored.language


def warn_of_unused(settings: Settings) -> None:
    scst, patience = settings.scst, settings.ce.early_stopping_patience
    if scst.reward_scale != 1 and scst.normalise_advantage != "none" and settings.algorithm == "scst":
        log.warning("scst.reward_scale=%g has no effect without scst.normalise_advantage=none", scst.reward_scale)
    for name, has_effect, without in (
        ("patience", scst.stop_on, "scst.stop_on"),
        ("lambda_warmup", scst.schedule == "warmup", "scst.schedule=warmup"),
        ("clip_ratio", scst.updates_per_rollout > 1, "scst.updates_per_rollout above 1"),
        ("kl_estimator", scst.kl_coefficient > 0, "scst.kl_coefficient above 0"),
        ("pair_floor", settings.task == "pairs", "model.task=pairs"),
        ("answer_weight", settings.task in ("answers", "multitask"), "model.task=answers or multitask"),
    ):
        if (value := getattr(scst, name)) != getattr(type(scst), name) and not has_effect:
            log.warning("scst.%s=%s has no effect without %s", name, value, without)
    if settings.algorithm == "best_of_n" and (given := scst.changed(*OF_UPDATES)):
        log.warning("algorithm=best_of_n: scst.%s has no effect", ", scst.".join(given))
    if settings.peft.method == "none" and (given := settings.peft.changed("r", "alpha", "dropout", "target_modules")):
        log.warning("peft.%s has no effect without peft=lora", ", peft.".join(given))
    if patience and settings.stages != "ce":
        log.warning("ce.early_stopping_patience=%d has no effect without stages=ce", patience)


def _check_average(settings: Settings) -> None:
    """Another model must not be what the run keeps, or goes on from."""
    patience, stop = settings.ce.early_stopping_patience, settings.training.stop_after
    others = {
        f"stages={settings.stages}": settings.stages != "ce",
        f"algorithm={settings.algorithm}": settings.algorithm in ("rloo", "grpo"),
        f"peft.method={settings.peft.method}": settings.peft.method != "none",
        f"ce.early_stopping_patience={patience}": patience > 0,
        f"training.stop_after={stop}": stop is not None,
    }
    if clash := [name for name, is_set in others.items() if is_set]:
        raise InputError(
            f"ce.average={settings.ce.average}: is not for {' or '.join(clash)}; stages=scst model.path=RUN/ce goes "
            "on from the mean"
        )


def check_stops(settings: Settings) -> None:
    """Raise `InputError` when `scst.stop_on` is not a measure that evaluations have, when `training.stop_after` is
    after the end of the plan, and where something else may end a stage before it.
    """
    training, stages = settings.training, settings.stages
    stop, stop_on = training.stop_after, None if stages == "ce" else settings.scst.stop_on
    if stop_on is not None:
        try:
            improves(stop_on, 1.0, 0.0)
        except ValueError as error:
            raise InputError(f"scst.stop_on: {error}") from None
        if stop_on == "held_out" and not settings.second_reward:
            raise InputError(
                "scst.stop_on=held_out: there is no held-out reward; name one, such as held_out=bartscore"
            )
    if settings.ce.average > 1:
        _check_average(settings)
    if stop is None:
        return
    planned = (stages != "scst") * settings.ce.epochs + (stages != "ce") * settings.scst.epochs
    if stop > planned:
        raise InputError(
            f"training.stop_after={stop:g}: {planned:g} passes are planned (ce.epochs, scst.epochs); plan more, or "
            "stop earlier"
        )
    patience = settings.ce.early_stopping_patience if stages == "ce" else 0
    for name, value in (("ce.early_stopping_patience", patience), ("scst.stop_on", stop_on)):
        if value:
            raise InputError(
                f"training.stop_after={stop:g}: {name}={value} may end the stage before; give one of both"
            )
