"""Learning from a reward without reinforcement: cross-entropy on the best of n sampled questions.

    rl-qg train algorithm=best_of_n reward=qrelscore data.train=train.json data.validation=dev.json

The cross-entropy stage is that of `algorithm=scst`, update by update. Then its model samples `scst.num_samples`
questions (4 unless set) for every answer of the training data, with and without human questions; the best by the
reward are in `picks.jsonl`. A second stage of cross-entropy, `scst.epochs` passes over the human questions and the
picks, gives `scst/`. Sources: RAFT (Dong et al. 2023, arXiv:2304.06767), whose loop of sampling, ranking and
fine-tuning this does once; STaR (Zelikman et al. 2022, arXiv:2203.14465), which keeps what a check accepts.

If the command was killed, the same command continues: `picks.jsonl` after its last whole batch, each stage from its
last checkpoint (those of the second stage are in `checkpoints/scst/`).
"""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import TrainerControl, TrainerState, set_seed

from rl_qg.data.examples import QAExample
from rl_qg.data.splits import Splits, answer_spans
from rl_qg.generation.loading import load_seq2seq
from rl_qg.generation.prompts import PROMPT_FILE, add_highlight, default_prefix
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json_lines, read_record, write_json
from rl_qg.runtime.processes import processes
from rl_qg.runtime.ranks import from_main
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.settings import Settings
from rl_qg.training import stages
from rl_qg.training.config import prompt_of, rate_factor
from rl_qg.training.row_schedule import RowSchedule, exact_share
from rl_qg.training.run_files import LogFiles, RunFiles, save_model_folder

ALGORITHM = "best_of_n"
# The folder of a generator, passages with answers, the file: one question for each answer. Every process calls it.
WritePicks = Callable[[str, Sequence[QAExample], Path], None]
PICKS = "picks.jsonl"
NOT_SAMPLED = ("min_new_tokens", "top_k", "no_repeat_ngram")  # rules that generation does not have
log = logging.getLogger(__name__)


def train_best_of_n(
    settings: Settings,
    splits: Splits,
    reward: Reward | None,
    held_out: Reward | None = None,
    *,
    write_picks: WritePicks,
) -> Path:
    """Run the stages that `settings.stages` names; return the folder of the last stage's model. `reward` chooses the
    best of n, and `write_picks` writes them, or continues the file.
    """
    if settings.stages == "ce" or reward is None:
        labelled = replace(splits, unlabelled=[])  # as in both stages, where the first one knows of no others
        return stages.train(replace(settings, algorithm="scst"), labelled, reward, held_out)
    folder = Path(settings.output_dir)
    final = folder / "scst"
    state = processes(settings.training.use_cpu)
    if stages.is_complete(settings, final):
        return final
    check_best_of_n(settings)
    splits = replace(splits, unlabelled=stages.unlabelled_examples(settings, splits, reward))
    if not splits.gold and (settings.stages == "both" or not splits.unlabelled):
        raise InputError("data.train: no example to learn from")
    # 1. The generator that samples.
    if settings.stages == "both":
        steps, start = _cross_entropy_stage(settings, splits, reward, held_out), str(folder / "ce")
    else:
        steps, start = 0, _complete_start(settings, state)
    # 2. The best of n questions for each answer.
    splits = _examples_read(settings, splits, state)
    spans = answer_spans([*splits.gold, *splits.unlabelled])
    write_picks(start, spans, folder / PICKS)
    picks = read_picks(folder / PICKS, spans)
    log.info("%s: %s", PICKS, ", ".join(f"{name} {value:.6g}" for name, value in picks.summary().items()))
    # 3. Cross-entropy on human questions and picks.
    note = _learn_from_picks(settings, splits, picks, reward, held_out, start, steps)
    if state.is_main_process:
        stages.complete(settings, note, reward, held_out, picks=picks.summary())
    state.wait_for_everyone()
    return final


