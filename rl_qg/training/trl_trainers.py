"""TRL's trainers for causal generators: SFT for cross-entropy, RLOO and GRPO for learning by reward.

The algorithms are those of TRL, unchanged. Added are the evaluation (the same measures of the same greedy questions as
in self-critical training), the names in the logs, and the files. TRL's telemetry, tables and model cards are off.
"""

import inspect
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.utils.data import Sampler
from transformers import Trainer, TrainerControl, TrainerState
from trl import GRPOTrainer, RLOOTrainer, SFTTrainer

from rl_qg.data.examples import QAExample
from rl_qg.generation.decoding import up_to_end
from rl_qg.generation.generator import CausalDecoder
from rl_qg.generation.prompts import CausalPromptEncoder, positions_of
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.scoring.reward_scorer import FailedRewards, RewardScorer, finite_or_none
from rl_qg.training import objectives
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.run_files import LogFiles
from rl_qg.training.step_metrics import HeldOutQuestions, StepMetrics

RENAMED = {  # TRL's name of a metric -> its name in self-critical training
    "kl": "kl",
    "entropy": "entropy",
    "rewards/reward/std": "reward_std",
    "completions/mean_length": "length_sample",
}
SAMPLES_LOGGED = 4
KEPT = {"loss", "grad_norm", "learning_rate", "epoch", "mean_token_accuracy", "frac_reward_zero_std"}
TOTALS = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}

# TRL prints whole passages when a reward is None; `FailedRewards` reports that already.
logging.getLogger("trl").setLevel(logging.ERROR)


class RewardFunction:
    """Scores the completions of a rollout by the reward of a stage, any that has `score`.

    The column `row` of the data set is the index of a completion's example, so the reward gets passage, answer and
    gold question, as in self-critical training. A failed reward becomes None, which TRL leaves out.
    """

    __name__ = "reward"  # TRL's name for it in its logs

    def __init__(self, stage: Any, examples: Sequence[QAExample]) -> None:
        self.scorer, self.examples, self.first_step = RewardScorer(stage.reward), examples, stage.first_step
        self.failed_rewards = FailedRewards(stage.folder / "samples.jsonl", stage.settings.scst.on_bad_reward)
        self.step_metrics = StepMetrics()
        self.rollout: list[dict[str, Any]] = []

    def __call__(
        self, *, completions: Sequence[str], row: Sequence[int], trainer_state: TrainerState, **columns: Any
    ) -> list[float | None]:
        """One reward for each completion, or None. `rollout` then holds the rows for `samples.jsonl`."""
        examples = [self.examples[index] for index in row]
        texts = [text.strip() for text in completions]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        with self.step_metrics.timed("reward"), torch.autocast(device, enabled=False):  # as the metric is set
            batch = self.scorer(examples, texts)
        self.failed_rewards.handle(self.first_step + trainer_state.global_step + 1, examples, texts, batch)
        scores = [finite_or_none(score) for score in batch.scores]
        parts = {name: [finite_or_none(value) for value in values] for name, values in batch.parts.items()}
        columns = {"reward_sample": scores, **{f"reward_sample_{name}": values for name, values in parts.items()}}
        for name, values in columns.items():
            finite = [value for value in values if value is not None]
            self.step_metrics.add(**{name: (sum(finite), len(finite))})
        self.step_metrics.add(rewards_failed=(scores.count(None), len(scores)))
        self.rollout = [
            {"id": example.id, "sample": text, "reward_sample": score}
            | {f"{name}_sample": values[index] for name, values in parts.items()}
            for index, (example, text, score) in enumerate(zip(examples, texts, scores, strict=True))
        ]
        return scores


