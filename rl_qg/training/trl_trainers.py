"""TRL's trainers for causal generators: SFT for cross-entropy, RLOO and GRPO for learning by reward.

The algorithms are TRL's, untouched. Ours are the evaluation (the same measures of the same greedy questions as in
self-critical training), the names in the logs, the files, and silence: no telemetry, no tables, no cards of TRL's own.
"""

import inspect
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from trl import GRPOTrainer, RLOOTrainer, SFTTrainer

from rl_qg.data.examples import QAExample
from rl_qg.generation.causal_prompts import CausalPromptEncoder, positions_of
from rl_qg.generation.generator import CausalDecoder
from rl_qg.runtime.checkpoints import CompleteCheckpoints
from rl_qg.runtime.json_files import append_json_line, cut_json_lines
from rl_qg.runtime.sharded_weights import WholeModel
from rl_qg.training import objectives
from rl_qg.training.callbacks import FiniteUpdates
from rl_qg.training.eval_metrics import HeldOutQuestions
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.step_metrics import Measurements
from rl_qg.training.trl_reward import RewardFunction

SAMPLES_LOGGED = 4
OURS = {
    "kl": "kl",
    "entropy": "entropy",
    "rewards/reward/std": "reward_std",
    "completions/mean_length": "length_sample",
}
PLAIN = {"loss", "grad_norm", "learning_rate", "epoch", "mean_token_accuracy", "frac_reward_zero_std"}
TOTALS = {"train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss", "total_flos"}

# TRL prints whole passages when a reward is None, which `FailedRewards` reports.
logging.getLogger("trl").setLevel(logging.ERROR)


class OurLog(Trainer):
    """Stands behind TRL's trainer, where its log comes out: gives what means the same our names, adds ours, drops the
    rest.
    """

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """One line for callbacks and trackers."""
        kept = {name: value for name, value in logs.items() if name in PLAIN | TOTALS or name.startswith("eval_")}
        kept |= {ours: logs[theirs] for theirs, ours in OURS.items() if logs.get(theirs) is not None}
        if "loss" in logs:
            kept |= self.watched()
        logs.clear()
        logs.update(kept)
        super().log(logs, start_time)


