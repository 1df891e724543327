"""The metrics of a list in the settings: `metrics=[bleu4,qrelscore,{metric: bertscore, layer: 5, label: bs5}]`.

An entry is a short name of `rewards.METRICS` in any spelling (`Q-BLEU1`), the dotted path of somebody else's metric,
or a mapping with `metric` or `_target_`, options, and a `label` of one's own; `score: lrm` takes a part of the result
in the place of its score. A name that has a file in `configs/reward/` begins with that file's options, so it reads
the models of `reward_models`.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from accelerate import PartialState

import rewards
from rewards.base import MetricResult
from rl_qg.commands.catalogue import choices
from rl_qg.commands.compose import file_options
from rl_qg.commands.open_run import load_reward, reward_with_miniatures
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings

_LABEL = re.compile(r"[\w.+-]+")


def metric_options(entries: Any, models: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The options of each metric under its label, in order.

    Raises:
        InputError: an empty list, an entry that names no metric, a label twice or with signs that no file may have.
    """
    if isinstance(entries, str | Mapping) and entries:
        entries = [entries]
    if not isinstance(entries, list) or not entries:
        fault = f"is {entries!r}" if entries else "has no value"
        raise InputError(f"metrics {fault}; name some, such as metrics=[bleu4,rouge_l,qrelscore]")
    found: dict[str, dict[str, Any]] = {}
    for place, entry in enumerate(entries):
        label, options = _entry(entry, f"metrics[{place}]", models)
        if not _LABEL.fullmatch(label):
            raise InputError(f"metrics[{place}]: label {label!r} would name a file: use letters, digits and . _ + -")
        if label in found:
            raise InputError(
                f"metrics[{place}]: there is a metric {label!r} already; give this one a label of its own"
            )
        found[label] = options
    return found


def load_metrics(entries: Any, settings: Settings, state: PartialState) -> dict[str, Reward]:
    """The metrics of a list, ready to score, by label."""
    placement = settings.training.reward_placement
    loaded = {}
    for label, options in metric_options(entries, settings.reward_models).items():
        part = options.pop("score", None)
        whole = reward_with_miniatures(replace(settings, reward=options))
        metric = load_reward(whole, state, placement)
        if not hasattr(metric, "signature"):
            with suppress(AttributeError):  # of an object that takes none: its scores are computed anew each time
                metric.signature = json.dumps(whole, sort_keys=True, default=str)  # type: ignore[attr-defined]
        loaded[label] = metric if part is None else PartOf(metric, str(part), label)
    return loaded


class PartOf:
    """A metric's part as a metric of its own, such as the local relevance `lrm` of QRelScore.

    Raises:
        InputError: the metric has no such part of one number a question.
    """

    def __init__(self, metric: Any, part: str, label: str) -> None:
        names = getattr(metric, "part_names", ())
        if part not in names:
            raise InputError(f"metric {label}: score={part} is no part of it; it has {', '.join(names) or 'none'}")
        self.metric, self.part, self.label = metric, part, label
        self.needs = metric.needs
        self.signature = f"{metric.signature}|part:{part}"

    def reset_cache(self) -> None:
        """Drop what the metric remembers of earlier calls."""
        self.metric.reset_cache()

    def score(self, *columns: Any, **named: Any) -> MetricResult:
        """The part in the place of the score."""
        found = self.metric.score(*columns, **named)
        values = found.parts[self.part]
        if not all(isinstance(value, float | int) for value in values):
            raise InputError(f"metric {self.label}: part {self.part!r} is no single number a question")
        return MetricResult(list(values), {})


def _entry(entry: Any, where: str, models: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        entry = {"metric": entry}
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is {entry!r}; give a name, or a mapping such as {{metric: bleu4, label: mine}}")
    options = {str(key): value for key, value in entry.items()}
    name, label = options.pop("metric", None), options.pop("label", None)
    target = options.pop("_target_", None)
    if (name is None) == (target is None):
        raise InputError(f"{where}: give either metric (a short name) or _target_ (a dotted path)")
    if name is None:
        return str(label or str(target).rpartition(".")[2]), {"_target_": target, **options}
    known = rewards.known_name(str(name))
    if known not in rewards.METRICS and "." not in known:
        raise InputError(f"{where}: unknown metric {name!r}; known are {', '.join(rewards.METRICS)}")
    return str(label or str(name).rpartition(".")[2]), {**_defaults(known, models), **options}


def _defaults(name: str, models: Mapping[str, str]) -> dict[str, Any]:
    """What the metric's own file says, with the models that the settings name; its bare name where it has no file."""
    if name not in rewards.METRICS or name not in choices("reward"):
        return {"_target_": name}
    return file_options(name, models)
