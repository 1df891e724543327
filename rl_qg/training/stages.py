"""Train a question generator: cross-entropy, then self-critical training with a reward.

    accelerate launch rl_qg/train.py reward=qrelscore
    rl-qg train reward=qascore data.train=train.json data.validation=dev.json model.path=./my-t5

The run folder then contains `ce/` and `scst/` (models), checkpoints, `metrics.jsonl`, `samples.jsonl` and TensorBoard
events. If the command was killed, the same command resumes from the last checkpoint.
"""

import json
import logging
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import parse_flag_from_env
from transformers import TrainerCallback, TrainerControl, TrainerState, set_seed

from rewards.contract import is_set_reward
from rl_qg.data.examples import QAExample
from rl_qg.data.passages import passage_key
from rl_qg.data.splits import Splits, take
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import add_lora, load_seq2seq
from rl_qg.generation.prompts import Prompt, add_highlight, default_prefix
from rl_qg.generation.sets import in_order_of_model, set_rows
from rl_qg.generation.tasks import task_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.runtime.processes import processes
from rl_qg.runtime.ranks import from_main
from rl_qg.runtime.run_folder import MEASURES, TRAINED, stop_folder
from rl_qg.runtime.trainer_base import resume_training
from rl_qg.scoring.reward_scorer import Reward, check_direction, signature_of
from rl_qg.scoring.separation import check_reward, sampler
from rl_qg.scoring.task_scorers import check_set_reward, pair_floor
from rl_qg.settings import SelfCriticalOptions, Settings
from rl_qg.training import config
from rl_qg.training.callbacks import HeldOutStopping, best_of, lines_with
from rl_qg.training.row_schedule import exact_share
from rl_qg.training.run_files import RunFiles, StopAfter, replace_folder, save_model_folder, save_stop
from rl_qg.training.trainer import SelfCriticalTrainer

TRAINER_OPTIONS = {field.name for field in fields(SelfCriticalOptions)}  # settings of `scst` that the trainer has too
SAME_NAMES = (  # settings of `training` that are arguments of transformers
    *("gradient_accumulation_steps", "weight_decay", "max_grad_norm", "use_cpu", "dataloader_num_workers"),
    *("logging_steps", "eval_steps", "save_steps", "save_total_limit", "report_to"),
)
EVALUATION_BATCH = 32  # examples per device
SAMPLES = 4  # of each answer, in the test of the reward, as in rl-qg separate
BEST = "best"  # the folder in which the trainer saves the best model by `scst.stop_on`
log = logging.getLogger(__name__)


def train(settings: Settings, splits: Splits, reward: Reward | None, held_out: Reward | None = None) -> Path:
    """Run the stages that `settings.stages` names; return the folder of the last model, or that of the stop."""
    folder, stop = Path(settings.output_dir), settings.training.stop_after
    final = folder / ("ce" if settings.stages == "ce" else "scst")
    if stop is not None and (stop_folder(folder, stop) / MEASURES).exists():  # it stopped there, and was measured
        log.info("train: %s is complete already", stop_folder(folder, stop))
        return stop_folder(folder, stop)
    if (folder / TRAINED).exists() and stop is not None:
        raise InputError(f"training.stop_after={stop:g}: {final} is complete already, and did not stop there")
    if is_complete(settings, final):
        return final
    # 1. Check settings and data, and build the trainer.
    check_training(settings)
    check_task_reward(settings, reward, held_out)
    splits = in_task(settings, splits)
    given = splits.unlabelled
    splits = replace(splits, unlabelled=unlabelled_examples(settings, splits, reward))
    check_examples(settings, splits)
    # Alone, the first stage reads its examples in the order that they have in both stages, which these decide.
    of_trainer = replace(splits, unlabelled=given) if settings.stages == "ce" else splits
    trainer = seq2seq_trainer(settings, of_trainer, reward, held_out)
    if reward is not None and is_checked_at_boundary(settings, trainer.args.world_size):
        trainer.add_callback(CheckAtBoundary(trainer, settings, reward, splits.validation))
    if settings.ce.average > 1 and trainer.is_sharded:
        raise InputError(f"ce.average={settings.ce.average}: is not for weights that ZeRO-3 or FSDP shards")
    # 2. Train, from the last checkpoint if there is one.
    title = f"train ({settings.stages})" if settings.stages != "both" else "train (ce, scst)"
    run_stage(trainer, title, [*splits.gold, *splits.unlabelled], compare=settings.stages == "scst")
    if stop is not None:
        stopped = save_stop(trainer, held_out)
        if trainer.state.global_step < trainer.state.max_steps:
            return stopped
    # 3. Save the final model, and the note that the run is complete.
    note: dict[str, Any] = {"model": final.name, "steps": trainer.state.global_step}
    if settings.ce.average > 1:
        note["averaged"] = trainer.load_mean(settings.ce.average)
    save_model_folder(trainer, final)
    if trainer.is_world_process_zero():
        kept = use_best_model(trainer, final, final.with_name(BEST), trainer.args.stop_on, after=trainer.boundary)
        complete(settings, note, reward, held_out, splits=splits, **kept)
    trainer.accelerator.wait_for_everyone()
    return final


