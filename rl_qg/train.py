"""Train a question generator: cross-entropy, then self-critical training with a reward.

    accelerate launch rl_qg/train.py reward=qrelscore
    rl-qg train reward=qascore data.train=train.json data.validation=dev.json model.path=./my-t5

The run folder then holds `ce/` and `scst/` (models), checkpoints, `metrics.jsonl`, `samples.jsonl` and TensorBoard
events. The same command after a kill resumes from the last checkpoint.
"""

import json
import logging
from dataclasses import asdict, fields
from pathlib import Path

from transformers import EarlyStoppingCallback

from rl_qg.errors import InputError
from rl_qg.judge import Reward
from rl_qg.policy import load_seq2seq
from rl_qg.progress import show_progress
from rl_qg.prompts import default_prefix
from rl_qg.qa_data import QAExample, take
from rl_qg.run_folder import last_checkpoint, write_json
from rl_qg.scst_config import SelfCriticalConfig
from rl_qg.settings import SCSTSettings, Settings
from rl_qg.splits import Splits
from rl_qg.trainer import SelfCriticalTrainer
from rl_qg.trainer_files import save_whole

# Settings of the self-critical stage that the trainer knows by the same name.
RULES = {field.name for field in fields(SCSTSettings)} - {"epochs", "learning_rate", "warmup_fraction"}
TRAINED = "trained.json"  # written last: the stages are complete
log = logging.getLogger(__name__)


def train(settings: Settings, splits: Splits, reward: Reward | None, held_out: Reward | None = None) -> Path:
    """Run the stages that `settings.stages` names; return the folder of the last stage's model."""
    folder = Path(settings.output_dir)
    final = folder / ("ce" if settings.stages == "ce" else "scst")
    if (folder / TRAINED).exists():
        log.info("train: %s is there already", final)
        return final
    if not splits.gold:
        raise InputError("data.train: no example with a question to learn from")
    model, tokenizer = load_seq2seq(settings.model.path)
    prefix = default_prefix(model) if settings.model.prefix is None else settings.model.prefix
    trainer = SelfCriticalTrainer(
        model=model,
        args=_arguments(settings, prefix),
        reward=reward,
        held_out=held_out,
        train_dataset=splits.gold,
        eval_dataset=take(splits.validation, settings.training.eval_samples, settings.data.seed),
        processing_class=tokenizer,
        callbacks=_callbacks(settings),
    )
    show_progress(trainer, f"train ({settings.stages})" if settings.stages != "both" else "train (ce, scst)")
    if trainer.is_world_process_zero():
        _report_cuts(trainer, splits.gold, folder)
    trainer.train(resume_from_checkpoint=last_checkpoint(folder))
    save_whole(trainer, final)
    if trainer.is_world_process_zero():
        write_json(folder / TRAINED, {"model": final.name, "steps": trainer.state.global_step})
    trainer.accelerator.wait_for_everyone()
    return final


def _arguments(settings: Settings, prefix: str) -> SelfCriticalConfig:
    common, ce, scst = settings.training, settings.ce, settings.scst
    selects_best = settings.stages == "ce"  # choosing the best checkpoint only makes sense while one loss is minimised
    return SelfCriticalConfig(
        output_dir=settings.output_dir,
        ce_epochs=0.0 if settings.stages == "scst" else ce.epochs,
        scst_epochs=0.0 if settings.stages == "ce" else scst.epochs,
        learning_rate=ce.learning_rate,
        scst_learning_rate=scst.learning_rate,
        ce_warmup=ce.warmup_fraction,
        scst_warmup=scst.warmup_fraction,
        label_smoothing_factor=ce.label_smoothing,
        **{name: value for name, value in asdict(scst).items() if name in RULES},
        prefix=prefix,
        max_source_length=settings.model.max_source_length,
        max_target_length=settings.model.max_target_length,
        per_device_train_batch_size=common.batch_size,
        per_device_eval_batch_size=common.eval_batch_size,
        gradient_accumulation_steps=common.gradient_accumulation_steps,
        weight_decay=common.weight_decay,
        max_grad_norm=common.max_grad_norm,
        bf16=common.precision == "bf16",
        fp16=common.precision == "fp16",
        activation_checkpointing=common.gradient_checkpointing,
        use_cpu=common.use_cpu,
        logging_steps=common.logging_steps,
        eval_strategy="steps",
        eval_steps=common.eval_steps,
        save_strategy="steps",
        save_steps=common.eval_steps if selects_best else common.save_steps,
        save_total_limit=common.save_total_limit,
        load_best_model_at_end=selects_best,
        metric_for_best_model="eval_loss" if selects_best else None,
        greater_is_better=False if selects_best else None,
        report_to=common.report_to,
        seed=settings.seed,
        data_seed=settings.seed,
    )


def _callbacks(settings: Settings) -> list[EarlyStoppingCallback]:
    patience = settings.ce.early_stopping_patience
    return [EarlyStoppingCallback(patience)] if patience and settings.stages == "ce" else []


def _report_cuts(trainer: SelfCriticalTrainer, examples: list[QAExample], folder: Path) -> None:
    """Say how many contexts had to be windowed, and keep the count for the run record."""
    cuts = trainer.encoder.count_cuts(examples)
    write_json(folder / "windows.json", cuts)
    log.info("inputs: %s", json.dumps(cuts))


if __name__ == "__main__":
    from rl_qg.cli import main

    main(["train"])
