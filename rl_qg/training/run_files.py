"""What the trainers write into the run folder: `metrics.jsonl`, `samples.jsonl`, complete model folders, and the model
and measures of a stop (`training.stop_after`).
"""

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState
from transformers.trainer_callback import ExportableState

from rl_qg.data.examples import QAExample
from rl_qg.generation.loading import merge_lora
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import append_json_line, cut_json_lines, write_json, writing
from rl_qg.runtime.run_folder import MEASURES, stop_folder
from rl_qg.runtime.trainer_base import stored_state
from rl_qg.scoring.reward_scorer import Reward, finite_or_none, signature_of
from rl_qg.training.row_schedule import RowSchedule
from rl_qg.training.step_metrics import HeldOutQuestions

METRICS, SAMPLES = "metrics.jsonl", "samples.jsonl"
log = logging.getLogger(__name__)


class LogFiles(TrainerCallback):
    """Writes one line of `metrics.jsonl` for each logged step and each evaluation, and samples beside it. Steps and
    epochs continue across the stages of a run, `ce` or `scst` whatever the algorithm is: the previous one ended with
    `first_step` and `first_epoch`.
    """

    def __init__(self, folder: Path, stage: str, *, first_step: int = 0, first_epoch: float = 0.0) -> None:
        self.folder, self.stage = folder, stage
        self.first_step, self.first_epoch = first_step, first_epoch

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Remove the lines after the checkpoint from which this run resumes: they will be written again."""
        if state.is_world_process_zero:
            for name in (METRICS, SAMPLES):
                cut_json_lines(self.folder / name, self.first_step + state.global_step or -1)

    def on_log(self, args: Any, state: TrainerState, control: TrainerControl, logs: Any = None, **kwargs: Any) -> None:
        if not state.is_world_process_zero or logs is None or not logs.keys() & {"loss", "eval_loss"}:
            return
        line = self.line(state, logs)
        known = {name: finite_or_none(value) if isinstance(value, float) else value for name, value in line.items()}
        append_json_line(self.folder / METRICS, known)  # the mean of nothing is null, since JSON has no NaN
        if "loss" in logs:
            for sample in self.samples():
                append_json_line(self.folder / SAMPLES, {"step": line["step"], **sample})

    def line(self, state: TrainerState, logs: dict[str, float]) -> dict[str, Any]:
        step, epoch = self.first_step + state.global_step, self.first_epoch + (state.epoch or 0.0)
        line = {"step": step, "epoch": None, "stage": self.stage, **logs} | {"epoch": round(epoch, 4)}
        if "loss" in logs and "loss_ce" not in logs:
            line["loss_ce" if self.stage == "ce" else "loss_scst"] = logs["loss"]
        return line

    def samples(self) -> Sequence[dict[str, Any]]:
        """Records of `samples.jsonl` that belong to the present line."""
        return []


class RunFiles(LogFiles, ExportableState):
    """The lines of the self-critical trainer, and its model at the stage boundary."""

    def __init__(self, trainer: Any, folder: Path | None = None, **first: Any) -> None:
        super().__init__(folder or Path(trainer.args.output_dir), "scst", **first)
        self.trainer = trainer
        self.saves_evaluated = False  # the model of the next evaluation is `ce/`

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores: the sums of the current log line, which may span the checkpoint."""
        return {"args": {}, "attributes": {"sums": self.trainer.step_metrics.sums}}

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if state.is_world_process_zero and (stored := stored_state(state, self)):
            self.trainer.step_metrics.sums = stored["attributes"]["sums"]
        self.trainer.accelerator.wait_for_everyone()  # every process may write to samples.jsonl

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        trainer = self.trainer
        trainer.step_metrics.add(loss=(0.0, 1 / trainer.accelerator.num_processes))
        if trainer.schedule is not None:
            state.epoch = trainer.schedule.passes(state.global_step)
        if state.global_step == trainer.boundary:
            self.end_cross_entropy(args, state, control)

    def end_cross_entropy(self, args: Any, state: TrainerState, control: TrainerControl) -> None:
        """Evaluate the model, with which the next stage is compared, and save it as `ce/`: where its validation loss
        is not finite, nothing is saved.
        """
        if args.eval_strategy != "no" and state.global_step < state.max_steps:
            control.should_evaluate = self.saves_evaluated = True
        else:
            save_model_folder(self.trainer, self.folder / "ce")

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self.saves_evaluated:
            self.saves_evaluated = False
            save_model_folder(self.trainer, self.folder / "ce")

    def measures(self, examples: Sequence[QAExample]) -> dict[str, tuple[float, float]]:
        """Totals and weights of what is logged of the examples of a batch besides the loss."""
        return {}

    def line(self, state: TrainerState, logs: dict[str, float]) -> dict[str, Any]:
        stage = "ce" if state.global_step <= self.trainer.boundary else "scst"
        return {"step": state.global_step, "epoch": logs.get("epoch"), "stage": stage, **logs}

    def samples(self) -> Sequence[dict[str, Any]]:
        samples, self.trainer.logged_samples = self.trainer.logged_samples, []
        return samples