def check_best_of_n(settings: Settings) -> None:
    if changed := settings.scst.changed(*NOT_SAMPLED):
        named = ", ".join(f"scst.{given}" for given in changed)
        raise InputError(
            f"algorithm={ALGORITHM}: samples by temperature and top_p alone; leave {named} at its default"
        )
    if settings.stages == "both" and settings.ce.epochs == 0:
        raise InputError(f"ce.epochs=0: algorithm={ALGORITHM} has no first stage then; give stages=scst")
    if settings.training.stop_after is not None and settings.stages != "ce":
        raise InputError(
            f"training.stop_after={settings.training.stop_after:g}: algorithm={ALGORITHM} trains its stages one after "
            "the other, and stops after none; leave it at null, or use algorithm=scst"
        )
    stages.check_training(settings)


def _cross_entropy_stage(settings: Settings, splits: Splits, reward: Reward, held_out: Reward | None) -> int:
    """Train `ce/` as `algorithm=scst` does, unless it is complete; return its number of updates."""
    done = Path(settings.output_dir) / "checkpoints" / "ce.json"
    state = processes(settings.training.use_cpu)
    if not from_main(state, done.exists):
        data = replace(splits, unlabelled=[])
        trainer = stages.seq2seq_trainer(settings, data, reward, held_out, scst_epochs=0.0, stop_on=None)
        stages.run_stage(trainer, "train (ce)", splits.gold, compare=False)
        if trainer.is_world_process_zero():
            write_json(done, {"step": trainer.state.global_step})
        trainer.accelerator.wait_for_everyone()
        trainer.accelerator.free_memory()
    return from_main(state, lambda: read_record(done))["step"]


