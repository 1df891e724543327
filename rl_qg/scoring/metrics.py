"""The metrics of the settings: the reward, the metric that orders candidates, and lists such as
`metrics=[bleu4,qrelscore,{metric: bertscore, layer: 5, label: bs5}]`.

An entry of a list is a short name of `rewards.METRICS` in any spelling (`Q-BLEU1`) or of a file in `configs/reward/`,
the dotted path of a custom metric, or a mapping with `metric` or `_target_`, options, and a `label` that you choose;
`score: lrm` takes a part of the result instead of its score. A name that has a file has the defaults of that file, so
it reads the models of `reward_models`.
"""

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from typing import TYPE_CHECKING, Any

import rewards
from rewards.base import MetricResult
from rewards.contract import check_row_by_row
from rewards.errors import UnreachableModel
from rewards.loading import SET_REWARDS, has_models, option_fault
from rewards.overlap.base import OverlapMetric
from rewards.overlap.meteor import Meteor
from rewards.words import tokenizer_for
from rl_qg.data.examples import QAExample
from rl_qg.miniatures.in_settings import in_folders, reward_with_miniatures
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.ranks import OneProcess, Ranks
from rl_qg.scoring.reward_scorer import Reward, RewardScorer, direction_of, signature_of
from rl_qg.settings import REWARD_MODELS, Settings, TrainingSettings
from rl_qg.settings.yaml_files import choices, complete_parts, reward_options
from rl_qg.text.languages import OTHER

if TYPE_CHECKING:
    from rl_qg.generation.generate import Reranker

_LABEL = re.compile(r"[\w.+-]+")


def processes_for(metrics: Iterable[Mapping[str, Any]], training: TrainingSettings) -> Ranks:
    """The processes of a command that computes these rewards. A single one that counts words needs no PyTorch."""
    by_models = any(has_models(str(options.get("_target_", ""))) for options in metrics)
    if os.environ.get("WORLD_SIZE", "1") == "1" and not by_models and isinstance(training.reward_placement, str):
        return OneProcess()
    from rl_qg.runtime.processes import processes

    return processes(training.use_cpu)


def load_reward(options: Mapping[str, Any], state: Ranks, placement: str | float = "device") -> Reward:
    """The metric that `_target_` names, built with the other options, its models where `placement` says."""
    arguments = {key: value for key, value in options.items() if key != "_target_"}
    target = str(options.get("_target_", ""))
    where: Any = nullcontext()
    if state.device is not None:
        from rl_qg.scoring.placement import loading_where, place_reward

        where = loading_where(placement, state.device)
    try:
        with where:
            metric: Reward = rewards.load(target, **arguments)
    except UnreachableModel as error:
        model = next((name for name, usual in REWARD_MODELS.items() if repr(usual) in str(error)), "bert")
        raise InputError(
            f"reward {target}: {error} (such as reward_models.{model}=FOLDER), or add preset=quickstart, which needs "
            "no Hub"
        ) from None
    except TypeError as error:
        page = "docs/explanation/metrics.md names the options of each metric"
        raise InputError(f"reward {target}: {option_fault(error)}; {page}") from None
    if state.device is not None:
        place_reward(metric, placement, state.device)
    return metric


def check_reward_options(settings: Settings) -> None:
    """Refuse, before data are read, what cannot be a reward: a metric that scores only whole sets, or wrong options.
    Metrics of words are built for it; others have models, which come later.
    """
    for options in (settings.reward, settings.held_out):
        if options and settings.stages != "ce" and not has_models(str(options.get("_target_", ""))):
            check_row_by_row(load_reward(options, OneProcess()))


def load_metrics(entries: Any, settings: Settings, state: Ranks, *, language: str = "en") -> dict[str, Reward]:
    placement = settings.training.reward_placement
    loaded = {}
    for label, options in metric_options(entries, settings.reward_models).items():
        part = options.pop("score", None)
        complete = reward_with_miniatures(replace(settings, reward=options))
        metric = load_reward(complete, state, placement)
        if of_language := _options_of_language(metric, complete, language):
            complete = {**complete, **of_language}
            metric = load_reward(complete, state, placement)
        loaded[label] = metric if part is None else PartOf(metric, str(part), label)
    return loaded


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


def _listed(entries: Any) -> Any:
    return [entries] if isinstance(entries, str | Mapping) and entries else entries


def metric_options(entries: Any, models: Mapping[str, str], *, key: str = "metrics") -> dict[str, dict[str, Any]]:
    """The options of each metric by its label, in order; `key` is the setting that errors name."""
    entries = _listed(entries)
    if not isinstance(entries, list) or not entries:
        fault = f"is {entries!r}" if entries else "has no value"
        such = ", such as metrics=[bleu4,rouge_l,qrelscore]" if key == "metrics" else " in a list"
        raise InputError(f"{key} {fault}; name some{such}")
    by_label: dict[str, dict[str, Any]] = {}
    for index, entry in enumerate(entries):
        label, options = _entry(entry, f"{key}[{index}]", models)
        if not _LABEL.fullmatch(label):
            raise InputError(f"{key}[{index}]: label {label!r} would name a file: use letters, digits and . _ + -")
        if label in by_label:
            raise InputError(f"{key}[{index}]: there is a metric {label!r} already; give this one another label")
        by_label[label] = options
    return by_label