def save_model_folder(trainer: Any, folder: Path) -> None:
    """Save model and tokenizer so that `folder` is either absent or complete. Called by every process.

    Adapters are merged into a copy, so the saved model has none, and the model in training stays as it is.
    """
    trainer.check_learned()
    partial = folder.with_name(folder.name + ".part")
    if trainer.is_world_process_zero():
        shutil.rmtree(partial, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    with trainer.whole_model() as model:
        if trainer.is_world_process_zero():
            merged = merge_lora(model)
            trainer.encoder.languages.set_generation(merged.generation_config)
            merged.save_pretrained(partial)
            trainer.processing_class.save_pretrained(partial)
            trainer.encoder.prompt.save(partial)
            shutil.rmtree(folder, ignore_errors=True)
            with writing(folder, "output_dir", "folder"):
                partial.rename(folder)
    trainer.accelerator.wait_for_everyone()


def replace_folder(folder: Path, target: Path) -> None:
    """Replace `target` by a copy of `folder`; at any moment `target` is the old folder, the new one, or absent."""
    partial = target.with_name(target.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(folder, partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)


# --- a training that stops after some of its planned passes, to be measured and to go on later (`training.stop_after`)
#
# The schedules of learning rate and λ are those of the whole plan, the checkpoint holds the state of every random
# generator, and the measuring comes after it. So a run that goes on is bit for bit the uninterrupted one.


class StopAfter(TrainerCallback):
    """Ends training with a checkpoint when `stop_after` of the planned passes are made. A run that resumes from the
    checkpoint of the stop makes no update; `InputError` where it resumes from a later one.
    """

    schedule: RowSchedule | None = None

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        share = args.stop_after / (args.ce_epochs + args.scst_epochs)
        self.step = min(state.max_steps, max(1, round(state.max_steps * share)))
        if self.schedule is not None:  # whose passes have another number of updates in each stage
            steps = filter(self.schedule.ends_rollout, range(1, state.max_steps + 1))  # no checkpoint keeps its rows
            self.step = next((at for at in steps if self.schedule.passes(at) >= args.stop_after - 1e-9), self.step)
        if state.global_step > self.step:
            raise InputError(
                f"training.stop_after={args.stop_after:g}: the run has made {state.global_step} updates, and the stop "
                f"is after {self.step}; name another output_dir"
            )
        control.should_training_stop |= state.global_step >= self.step

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step >= self.step:
            control.should_save = control.should_training_stop = True


def save_stop(trainer: Any, held_out: Reward | None) -> Path:
    """Save the model of the stop, and in `measures.json` everything that an evaluation measures on it: the loss, and
    on the greedy questions the rewards and `rl_qg.scoring.held_out`. Every process calls it.
    """
    args, state = trainer.args, trainer.state
    folder = stop_folder(Path(args.output_dir), args.stop_after)
    if trainer.held_out_questions is None:
        trainer.held_out_questions = HeldOutQuestions(held_out=args.scorer_of(held_out, optimised=False))
    if state.global_step > trainer.boundary:
        trainer.keep_reference()  # also where the checkpoint of the stop was there, and no update is made
    # Not `evaluate`, whose line in the log an uninterrupted run would not have.
    output = trainer.evaluation_loop(trainer.get_eval_dataloader(), "measure", metric_key_prefix="eval")
    save_model_folder(trainer, folder)
    if trainer.is_world_process_zero():
        numbers = {name: value for name, value in output.metrics.items() if isinstance(value, int | float)}
        note = {
            "epochs": args.stop_after,
            "planned": args.ce_epochs + args.scst_epochs,
            "step": state.global_step,
            "examples": len(trainer.eval_dataset),
            "held_out": None if held_out is None else signature_of(held_out),
            "measures": {name.removeprefix("eval_"): value for name, value in numbers.items()},
        }
        write_json(folder / MEASURES, note)
        steps = (state.global_step, state.max_steps)
        log.info("stopped after %g passes (step %d of %d): see %s", args.stop_after, *steps, folder)
    trainer.accelerator.wait_for_everyone()
    return folder
