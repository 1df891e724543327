"""The metric of `generate.rerank`, which orders the candidates of an answer; `ask.rerank` and `serve.rerank`."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from inspect import signature
from typing import Any

from accelerate import PartialState

import rewards
from rewards.base import MetricResult
from rewards.contract import check_row_by_row
from rewards.errors import UnreachableModel
from rewards.loading import SET_REWARDS, has_models
from rewards.overlap.base import OverlapMetric
from rewards.overlap.meteor import Meteor
from rewards.words import tokenizer_for
from rl_qg.augmentation.augment import build_filters, filter_kind, import_target
from rl_qg.augmentation.candidates import RANDOM
from rl_qg.commands.catalogue import choices
from rl_qg.commands.compose import complete_parts, file_options
from rl_qg.commands.miniatures import options_with_miniatures, reward_with_miniatures
from rl_qg.data.examples import QAExample
from rl_qg.generation.generate import Reranker
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_unsharded, processes
from rl_qg.scoring.placement import loading_where, place_reward
from rl_qg.scoring.reward_scorer import Reward, reranker_of
from rl_qg.settings import AugmentSettings, Settings
from rl_qg.settings.keys import MISSING
from rl_qg.text.languages import OTHER

# The metrics of the settings: the reward, and lists such as `metrics=[bleu4,qrelscore,{metric: bertscore, layer: 5,
# label: bs5}]`.
#
# An entry of a list is a short name of `rewards.METRICS` in any spelling (`Q-BLEU1`), the dotted path of a custom
# metric, or a mapping with `metric` or `_target_`, options, and a `label` chosen by the user; `score: lrm` takes a
# part of the result instead of its score. A name that has a file in `configs/reward/` has the defaults of that file,
# so it reads the models of `reward_models`.


_LABEL = re.compile(r"[\w.+-]+")


def load_reward(options: Mapping[str, Any], state: PartialState, placement: str | float = "device") -> Reward:
    """The metric that `_target_` names, built with the other options, its models where `placement` says."""
    arguments = {key: value for key, value in options.items() if key != "_target_"}
    target = str(options.get("_target_", ""))
    load_unsharded()
    try:
        with loading_where(placement, state.device):
            metric: Reward = rewards.load(target, **arguments)
    except UnreachableModel as error:
        raise InputError(
            f"{error}; offline, name a local folder (such as reward_models.bert=FOLDER), or add preset=quickstart, "
            "which needs no Hub"
        ) from None
    except TypeError as error:
        raise InputError(
            f"reward {target}: {error}; docs/explanation/metrics.md names the options of each metric"
        ) from None
    place_reward(metric, placement, state.device)
    return metric


def _options_of_language(metric: Any, options: Mapping[str, Any], language: str) -> dict[str, Any]:
    """Options for a metric of words that suit a language, where the user has not chosen them: how words are split and
    put in lower case, and no English stems and synonyms.
    """
    if not isinstance(metric, OverlapMetric) or language in ("en", OTHER):
        return {}
    found: dict[str, Any] = {}
    if "tokenize" in options or "tokenize" not in signature(type(metric)).parameters:
        return found
    if (tokenize := tokenizer_for(metric.tokenize, language)) != metric.tokenize:
        found["tokenize"] = tokenize
    if isinstance(metric, Meteor) and "stem" not in options:
        found |= {"stem": False, "synonyms": "none"}
    return found


def check_reward_options(settings: Settings) -> None:
    """Refuse, before data are read, what cannot be a reward: a metric that scores only whole sets, or wrong options.

    Metrics that count n-grams are built for it; others have models, which come later.

    Raises:
        InputError: as of `load_reward`.
        MetricInputError: scores depend on the other rows, or an option has a wrong value.
    """
    for options in (settings.reward, settings.held_out):
        if options and settings.stages != "ce" and not has_models(str(options.get("_target_", ""))):
            check_row_by_row(load_reward(options, processes(settings.training.use_cpu)))


def load_metrics(entries: Any, settings: Settings, state: PartialState, *, language: str = "en") -> dict[str, Reward]:
    """The metrics of a list, ready to score questions in a language, by label."""
    placement = settings.training.reward_placement
    loaded = {}
    for label, options in metric_options(entries, settings.reward_models).items():
        part = options.pop("score", None)
        complete = reward_with_miniatures(replace(settings, reward=options))
        metric = load_reward(complete, state, placement)
        if of_language := _options_of_language(metric, complete, language):
            complete = {**complete, **of_language}
            metric = load_reward(complete, state, placement)
        if not hasattr(metric, "signature"):
            with suppress(AttributeError):  # of an object without attributes: its scores are computed anew each time
                metric.signature = json.dumps(complete, sort_keys=True, default=str)  # type: ignore[attr-defined]
        loaded[label] = metric if part is None else PartOf(metric, str(part), label)
    return loaded


def metric_options(entries: Any, models: Mapping[str, str], *, key: str = "metrics") -> dict[str, dict[str, Any]]:
    """The options of each metric by its label, in order; `key` is the setting that errors name."""
    if isinstance(entries, str | Mapping) and entries:
        entries = [entries]
    if not isinstance(entries, list) or not entries:
        fault = f"is {entries!r}" if entries else "has no value"
        raise InputError(f"{key} {fault}; name some, such as metrics=[bleu4,rouge_l,qrelscore]")
    by_label: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(entries):
        label, options = _entry(entry, f"{key}[{index}]", models)
        if not _LABEL.fullmatch(label):
            raise InputError(f"{key}[{index}]: label {label!r} would name a file: use letters, digits and . _ + -")
        if label in by_label:
            raise InputError(f"{key}[{index}]: there is a metric {label!r} already; give this one another label")
        by_label[label] = options
    return by_label


def published_options(entries: Any, published: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Any:
    """A list of metrics in which those of `published` (name -> name and options) are as they were published, under
    the label that they have anyway and with their own options, where these are given.
    """
    if isinstance(entries, str | Mapping) and entries:
        entries = [entries]
    if not isinstance(entries, list):
        return entries
    changed = []
    for entry in entries:
        options = dict(entry) if isinstance(entry, Mapping) else {"metric": entry}
        name = options.get("metric")
        if (known := rewards.known_name(str(name))) in published:
            target, implied = published[known]
            options = {"label": str(name), **implied, **options, "metric": target}
        changed.append(options if isinstance(entry, Mapping) or known in published else entry)
    return changed


class PartOf:
    """A part of a metric, used as a metric, such as the local relevance `lrm` of QRelScore."""

    def __init__(self, metric: Any, part: str, label: str) -> None:
        names = getattr(metric, "part_names", ())
        if part not in names:
            raise InputError(f"metric {label}: it has no part {part!r}; score may be {', '.join(names) or 'left out'}")
        self.metric, self.part, self.label = metric, part, label
        self.needs = metric.needs
        self.signature = f"{metric.signature}|part:{part}"

    def reset_cache(self) -> None:
        self.metric.reset_cache()

    def score(self, *columns: Any, **named: Any) -> MetricResult:
        values = self.metric.score(*columns, **named).parts[self.part]
        if not all(isinstance(value, float | int) for value in values):
            raise InputError(f"metric {self.label}: part {self.part!r} is not a single number for each question")
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
    if known in SET_REWARDS:
        raise InputError(f"{where}: {known} scores sets of questions, not single ones; it is a reward of rl-qg train")
    if known not in rewards.METRICS and "." not in known:
        raise InputError(f"{where}: unknown metric {name!r}; known are {', '.join(rewards.METRICS)}")
    has_file = known in rewards.METRICS and known in choices("reward")
    defaults = file_options(known, models) if has_file else {"_target_": known}
    return str(label or str(name).rpartition(".")[2]), {**defaults, **options}


# The filters of the settings: checked early, and completed with the options of their metrics.


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


def check_reranker(settings: Settings) -> None:
    """Raise `InputError` for an entry that `load_reranker` would refuse, before anything is loaded."""
    if settings.generate.rerank is not None:
        _options(settings.generate.rerank, settings, "generate.rerank")


def load_reranker(settings: Settings, examples: Iterable[QAExample], state: PartialState) -> Reranker | None:
    """The metric that orders candidates, on this process's device; None if their probability does.

    Args:
        settings: those of the command.
        examples: passages, on which missing miniatures are pretrained.
        state: the processes; all of them call this.
    """
    if settings.generate.rerank is None:
        return None
    options = _options(settings.generate.rerank, settings, "generate.rerank")
    with state.main_process_first():
        complete = options_with_miniatures(options, examples, settings)
    return reranker_of(load_reward(complete, state, settings.training.reward_placement))


def check_pair_reward(entry: object, settings: Settings, key: str) -> None:
    """Raise `InputError` for an entry of `key` that `load_pair_reward` would refuse, before anything is loaded."""
    if entry is not None:
        _options(entry, settings, key)


def load_pair_reward(entry: object, settings: Settings, state: PartialState, key: str) -> Reward | None:
    """The metric of an entry of `key`, which orders pairs; None without one."""
    if entry is None:
        return None
    check_pair_reward(entry, settings, key)
    (reward,) = load_metrics(entry, settings, state).values()
    return reward


def _options(entry: object, settings: Settings, key: str) -> dict[str, Any]:
    if isinstance(entry, list) and len(entry) != 1:
        raise InputError(f"{key}={entry}: give one metric; reward=weighted and reward=product combine several")
    (options,) = metric_options(entry, settings.reward_models, key=key).values()
    if "score" in options:
        raise InputError(f"{key}: score= is not known here; name a metric with its options")
    return options