def run_stage(trainer: SelfCriticalTrainer, title: str, examples: Sequence[QAExample] = (), *, compare: bool) -> None:
    """Train from the last checkpoint. With `compare` a stage begins with an evaluation of the model that it is given;
    of `examples`, where there are any, the log says how many are cut.
    """
    folder = trainer.files.folder
    if trainer.is_world_process_zero() and examples:
        report_cuts(trainer.encoder, examples, folder)
        longest = trainer.encoder.prompt.max_target_length
        if cut := sum(len(ids) >= longest for ids in trainer.encoder.targets(examples)):
            log.warning(
                "%d of %d texts to learn from fill model.max_target_length=%d tokens; longer ones are cut",
                *(cut, len(examples), longest),
            )

    def at_start() -> None:
        if trainer.is_world_process_zero():  # left by a run that was killed before its first checkpoint
            shutil.rmtree(folder / BEST, ignore_errors=True)
        trainer.args.eval_on_start = compare

    resume_training(trainer, title, at_start=at_start)


def report_cuts(encoder: Any, examples: Sequence[QAExample], folder: Path) -> None:
    cuts = encoder.count_cuts(examples)
    write_json(folder / "windows.json", cuts)
    log.info("inputs: %s", json.dumps(cuts))


def is_complete(settings: Settings, final: Path) -> bool:
    """Whether the run is complete; then what is left of publishing it is done."""
    if not (final.parent / TRAINED).exists():
        return False
    from rl_qg.reports.model_card import finish_publishing

    log.info("train: %s is complete already", final)
    hub_model = settings.training.hub_model
    from_main(processes(settings.training.use_cpu), lambda: finish_publishing(final.parent, hub_model))
    return True


def complete(
    settings: Settings,
    note: dict[str, Any],
    reward: Reward | None,
    held_out: Reward | None,
    *,
    splits: Splits | None = None,
    **more: Any,
) -> None:
    """Write the note that the run is complete, with the signatures of its rewards and how many passages without
    questions took part, and publish its model; for the main process alone.
    """
    folder = Path(settings.output_dir)
    named = {"reward": reward, "held_out": held_out}
    note = note | {name: signature_of(metric) for name, metric in named.items() if metric is not None}
    if splits is not None and splits.unlabelled:
        share = exact_share(settings.scst.unlabelled_share, len(splits.gold), len(splits.unlabelled))
        note["unlabelled"] = {"examples": len(splits.unlabelled), "share": float(share)}
    write_json(folder / TRAINED, note | more)
    shutil.rmtree(folder / BEST, ignore_errors=True)  # only now, so that a kill loses nothing
    from rl_qg.reports.model_card import publish  # and plots, which the first update need not wait for

    publish(folder, settings.training.hub_model)


