"""Train a causal question generator (GPT-2, Qwen, …) with TRL: SFT for cross-entropy, RLOO or GRPO for reward.

    rl-qg train algorithm=rloo model.path=gpt2 reward=qrelscore data.train=train.json data.validation=dev.json

The run folder contains the same files as after `rl_qg.training.stages`: the models `ce/` and `scst/` (the second name
is that of the stage, whatever the algorithm), `metrics.jsonl`, `samples.jsonl`, `trained.json`. Checkpoints and
TensorBoard events are in `checkpoints/`. If the command was killed, the same command resumes from the last checkpoint.
"""

import importlib.util
import logging
import math
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PreTrainedModel, set_seed

from rl_qg.data.splits import Splits
from rl_qg.generation.loading import load_causal, lora_config
from rl_qg.generation.prompts import HIGHLIGHT, CausalPromptEncoder, add_highlight, default_separator
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_record, write_json
from rl_qg.runtime.trainer_base import resume_training
from rl_qg.scoring.reward_scorer import Reward
from rl_qg.settings import Settings
from rl_qg.settings.training import SelfCriticalOptions
from rl_qg.training import stages
from rl_qg.training.callbacks import HackingReport, HeldOutStopping
from rl_qg.training.config import check_settings, prompt_of, rate_factor
from rl_qg.training.row_schedule import exact_share
from rl_qg.training.run_files import save_model_folder

log = logging.getLogger(__name__)
NUM_SAMPLES = 4
BASELINES = {"rloo": "leave_one_out", "grpo": "mean"}  # of the algorithms themselves
# Keys of `SelfCriticalOptions` that may be changed with TRL; any other, a new one too, is refused.
HONOURED = frozenset(
    "baseline num_samples reward_scale normalise_advantage unlabelled_share kl_coefficient watch_kl on_bad_reward "
    "pair_floor answer_weight stop_on patience max_new_tokens min_new_tokens temperature top_k top_p "
    "no_repeat_ngram".split()
)


def check_algorithm(settings: Settings) -> None:
    """Refuse wrong settings, and changed `scst.*` settings that the algorithm cannot honour."""
    scst, name = settings.scst, settings.algorithm
    refused = [field.name for field in fields(SelfCriticalOptions) if field.name not in HONOURED]
    faults = [f"scst.{given}" for given in scst.changed(*refused)]
    if scst.baseline not in (SelfCriticalOptions.baseline, BASELINES[name]):
        faults.append(f"scst.baseline={scst.baseline} (it is {BASELINES[name]} by definition)")
    if (name, scst.normalise_advantage) in (("grpo", "batch"), ("rloo", "group")):
        what = "each group" if name == "grpo" else "the batch"
        faults.append(f"scst.normalise_advantage={scst.normalise_advantage} (it divides by the spread of {what})")
    if scst.unlabelled_share not in (None, 0, 1):
        faults.append(f"scst.unlabelled_share={scst.unlabelled_share} (null, 0 or 1: examples are drawn alike)")
    given = {name: getattr(settings.training, name) for name in ("stop_after", "rate_factors")}
    faults += [f"training.{name}={value}" for name, value in given.items() if value]
    faults += ["ce.by_length=true"] * settings.ce.by_length
    if faults:
        raise InputError(
            f"algorithm={name}: cannot honour {', '.join(faults)}; leave the default, or use algorithm=scst"
        )
    if samples_of(settings) < 2:
        raise InputError(f"algorithm={name}: compares samples, so scst.num_samples must be at least 2")
    settings.check()
    check_settings(settings)


def samples_of(settings: Settings) -> int:
    return NUM_SAMPLES if settings.scst.num_samples is None else settings.scst.num_samples