class Watched:
    """What stands before TRL's trainer. Call `watch` before training."""

    model: Any
    args: Any
    state: TrainerState
    control: TrainerControl
    accelerator: Any
    callback_handler: Any
    add_callback: Any
    compute_loss_context_manager: Any
    whole_model: Any

    def watch(
        self,
        encoder: CausalPromptEncoder,
        examples: Sequence[QAExample],
        questions: HeldOutQuestions | None,
        measured: Measurements,
        files: "StageFiles",
        *,
        max_new_tokens: int,
        reward_function: RewardFunction | None = None,
        watch_kl: bool = False,
    ) -> None:
        """Say what evaluations look at, and where logs go.

        Args:
            encoder: builds the prompts.
            examples: the validation slice.
            questions: judges its greedy questions; None for cross-entropy alone.
            measured: collects what is measured between two log lines.
            files: writes the lines.
            max_new_tokens: longest greedy question.
            reward_function: whose rollouts go to `samples.jsonl`.
            watch_kl: whether evaluations report the divergence from the model that the stage began with.
        """
        self.encoder, self.examples, self.questions = encoder, list(examples), questions
        self.measured, self.max_new_tokens, self.watch_kl = measured, max_new_tokens, watch_kl
        self.reward_function = reward_function
        self.finite = FiniteUpdates()
        self.reference: ReferencePolicy | None = None
        for callback in (files, self.finite, _Beginning(self)):
            self.add_callback(callback)
        for model in (self.model, getattr(self, "ref_model", None)):
            if model is not None:
                count_positions_from_the_text(self.accelerator.unwrap_model(model))
        head = self.accelerator.unwrap_model(self.model).get_output_embeddings()
        if not hasattr(head, "bias"):  # peft's wrapper of a head that is tied to the embeddings; TRL asks for one
            head.register_parameter("bias", None)

    def _send_telemetry(self) -> None:
        """TRL would tell its makers about this run."""

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """TRL would write a card into every checkpoint; `rl_qg.reports.model_card` writes ours."""

    def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
        """TRL's, counted."""
        self.measured.count(self.args.per_device_train_batch_size // getattr(self, "num_generations", 1))
        return super().training_step(*args, **kwargs)  # type: ignore[misc]

    def watched(self) -> dict[str, float]:
        """What was measured since the last line."""
        found = self.measured.collect(self.accelerator)
        if self.reward_function is not None:
            found |= {"kl_coefficient": self.args.beta, "updates_skipped": float(self.finite.skipped)}
        return found

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The library's; rewards forget what they remember, since a resumed run has judged nothing yet."""
        if self.questions is not None:
            self.questions.forget()
        if self.reward_function is not None:
            self.reward_function.judge.forget()
        super()._save_checkpoint(model, trial)  # type: ignore[misc]

    # --- evaluation
    # -----------------------------------------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Cross-entropy per token of the gold questions, averaged over questions, and the measures of the greedy ones
        (`docs/explanation/method.md`).
        """
        training = self.model.training
        self.model.eval()
        try:
            with self.measured.paused():
                metrics = {f"{metric_key_prefix}_{name}": value for name, value in self._measures().items()}
            self.log(metrics)  # type: ignore[attr-defined]
        finally:
            self.model.train(training)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    @torch.no_grad()
    def _measures(self) -> dict[str, float]:
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        share = self.examples[rank::processes] or self.examples[:1]  # counted by id, so once
        size = self.args.per_device_eval_batch_size
        batches = [share[start : start + size] for start in range(0, len(share), size)]
        self.callback_handler.eval_dataloader = batches  # where a progress bar asks for their number
        losses: dict[str, float] = {}
        with self.whole_model() as policy, self.compute_loss_context_manager():
            for batch in batches:
                losses |= self._losses(policy, batch)
                if self.questions is not None:
                    self._ask(policy, batch, self.questions)
                self.control = self.callback_handler.on_prediction_step(self.args, self.state, self.control)
        values = dict(gather_object(list(losses.items()))).values()
        found = {"loss": sum(values) / len(values)}
        return found | (self.questions.collect() if self.questions is not None else {})

    def _losses(self, policy: Any, examples: Sequence[QAExample]) -> dict[str, float]:
        """Cross-entropy in nats per token of each gold question, by id."""
        inputs = self._on_device(self.encoder(examples))
        labels = inputs["labels"][:, 1:]
        logits = policy(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits[:, :-1]
        losses = objectives.cross_entropy(logits, labels) / labels.ne(-100).sum(-1)
        return dict(zip((example.id for example in examples), losses.tolist(), strict=True))

    def _ask(self, policy: Any, examples: Sequence[QAExample], questions: HeldOutQuestions) -> None:
        """Hand the greedy questions of a batch to `questions`."""
        tokenizer = self.encoder.tokenizer
        decoder = CausalDecoder(policy, tokenizer, self.encoder.prompt)
        batch = self._on_device(self.encoder.batch(examples))
        tokens = decoder.greedy(batch, self.max_new_tokens)
        ends = tokens == tokenizer.eos_token_id
        mask = ends.cumsum(-1) - ends.int() == 0
        divergence = None
        if self.reference is not None:
            with self.reference.in_place_of(policy):
                reference = decoder.logits(batch, tokens)
            divergence = objectives.kl_over_vocabulary(decoder.logits(batch, tokens), reference)
        texts = [text.strip() for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
        questions.add(examples, texts, mask, divergence)

    def _on_device(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        return {name: value.to(self.args.device) for name, value in batch.items() if isinstance(value, Tensor)}


class CrossEntropyTrainer(Watched, WholeModel, CompleteCheckpoints, SFTTrainer, OurLog):
    """SFT: loss on question and end token only."""


class LeaveOneOutTrainer(Watched, WholeModel, CompleteCheckpoints, RLOOTrainer, OurLog):
    """RLOO: each sample against the mean of its siblings."""

    def _get_train_sampler(self, dataset: Any = None) -> "OrderOfEpoch":
        return OrderOfEpoch(super()._get_train_sampler(dataset), self.args.seed)


class GroupRelativeTrainer(Watched, WholeModel, CompleteCheckpoints, GRPOTrainer, OurLog):
    """GRPO: each sample against the mean of its group, over the group's spread."""

    def _get_train_sampler(self, dataset: Any = None) -> "OrderOfEpoch":
        return OrderOfEpoch(super()._get_train_sampler(dataset), self.args.seed)


class OrderOfEpoch(Sampler[int]):
    """TRL's sampler, whose order is here a function of seed and epoch: left alone, a run that resumes in the second
    epoch takes the order of the first.
    """

    def __init__(self, sampler: Any, seed: int) -> None:
        self.sampler = sampler
        self.seed = seed

    def set_epoch(self, epoch: int) -> None:
        """Called before each pass over the data."""
        self.sampler.generator.manual_seed(self.seed + epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)


def count_positions_from_the_text(model: torch.nn.Module) -> None:
    """Give a model that is called with padding and no positions those of the text alone.

    TRL pads prompts on the left and passes no positions. Models with absolute positions (GPT-2, OPT's kin) would then
    read, and learn, a shorter prompt of a batch at other positions than those it was generated from.
    """
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return

    def add_positions(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mask, ids = kwargs.get("attention_mask"), kwargs.get("input_ids")
        alone = kwargs.get("position_ids") is None and kwargs.get("past_key_values") is None
        if alone and mask is not None and ids is not None and mask.shape == ids.shape:
            kwargs["position_ids"] = positions_of(mask)
        return args, kwargs

    model.register_forward_pre_hook(add_positions, with_kwargs=True)


class _Beginning(TrainerCallback):
    """Notes the policy that the stage begins with, where evaluations report the divergence from it."""

    def __init__(self, trainer: Watched) -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After the checkpoint, if there is one, has been read."""
        trainer = self.trainer
        if trainer.watch_kl:
            with trainer.whole_model() as policy:
                trainer.reference = ReferencePolicy.at_the_boundary(
                    policy,
                    Path(args.output_dir),
                    resumed=state.global_step > 0,
                    write=state.is_world_process_zero,
                )


class StageFiles(TrainerCallback):
    """`metrics.jsonl` and `samples.jsonl` of the run, whose steps and epochs go on from stage to stage.

    Args:
        folder: the run folder.
        stage: `ce` or `scst`, whatever the algorithm is.
        first_step, first_epoch: what the stage before came to.
        reward_function: whose newest rollout goes to `samples.jsonl`.
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
        """Forget the lines behind the checkpoint that this run resumes from: they will be written again."""
        if state.is_world_process_zero:
            for name in ("metrics.jsonl", "samples.jsonl"):
                cut_json_lines(self.folder / name, (self.first_step + state.global_step) or -1)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A log line before each checkpoint: what TRL has summed up since the last one would be lost by a resume."""
        control.should_log |= control.should_save

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
        step, epoch = self.first_step + state.global_step, self.first_epoch + (state.epoch or 0.0)
        line = {"step": step, "epoch": None, "stage": self.stage, **logs} | {"epoch": round(epoch, 4)}
        if "loss" in logs:
            line |= {"loss_ce" if self.stage == "ce" else "loss_scst": logs["loss"]}
            rows = [] if self.reward_function is None else self.reward_function.rollout[:SAMPLES_LOGGED]
            for row in rows:
                append_json_line(self.folder / "samples.jsonl", {"step": step, **row})
        append_json_line(self.folder / "metrics.jsonl", line)