def use_best_model(
    trainer: Any, final: Path, best: Path, measure: str | None, *, after: int = 0, first_step: int = 0
) -> dict[str, Any]:
    """Replace the final model by the best one by `scst.stop_on`; return what the note of the run says of it. The stage
    begins after the trainer's step `after`; before its first step there were `first_step` updates.
    """
    if measure is None or not best.exists():
        return {}
    chosen = best_of(measure, lines_with(measure, trainer.state.log_history, after))
    value, step = chosen[f"eval_{measure}"], first_step + chosen["step"]
    replace_folder(best, final)
    log.info("train: %s is the model of step %d, the best by %s (%.4g)", final, step, measure, value)
    return {"kept": {"measure": measure, "value": value, "step": step}}


def check_training(settings: Settings) -> None:
    settings.check()
    _arguments(settings)  # they activate DeepSpeed in the library
    config.check_settings(settings)


def check_examples(settings: Settings, splits: Splits) -> None:
    if not splits.gold and not (settings.stages == "scst" and splits.unlabelled):
        raise InputError("data.train: no example with a question to learn from")


def check_task_reward(settings: Settings, reward: Reward | None, held_out: Reward | None = None) -> None:
    if reward is None or settings.stages == "ce":
        return
    for name, metric in (("reward", reward), ("held_out", held_out)):
        takes_lowest = settings.algorithm == "best_of_n" and settings.scst.stop_on != "reward_greedy"
        if metric is not None and (name == "held_out" or not takes_lowest):
            check_direction(metric, name)
        if metric is not None and settings.task == "sets":
            check_set_reward(metric, name)
    if settings.task == "sets":
        return
    if is_set_reward(reward):
        raise InputError(
            f"reward {signature_of(reward)}: scores sets of questions, and model.task={settings.task} writes none; "
            "give ask.granularity=paragraph, or choose another reward"
        )
    if settings.scst.credit != "whole":
        raise InputError(
            f"scst.credit={settings.scst.credit}: is for sets of questions; give ask.granularity, or leave it at whole"
        )
    if settings.task == "pairs":
        pair_floor(reward, settings.scst.pair_floor)
    if settings.task in ("answers", "multitask"):
        log.info("the reward of answers is their agreement with the human ones; reward=… scores questions alone")


def is_checked_at_boundary(settings: Settings, processes: int) -> bool:
    """Whether the reward is tested again between both stages, on questions of the cross-entropy model. One process
    alone can do that, without DeepSpeed.
    """
    alone = processes == 1 and not parse_flag_from_env("ACCELERATE_USE_DEEPSPEED")
    return alone and settings.algorithm == "scst" and settings.stages == "both" and settings.task == "questions"


def check_on_samples(
    settings: Settings, reward: Reward, validation: Sequence[QAExample], model: str, device: torch.device
) -> None:
    """Test a reward on human questions and on those of the generator `model` (`rl_qg.scoring.separation`), as
    `evaluation.check_reward` says; the random numbers of training stay as they are.
    """
    scst, count, seed = settings.scst, settings.evaluation.check_reward, settings.data.seed
    if not count or settings.task != "questions":
        return

    def sample(examples: Sequence[QAExample]) -> Any:
        try:
            generator = CandidateGenerator(model, device=device, independent=device.type == "cpu")
        except torch.OutOfMemoryError:
            fault = "the generator does not fit beside the model in training; evaluation.check_reward=0 leaves it out"
            raise InputError(fault) from None
        options = {name: getattr(scst, name) for name in ("max_new_tokens", "top_p", "temperature")}
        return sampler(Path(model).name, generator, SAMPLES, seed=seed, **options)(examples)

    with torch.random.fork_rng():
        check_reward(reward, validation, Path(settings.output_dir), count=count, seed=seed, sampler=sample)


