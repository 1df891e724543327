"""The options of metrics as `configs/reward/` has them, with the models that the settings name."""

from collections.abc import Mapping
from typing import Any

import yaml

from rl_qg.commands.catalogue import CONFIGS, choices
from rl_qg.runtime.errors import InputError

COMBINED = ("rewards.Weighted", "rewards.Product")
PART = {"metric": None, "weight": 1.0, "clip": None, "scale": 1.0}  # what every part of a combined reward may say


def options_of(name: str, models: Mapping[str, str]) -> dict[str, Any]:
    """The options in `configs/reward/<name>.yaml`, `_target_` among them; `models` are those of `reward_models`."""
    options = yaml.safe_load((CONFIGS / "reward" / f"{name}.yaml").read_text(encoding="utf-8"))
    named = {f"${{reward_models.{key}}}": path for key, path in models.items()}
    return {key: named.get(value, value) if isinstance(value, str) else value for key, value in options.items()}


def complete_parts(reward: Any, models: Mapping[str, str]) -> Any:
    """Give each part of a combined reward the defaults of its metric's file in `configs/reward/`; what the part says
    wins.

    Raises:
        InputError: a part has a key that neither every part nor its metric's file has.
    """

    def complete_part(label: str, part: Any) -> Any:
        if not isinstance(part, Mapping):
            return part  # the metric says what is wrong with it
        name = part.get("metric") or label
        if name not in choices("reward") or name == "custom":
            return complete_parts({**PART, **part, "metric": name}, models)
        defaults: Any = {**options_of(name, models), **PART}
        target = defaults.pop("_target_")
        if unknown := sorted(map(str, part.keys() - defaults.keys())):
            raise InputError(f"settings: part {label!r} has no key {unknown[0]!r}; it has {', '.join(defaults)}")
        return complete_parts({**defaults, **part, "metric": target}, models)

    parts = reward.get("parts")
    if reward.get("_target_", reward.get("metric")) not in COMBINED or not isinstance(parts, Mapping):
        return reward
    return {**reward, "parts": {label: complete_part(label, part) for label, part in parts.items()}}
