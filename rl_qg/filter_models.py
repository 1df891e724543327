"""What filters need from the door: the metrics that the settings mean, written out, and loaded when they are used."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml
from accelerate import PartialState

from rl_qg.command_list import CONFIGS, choices
from rl_qg.filter_table import build_filters, kind_of
from rl_qg.judge import Reward
from rl_qg.preparation import load_reward, reward_with_miniatures
from rl_qg.settings import AugmentSettings, Settings

MODELS = ("reward", "round_trip")


def check_filters(settings: Settings) -> None:
    """Raise `InputError` for a filter or option that there is not, before there is any work to lose."""
    build_filters(settings.augment.filters)


def needs_models(settings: Settings) -> bool:
    """Say whether a filter runs a model."""
    return any(
        kind_of(name, given) in MODELS and given.get("field") is None
        for name, given in settings.augment.filters.items()
    )


def with_metrics(settings: Settings, state: PartialState) -> AugmentSettings:
    """The augmentation's settings, in which every reward filter names its metric with all options.

    A filter without one has the `reward` of the settings; a name is one of the files in `configs/reward/`.
    """

    def complete(name: str, given: Any) -> Any:
        if kind_of(name, given) != "reward" or given.get("field") is not None:
            return given
        metric = given.get("metric")
        options = settings.reward if metric is None else _named(metric, settings)
        with state.main_process_first():
            whole = reward_with_miniatures(replace(settings, reward=options))
        return {**given, "metric": whole}

    filters = {name: complete(name, given) for name, given in settings.augment.filters.items()}
    return replace(settings.augment, filters=filters)


def load_metric(options: Mapping[str, Any], *, state: PartialState, placement: str | float) -> Reward:
    """The metric that the options of a filter describe, on this process's device."""
    return load_reward(dict(options), state, placement)


def _named(metric: Any, settings: Settings) -> dict[str, Any]:
    """The options of a metric: as they are, or those of its file with the models that the settings name."""
    if isinstance(metric, Mapping):
        return {str(key): value for key, value in metric.items()}
    if metric not in choices("reward"):
        return {"_target_": metric}
    options = yaml.safe_load((CONFIGS / "reward" / f"{metric}.yaml").read_text(encoding="utf-8"))
    models = {f"${{reward_models.{name}}}": path for name, path in settings.reward_models.items()}
    return {key: models.get(value, value) if isinstance(value, str) else value for key, value in options.items()}