class CheckAtBoundary(TrainerCallback):
    """Tests the reward on questions of `ce/`, before the first update with the reward."""

    def __init__(
        self, trainer: SelfCriticalTrainer, settings: Settings, reward: Reward, validation: Sequence[QAExample]
    ) -> None:
        self.trainer, self.settings, self.reward, self.validation = trainer, settings, reward, validation

    def on_step_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        folder = Path(args.output_dir) / "ce"
        if state.global_step == self.trainer.boundary and folder.exists():
            check_on_samples(self.settings, self.reward, self.validation, str(folder), args.device)


def in_task(settings: Settings, splits: Splits) -> Splits:
    """The same data as rows of the task (`rl_qg.generation.tasks.task_rows`); for sets of questions those of the
    strategy (`rl_qg.generation.sets.set_rows`).
    """
    parts = (splits.gold, splits.unlabelled, splits.validation)
    gold, unlabelled, validation = (_rows(settings, examples) for examples in parts)
    if settings.task != "questions":
        log.info("model.task=%s: %d rows of %d questions", settings.task, len(gold), len(splits.gold))
    return replace(splits, gold=gold, unlabelled=unlabelled, validation=validation)


def _rows(settings: Settings, examples: Sequence[QAExample]) -> list[QAExample]:
    ask = settings.ask
    if ask.granularity is None:
        return task_rows(settings.task, examples)
    rows = set_rows(ask.granularity, ask.mode, examples, order=ask.order, seed=settings.seed)
    if ask.order == "best" and ask.mode == "one2many" and any(row.question for row in rows):
        generator = CandidateGenerator(settings.model.path, device=processes(settings.training.use_cpu).device)
        rows = in_order_of_model(rows, generator, ask.granularity)
    return [*rows]


def unlabelled_examples(settings: Settings, splits: Splits, reward: Reward | None) -> list[QAExample]:
    """The passages without questions that the self-critical stage learns from (`scst.unlabelled_share`)."""
    share = settings.scst.unlabelled_share
    if settings.stages == "ce" or share == 0 or not splits.unlabelled:
        return []
    if "references" in getattr(reward, "needs", ()):
        if share is not None:
            raise InputError(
                f"scst.unlabelled_share={share}: the reward compares with gold questions, which these passages do not "
                "have; set it to 0, or choose another reward"
            )
        log.info("the reward compares with gold questions, so the stage does not use the passages without questions")
        return []
    log.info(
        "the self-critical stage: %d examples with a question, %d without", len(splits.gold), len(splits.unlabelled)
    )
    if not hasattr(reward, "needs"):
        log.info("the reward does not say what it needs: it gets no human question where a passage has none")
    return splits.unlabelled


def evaluation_sample(splits: Splits, settings: Settings) -> list[QAExample]:
    limit, what = settings.training.eval_samples, "validation questions are used at each evaluation"
    watched = [one for one in splits.validation if not splits.choosing or passage_key(one.context) in splits.choosing]
    return take(watched, limit, settings.data.seed, "training.eval_samples", what)


