"""What filters need from the door: the metrics that the settings mean, written out, and loaded when they are used."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from accelerate import PartialState

import rewards
from rl_qg.augmentation.candidates import RANDOM
from rl_qg.augmentation.registry import build_filters, filter_kind, import_target
from rl_qg.commands.catalogue import choices
from rl_qg.commands.compose import complete_parts, file_options
from rl_qg.commands.open_run import load_reward, reward_with_miniatures
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings, Settings

MODELS = ("reward", "round_trip")
GENERATED = ("logprob", "candidate", "answer_start")  # the numbers in each line of `rl-qg generate`


def check_filters(settings: Settings) -> None:
    """Raise `InputError` for a filter, option or metric that there is not, before there is any work to lose."""
    build_filters(settings.augment.filters)
    for name, given in settings.augment.filters.items():
        if filter_kind(name, given) == "reward" and given.get("metric") is not None:
            target = str(_metric(name, given, settings).get("_target_"))
            at = f"augment.filters.{name}.metric={target}"
            if "." in target:
                import_target(at, target)
            elif target not in rewards.METRICS:
                known = ", ".join(sorted({*choices("reward"), *rewards.METRICS} - {"custom"}))
                raise InputError(f"{at}: no such metric; choose one of {known}, or give a dotted path")


def check_numbers(settings: Settings) -> None:
    """Raise `InputError` where filters or the sample go by a number that generated candidates will not have."""
    options, there = settings.augment, [*GENERATED, RANDOM]
    wanted = []
    for one in build_filters(options.filters):
        if _measures(one.name, options.filters[one.name]):
            there.append(one.name)
        for key in ("by", "field"):
            if (number := getattr(one, key, None)) is not None and number not in there:
                wanted.append((f"filters.{one.name}.{key}", number))
    if options.sampling != "uniform" and options.sample_by not in there:
        wanted.append(("sample_by", options.sample_by))
    if wanted:
        key, number = wanted[0]
        raise InputError(f"augment.{key}={number}: candidates have no such number; there is {', '.join(there)}")


def needs_models(settings: Settings) -> bool:
    """Say whether a filter runs a model."""
    return any(_measures(name, given) for name, given in settings.augment.filters.items())


def _measures(name: str, given: Any) -> bool:
    """Whether the filter takes a measure, which others then find under its name."""
    return filter_kind(name, given) in MODELS and given.get("field") is None


def with_metrics(settings: Settings, state: PartialState) -> AugmentSettings:
    """The augmentation's settings, in which every reward filter names its metric with all options.

    A filter without one has the `reward` of the settings; a name is one of the files in `configs/reward/`.
    """

    def complete(name: str, given: Any) -> Any:
        if filter_kind(name, given) != "reward" or given.get("field") is not None:
            return given
        options = _metric(name, given, settings)
        with state.main_process_first():
            whole = reward_with_miniatures(replace(settings, reward=options))
        return {**given, "metric": whole}

    filters = {name: complete(name, given) for name, given in settings.augment.filters.items()}
    return replace(settings.augment, filters=filters)


def load_metric(options: Mapping[str, Any], *, state: PartialState, placement: str | float) -> Reward:
    """The metric that the options of a filter describe, on this process's device."""
    return load_reward(dict(options), state, placement)


def _metric(name: str, given: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The metric of a reward filter: that of the settings, options as they are, or those of a file of `reward`."""
    metric, models = given.get("metric"), settings.reward_models
    if metric is None:
        return settings.reward
    if isinstance(metric, Mapping):
        options = {str(key): value for key, value in metric.items()}
    else:
        options = file_options(metric, models) if metric in choices("reward") else {"_target_": metric}
    if missing := [key for key, value in options.items() if value == "???"]:
        raise InputError(
            f"augment.filters.{name}.metric={metric}: {missing[0]} has no value; give all options, as in "
            f"metric={{_target_: {options['_target_']}, {missing[0]}: …}}"
        )
    whole: dict[str, Any] = complete_parts(options, models)
    return whole
