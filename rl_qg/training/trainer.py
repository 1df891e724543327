"""`SelfCriticalTrainer`: a transformers trainer that learns first by cross-entropy, then by reward.

One trainer runs both stages, because the stage boundary is only a step: up to it λ is 0, no rollout is taken and the
update is plain cross-entropy; behind it every update minimises

    L = λ · L_scst + L_ce,    L_scst = (r(greedy) − r(sample)) · Σ_t log p(sample_t)    (QRelScore paper, eq. 11-15)

or what the settings make of it: other baselines and several samples, another weight of L_ce, a divergence from the
policy at the boundary (`rl_qg.training.objectives`).

What is ours is rollout, reward, loss and their logging. Precision, accumulation, processes, checkpoints and resume are
the library's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainer

from rl_qg.data.examples import QAExample
from rl_qg.evaluation.reward_scorer import Reward, RewardScorer, ScoredRollout
from rl_qg.generation.decoding import Decoded, Rollout, SpecialTokens, decode, joined, uniforms
from rl_qg.generation.logprobs import shift_right, token_logprobs
from rl_qg.generation.prompts import Prompt, PromptEncoder, add_highlight
from rl_qg.runtime.checkpoints import CompleteCheckpoints
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry
from rl_qg.runtime.sharded_weights import WholeModel
from rl_qg.training import objectives
from rl_qg.training.callbacks import FailedRewards, FiniteUpdates, HeldOutStopping, KLCoefficient
from rl_qg.training.config import SelfCriticalConfig
from rl_qg.training.encoder_sharing import encoded_once
from rl_qg.training.eval_metrics import HeldOutQuestions
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.step_metrics import Measurements, rollout_measures
from rl_qg.training.trainer_files import RunFiles, save_whole

__all__ = ["SelfCriticalConfig", "SelfCriticalTrainer"]


class SelfCriticalTrainer(WholeModel, CompleteCheckpoints, Seq2SeqTrainer):
    """Trains a seq2seq question generator on `QAExample`s, or on a `datasets.Dataset` with the columns of SQuAD.

    `reward` is a metric of `rewards` or anything of that shape; None when there is no self-critical stage. `held_out`
    is a second one, which evaluations report and nothing optimises.
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
        held_out: Reward | None = None,
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
        self.special = SpecialTokens.of(model)
        self.rules = args.decoding_rules()
        self.rollout_batches = OutOfMemoryRetry("rollout", "lower training.batch_size or scst.num_samples")
        self.scorer = None if reward is None else RewardScorer(reward)
        self.questions = None if self.scorer is None else HeldOutQuestions(self.scorer, held_out)
        self.failed = FailedRewards(Path(args.output_dir) / "samples.jsonl", args.on_bad_reward)
        self.beta = KLCoefficient(args.kl_coefficient, args.kl_target)
        self.finite = FiniteUpdates()
        self.reference: ReferencePolicy | None = None
        self.measured = Measurements()
        self.logged_samples: list[dict[str, Any]] = []
        self.eval_losses: list[tuple[QAExample, float]] = []
        for callback in (RunFiles(self), self.beta, self.finite):
            self.add_callback(callback)
        if args.stop_on is not None:
            best = Path(args.output_dir) / "best"
            self.add_callback(
                HeldOutStopping(
                    args.stop_on, args.patience, boundary=lambda: self.boundary, keep=lambda: save_whole(self, best)
                )
            )

    # --- schedules: pure functions of the step
    # ------------------------------------------------------------------------

    @property
    def boundary(self) -> int:
        """Last step of the cross-entropy stage."""
        return self.args.boundary(self.state.max_steps)

    def scst_weight(self, step: int) -> float:
        """λ in the update that completes `step`."""
        args = self.args
        return objectives.scst_weight(
            step,
            self.boundary,
            self.state.max_steps,
            schedule=args.schedule,
            maximum=args.lambda_max,
            warmup=args.lambda_warmup,
        )

    def ce_weight(self, step: int) -> float:
        """The weight of L_ce in the update that completes `step`."""
        return 1.0 if self.args.ce_weight == "one" else 1.0 - self.scst_weight(step)

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
        """λ · L_scst + w · L_ce + β · KL, each summed over sequences and divided by the number of gold tokens of the
        whole update; L_ce alone up to the boundary.
        """
        step = self.state.global_step + 1
        labels = inputs["labels"]
        items = num_items_in_batch if num_items_in_batch is not None else labels.ne(-100).sum()
        self.measured.count(labels.shape[0])
        if step <= self.boundary:
            with self.measured.timed("update"):
                loss = self._cross_entropy(self._logits(model, inputs, labels), labels).sum()
                self.measured.add(loss_ce=(loss.detach(), labels.ne(-100).sum()))
        else:
            self._note_the_reference()
            loss = self._mixed_loss(model, inputs, step)
        loss, processes = loss / items, self.accelerator.num_processes
        if self.args.average_tokens_across_devices:
            loss = loss * processes  # undone by the mean over processes
        self.measured.add(loss=(loss.detach() / processes, 0.0))  # its weight, one an update, is counted at its end
        return (loss, {}) if return_outputs else loss

    def _mixed_loss(self, model: torch.nn.Module, inputs: dict[str, Any], step: int) -> Tensor:
        args, labels, copies = self.args, inputs["labels"], self.args.num_samples
        # 1. Roll out: sampled questions, and greedy ones to compare with, without gradient and without dropout.
        with self.measured.timed("rollout"):
            rollout = self._roll_out(inputs, samples=copies, greedy=args.baseline == "greedy")
            samples = rollout.samples
            assert samples is not None
        # 2. Judge them.
        with self.measured.timed("reward"):
            judged = self._judge(inputs["examples"], rollout, step)
            advantage = objectives.advantages(judged.rewards, args.baseline, judged.greedy)
            shaped = objectives.shaped(
                advantage, scale=args.reward_scale, normalise=args.normalise_advantage, clip=args.clip_advantage
            )
        # 3. One pass of the encoder and one of the decoder, with gradient, for the gold and the sampled questions.
        with self.measured.timed("update"):
            rows = _stack(labels, samples.tokens.masked_fill(~samples.mask, -100))
            both = self._logits(model, inputs, rows, gold=len(labels))
            gold_logits, logits = both.split([len(labels), len(samples.tokens)])
            logits = logits[:, : samples.tokens.shape[1]]
            logprobs = token_logprobs(logits, samples.tokens)
            ce = self._cross_entropy(gold_logits[:, : labels.shape[1]], labels)
            scst = objectives.policy_gradient(logprobs, samples.mask, shaped.flatten()) / copies
            loss = self.scst_weight(step) * scst.sum() + self.ce_weight(step) * ce.sum()
            if self.beta.value > 0:
                kl = self._divergence(inputs, samples, logits, logprobs) * samples.mask
                loss = loss + self.beta.value * kl.sum() / copies
                total = (kl.detach().sum(), samples.mask.sum())
                self.beta.add(*total)
                self.measured.add(kl=total)
        tokens = labels.ne(-100).sum()
        self.measured.add(loss_ce=(ce.detach().sum(), tokens), loss_scst=(scst.detach().sum(), tokens))
        self.measured.add(length_gold=(tokens, len(labels)), **judged.measures(advantage))
        self.measured.add(**rollout_measures(rollout, logprobs.detach()))
        self.logged_samples = judged.rows(inputs["examples"][: args.samples_logged])
        return loss

    def _logits(self, model: torch.nn.Module, inputs: dict[str, Any], labels: Tensor, *, gold: int = 0) -> Tensor:
        """Logits (rows, t, v) of `labels` (rows, t): as many rows for each context, side by side, behind `gold` rows
        that have one each. Each context is encoded once.
        """
        decoder_input = shift_right(labels, self.special.start, self.special.pad)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        every = torch.arange(len(mask), device=mask.device)
        context = torch.cat((every[:gold], every.repeat_interleave((len(labels) - gold) // len(mask))))
        with encoded_once(self.accelerator.unwrap_model(model), mask, context):
            return model(input_ids=ids, attention_mask=mask[context], decoder_input_ids=decoder_input).logits

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return objectives.cross_entropy(logits, labels, label_smoothing=self.args.label_smoothing_factor)

    def _divergence(self, inputs: dict[str, Any], samples: Decoded, logits: Tensor, logprobs: Tensor) -> Tensor:
        """KL from the policy that the stage began with, at each position of the samples: (b · k, t)."""
        reference = self._reference_logits(inputs, samples)
        if self.args.kl_estimator == "exact":
            return objectives.kl_over_vocabulary(logits, reference)
        # Behind the end both are taken as equal: masked later, an infinite value there would still be NaN.
        elsewhere = token_logprobs(reference, samples.tokens)
        return objectives.kl_from_samples(logprobs, torch.where(samples.mask, elsewhere, logprobs.detach()))

    def _note_the_reference(self) -> None:
        """Keep the policy as it stands at the boundary, when a divergence from it is wanted."""
        watched = self.args.watch_kl and self.eval_dataset is not None
        if (self.args.kl_coefficient > 0 or watched) and self.reference is None:
            with self.whole_model() as policy:
                self.reference = ReferencePolicy.at_the_boundary(
                    policy,
                    Path(self.args.output_dir),
                    resumed=self.state.global_step > self.boundary,
                    write=self.is_world_process_zero(),
                )

    def _reference_logits(self, inputs: dict[str, Any], decoded: Decoded) -> Tensor:
        """Logits (n, t, v) of the reference policy at the tokens of n = b · k questions."""
        assert self.reference is not None
        # The copy of a sharded model does not cast by itself, as the model in training does.
        with self.whole_model() as policy, self.reference.in_place_of(policy), self.accelerator.autocast():
            return self._logits(policy, inputs, decoded.tokens).float()

    # --- rollout and reward
    # ---------------------------------------------------------------------------------------------

    @torch.no_grad()
    def _roll_out(self, inputs: dict[str, Any], *, samples: int, greedy: bool) -> Rollout:
        draws = None
        if samples:
            keys = [example.id for example in inputs["examples"]]
            length, step = self.rules.max_new_tokens, self.state.global_step
            draws = uniforms(keys, samples, length, seed=self.args.seed, step=step)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]

        def roll_out(rows: Sequence[int]) -> Rollout:
            part = slice(rows[0], rows[-1] + 1)
            states = policy.get_encoder()(input_ids=ids[part], attention_mask=mask[part]).last_hidden_state
            drawn = None if draws is None else draws[part]
            return decode(policy, states, mask[part], self.rules, draws=drawn, greedy=greedy)

        with self.whole_model() as policy, self.accelerator.autocast():
            training = policy.training
            policy.eval()
            try:
                return joined(self.rollout_batches(roll_out, range(len(ids))), self.special.pad)
            finally:
                policy.train(training)

    def _judge(self, examples: Sequence[QAExample], rollout: Rollout, step: int) -> ScoredRollout:
        assert self.scorer is not None and rollout.samples is not None
        sampled = self._texts(rollout.samples)
        greedy = [] if rollout.greedy is None else self._texts(rollout.greedy)
        copies = len(sampled) // len(examples)
        about = [*(example for example in examples for _ in range(copies)), *examples[: len(greedy)]]
        with torch.autocast(self.args.device.type, enabled=False):  # a metric's precision is its own setting
            verdict = self.scorer(about, sampled + greedy)
        self.failed.settle(step, about, sampled + greedy, verdict)
        return ScoredRollout.of(verdict, sampled, greedy, copies=copies, device=self.args.device)

    def _texts(self, decoded: Decoded) -> list[str]:
        texts = self.processing_class.batch_decode(decoded.tokens, skip_special_tokens=True)
        return [text.strip() for text in texts]

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
        """Cross-entropy per token, averaged over questions (so that it does not depend on the batches). Greedy
        questions are kept for `evaluation_loop`, with their divergence from the reference policy.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            labels = inputs["labels"]
            losses = objectives.cross_entropy(self._logits(model, inputs, labels), labels) / labels.ne(-100).sum(-1)
            self.eval_losses += zip(inputs["examples"], losses.tolist(), strict=True)
            if self.questions is not None:
                greedy = self._roll_out(inputs, samples=0, greedy=True).greedy
                assert greedy is not None
                divergence = None
                if self.reference is not None:
                    reference = self._reference_logits(inputs, greedy)
                    divergence = objectives.kl_over_vocabulary(self._logits(model, inputs, greedy.tokens), reference)
                self.questions.add(inputs["examples"], self._texts(greedy), greedy.mask, divergence)
        return losses.mean(), None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """As the library's, with reward, held-out reward and held-out measures of the greedy questions added to the
        metrics (`docs/explanation/method.md`).
        """
        with self.measured.paused():
            output = super().evaluation_loop(*args, **kwargs)
            prefix = kwargs.get("metric_key_prefix", "eval")
            losses = dict(gather_object(self.eval_losses)).values()  # the library's mean hangs on the batches
            output.metrics[f"{prefix}_loss"] = sum(losses) / len(losses)
            self.eval_losses = []
            if self.questions is not None:
                output.metrics.update({f"{prefix}_{name}": value for name, value in self.questions.collect().items()})
        return output

    # --- logging and checkpoints
    # --------------------------------------------------------------------------------------------------------

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add what was measured since the last line, over all samples of all processes."""
        if "loss" in logs:
            step = self.state.global_step
            logs |= self.measured.collect(self.accelerator)
            logs |= {"lambda": self.scst_weight(step), "ce_weight": self.ce_weight(step)}
            if step > self.boundary:
                logs |= {"kl_coefficient": self.beta.value, "updates_skipped": float(self.finite.skipped)}
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """As the library's; a run that resumes from it knows what this one knows, to the last digit."""
        self.measured.fold(self.accelerator)
        if self.questions is not None:
            self.questions.reset_cache()  # a resumed run has judged nothing yet
        super()._save_checkpoint(model, trial)


def _stack(first: Tensor, second: Tensor) -> Tensor:
    """Both batches of labels in one, padded with -100 to the longer."""
    length = max(first.shape[1], second.shape[1])
    return torch.cat(
        [torch.nn.functional.pad(rows, (0, length - rows.shape[1]), value=-100) for rows in (first, second)]
    )