def seq2seq_trainer(
    settings: Settings,
    splits: Splits,
    reward: Reward | None,
    held_out: Reward | None,
    *,
    files: Callable[[Any], RunFiles] = RunFiles,
    **changed: Any,
) -> SelfCriticalTrainer:
    """The trainer that the settings describe, with its model; it learns from `splits.gold`, and in the self-critical
    stage from `splits.unlabelled` too. `changed` are arguments of training that are not those of the settings.
    """
    model, tokenizer = load_seq2seq(settings.model.path, settings.model.dropout)
    if settings.training.gradient_checkpointing and not model.supports_gradient_checkpointing:
        raise InputError(f"training.gradient_checkpointing=true: {model.config.model_type} cannot; leave it at false")
    task, form = settings.task, config.prompt_of(settings).format
    add_highlight(tokenizer, model, task, form)
    stored, prefix = Prompt.stored(settings.model.path), settings.model.prefix
    if prefix is None:
        goes_on = settings.stages == "scst" and stored is not None and not stored.format
        prefix = stored.prefix if stored and goes_on else default_prefix(model, task)
    if settings.peft.method != "none":
        set_seed(settings.seed)  # for the weights of the adapters
        model = add_lora(model, settings.peft, tokenizer.convert_tokens_to_ids(Prompt(task=task, format=form).tokens))
    arguments = _arguments(settings, **changed)  # after the model: with ZeRO-3 it would be loaded in shards otherwise
    arguments.prefix = prefix
    stops = [] if settings.training.stop_after is None else [StopAfter()]
    trainer = SelfCriticalTrainer(
        model=model,
        args=arguments,
        reward=reward,
        held_out=held_out,
        train_dataset=splits.gold,
        unlabelled=splits.unlabelled,
        eval_dataset=evaluation_sample(splits, settings),
        processing_class=tokenizer,
        files=files,
        callbacks=[*early_stopping(settings), *stops],
    )
    for stop in stops:
        stop.schedule = trainer.schedule
    if languages := trainer.encoder.languages:
        log.info("language codes: %s for examples without a language (model.language)", languages.default)
    return trainer


def early_stopping(settings: Settings) -> list[TrainerCallback]:
    patience = settings.ce.early_stopping_patience
    return [HeldOutStopping("loss", patience)] if patience and settings.stages == "ce" else []


def _arguments(settings: Settings, **changed: Any) -> config.SelfCriticalConfig:
    common, ce, scst, stages = settings.training, settings.ce, settings.scst, settings.stages
    factor = config.rate_factor(settings)
    selects_best = stages == "ce"  # losses of two stages cannot be compared
    options = {name: value for name, value in asdict(scst).items() if name in TRAINER_OPTIONS}
    options |= {name: value for name, value in asdict(config.prompt_of(settings)).items() if name != "separator"}
    options |= {
        "output_dir": settings.output_dir,
        "run_name": Path(settings.output_dir).name,
        "ce_epochs": 0.0 if stages == "scst" else ce.epochs,
        "scst_epochs": 0.0 if stages == "ce" else scst.epochs,
        "learning_rate": factor * ce.learning_rate,
        "scst_learning_rate": factor * scst.learning_rate,
        "ce_warmup": ce.warmup_fraction,
        "by_length": ce.by_length,
        "scst_warmup": scst.warmup_fraction,
        "label_smoothing_factor": ce.label_smoothing,
        "rate_schedule": common.rate_schedule,
        "rate_factors": common.rate_factors,
        "stop_after": common.stop_after,
        "stop_on": None if stages == "ce" else scst.stop_on,
        "per_device_train_batch_size": common.batch_size,
        "activation_checkpointing": common.gradient_checkpointing,
        "save_steps": common.eval_steps if selects_best else common.save_steps,
        "save_total_limit": max(common.save_total_limit, ce.average),
        "load_best_model_at_end": selects_best and common.stop_after is None and ce.average == 1,
        "metric_for_best_model": "eval_loss" if selects_best else None,
        "greater_is_better": False if selects_best else None,
    }
    try:
        return config.SelfCriticalConfig(**common_arguments(settings) | options | changed)
    except ValueError as error:
        fault = str(error).replace("_epochs=", ".epochs=")  # as the settings are called
        raise InputError(f"settings: {fault}") from None


def common_arguments(settings: Settings) -> dict[str, Any]:
    precision = settings.training.precision
    return {
        **{name: getattr(settings.training, name) for name in SAME_NAMES},
        "per_device_eval_batch_size": EVALUATION_BATCH,
        "bf16": precision == "bf16",
        "fp16": precision == "fp16",
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "project": config.PROJECT,
        "seed": settings.seed,
        "data_seed": settings.seed,
    }