def _complete_start(settings: Settings, state: PartialState) -> str:
    """`model.path` itself if its prompt is known; else a copy with `<hl>` and with the prompt of the settings."""
    given, target = settings.model.path, Path(settings.output_dir) / "checkpoints" / "start"
    if (Path(given) / PROMPT_FILE).exists():
        return given

    def save() -> None:
        model, tokenizer = load_seq2seq(given)
        add_highlight(tokenizer, model, format=prompt_of(settings).format)
        unfinished = target.with_name("start.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        model.save_pretrained(unfinished)
        tokenizer.save_pretrained(unfinished)
        prefix = default_prefix(model) if settings.model.prefix is None else settings.model.prefix
        prompt_of(settings, prefix=prefix).fitting(model).save(unfinished)
        unfinished.rename(target)

    from_main(state, lambda: None if target.exists() else save())
    return str(target)


def _examples_read(settings: Settings, splits: Splits, state: PartialState) -> Splits:
    """The examples of the second stage: all, or where `scst.epochs` is below 1 those that a self-critical stage with
    these settings reads after the first stage, so that no answer is sampled in vain.
    """
    scst, training = settings.scst, settings.training
    if scst.epochs >= 1:
        return splits
    gold, unlabelled = splits.gold, splits.unlabelled
    schedule = RowSchedule(
        gold=len(gold),
        unlabelled=len(unlabelled),
        share=exact_share(scst.unlabelled_share, len(gold), len(unlabelled)),
        update_size=training.batch_size * training.gradient_accumulation_steps * state.num_processes,
        ce_epochs=settings.ce.epochs if settings.stages == "both" else 0.0,
        scst_epochs=scst.epochs,
        max_steps=0,
        updates_per_rollout=1,
        seed=settings.seed,
    )
    read = {row for rows in islice(schedule, schedule.boundary, None) for row in rows}
    part = replace(
        splits,
        gold=[example for row, example in enumerate(gold) if row in read],
        unlabelled=[example for row, example in enumerate(unlabelled, len(gold)) if row in read],
    )
    counts = (len(part.gold), len(gold), len(part.unlabelled), len(unlabelled))
    log.info("scst.epochs=%g: %d of %d examples with a question are used, %d of %d without", scst.epochs, *counts)
    return part


@dataclass(frozen=True)
class Picks:
    """The best question of each answer as an example, with the reward of it and the mean of all its candidates.

    `dropped` counts the answers without one: their rewards all failed, or the best question is empty.
    """

    examples: Sequence[QAExample]
    rewards: Mapping[str, tuple[float, float]]
    dropped: int

    def summary(self) -> dict[str, float]:
        best, mean = (sum(values) / len(values) for values in zip(*self.rewards.values(), strict=True))
        return {"count": len(self.examples), "dropped": self.dropped, "reward_pick": best, "reward_sample": mean}


def read_picks(path: Path, spans: Sequence[QAExample]) -> Picks:
    """The picks of a file about these answers, as examples whose ids begin with `pick-`."""
    known = {span.id: span for span in spans}
    records = [record for _, record in read_json_lines(path)]
    usable = [record for record in records if record["reward"] is not None and record["question"]]
    if not usable:
        raise InputError(f"{path}: no answer has a question with a reward; check the generator and the reward")
    return Picks(
        [replace(known[record["id"]], id=f"pick-{record['id']}", question=record["question"]) for record in usable],
        {f"pick-{record['id']}": (record["reward"], record["reward_mean"]) for record in usable},
        len(records) - len(usable),
    )


class _PickFiles(RunFiles):
    """The lines of the second stage, after the first's, with the picks' rewards (checkpoints hold its name)."""

    def __init__(self, trainer: Any, picks: Picks, folder: Path, first_step: int, first_epoch: float) -> None:
        super().__init__(trainer, folder, first_step=first_step, first_epoch=first_epoch)
        self.picks = picks

    def end_cross_entropy(self, args: Any, state: TrainerState, control: TrainerControl) -> None:
        """Save nothing: `ce/` is the model of the first stage."""

    def measures(self, examples: Sequence[QAExample]) -> dict[str, tuple[float, float]]:
        known = [self.picks.rewards[item.id] for item in examples if item.id in self.picks.rewards]
        if not known:
            return {}
        best, mean = (sum(values) for values in zip(*known, strict=True))
        return {"reward_pick": (best, len(known)), "reward_sample": (mean, len(known))}

    def line(self, state: TrainerState, logs: dict[str, float]) -> dict[str, Any]:
        return LogFiles.line(self, state, logs)


def _learn_from_picks(
    settings: Settings,
    splits: Splits,
    picks: Picks,
    reward: Reward,
    held_out: Reward | None,
    start: str,
    first_step: int,
) -> dict[str, Any]:
    folder, scst = Path(settings.output_dir), settings.scst
    first_epoch = settings.ce.epochs if first_step else 0.0
    set_seed(settings.seed)
    gold = [*splits.gold, *picks.examples]
    trainer = stages.seq2seq_trainer(
        replace(settings, model=replace(settings.model, path=start)),
        replace(splits, gold=gold, unlabelled=[]),
        reward,
        held_out,
        files=partial(_PickFiles, picks=picks, folder=folder, first_step=first_step, first_epoch=first_epoch),
        output_dir=str(folder / "checkpoints" / "scst"),
        ce_epochs=max(1.0, scst.epochs),
        scst_epochs=0.0,
        learning_rate=rate_factor(settings) * scst.learning_rate,
        ce_warmup=scst.warmup_fraction,
    )
    alone = not first_step
    stages.run_stage(trainer, f"train (scst, {ALGORITHM})", gold if alone else (), compare=alone)
    save_model_folder(trainer, folder / "scst")
    note: dict[str, Any] = {"model": "scst", "steps": first_step + trainer.state.global_step}
    if trainer.is_world_process_zero():
        best, measure = folder / stages.BEST, trainer.args.stop_on
        note |= stages.use_best_model(trainer, folder / "scst", best, measure, first_step=first_step)
    trainer.accelerator.wait_for_everyone()
    return note
