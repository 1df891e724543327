"""The start of a command that trains: claim the run folder, read the data, and write the run record."""

import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.commands.load_metrics import load_reward
from rl_qg.commands.load_miniatures import with_miniatures
from rl_qg.commands.model_choice import CHOICE, stored_choice, with_choice
from rl_qg.commands.unlabelled_passages import with_unlabelled
from rl_qg.data.splits import Splits, load_splits
from rl_qg.evaluation.reward_scorer import Reward
from rl_qg.runtime.processes import processes
from rl_qg.runtime.run_folder import TRAINED, check_run_folder, claim_run_folder
from rl_qg.runtime.run_record import check_continuation, run_record, update_run_record, write_run_record
from rl_qg.settings import DataSettings, Settings

# The output of each late stage of the pipeline. The stage's settings may change until this file exists.
OUTPUTS = {"answers": "answers.jsonl", "augment": "augmented.json"}


@dataclass(frozen=True)
class OpenRun:
    """Settings with every miniature replaced by its folder, the data of the run, and the process state."""

    settings: Settings
    splits: Splits
    state: PartialState

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.settings.output_dir)

    def reward(self) -> Reward:
        """A new reward on this process's device."""
        return load_reward(self.settings.reward, self.state, self.settings.training.reward_placement)

    def held_out(self) -> Reward | None:
        """A new second reward, which is measured but never optimised; None when the settings name none."""
        if not self.settings.held_out:
            return None
        return load_reward(self.settings.held_out, self.state, self.settings.training.reward_placement)


def open_run(settings: Settings, *, reader: bool = True) -> OpenRun:
    """Claim or resume the run folder of a generator, pretrain the miniatures that the settings name, and propose
    answers in the passages of `data.unlabelled` that have none. `reader`: whether the run will train readers.
    """
    folder, state = Path(settings.output_dir), processes(settings.training.use_cpu)
    unused = [section for section, output in OUTPUTS.items() if not (folder / output).exists()]
    relevant = asdict(settings)
    del relevant["training"]["stop_after"]  # the run that goes on is the same one
    begun, stored = stored_choice(folder)  # before the record is written anew

    def read(data: DataSettings) -> Splits:
        return with_choice(settings, load_splits(data), begun, stored)

    splits = claim_run(
        settings, relevant, seed=settings.seed, last_file=TRAINED, unused=unused, read=read, extra=_data_counts
    )
    training = [*splits.gold, *splits.unlabelled]
    splits = with_unlabelled(settings, splits, state)
    settings = with_miniatures(settings, training or splits.unlabelled, state, reader=reader)
    if state.is_main_process:
        update_run_record(folder, _data_counts(splits))
    return OpenRun(settings, splits, state)


def claim_run(
    settings: Settings,
    relevant: Mapping[str, Any],
    *,
    seed: int,
    last_file: str,
    unused: Collection[str] = (),
    read: Callable[[DataSettings], Splits] = load_splits,
    extra: Callable[[Splits], Mapping[str, Any]] = lambda splits: {},
) -> Splits:
    """Claim or resume the folder `output_dir`, read the data, and write `run.json`.

    Args:
        settings: those of the command.
        relevant: the settings that the folder depends on; a folder with a run of other settings is refused.
        seed: the seed in the run record.
        last_file: the file that exists when training is complete; before, the number of processes must stay the same.
        unused: sections of `relevant` that may differ.
        read: reads the data.
        extra: further fields of the run record.

    Raises:
        InputError: the folder holds something else, its data have changed, or the data cannot be read.
    """
    folder, state = Path(settings.output_dir), processes(settings.training.use_cpu)
    begun = check_run_folder(folder, relevant, unused)
    splits = read(settings.data)
    if begun:
        trained = (folder / last_file).exists()
        check_continuation(folder, splits.hashes, accept=settings.accept_changed_data, trained=trained)
    state.wait_for_everyone()
    if state.is_main_process:
        claim_run_folder(folder, relevant)
        record = run_record(
            relevant,
            command=sys.argv,
            seed=seed,
            data=splits.hashes,
            leakage=splits.leakage,
            extra=extra(splits),
        )
        write_run_record(folder, record)
    return splits


def _data_counts(splits: Splits) -> dict[str, Any]:
    """Fields of the run record that describe the data."""
    return {
        "data_report": splits.report,
        "examples": {
            "gold": len(splits.gold),
            "unlabelled": len(splits.unlabelled),
            "validation": len(splits.validation),
        },
        **({} if splits.choice is None else {CHOICE: dict(splits.choice)}),
    }
