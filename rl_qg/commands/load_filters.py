"""The filters of the settings: checked early, and completed with the options of their metrics."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from accelerate import PartialState

import rewards
from rl_qg.augmentation.candidates import RANDOM
from rl_qg.augmentation.registry import build_filters, filter_kind, import_target
from rl_qg.commands.catalogue import choices
from rl_qg.commands.compose import complete_parts, file_options
from rl_qg.commands.load_miniatures import reward_with_miniatures
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings, Settings
from rl_qg.settings.keys import MISSING

KINDS_WITH_MODELS = ("reward", "round_trip")
GENERATED = ("logprob", "candidate", "answer_start")  # the numbers in each line of `rl-qg generate`


def check_filters(settings: Settings) -> None:
    """Raise `InputError` for an unknown filter, option or metric, before any work begins."""
    build_filters(settings.augment.filters)
    for name, options in settings.augment.filters.items():
        if filter_kind(name, options) == "reward" and options.get("metric") is not None:
            target = str(_metric_options(name, options, settings).get("_target_"))
            where = f"augment.filters.{name}.metric={target}"
            if "." in target:
                import_target(where, target)
            elif target not in rewards.METRICS:
                known = ", ".join(sorted({*choices("reward"), *rewards.METRICS} - {"custom"}))
                raise InputError(f"{where}: no such metric; choose one of {known}, or give a dotted path")


def check_numbers(settings: Settings) -> None:
    """Raise `InputError` where a filter or the sample needs a number that generated candidates will not have."""
    augment, available = settings.augment, [*GENERATED, RANDOM]
    needed = []
    for built in build_filters(augment.filters):
        if _takes_measure(built.name, augment.filters[built.name]):
            available.append(built.name)
        for key in ("by", "field"):
            if (number := getattr(built, key, None)) is not None and number not in available:
                needed.append((f"filters.{built.name}.{key}", number))
    if augment.sampling != "uniform" and augment.sample_by not in available:
        needed.append(("sample_by", augment.sample_by))
    if needed:
        key, number = needed[0]
        raise InputError(f"augment.{key}={number}: candidates have no such number; there is {', '.join(available)}")


def needs_models(settings: Settings) -> bool:
    """Whether a filter runs a model."""
    return any(_takes_measure(name, options) for name, options in settings.augment.filters.items())


def with_metrics(settings: Settings, state: PartialState) -> AugmentSettings:
    """The augmentation's settings, in which every reward filter names its metric with all options.

    A filter without a metric has the `reward` of the settings; a name is one of the files in `configs/reward/`.
    """

    def complete(name: str, options: Any) -> Any:
        if filter_kind(name, options) != "reward" or options.get("field") is not None:
            return options
        metric = _metric_options(name, options, settings)
        with state.main_process_first():
            return {**options, "metric": reward_with_miniatures(replace(settings, reward=metric))}

    filters = {name: complete(name, options) for name, options in settings.augment.filters.items()}
    return replace(settings.augment, filters=filters)


def _takes_measure(name: str, options: Any) -> bool:
    """Whether the filter measures candidates with a model; later filters can use the measure by the filter's name."""
    return filter_kind(name, options) in KINDS_WITH_MODELS and options.get("field") is None


def _metric_options(name: str, options: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The options of a reward filter's metric: those of the settings, of the filter, or of a file in `reward`."""
    metric, models = options.get("metric"), settings.reward_models
    if metric is None:
        return settings.reward
    if isinstance(metric, Mapping):
        chosen = {str(key): value for key, value in metric.items()}
    else:
        chosen = file_options(metric, models) if metric in choices("reward") else {"_target_": metric}
    if missing := [key for key, value in chosen.items() if value == MISSING]:
        raise InputError(
            f"augment.filters.{name}.metric={metric}: {missing[0]} has no value; give all options, as in "
            f"metric={{_target_: {chosen['_target_']}, {missing[0]}: …}}"
        )
    completed: dict[str, Any] = complete_parts(chosen, models)
    return completed
