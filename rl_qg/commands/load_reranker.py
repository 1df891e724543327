"""The metric of `generate.rerank`, which orders the candidates of an answer; `ask.rerank` and `serve.rerank`."""

from collections.abc import Iterable
from typing import Any

from accelerate import PartialState

from rl_qg.commands.load_metrics import load_metrics, load_reward, metric_options
from rl_qg.commands.load_miniatures import options_with_miniatures
from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_ranking import reranker_of
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.generation.reranking import Reranker
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings


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

    Raises:
        InputError: not one entry as in `metrics=[…]`; the metric cannot be loaded.
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
    """The metric of an entry of `key`, which orders pairs; None without one.

    Raises:
        InputError: as for `load_reranker`.
    """
    if entry is None:
        return None
    check_pair_reward(entry, settings, key)
    (reward,) = load_metrics(entry, settings, state).values()
    return reward


def _options(entry: object, settings: Settings, key: str) -> dict[str, Any]:
    """The options of the one metric of an entry; a list may hold one."""
    if isinstance(entry, list) and len(entry) != 1:
        raise InputError(f"{key}={entry}: give one metric; reward=weighted and reward=product combine several")
    (options,) = metric_options(entry, settings.reward_models, key=key).values()
    if "score" in options:
        raise InputError(f"{key}: score= is not known here; name a metric with its options")
    return options
