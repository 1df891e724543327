"""The metric of `generate.rerank`, which orders the candidates of an answer."""

from collections.abc import Iterable

from accelerate import PartialState

from rl_qg.commands.load_metrics import load_reward, metric_options
from rl_qg.commands.load_miniatures import options_with_miniatures
from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_ranking import reranker_of
from rl_qg.generation.reranking import Reranker
from rl_qg.runtime.errors import InputError
from rl_qg.settings import Settings


def check_reranker(settings: Settings) -> None:
    """Raise `InputError` for an entry that `load_reranker` would refuse, before anything is loaded."""
    if settings.generate.rerank is not None:
        metric_options(_one(settings), settings.reward_models, key="generate.rerank")


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
    (options,) = metric_options(_one(settings), settings.reward_models, key="generate.rerank").values()
    if "score" in options:
        raise InputError("generate.rerank: score= is not known here; name a metric with its options")
    with state.main_process_first():
        complete = options_with_miniatures(options, examples, settings)
    return reranker_of(load_reward(complete, state, settings.training.reward_placement))


def _one(settings: Settings) -> object:
    """The entry; a list may hold one."""
    entry = settings.generate.rerank
    if isinstance(entry, list) and len(entry) != 1:
        raise InputError(
            f"generate.rerank={entry}: give one metric; reward=weighted and reward=product combine several"
        )
    return entry
