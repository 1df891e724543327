"""A training that stops after some of its planned passes, to be measured and to go on later (`training.stop_after`).

The schedules of learning rate and λ are those of the whole plan, the checkpoint holds the state of every random
generator, and the measuring comes after it. So a run that is stopped and goes on is bit for bit the uninterrupted one.
"""

import logging
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from rl_qg.evaluation.reward_scorer import Reward, signature_of
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import write_json
from rl_qg.runtime.run_folder import MEASURES, stop_folder
from rl_qg.settings import Settings
from rl_qg.training.eval_metrics import HeldOutQuestions
from rl_qg.training.trainer_files import save_model_folder

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
    on the greedy questions the rewards and `rl_qg.evaluation.text_measures`. Every process calls it.
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