def stage_arguments(settings: Settings, stage: str, output_dir: str) -> dict[str, Any]:
    """Arguments of `SFTConfig` (`ce`), of `RLOOConfig` or `GRPOConfig` (`scst`), whose own defaults differ."""
    common, scst, options = settings.training, settings.scst, getattr(settings, stage)
    arguments = {
        **stages.common_arguments(settings),
        "output_dir": output_dir,
        "gradient_checkpointing": common.gradient_checkpointing,
        "lr_scheduler_type": "linear" if common.rate_schedule == "linear" else "constant_with_warmup",
        "remove_unused_columns": False,
        "per_device_train_batch_size": common.batch_size,
        "num_train_epochs": options.epochs,
        "learning_rate": options.learning_rate * rate_factor(settings),
        "warmup_steps": min(options.warmup_fraction, math.nextafter(1, 0)),  # below 1 a fraction of all steps
    }
    if stage == "ce":
        arguments["label_smoothing_factor"] = settings.ce.label_smoothing
        arguments["max_length"] = None  # the prompt is cut around its answer, not at its end
        arguments["dataset_kwargs"] = {"skip_prepare_dataset": True}
        if settings.stages == "ce":
            arguments["save_steps"] = common.eval_steps
            arguments |= {"load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
            arguments["greater_is_better"] = False
        return arguments
    samples = samples_of(settings)
    limits = {"min_new_tokens": scst.min_new_tokens, "no_repeat_ngram_size": scst.no_repeat_ngram}
    if settings.algorithm == "rloo":  # the library has no running mean; its batch is the nearest
        arguments["normalize_advantages"] = scst.normalise_advantage != "none"
    return arguments | {
        "per_device_train_batch_size": common.batch_size * samples,  # TRL counts a batch in samples, rl-qg in contexts
        "num_generations": samples,
        "num_generations_eval": 1,
        "beta": scst.kl_coefficient,
        "reward_weights": [scst.reward_scale],
        "max_completion_length": scst.max_new_tokens,
        **{name: getattr(scst, name) for name in ("temperature", "top_k", "top_p")},
        "generation_kwargs": {name: value for name, value in limits.items() if value},
        "disable_dropout": True,  # TRL samples in training mode: with dropout it would not sample from the policy
    }


def train_causal(settings: Settings, splits: Splits, reward: Reward | None, held_out: Reward | None = None) -> Path:
    """Run the stages that `settings.stages` names; return the folder of the last stage's model."""
    folder = Path(settings.output_dir)
    final = folder / ("ce" if settings.stages == "ce" else "scst")
    if stages.is_complete(settings, final):
        return final
    splits = replace(splits, unlabelled=stages.unlabelled_examples(settings, splits, reward))
    if importlib.util.find_spec("trl") is None:
        raise InputError(
            f'algorithm={settings.algorithm}: causal models are trained by TRL; install it: pip install "rl-qg[trl]"'
        )
    stages.check_examples(settings, splits)
    check_algorithm(settings)
    done = {"step": 0}
    with _no_library_warnings():
        for name in ("ce", "scst") if settings.stages == "both" else (settings.stages,):
            done = CausalStage(name, settings, splits, reward, held_out, first_step=done["step"]).run()
    if PartialState(cpu=settings.training.use_cpu).is_main_process:
        note = {"model": final.name, "steps": done.pop("step"), **done}
        stages.complete(settings, note, reward, held_out, splits=splits)
    return final


@contextmanager
def _no_library_warnings() -> Iterator[None]:
    """Hide the warnings of TRL's imports and code that are meant for its developers."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        import rl_qg.training.trl_trainers  # noqa: F401 (imports DeepSpeed if it is installed, which logs a message)
    finally:
        logging.disable(level)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.filterwarnings("ignore", module="peft")
        yield


@dataclass(eq=False)
class CausalStage:
    """One stage, `ce` or `scst`: its checkpoints are in `checkpoints/<name>/`, its model in `<name>/`."""

    name: str
    settings: Settings
    splits: Splits
    reward: Reward | None
    held_out: Reward | None
    first_step: int = 0

    def __post_init__(self) -> None:
        self.folder = Path(self.settings.output_dir)
        self.checkpoints = self.folder / "checkpoints" / self.name
        self.done = self.checkpoints / "done.json"
        self.state = PartialState(cpu=self.settings.training.use_cpu)

    def run(self) -> dict[str, Any]:
        """Train, unless the stage is complete; return the `step` of the run with which the stage ends, and which model
        `scst.stop_on` has `kept`.
        """
        if self.done.exists():
            return read_record(self.done)
        trainer = self._trainer()
        both = self.settings.stages == "both"
        resume_training(trainer, f"train ({self.name}, {self.settings.algorithm})" if both else f"train ({self.name})")
        step = self.first_step + trainer.state.global_step
        save_model_folder(trainer, self.folder / self.name)
        best = self.checkpoints / "best"
        if trainer.is_world_process_zero():
            measure, final = self.settings.scst.stop_on, self.folder / self.name
            kept = stages.use_best_model(trainer, final, best, measure, first_step=self.first_step)
            write_json(self.done, {"step": step, **kept})
            shutil.rmtree(best, ignore_errors=True)  # not before: a kill loses nothing
        trainer.accelerator.wait_for_everyone()
        trainer.accelerator.free_memory()
        return read_record(self.done)

    def _trainer(self) -> Any:
        from datasets import Dataset

        settings, splits, scst = self.settings, self.splits, self.settings.scst
        set_seed(settings.seed)
        model, encoder = self._load_model()
        if self.first_step == 0 and self.state.is_main_process:
            stages.report_cuts(encoder, [*splits.gold, *splits.unlabelled], self.folder)
        adapters = None
        if settings.peft.method != "none":
            adapters = lora_config(settings.peft, model, [encoder.tokenizer.convert_tokens_to_ids(HIGHLIGHT)])
        validation = stages.evaluation_sample(splits, settings)
        arguments = stage_arguments(settings, self.name, str(self.checkpoints))
        choose = self._cross_entropy if self.name == "ce" else self._by_reward
        trainer_class, options = choose(encoder, arguments)
        trainer = trainer_class(
            model=model,
            processing_class=encoder.tokenizer,
            peft_config=adapters,
            eval_dataset=Dataset.from_dict({"prompt": [""] * len(validation), "row": range(len(validation))}),
            **options,
        )
        reward_function = options.get("reward_funcs")
        trainer.set_up(self, encoder, validation, reward_function)
        if reward_function is not None:
            trainer.add_callback(HackingReport(lambda: 0))
            if scst.stop_on is not None:
                keep = partial(save_model_folder, trainer, self.checkpoints / "best")
                trainer.add_callback(HeldOutStopping(scst.stop_on, scst.patience, keep=keep))
        return trainer

    def _cross_entropy(self, encoder: CausalPromptEncoder, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        from datasets import Dataset
        from trl import SFTConfig

        from rl_qg.training.trl_trainers import CrossEntropyTrainer

        gold = self.splits.gold

        def collate(rows: Sequence[dict[str, int]]) -> dict[str, Any]:
            batch = encoder([gold[row["row"]] for row in rows])
            del batch["examples"]
            return batch

        return CrossEntropyTrainer, {
            "args": SFTConfig(**arguments),
            "train_dataset": Dataset.from_dict({"row": range(len(gold))}),
            "data_collator": collate,
            "callbacks": stages.early_stopping(self.settings),
        }

    def _by_reward(self, encoder: CausalPromptEncoder, arguments: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        from datasets import Dataset
        from trl import GRPOConfig, RLOOConfig

        from rl_qg.training.trl_trainers import GroupRelativeTrainer, LeaveOneOutTrainer, RewardFunction

        # The examples: those with a question, then those without; with a share of 1 the latter alone.
        share, gold, unlabelled = self.settings.scst.unlabelled_share, self.splits.gold, self.splits.unlabelled
        exact_share(share, len(gold), len(unlabelled))  # raises where the share cannot be had
        examples = unlabelled if share == 1 else [*gold, *unlabelled]
        is_rloo = self.settings.algorithm == "rloo"
        config, trainer_class = (RLOOConfig, LeaveOneOutTrainer) if is_rloo else (GRPOConfig, GroupRelativeTrainer)
        args = config(**arguments)
        self._check_update_size(len(examples), args.generation_batch_size // args.num_generations)
        return trainer_class, {
            "args": args,
            "reward_funcs": RewardFunction(self, examples),
            "train_dataset": Dataset.from_dict({"prompt": encoder.texts(examples), "row": range(len(examples))}),
        }

    def _load_model(self) -> tuple[PreTrainedModel, CausalPromptEncoder]:
        settings = self.settings
        continues = self.name == "scst" and settings.stages == "both"
        path = str(self.folder / "ce") if continues else settings.model.path
        model, tokenizer = load_causal(path, settings.model.dropout)
        rows = model.get_input_embeddings().weight.shape[0]
        add_highlight(tokenizer, model)
        if self.name == "scst" and model.get_input_embeddings().weight.shape[0] > rows:
            start = self.checkpoints / "start"  # TRL loads the reference policy itself, from the model's path
            if self.state.is_main_process:
                model.save_pretrained(start)
            self.state.wait_for_everyone()
            model.config._name_or_path = str(start)
        longest = settings.model.max_source_length + max(
            settings.model.max_target_length, settings.scst.max_new_tokens
        )
        limit = getattr(model.config, "max_position_embeddings", None)
        if limit is not None and longest > limit:
            raise InputError(
                f"model.path={settings.model.path}: reads {limit} tokens, and model.max_source_length with the "
                f"longest question needs {longest}; lower model.max_source_length"
            )
        prompt = prompt_of(settings, prefix=settings.model.prefix or "", separator=default_separator(model))
        return model, CausalPromptEncoder(tokenizer, prompt)

    def _check_update_size(self, examples: int, contexts: int) -> None:
        if examples < contexts:
            raise InputError(
                f"training.batch_size: an update of algorithm={self.settings.algorithm} takes {contexts} contexts, "
                f"and there are {examples}; lower training.batch_size"
            )
        if examples % contexts:
            log.info(
                "each epoch leaves out %d of %d examples, different ones each time", examples % contexts, examples
            )
