"""A training that stops after some of its planned passes, to be measured and to go on later (`training.stop_after`).

The schedules of learning rate and λ are those of the whole plan, the checkpoint holds the state of every random
generator, and the measuring comes after it. So a run that is stopped and goes on is bit for bit the uninterrupted one.
"""

import logging
import math
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from accelerate import Accelerator
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from rl_qg.generation.loading import has_lora, merge_lora
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import append_json_line, cut_json_lines, write_json
from rl_qg.runtime.run_folder import MEASURES, stop_folder
from rl_qg.scoring.reward_scorer import Reward, signature_of
from rl_qg.settings import Settings
from rl_qg.training.callbacks import stored_state
from rl_qg.training.step_metrics import HeldOutQuestions, StepMetrics
from rl_qg.training.trl_reward import RewardFunction

# What the trainers write into the run folder: `metrics.jsonl`, `samples.jsonl` and complete model folders.


METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
SAMPLES_LOGGED = 4


class LoggedTrainer(Protocol):
    """What `RunFiles` needs of a trainer."""

    accelerator: Accelerator
    step_metrics: StepMetrics
    logged_samples: list[dict[str, Any]]

    @property
    def boundary(self) -> int:
        """Last step of the cross-entropy stage."""


class RunFiles(TrainerCallback, ExportableState):
    """Writes `metrics.jsonl`, `samples.jsonl` and the model at the stage boundary, for the self-critical trainer."""

    def __init__(self, trainer: LoggedTrainer) -> None:
        self.trainer = trainer

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores: the sums of the current log line, which may span the checkpoint."""
        return {"args": {}, "attributes": {"sums": self.trainer.step_metrics.sums}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remove the lines after the checkpoint from which this run resumes: they will be written again."""
        if state.is_world_process_zero:
            _cut_lines(Path(args.output_dir), state.global_step)
            if stored := stored_state(state, self):
                self.trainer.step_metrics.sums = stored["attributes"]["sums"]
        self.trainer.accelerator.wait_for_everyone()  # every process may write to samples.jsonl

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write one line for each logged step and each evaluation."""
        if not state.is_world_process_zero or logs is None or not logs.keys() & {"loss", "eval_loss"}:
            return
        stage = "ce" if state.global_step <= self.trainer.boundary else "scst"
        folder, head = Path(args.output_dir), {"step": state.global_step, "epoch": logs.get("epoch"), "stage": stage}
        unknown = {
            name: None for name in ("loss_ce", "length_gold") if math.isnan(logs.get(name, 0.0))
        }  # no gold token since then
        append_json_line(folder / METRICS, {**head, **logs, **unknown})
        if "loss" in logs:
            _append_samples(folder, state.global_step, self.trainer.logged_samples)
            self.trainer.logged_samples = []

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the update. After the last one of the cross-entropy stage save its model as `ce/` and evaluate it: the
        next stage is compared with it.
        """
        self.trainer.step_metrics.add(loss=(0.0, 1 / self.trainer.accelerator.num_processes))
        if state.global_step == self.trainer.boundary:
            save_model_folder(self.trainer, Path(args.output_dir) / "ce")
            if args.eval_strategy != "no" and state.global_step < state.max_steps:
                control.should_evaluate = True