class StageFiles(LogFiles):
    """A stage's lines by TRL, its last rollout, and the policy at its start if evaluations report the divergence."""

    def __init__(self, trainer: Any, stage: Any) -> None:
        first_epoch = stage.settings.ce.epochs if stage.first_step else 0.0
        super().__init__(stage.folder, stage.name, first_step=stage.first_step, first_epoch=first_epoch)
        self.trainer = trainer

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if self.trainer.watch_kl:
            self.trainer.reference = ReferencePolicy.at_stage_start(self.trainer, resumed=state.global_step > 0)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Log before each checkpoint: a resumed run would lose what TRL has accumulated since the last line."""
        control.should_log |= control.should_save

    def samples(self) -> Sequence[dict[str, Any]]:
        reward_function = self.trainer.reward_function
        return [] if reward_function is None else reward_function.rollout[:SAMPLES_LOGGED]


class LogTranslation(Trainer):
    """Comes after TRL's trainer in the bases, so that its `log` receives what TRL logs. It renames metrics as in
    self-critical training, adds the step metrics, and drops the rest.
    """

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        line = {name: value for name, value in logs.items() if name in KEPT | TOTALS or name.startswith("eval_")}
        line |= {name: logs[trl_name] for trl_name, name in RENAMED.items() if logs.get(trl_name) is not None}
        if "loss" in logs:
            line |= self.collect_metrics()
        logs.clear()
        logs.update(line)
        super().log(logs, start_time)


class GeneratorEvaluation(Resumable):
    """Comes before TRL's trainer in the bases: replaces its evaluation by that of self-critical training, and adds
    files and metrics. Call `set_up` before training.
    """

    control: TrainerControl

    def set_up(
        self,
        stage: Any,
        encoder: CausalPromptEncoder,
        examples: Sequence[QAExample],
        reward_function: RewardFunction | None = None,
    ) -> None:
        """Set what evaluations of a stage (`rl_qg.training.trl_stages.CausalStage`) measure on the greedy questions of
        `examples`, and where logs are written. `reward_function` is None for cross-entropy.
        """
        self.encoder, self.examples, self.reward_function = encoder, list(examples), reward_function
        scst, self.step_metrics, self.watch_kl = stage.settings.scst, StepMetrics(), False
        scorer = None if stage.reward is None else RewardScorer(stage.reward)
        if reward_function is not None:
            scorer, self.step_metrics = reward_function.scorer, reward_function.step_metrics
            self.watch_kl = scst.watch_kl
        self.held_out_questions: HeldOutQuestions | None = None
        if scorer is not None:
            of_held_out = None if stage.held_out is None else RewardScorer(stage.held_out, "held-out reward")
            self.held_out_questions = HeldOutQuestions(reward_greedy=scorer, held_out=of_held_out)
        self.max_new_tokens = scst.max_new_tokens
        self.reference: ReferencePolicy | None = None
        self.add_callback(StageFiles(self, stage))
        for model in (self.model, getattr(self, "ref_model", None)):
            if model is not None:
                add_position_ids(self.accelerator.unwrap_model(model))
        head = self.accelerator.unwrap_model(self.model).get_output_embeddings()
        if not hasattr(head, "bias"):  # peft's wrapper of a head tied to the embeddings has none, and TRL reads it
            head.register_parameter("bias", None)

    def _send_telemetry(self) -> None:
        """TRL would report this run to its developers."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """TRL would add a card to every checkpoint; `rl_qg.reports.model_card` writes one."""

    def _get_train_sampler(self, dataset: Any = None) -> Any:
        sampler = super()._get_train_sampler(dataset)
        return sampler if self.reward_function is None else EpochSeededSampler(sampler, self.args.seed)

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        self.step_metrics.count(self.args.per_device_train_batch_size // getattr(self, "num_generations", 1))
        return super().training_step(*args, **kwargs)

    def collect_metrics(self) -> dict[str, float]:
        metrics = self.step_metrics.collect(self.accelerator)
        if self.reward_function is not None:
            metrics |= {"kl_coefficient": self.args.beta, "updates_skipped": float(self.finite_updates.skipped)}
        return metrics

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The library's, after clearing the caches of the rewards: those of a resumed run are empty."""
        if self.held_out_questions is not None:
            self.held_out_questions.reset_cache()
        super()._save_checkpoint(model, trial)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Cross-entropy in nats per token of the gold questions, averaged over questions, and the measures of the
        greedy ones (`docs/explanation/method.md`).
        """
        training = self.model.training
        self.model.eval()
        try:
            with self.step_metrics.paused():
                metrics = {f"{metric_key_prefix}_{name}": value for name, value in self._measures().items()}
            self.log(metrics)
        finally:
            self.model.train(training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    @torch.no_grad()
    def _measures(self) -> dict[str, float]:
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        examples = self.examples[rank::processes] or self.examples[:1]  # repeated ones are removed by id below
        size = self.args.per_device_eval_batch_size
        batches = [examples[start : start + size] for start in range(0, len(examples), size)]
        self.callback_handler.eval_dataloader = batches  # a progress bar reads their number from it
        losses: list[tuple[str, float]] = []
        with self.whole_model() as policy, self.compute_loss_context_manager():
            for batch in batches:
                losses += zip((example.id for example in batch), self._losses(policy, batch), strict=True)
                if self.held_out_questions is not None:
                    self._add_greedy_questions(policy, batch, self.held_out_questions)
                self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        values = dict(gather_object(losses)).values()
        measures = {"loss": sum(values) / len(values)}
        return measures | (self.held_out_questions.collect() if self.held_out_questions is not None else {})

    def _losses(self, policy: Any, examples: Sequence[QAExample]) -> list[float]:
        inputs = self._on_device(self.encoder(examples))
        labels = inputs["labels"][:, 1:]
        logits = policy(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
        return (objectives.cross_entropy(logits, labels) / labels.ne(-100).sum(-1)).tolist()

    def _add_greedy_questions(
        self, policy: Any, examples: Sequence[QAExample], held_out_questions: HeldOutQuestions
    ) -> None:
        tokenizer = self.encoder.tokenizer
        decoder = CausalDecoder(policy, tokenizer, self.encoder.prompt)
        batch = self._on_device(self.encoder.batch(examples))
        tokens = decoder.greedy(batch, self.max_new_tokens)
        mask = up_to_end(tokens, tokenizer.eos_token_id)
        divergence = None
        if self.reference is not None:
            with self.reference.swapped_into(policy):
                reference = decoder.logits(batch, tokens)
            divergence = objectives.kl_over_vocabulary(decoder.logits(batch, tokens), reference)
        texts = [text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
        held_out_questions.add(examples, texts, mask, divergence)

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {name: value.to(self.args.device) for name, value in batch.items() if isinstance(value, Tensor)}


class CrossEntropyTrainer(GeneratorEvaluation, SFTTrainer, LogTranslation):
    """SFT: loss on question and end token only."""


class LeaveOneOutTrainer(GeneratorEvaluation, RLOOTrainer, LogTranslation):
    """RLOO: each sample against the mean of the other samples of its context."""


class GroupRelativeTrainer(GeneratorEvaluation, GRPOTrainer, LogTranslation):
    """GRPO: each sample against the mean of its group, divided by the standard deviation of the group."""


class EpochSeededSampler(Sampler[int]):
    """TRL's sampler with an order that depends only on seed and epoch. Without this, a run that resumes in the second
    epoch would use the order of the first.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self.sampler, self.seed = sampler, seed

    def set_epoch(self, epoch: int) -> None:
        self.sampler.generator.manual_seed(self.seed + epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


def add_position_ids(model: torch.nn.Module) -> None:
    """Make a model that is called with padding and without positions count positions from the first token.

    TRL pads prompts on the left and passes no positions. Models with absolute positions (GPT-2, OPT) would then learn
    the shorter prompts of a batch at other positions than those at which they generated.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return

    def add_positions(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask, ids = kwargs.get("attention_mask"), kwargs.get("input_ids")
        is_missing = kwargs.get("position_ids") is None and kwargs.get("past_key_values") is None
        if is_missing and mask is not None and ids is not None and mask.shape == ids.shape:
            kwargs["position_ids"] = positions_of(mask)
        return args, kwargs

    model.register_forward_pre_hook(add_positions, with_kwargs=True)
