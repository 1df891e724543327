"""What the trainer leaves in the run folder: `metrics.jsonl`, `samples.jsonl` and whole models."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.adapters import has_adapters, merged
from rl_qg.run_folder import append_json_line, cut_json_lines

if TYPE_CHECKING:
    from rl_qg.trainer import SelfCriticalTrainer


class RunFiles(TrainerCallback):
    """`metrics.jsonl`, `samples.jsonl` and the model at the stage boundary."""

    def __init__(self, trainer: "SelfCriticalTrainer") -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Forget the lines behind the checkpoint that this run resumes from: they will be written again."""
        if state.is_world_process_zero:
            for name in ("metrics.jsonl", "samples.jsonl"):
                cut_json_lines(Path(args.output_dir) / name, state.global_step)

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
        """Keep the model of the cross-entropy stage as `ce/`, and judge it: the next stage is compared with it."""
        if state.global_step == self.trainer.boundary:
            save_whole(self.trainer, Path(args.output_dir) / "ce")
            if args.eval_strategy != "no" and state.global_step < state.max_steps:
                control.should_evaluate = True


def save_whole(trainer: "SelfCriticalTrainer", folder: Path) -> None:
    """Save model and tokenizer so that `folder` is either absent or complete. Called by every process.

    Adapters are merged into a copy, so what is saved is a model like any other and the one in training stays as it is.
    """
    partial = folder.with_name(folder.name + ".part")
    if trainer.is_world_process_zero():
        shutil.rmtree(partial, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not has_adapters(model):
        trainer.save_model(str(partial))
    elif trainer.is_world_process_zero():
        merged(model).save_pretrained(partial)
        trainer.processing_class.save_pretrained(partial)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        trainer.encoder.prompt.save(partial)
        (partial / "training_args.bin").unlink(missing_ok=True)  # a pickle, and of no use to a generator
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    trainer.accelerator.wait_for_everyone()
