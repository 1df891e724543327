"""The start of a command that trains: claim the run folder, read the data, and write the run record."""

import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from accelerate import PartialState

from rl_qg.data.passages import Passages, has_answers
from rl_qg.data.reading import raw_records, source_names
from rl_qg.data.splits import Splits, answer_spans, choosing_passages, load_splits, with_additional_spans
from rl_qg.generation.propose_answers import method, propose_answers, report_line
from rl_qg.miniatures.in_settings import answers_with_miniature, with_miniatures
from rl_qg.runtime import run_folder
from rl_qg.runtime.files import write_json
from rl_qg.runtime.processes import processes
from rl_qg.runtime.ranks import from_main
from rl_qg.scoring.metrics import load_reward
from rl_qg.scoring.reward_scorer import Reward, code_files
from rl_qg.settings import DataSettings, Settings

# The lowest of many losses, or the best BLEU-4, is lucky on the questions that chose it. So where a run keeps the
# model that validation questions like best, one half of the validation passages chooses and the other half judges it
# in `evaluation.json`.
CHOICE = "model_choice"  # the field of run.json
OTHER, SAME = "other passages", "the same passages"
log = logging.getLogger(__name__)
# The output of each late stage of the pipeline. The stage's settings may change until this file exists.
OUTPUTS = {"answers": "answers.jsonl", "augment": "augmented.json"}
# Sections of commands that no stage of a run reads: what changes there changes no run.
OF_OTHER_COMMANDS = ("score", "evaluate", "correlate", "robustness", "separate", "explain", "cluster")


def chosen_by(settings: Settings) -> str | None:
    """What chooses among the models of a run, None where the last one is kept."""
    if settings.stages == "ce":  # losses of two stages cannot be compared, so with both the last model starts SCST
        keeps_last = settings.training.stop_after is not None or settings.ce.average > 1
        return None if keeps_last else "lowest validation loss"
    return None if settings.scst.stop_on is None else f"scst.stop_on={settings.scst.stop_on}"


def with_choice(settings: Settings, splits: Splits, begun: bool, stored: Mapping[str, Any] | None) -> Splits:
    """The splits with the passages that choose the model, and with what the run's record says (`choice`): what chooses
    (`by`), and `on` which passages, `other passages` than those judged or `the same passages`.

    There are other passages if both halves have ten or more. A run that began on the same passages, as those of
    earlier versions did, stays with them.
    """
    by = chosen_by(settings)
    if by is None:
        return splits
    choosing = choosing_passages(splits.validation, settings.data.seed)
    if (begun and (stored is None or stored["on"] == SAME)) or not choosing:
        log.warning(
            "%s chooses the model on the validation passages that evaluation.json judges it on, so its numbers favour "
            "the model; 20 validation passages would be enough to divide them",
            by,
        )
        return replace(splits, choice={"by": by, "on": SAME})
    log.info("%s chooses the model on %d validation passages; evaluation.json judges the others", by, len(choosing))
    return replace(splits, choosing=choosing, choice={"by": by, "on": OTHER, "passages": len(choosing)})


def check_unlabelled(settings: Settings, state: PartialState) -> None:
    """Read the files of `data.unlabelled` completely, and load what proposes answers if one of them needs answers."""

    def reads_passages() -> bool:
        sources = source_names(settings.data.unlabelled, "data.unlabelled")
        answered = [source for source in sources if has_answers(source)]
        for source in answered:
            context = settings.data.hotpotqa_context
            deque(raw_records(source, "train", unlabelled=True, hotpotqa_context=context), maxlen=0)
        unanswered = [source for source in sources if source not in answered]
        if unanswered:
            deque(Passages(unanswered, settings.answers.passages), maxlen=0)
        return bool(unanswered)

    if from_main(state, reads_passages):
        method(answers_with_miniature(settings), state)


def with_unlabelled(settings: Settings, splits: Splits, state: PartialState) -> Splits:
    """The splits with the answers of `data.unlabelled` among the passages without questions.

    Passages without answers get proposed ones, which are written to `answers.jsonl` in the run folder; a complete
    file is used again. Questions in the files are not used. Passages of the validation data are left out, and so are
    answers that the training data have already.
    """
    sources = source_names(settings.data.unlabelled, "data.unlabelled")
    if not sources:
        return splits
    answered = from_main(state, lambda: [source for source in sources if has_answers(source)])
    files, unanswered = list(answered), [source for source in sources if source not in answered]
    if unanswered:
        output = Path(settings.output_dir) / "answers.jsonl"
        log.info("proposing answers in %s", ", ".join(unanswered))
        report = propose_answers(
            Passages(unanswered, settings.answers.passages, splits.held_out),
            output,
            settings=answers_with_miniature(settings),
            state=state,
            accept_changed_data=settings.accept_changed_data,
        )
        log.info(report_line(report))
        files.append(str(output))
    if not files:
        return splits
    known = answer_spans([*splits.gold, *splits.unlabelled])
    stream = with_additional_spans(known, files, splits.held_out, settings.data.hotpotqa_context)
    faults = stream.report.get("malformed")
    report = {**splits.report, **({"unlabelled": {"malformed": faults}} if faults else {})}
    texts: dict[str, str] = {}  # examples of one passage share its text
    added = [
        replace(example, context=texts.setdefault(example.context, example.context))
        for example in list(stream)[len(known) :]
    ]
    return replace(splits, unlabelled=[*splits.unlabelled, *added], report=report)