def _entry(entry: Any, where: str, models: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    if isinstance(entry, str):
        entry = {"metric": entry}
    if not isinstance(entry, Mapping):
        raise InputError(f"{where} is {entry!r}; give a name, or a mapping such as {{metric: bleu4, label: mine}}")
    options = {str(key): value for key, value in entry.items()}
    name, label, target = (options.pop(key, None) for key in ("metric", "label", "_target_"))
    if (name is None) == (target is None):
        raise InputError(f"{where}: give either metric (a short name) or _target_ (a dotted path)")
    label = str(label or str(name or target).rpartition(".")[2])
    if name is None:
        return label, complete_parts({"_target_": target, **options}, models)
    known = rewards.known_name(str(name))
    if known in SET_REWARDS:
        raise InputError(f"{where}: {known} scores sets of questions, not single ones; it is a reward of rl-qg train")
    of_files = [file for file in choices("reward") if file not in {"custom", *SET_REWARDS}]
    if known in of_files:
        return label, complete_parts(reward_options(known, options, models, where), models)
    if known not in rewards.METRICS and "." not in known:
        names = dict.fromkeys([*rewards.METRICS, *of_files])
        raise InputError(f"{where}: unknown metric {name!r}; known are {', '.join(names)}")
    return label, complete_parts({"_target_": known, **options}, models)


def published_options(entries: Any, published: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Any:
    """A list of metrics in which those of `published` (name -> name and options) are as they were published, under
    the label that they have anyway and with their own options, where these are given.
    """
    entries = _listed(entries)
    if not isinstance(entries, list):
        return entries
    changed = []
    for entry in entries:
        options = dict(entry) if isinstance(entry, Mapping) else {"metric": entry}
        name = options.get("metric")
        if (known := rewards.known_name(str(name))) in published:
            target, implied = published[known]
            entry = {"label": str(name), **implied, **options, "metric": target}
        changed.append(entry)
    return changed


class PartOf:
    """A part of a metric, used as a metric, such as the local relevance `lrm` of QRelScore."""

    def __init__(self, metric: Any, part: str, label: str) -> None:
        names = getattr(metric, "part_names", ())
        if part not in names:
            raise InputError(f"metric {label}: it has no part {part!r}; score may be {', '.join(names) or 'left out'}")
        self.metric, self.metrics, self.part, self.label = metric, [metric], part, label
        names = ("name", "needs", "reset_cache", "whole_set")
        known = {name: getattr(metric, name) for name in names if hasattr(metric, name)}
        vars(self).update(known, higher_is_better=part not in getattr(metric, "lower_parts", ()))
        self.signature = f"{signature_of(metric)}|part:{part}"

    def score(self, *columns: Any, **named: Any) -> MetricResult:
        values = self.metric.score(*columns, **named).parts[self.part]
        if not all(isinstance(value, float | int) for value in values):
            raise InputError(f"metric {self.label}: part {self.part!r} is not a single number for each question")
        return MetricResult(list(values), {})


# The metric of `generate.rerank`, which orders the candidates of an answer, and of `ask.rerank` and `serve.rerank`,
# which order pairs.


def rerank_options(entry: object, settings: Settings, key: str) -> dict[str, Any]:
    """The options of the single metric of a key; empty without one. Raises `InputError` before anything is loaded."""
    if entry is None:
        return {}
    if isinstance(entry, list) and len(entry) != 1:
        raise InputError(f"{key}={entry}: give one metric; reward=weighted and reward=product combine several")
    (options,) = metric_options(entry, settings.reward_models, key=key).values()
    if "score" in options:
        raise InputError(f"{key}: score= is not known here; name a metric with its options")
    return options


def load_reranker(settings: Settings, examples: Iterable[QAExample], state: Ranks) -> "Reranker | None":
    """The metric that orders candidates, on this process's device; None if their probability does. All processes call
    this; missing miniatures are pretrained on the passages of `examples`.
    """
    options = rerank_options(settings.generate.rerank, settings, "generate.rerank")
    if not options:
        return None
    with state.main_process_first():
        complete = in_folders(options, examples, settings)
    return reranker_of(load_reward(complete, state, settings.training.reward_placement))


def load_pair_reward(entry: object, settings: Settings, state: Ranks, key: str) -> Reward | None:
    """The metric of an entry of `key`, which orders pairs; None without one."""
    if not rerank_options(entry, settings, key):
        return None
    (reward,) = load_metrics(entry, settings, state).values()
    return reward


def reranker_of(reward: Reward) -> "Reranker":
    from rl_qg.generation.generate import Reranker  # a generator, which a reward alone does without

    scorer = RewardScorer(reward)
    return Reranker(
        signature_of(reward),
        lambda examples, questions: scorer(examples, questions).scores,
        scorer.reset_cache,
        sign=direction_of(reward),
        needs_references="references" in getattr(reward, "needs", ()),
    )
