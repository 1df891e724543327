"""What the trainer leaves in the run folder: `metrics.jsonl`, `samples.jsonl` and whole models."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from rl_qg.generation.lora import has_adapters, merged
from rl_qg.runtime.json_files import append_json_line, cut_json_lines
from rl_qg.training.callbacks import stored_state

if TYPE_CHECKING:
    from rl_qg.training.trainer import SelfCriticalTrainer


class RunFiles(TrainerCallback, ExportableState):
    """`metrics.jsonl`, `samples.jsonl` and the model at the stage boundary."""

    def __init__(self, trainer: "SelfCriticalTrainer") -> None:
        self.trainer = trainer

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the sums of the log line under way, which may span it."""
        return {"args": {}, "attributes": {"sums": self.trainer.measured.sums}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget the lines behind the checkpoint that this run resumes from: they will be written again."""
        if state.is_world_process_zero:
            for name in ("metrics.jsonl", "samples.jsonl"):
                cut_json_lines(Path(args.output_dir) / name, state.global_step or -1)
            if stored := stored_state(state, self):
                self.trainer.measured.sums = stored["attributes"]["sums"]
        self.trainer.accelerator.wait_for_everyone()  # every process may write to samples.jsonl

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """One line for each logged step and each evaluation."""
        if not state.is_world_process_zero or logs is None or not logs.keys() & {"loss", "eval_loss"}:
            return
        stage = "ce" if state.global_step <= self.trainer.boundary else "scst"
        folder, head = Path(args.output_dir), {"step": state.global_step, "epoch": logs.get("epoch"), "stage": stage}
        append_json_line(folder / "metrics.jsonl", {**head, **logs})
        if "loss" in logs:
            for sample in self.trainer.logged_samples:
                append_json_line(folder / "samples.jsonl", {"step": state.global_step, **sample})
            self.trainer.logged_samples = []

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Count the update. Behind the last one of the cross-entropy stage keep its model as `ce/` and judge it: the
        next stage is compared with it.
        """
        self.trainer.measured.add(loss=(0.0, 1 / self.trainer.accelerator.num_processes))
        if state.global_step == self.trainer.boundary:
            save_whole(self.trainer, Path(args.output_dir) / "ce")
            if args.eval_strategy != "no" and state.global_step < state.max_steps:
                control.should_evaluate = True


def save_whole(trainer: Any, folder: Path) -> None:
    """Save model and tokenizer so that `folder` is either absent or complete. Called by every process.

    Adapters are merged into a copy, so what is saved is a model like any other and the one in training stays as it is.
    """
    partial = folder.with_name(folder.name + ".part")
    if trainer.is_world_process_zero():
        shutil.rmtree(partial, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    with trainer.whole_model() as model:
        if trainer.is_world_process_zero():
            whole = merged(model) if has_adapters(model) else model
            whole.save_pretrained(partial)
            trainer.processing_class.save_pretrained(partial)
            trainer.encoder.prompt.save(partial)
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
    trainer.accelerator.wait_for_everyone()


def put_in_place(folder: Path, target: Path) -> None:
    """Make a copy of `folder` the folder `target`, which is either the old or the new one or absent."""
    partial = target.with_name(target.name + ".part")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(folder, partial)
    shutil.rmtree(target, ignore_errors=True)
    partial.rename(target)