@dataclass(frozen=True)
class OpenRun:
    """Settings with every miniature replaced by its folder, the data of the run, and the process state."""

    settings: Settings
    splits: Splits
    state: PartialState

    @property
    def folder(self) -> Path:
        return Path(self.settings.output_dir)

    def reward(self) -> Reward:
        """A new reward on this process's device."""
        return load_reward(self.settings.reward, self.state, self.settings.training.reward_placement)

    def held_out(self) -> Reward | None:
        """A new second reward, which is measured but never optimised; None when the settings name none, or the reward
        itself.
        """
        if not self.settings.second_reward:
            if self.settings.held_out:
                log.warning("held_out is the reward itself, not measured again; give another, as held_out=bartscore")
            return None
        return load_reward(self.settings.second_reward, self.state, self.settings.training.reward_placement)


def open_run(settings: Settings, *, reader: bool = True) -> OpenRun:
    """Claim or resume the run folder of a generator, pretrain the miniatures that the settings name, and propose
    answers in the passages of `data.unlabelled` that have none. `reader`: whether the run will train readers.
    """
    folder, state = Path(settings.output_dir), processes(settings.training.use_cpu)
    unused = [section for section, output in OUTPUTS.items() if not (folder / output).exists()]
    unused += OF_OTHER_COMMANDS
    relevant = asdict(settings)
    del relevant["training"]["stop_after"]  # the run that goes on is the same one
    begun = (folder / run_folder.FILE).exists()
    stored = run_folder.read_run_record(folder).get(CHOICE)  # before the record is written anew
    code = code_files({"reward": settings.reward, "held_out": settings.held_out})

    def read(data: DataSettings) -> Splits:
        return with_choice(settings, load_splits(data), begun, stored)

    splits = claim_run(
        settings,
        relevant,
        seed=settings.seed,
        last_file=run_folder.TRAINED,
        unused=unused,
        read=read,
        extra=_data_counts,
        code=code,
    )
    training = [*splits.gold, *splits.unlabelled]
    splits = with_unlabelled(settings, splits, state)
    settings = with_miniatures(settings, training or splits.unlabelled, state, reader=reader)
    if state.is_main_process:
        write_json(folder / run_folder.FILE, {**run_folder.read_run_record(folder), **_data_counts(splits)})
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
    code: Mapping[str, str] = MappingProxyType({}),
) -> Splits:
    """Claim or resume the folder `output_dir`, read the data, and write `run.json`.

    A folder with a run of other `relevant` settings is refused; its sections in `unused` may differ. `last_file`
    exists when training is complete; before, the number of processes must stay the same. `extra`: more for the record.
    `code`: `code_files` of rewards.
    """
    folder, state = Path(settings.output_dir), processes(settings.training.use_cpu)
    begun = run_folder.check_run_folder(folder, relevant, unused)
    splits = read(settings.data)
    if begun:
        trained = (folder / last_file).exists()
        hashes = {**splits.hashes, **code}
        run_folder.check_continuation(folder, hashes, accept=settings.accept_changed_data, trained=trained)
    state.wait_for_everyone()
    if state.is_main_process:
        run_folder.claim_run_folder(folder, relevant)
        record = run_folder.run_record(
            relevant,
            command=sys.argv,
            seed=seed,
            data=splits.hashes,
            leakage=splits.leakage,
            extra={"data_report": splits.report, **extra(splits), **({run_folder.CODE: dict(code)} if code else {})},
        )
        run_folder.write_run_record(folder, record)
    return splits


def _data_counts(splits: Splits) -> dict[str, Any]:
    return {
        "data_report": splits.report,
        "examples": {
            "gold": len(splits.gold),
            "unlabelled": len(splits.unlabelled),
            "validation": len(splits.validation),
        },
        **({} if splits.choice is None else {CHOICE: dict(splits.choice)}),
    }
