"""What a command does before it starts: claim the run folder, split the data, build miniatures, load the reward, note
the run.
"""

import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from accelerate import PartialState

import rewards
from rl_qg.data.examples import QAExample
from rl_qg.data.splits import WORLD, Splits, load_splits
from rl_qg.data.synthetic_corpus import synthetic_examples
from rl_qg.evaluation.reward_placement import loading, place
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.miniatures.cache import ensure_miniatures, is_miniature
from rl_qg.miniatures.pretraining import PretrainingPassage
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_whole, processes
from rl_qg.runtime.run_folder import TRAINED, check_run_folder, claim_run_folder
from rl_qg.runtime.run_record import check_continuation, run_record, write_run_record
from rl_qg.settings import DataSettings, QAModelSettings, Settings

log = logging.getLogger(__name__)
# What shows that late stages of the pipeline have used their settings: until then these may change.
OUTPUTS = {"answers": "answers.jsonl", "augment": "augmented.json"}


@dataclass(frozen=True)
class Run:
    """Settings with every miniature replaced by its folder, the data of the run, and the process state."""

    settings: Settings
    splits: Splits
    state: PartialState

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.settings.output_dir)

    def reward(self) -> Reward:
        """A fresh reward on this process's device."""
        return load_reward(self.settings.reward, self.state, self.settings.training.reward_placement)

    def held_out(self) -> Reward | None:
        """A fresh second reward, which is measured but never optimised; None when the settings name none."""
        if not self.settings.held_out:
            return None
        return load_reward(self.settings.held_out, self.state, self.settings.training.reward_placement)


def open_run(settings: Settings) -> Run:
    """Claim or resume the run folder, load the data, build the miniatures that the settings name, and write
    `run.json`.
    """
    state = processes(settings.training.use_cpu)
    folder = Path(settings.output_dir)
    unused = [section for section, output in OUTPUTS.items() if not (folder / output).exists()]
    begun = check_run_folder(folder, asdict(settings), unused)
    splits = load_splits(settings.data)
    if begun:
        trained = (folder / TRAINED).exists()
        check_continuation(folder, splits.hashes, accept=settings.accept_changed_data, trained=trained)
    state.wait_for_everyone()
    if state.is_main_process:
        claim_run_folder(folder, asdict(settings))
        record = run_record(
            asdict(settings),
            command=sys.argv,
            seed=settings.seed,
            data=splits.hashes,
            leakage=splits.leakage,
            extra={
                "data_report": splits.report,
                "examples": {
                    "gold": len(splits.gold),
                    "unlabelled": len(splits.unlabelled),
                    "validation": len(splits.validation),
                },
            },
        )
        write_run_record(folder, record)
    return Run(with_miniatures(settings, [*splits.gold, *splits.unlabelled], state), splits, state)


def with_miniatures(settings: Settings, examples: Sequence[QAExample], state: PartialState) -> Settings:
    """Replace `miniature:…` by folders in model, both rewards and reader; the missing ones are pretrained by the main
    process.
    """
    paths = [settings.model.path, settings.qa.model.path, *_texts(settings.reward), *_texts(settings.held_out)]
    wanted = [path for path in paths if is_miniature(path)]
    if not wanted:
        return settings
    with state.main_process_first():
        folders = ensure_miniatures(wanted, pretraining_text(settings.data, examples), settings.miniature)
    found = {path: str(folder) for path, folder in folders.items()}
    return replace(
        settings,
        model=replace(settings.model, path=found.get(settings.model.path, settings.model.path)),
        qa=replace(settings.qa, model=QAModelSettings(found.get(settings.qa.model.path, settings.qa.model.path))),
        reward=_replaced(settings.reward, found),
        held_out=_replaced(settings.held_out, found),
    )


def reward_with_miniatures(settings: Settings) -> dict[str, Any]:
    """The options of the reward with the miniatures that a run on the same data has; for a single process."""
    wanted = [path for path in _texts(settings.reward) if is_miniature(path)]
    if not wanted:
        return settings.reward
    examples: list[QAExample] = []
    if settings.data.train != WORLD:  # whose miniatures read passages of their own
        splits = load_splits(settings.data)
        examples = [*splits.gold, *splits.unlabelled]
    folders = ensure_miniatures(wanted, pretraining_text(settings.data, examples), settings.miniature)
    return _replaced(settings.reward, {path: str(folder) for path, folder in folders.items()})


def _texts(options: Any) -> list[str]:
    """Every text value of nested options, where a model's name may stand."""
    if isinstance(options, dict):
        return [text for value in options.values() for text in _texts(value)]
    return [options] if isinstance(options, str) else []


def _replaced(options: Any, found: Mapping[str, str]) -> Any:
    """The same options with the texts in `found` replaced."""
    if isinstance(options, dict):
        return {key: _replaced(value, found) for key, value in options.items()}
    return found.get(options, options) if isinstance(options, str) else options


def one_miniature(path: str, examples: Iterable[QAExample], settings: Settings) -> str:
    """The folder of one miniature, or `path` itself when it names none."""
    if not is_miniature(path):
        return path
    return str(ensure_miniatures([path], pretraining_text(settings.data, examples), settings.miniature)[path])


def pretraining_text(data: DataSettings, examples: Iterable[QAExample]) -> list[PretrainingPassage]:
    """What a miniature learns from: passages of the run's training data, or for the embedded corpus passages of their
    own.

    A metric model that has read the very passages it is to judge finds nothing surprising in them, so the reward says
    little there (measured: mean QRelScore 0.009 on read passages, 0.030 on fresh ones). The embedded corpus has no
    end, so there it is avoided, as it is with models pretrained on other text. One passage in four comes with its
    questions.
    """
    if data.train != WORLD:
        return passages_of(examples)
    sizes = data.world
    fresh = passages_of(list(synthetic_examples(5 * sizes.train_passages, seed=sizes.seed, prefix="pretraining")))
    return [passage if number % 4 == 0 else replace(passage, questions=()) for number, passage in enumerate(fresh)]


def passages_of(examples: Iterable[QAExample]) -> list[PretrainingPassage]:
    """Group neighbouring examples by passage; unlabelled ones bring no questions."""
    return [
        PretrainingPassage(context, tuple(example.question for example in group if example.question))
        for context, group in groupby(examples, key=lambda example: example.context)
    ]


def load_reward(options: dict[str, object], state: PartialState, placement: str | float = "device") -> Reward:
    """The metric that `_target_` names, built with the other options, its models where `placement` says.

    Raises:
        InputError: it cannot be found, or does not take these options.
    """
    arguments = {key: value for key, value in options.items() if key != "_target_"}
    target = str(options.get("_target_", ""))
    load_whole()
    try:
        with loading(placement, state.device):
            metric: Reward = rewards.load(target, **arguments)
    except TypeError as error:
        raise InputError(
            f"reward {target}: {error}; docs/explanation/metrics.md names the options of each metric"
        ) from None
    place(metric, placement, state.device)
    return metric
