"""`SelfCriticalTrainer`: a transformers trainer that learns first by cross-entropy, then by reward.

One trainer runs both stages, because the stage boundary is only a step: up to it λ is 0, no rollout is taken and the
update is plain cross-entropy; behind it every update minimises

    L = λ · L_scst + L_ce,    L_scst = (r(greedy) − r(sample)) · Σ_t log p(sample_t)        (QRelScore paper, eq.
    11-15)

What is ours is rollout, reward, loss and their logging. Precision, accumulation, processes, checkpoints and resume are
the library's.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)
from transformers.modeling_outputs import BaseModelOutput

from rl_qg import objectives
from rl_qg.prompts import Prompt, PromptEncoder, add_highlight
from rl_qg.qa_data import QAExample
from rl_qg.rollout import Decoded, SpecialTokens, decode, uniforms
from rl_qg.trainer_files import RunFiles


class Reward(Protocol):
    """What the trainer asks of a reward; every metric of `rewards` is one, and so is any object of this shape."""

    def score(
        self,
        questions: Sequence[str],
        contexts: Sequence[str],
        *,
        answers: Sequence[str] | None = None,
        references: Sequence[Sequence[str]] | None = None,
    ) -> Any:
        """Return an object whose `scores` holds one number for each question."""


@dataclass
class SelfCriticalConfig(Seq2SeqTrainingArguments):
    """Training arguments plus what self-critical training adds.

    Args:
        ce_epochs: passes over the data by cross-entropy alone (λ = 0). `learning_rate` and `ce_warmup` belong to this
            stage.
        scst_epochs: passes with λ rising linearly from 0 to 1. `num_train_epochs` is the sum of both; with `max_steps`
            the two give the shares.
        reward_scale: factor on the advantage, 1 in the paper. Rewards that differ by thousandths between two questions
            need more than that to be heard beside L_ce. Logged rewards are not scaled.
        scst_learning_rate: peak of the schedule that starts anew at the stage boundary.
        ce_warmup, scst_warmup: share of each stage spent warming up.
        max_new_tokens: longest rollout in tokens.
        prefix, max_source_length, max_target_length: see `rl_qg.prompts.Prompt`.
        samples_logged: rollouts written to `samples.jsonl` at each logging step.
    """

    ce_epochs: float = 0.0
    scst_epochs: float = 2.0
    scst_learning_rate: float = 1e-5
    reward_scale: float = 1.0
    ce_warmup: float = 0.05
    scst_warmup: float = 0.05
    max_new_tokens: int = 64
    prefix: str = ""
    max_source_length: int = 512
    max_target_length: int = 64
    samples_logged: int = 4

    def __post_init__(self) -> None:
        if self.ce_epochs < 0 or self.scst_epochs < 0 or self.ce_epochs + self.scst_epochs == 0:
            raise ValueError(f"ce_epochs={self.ce_epochs}, scst_epochs={self.scst_epochs}: none negative, one above 0")
        self.num_train_epochs = self.ce_epochs + self.scst_epochs
        self.remove_unused_columns = False  # the collator reads whole examples
        super().__post_init__()

    def boundary(self, max_steps: int) -> int:
        """The last step of the cross-entropy stage, of `max_steps` in all."""
        return round(max_steps * self.ce_epochs / (self.ce_epochs + self.scst_epochs))


class SelfCriticalTrainer(Seq2SeqTrainer):
    """Trains a seq2seq question generator on `QAExample`s, or on a `datasets.Dataset` with the columns of SQuAD.

    `reward` is a metric of `rewards` or anything of that shape; None when there is no self-critical stage.
    """

    # The loss below is normalised over all accumulated batches and processes. The stock trainer takes BART's and T5's
    # per-batch mean for that, which inflates their gradients.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel,
        args: SelfCriticalConfig,
        *,
        reward: Reward | None = None,
        train_dataset: Sequence[QAExample] | None = None,
        eval_dataset: Sequence[QAExample] | None = None,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ) -> None:
        if reward is None and args.scst_epochs > 0:
            raise ValueError("a self-critical stage (scst_epochs > 0) needs a reward")
        add_highlight(processing_class, model)
        prompt = Prompt(args.prefix, args.max_source_length, args.max_target_length)
        self.encoder = PromptEncoder(processing_class, prompt)
        super().__init__(
            model=model,
            args=args,
            data_collator=self.encoder,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self.model_accepts_loss_kwargs = True  # makes the trainer count the target tokens of the whole update
        self.reward = reward
        self.special = SpecialTokens.of(model)
        self._sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])  # name -> total, weight
        self._seconds: dict[str, float] = defaultdict(float)
        self.logged_samples: list[dict[str, Any]] = []
        self._eval_rewards: dict[str, float] = {}
        self.add_callback(RunFiles(self))

    # --- schedules: pure functions of the step
    # ------------------------------------------------------------------------

    @property
    def boundary(self) -> int:
        """Last step of the cross-entropy stage."""
        return self.args.boundary(self.state.max_steps)

    def scst_weight(self, step: int) -> float:
        """λ in the update that completes `step`."""
        return objectives.linear_lambda(step, self.boundary, self.state.max_steps)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Linear warm-up and decay in each stage; the second starts anew."""
        scheduler: torch.optim.lr_scheduler.LRScheduler | None = self.lr_scheduler  # type: ignore[has-type]
        if scheduler is None:
            args = self.args
            boundary = args.boundary(num_training_steps)
            scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer,
                lambda step: objectives.restarting_rate(
                    step,
                    boundary,
                    num_training_steps,
                    warmup=(args.ce_warmup, args.scst_warmup),
                    second=args.scst_learning_rate / args.learning_rate,
                ),
            )
            self.lr_scheduler = scheduler
            self._created_lr_scheduler = True
        return scheduler

    # --- the update
    # ---------------------------------------------------------------------------------------------------

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """λ · L_scst + L_ce, both summed over sequences and divided by the number of gold tokens of the whole
        update.
        """
        weight = self.scst_weight(self.state.global_step + 1)
        labels = inputs["labels"]
        items = num_items_in_batch if num_items_in_batch is not None else labels.ne(-100).sum()
        if weight == 0:
            with self._timed("update"):
                logits = self._logits(model, inputs, labels)
                loss = objectives.cross_entropy(logits, labels, label_smoothing=self.args.label_smoothing_factor).sum()
                self._record(loss_ce=(loss.detach(), labels.ne(-100).sum()))
        else:
            loss = self._mixed_loss(model, inputs, weight)
        loss = loss / items
        if self.args.average_tokens_across_devices:
            loss = loss * self.accelerator.num_processes  # undone by the mean over processes
        return (loss, {}) if return_outputs else loss

    def _mixed_loss(self, model: torch.nn.Module, inputs: dict[str, Any], weight: float) -> Tensor:
        # 1. Roll out: greedy and sampled questions, without gradient and without dropout.
        with self._timed("rollout"):
            examples: list[QAExample] = inputs["examples"]
            draws = uniforms(
                [example.id for example in examples],
                self.args.max_new_tokens,
                seed=self.args.seed,
                step=self.state.global_step,
            )
            greedy, sample = self._decode(model, inputs, draws)
            assert sample is not None
        # 2. Judge both.
        with self._timed("reward"):
            texts = self._texts(greedy) + self._texts(sample)
            reward_greedy, reward_sample = self._rewards(examples * 2, texts).to(self.args.device).chunk(2)
        # 3. One pass of the encoder and one of the decoder, with gradient, for the gold and the sampled questions.
        with self._timed("update"):
            labels = inputs["labels"]
            rows = _stack(labels, sample.tokens.masked_fill(~sample.mask, -100))
            gold_logits, sample_logits = self._logits(model, inputs, rows).chunk(2)
            ce = objectives.cross_entropy(
                gold_logits[:, : labels.shape[1]], labels, label_smoothing=self.args.label_smoothing_factor
            )
            logprobs = objectives.token_logprobs(sample_logits[:, : sample.tokens.shape[1]], sample.tokens)
            scale = self.args.reward_scale
            scst = objectives.self_critical(logprobs, sample.mask, scale * reward_sample, scale * reward_greedy)
            loss = weight * scst.sum() + ce.sum()
        self._record_rollout(examples, texts, labels, greedy, sample, ce, scst, reward_greedy, reward_sample)
        return loss

    def _logits(self, model: torch.nn.Module, inputs: dict[str, Any], labels: Tensor) -> Tensor:
        """Logits (rows, t, v) of `labels` (rows, t), where rows is one or several times the batch; each context is
        encoded once.
        """
        decoder_input = objectives.shift_right(labels, self.special.start, self.special.pad)
        mask = inputs["attention_mask"]
        copies = labels.shape[0] // mask.shape[0]
        if copies == 1:
            return model(input_ids=inputs["input_ids"], attention_mask=mask, decoder_input_ids=decoder_input).logits
        encode = self.accelerator.unwrap_model(model).get_encoder()
        states = encode(input_ids=inputs["input_ids"], attention_mask=mask).last_hidden_state
        return model(
            encoder_outputs=BaseModelOutput(last_hidden_state=states.repeat(copies, 1, 1)),
            attention_mask=mask.repeat(copies, 1),
            decoder_input_ids=decoder_input,
        ).logits

    @torch.no_grad()
    def _decode(
        self, model: torch.nn.Module, inputs: dict[str, Any], draws: Tensor | None
    ) -> tuple[Decoded, Decoded | None]:
        training = model.training
        with self._whole_weights(model) as policy:
            policy.eval()
            try:
                states = policy.get_encoder()(
                    input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
                ).last_hidden_state
                return decode(
                    policy, states, inputs["attention_mask"], draws=draws, max_new_tokens=self.args.max_new_tokens
                )
            finally:
                policy.train(training)

    def _whole_weights(self, model: torch.nn.Module) -> AbstractContextManager[Any]:
        """The bare model, with weights that ZeRO-3 or FSDP spread over processes gathered once for the whole
        rollout.
        """
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            from trl.models.utils import unwrap_model_for_generation

            return unwrap_model_for_generation(model, self.accelerator)
        return nullcontext(self.accelerator.unwrap_model(model))

    def _texts(self, decoded: Decoded) -> list[str]:
        texts = self.processing_class.batch_decode(decoded.tokens, skip_special_tokens=True)
        return [text.strip() for text in texts]

    def _rewards(self, examples: Sequence[QAExample], questions: Sequence[str]) -> Tensor:
        """Rewards (len(questions),), float32; a score of None becomes NaN and is left out of the update."""
        assert self.reward is not None
        result = self.reward.score(
            questions,
            [example.context for example in examples],
            answers=[example.answers[0].text for example in examples],
            references=[[example.question] for example in examples],
        )
        if len(result.scores) != len(questions):
            raise ValueError(f"the reward returned {len(result.scores)} scores for {len(questions)} questions")
        return torch.tensor([float("nan") if score is None else float(score) for score in result.scores])

    # --- evaluation
    # -----------------------------------------------------------------------------------------------------

    def prediction_step(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Tensor, None, None]:
        """Cross-entropy per token, averaged over questions (so that it does not depend on the batches), and the greedy
        reward.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            labels = inputs["labels"]
            losses = objectives.cross_entropy(self._logits(model, inputs, labels), labels)
            loss = (losses / labels.ne(-100).sum(-1)).mean()
            if self.reward is not None:
                greedy, _ = self._decode(model, inputs, None)
                rewards = self._rewards(inputs["examples"], self._texts(greedy)).tolist()
                keys = [example.id for example in inputs["examples"]]
                self._eval_rewards.update(zip(keys, rewards, strict=True))
        return loss, None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As the library's, with the mean greedy reward over the evaluation set added to the metrics."""
        self._eval_rewards = {}
        output = super().evaluation_loop(*args, **kwargs)
        if self.reward is not None:
            # By id: the last batch may be filled up with repeats when several processes share the set.
            rewards = dict(gather_object(list(self._eval_rewards.items())))
            prefix = kwargs.get("metric_key_prefix", "eval")
            output.metrics[f"{prefix}_reward_greedy"] = sum(rewards.values()) / len(rewards)
        return output

    # --- logging
    # --------------------------------------------------------------------------------------------------------

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self._seconds[part] += time.perf_counter() - start

    def _record(self, **sums: tuple[Tensor, Tensor | int]) -> None:
        """Add (total, weight) to running means, reduced over processes when they are logged."""
        for name, (total, weight) in sums.items():
            self._sums[name][0] += float(total)
            self._sums[name][1] += float(weight)

    def _record_rollout(
        self,
        examples: Sequence[QAExample],
        texts: Sequence[str],
        labels: Tensor,
        greedy: Decoded,
        sample: Decoded,
        ce: Tensor,
        scst: Tensor,
        reward_greedy: Tensor,
        reward_sample: Tensor,
    ) -> None:
        tokens, rows = labels.ne(-100).sum(), len(examples)
        finite = torch.isfinite(reward_greedy) & torch.isfinite(reward_sample)
        self._record(
            loss_ce=(ce.detach().sum(), tokens),
            loss_scst=(scst.detach().sum(), tokens),
            reward_sample=(reward_sample[finite].sum(), finite.sum()),
            reward_greedy=(reward_greedy[finite].sum(), finite.sum()),
            advantage=((reward_sample - reward_greedy)[finite].sum(), finite.sum()),
            advantage_abs=((reward_sample - reward_greedy)[finite].abs().sum(), finite.sum()),
            rewards_not_finite=((~finite).sum(), rows),
            length_gold=(tokens, rows),
            length_greedy=(greedy.mask.sum(), rows),
            length_sample=(sample.mask.sum(), rows),
        )
        columns = (texts[:rows], texts[rows:], reward_greedy.tolist(), reward_sample.tolist())
        self.logged_samples = [
            {"id": example.id, "greedy": a, "sample": b, "reward_greedy": ra, "reward_sample": rb}
            for example, a, b, ra, rb in zip(examples, *columns, strict=True)
        ][: self.args.samples_logged]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the means over all samples since the last line (over samples of all processes, not over processes)."""
        if "loss" in logs:
            names = sorted(self._sums)
            sums = torch.tensor([self._sums[name] for name in names], dtype=torch.float64, device=self.args.device)
            for name, (total, weight) in zip(names, self.accelerator.reduce(sums, "sum").tolist(), strict=True):
                logs[name] = total / weight if weight else float("nan")
            logs["lambda"] = self.scst_weight(self.state.global_step)
            logs |= {f"seconds_{part}": seconds for part, seconds in self._seconds.items()}
            self._sums.clear()
            self._seconds.clear()
        super().log(logs, start_time)


def _stack(first: Tensor, second: Tensor) -> Tensor:
    """Both batches of labels in one, padded with -100 to the longer."""
    length = max(first.shape[1], second.shape[1])
    return torch.cat(
        [torch.nn.functional.pad(rows, (0, length - rows.shape[1]), value=-100) for rows in (first, second)]
    )