class StageFiles(TrainerCallback):
    """Writes `metrics.jsonl` and `samples.jsonl` for one stage by TRL; steps and epochs continue across stages.

    Args:
        folder: the run folder.
        stage: `ce` or `scst`, whatever the algorithm is.
        first_step, first_epoch: those with which the previous stage ended.
        reward_function: its last rollout is written to `samples.jsonl`.
    """

    def __init__(
        self,
        folder: Path,
        stage: str,
        *,
        first_step: int = 0,
        first_epoch: float = 0.0,
        reward_function: RewardFunction | None = None,
    ) -> None:
        self.folder = folder
        self.stage = stage
        self.first_step = first_step
        self.first_epoch = first_epoch
        self.reward_function = reward_function

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Remove the lines after the checkpoint from which this run resumes: they will be written again."""
        if state.is_world_process_zero:
            _cut_lines(self.folder, self.first_step + state.global_step)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Log before each checkpoint: a resumed run would lose what TRL has accumulated since the last line."""
        control.should_log |= control.should_save

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Write one line for each logged step and each evaluation."""
        if not state.is_world_process_zero or logs is None or not logs.keys() & {"loss", "eval_loss"}:
            return
        step, epoch = self.first_step + state.global_step, self.first_epoch + (state.epoch or 0.0)
        line = {"step": step, "epoch": None, "stage": self.stage, **logs} | {"epoch": round(epoch, 4)}
        if "loss" in logs:
            if "loss_ce" not in logs:
                line |= {"loss_ce" if self.stage == "ce" else "loss_scst": logs["loss"]}
            rollout = [] if self.reward_function is None else self.reward_function.rollout
            _append_samples(self.folder, step, rollout[:SAMPLES_LOGGED])
        append_json_line(self.folder / METRICS, line)


def _cut_lines(folder: Path, step: int) -> None:
    for name in (METRICS, SAMPLES):
        cut_json_lines(folder / name, step or -1)


def _append_samples(folder: Path, step: int, samples: Iterable[Mapping[str, Any]]) -> None:
    for sample in samples:
        append_json_line(folder / SAMPLES, {"step": step, **sample})


def save_model_folder(trainer: Any, folder: Path) -> None:
    """Save model and tokenizer so that `folder` is either absent or complete. Called by every process.

    Adapters are merged into a copy, so the saved model has none, and the model in training stays as it is.
    """
    partial = folder.with_name(folder.name + ".part")
    if trainer.is_world_process_zero():
        shutil.rmtree(partial, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    with trainer.whole_model() as model:
        if trainer.is_world_process_zero():
            merged = merge_lora(model) if has_lora(model) else model
            trainer.encoder.languages.set_generation(merged.generation_config)
            merged.save_pretrained(partial)
            trainer.processing_class.save_pretrained(partial)
            trainer.encoder.prompt.save(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    trainer.accelerator.wait_for_everyone()


def replace_folder(folder: Path, target: Path) -> None:
    """Replace `target` by a copy of `folder`; at any moment `target` is the old folder, the new one, or absent."""
    partial = target.with_name(target.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(folder, partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


log = logging.getLogger(__name__)


class StopAfter(TrainerCallback):
    """Ends training with a checkpoint when `stop_after` of the planned passes are made.

    A run that resumes from the checkpoint of the stop, or of a later one, makes no update.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop where the checkpoint is as far already."""
        control.should_training_stop |= state.global_step >= stop_step(args, state.max_steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Stop after the update."""
        if state.global_step >= stop_step(args, state.max_steps):
            control.should_save = control.should_training_stop = True


def stop_step(args: Any, max_steps: int) -> int:
    """The update after which training stops, of `max_steps` planned ones; at least one."""
    if args.stop_after is None:
        return max_steps
    return min(max_steps, max(1, round(max_steps * args.stop_after / (args.ce_epochs + args.scst_epochs))))


def check_stop(settings: Settings) -> None:
    """Raise `InputError` for a stop after the end of the plan, and where something else may end a stage earlier."""
    stop, stages = settings.training.stop_after, settings.stages
    if stop is None:
        return
    planned = (stages != "scst") * settings.ce.epochs + (stages != "ce") * settings.scst.epochs
    if stop > planned:
        raise InputError(
            f"training.stop_after={stop:g}: {planned:g} passes are planned (ce.epochs, scst.epochs); plan more, or "
            "stop earlier"
        )
    early: dict[str, Any] = {"ce.early_stopping_patience": stages == "ce" and settings.ce.early_stopping_patience}
    early["scst.stop_on"] = settings.scst.stop_on if stages != "ce" else None
    for key, value in early.items():
        if value:
            raise InputError(f"training.stop_after={stop:g}: {key}={value} may end the stage before; give one of both")


def save_stop(trainer: Any, held_out: Reward | None) -> Path:
    """Save the model of the stop, and in `measures.json` everything that an evaluation measures on it: the loss, and
    on the greedy questions the rewards and `rl_qg.scoring.held_out`. Every process calls it.
    """
    args, state = trainer.args, trainer.state
    folder = stop_folder(Path(args.output_dir), args.stop_after)
    if trainer.held_out_questions is None:
        scorer = None if held_out is None else args.scorer_of(held_out)
        trainer.held_out_questions = HeldOutQuestions(None, scorer)
    # Not `evaluate`, whose line in the log an uninterrupted run would not have.
    output = trainer.evaluation_loop(trainer.get_eval_dataloader(), "measure", metric_key_prefix="eval")
    save_model_folder(trainer, folder)
    if trainer.is_world_process_zero():
        measures = {name.removeprefix("eval_"): value for name, value in output.metrics.items()}
        write_json(
            folder / MEASURES,
            {
                "epochs": args.stop_after,
                "planned": args.ce_epochs + args.scst_epochs,
                "step": state.global_step,
                "examples": len(trainer.eval_dataset),
                "held_out": None if held_out is None else signature_of(held_out),
                "measures": {name: value for name, value in measures.items() if isinstance(value, int | float)},
            },
        )
        steps = (state.global_step, state.max_steps)
        log.info("stopped after %g passes (step %d of %d): see %s", args.stop_after, *steps, folder)
    trainer.accelerator.wait_for_everyone()
    return folder
