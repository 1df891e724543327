"""`SelfCriticalTrainer`: a transformers trainer that learns first by cross-entropy, then by reward.

One trainer runs both stages, because the stage boundary is only a step. Up to it λ is 0, there is no rollout, and the
update is plain cross-entropy; after it every update minimises

    L = λ · L_scst + L_ce,    L_scst = (r(greedy) − r(sample)) · Σ_t log p(sample_t)    (QRelScore paper, eq. 11-15)

Settings select other baselines, several samples, another weight of L_ce, or a divergence from the policy at the
boundary (`rl_qg.training.objectives`).

This class adds rollout, reward, loss and their logging. Precision, accumulation, processes, checkpoints and resume are
those of the library.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import ConcatDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainer

from rewards.arithmetic import warn_if_slow
from rl_qg.data.examples import QAExample, as_example
from rl_qg.generation.decoding import Decoded, Rollout, SpecialTokens, concatenate, decode, uniform_draws
from rl_qg.generation.logprobs import about_labels, shift_right, token_logprobs
from rl_qg.generation.prompts import PromptEncoder, add_highlight
from rl_qg.generation.sharing import share_encoder_pass
from rl_qg.generation.tasks import QUESTION
from rl_qg.runtime.memory import OutOfMemoryRetry
from rl_qg.runtime.trainer_base import CompleteCheckpoints, WholeModel
from rl_qg.scoring.reward_scorer import Reward, RewardScorer, ScoredRollout
from rl_qg.training import objectives
from rl_qg.training.callbacks import (
    AdvantageScale,
    EqualRewards,
    FailedRewards,
    FiniteUpdates,
    HackingReport,
    HeldOutStopping,
    KLCoefficient,
)
from rl_qg.training.config import SelfCriticalConfig
from rl_qg.training.greedy_evaluation import GreedyEvaluation
from rl_qg.training.reference_divergence import ReferenceDivergence
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.rollout_reuse import LearnedRollout, RolloutReuse
from rl_qg.training.row_schedule import exact_share
from rl_qg.training.run_files import RunFiles, save_model_folder
from rl_qg.training.set_credit import advantages_of, of_questions, without_cut_question
from rl_qg.training.step_metrics import HeldOutQuestions, StepMetrics, rollout_metrics
from rl_qg.training.update_schedule import CountPasses, UpdateSchedule

__all__ = ["SelfCriticalConfig", "SelfCriticalTrainer"]


class SelfCriticalTrainer(
    UpdateSchedule, ReferenceDivergence, GreedyEvaluation, WholeModel, CompleteCheckpoints, Seq2SeqTrainer
):
    """Trains a seq2seq question generator on `QAExample`s, or on a `datasets.Dataset` with the columns of SQuAD.

    `reward` is a metric of `rewards` or any object with the same `score`; None if there is no self-critical stage.
    `held_out` is a second reward, which evaluations report and nothing optimises. `unlabelled` are examples whose
    questions are unknown, for the self-critical stage (`scst.unlabelled_share`); their questions are not read. Without
    that stage they only decide that gold examples have the order of a run with it. For another task than `questions`
    all of them are rows of `rl_qg.generation.tasks.task_rows`, or of `rl_qg.generation.sets.set_rows`.
    """

    # The loss below is normalised over all accumulated batches and processes. The library would take the per-batch
    # mean of BART and T5 for such a loss, which inflates their gradients.
    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel,
        args: SelfCriticalConfig,
        *,
        reward: Reward | None = None,
        held_out: Reward | None = None,
        train_dataset: Sequence[QAExample] | None = None,
        unlabelled: Sequence[QAExample] = (),
        eval_dataset: Sequence[QAExample] | None = None,
        processing_class: PreTrainedTokenizerBase,
        **kwargs: Any,
    ) -> None:
        if reward is None and args.scst_epochs > 0:
            raise ValueError("a self-critical stage (scst_epochs > 0) needs a reward")
        add_highlight(processing_class, model, args.task)
        self.encoder = PromptEncoder(processing_class, args.prompt().fitting(model))
        self.gold_examples = 0 if train_dataset is None else len(train_dataset)
        self.unlabelled = [replace(as_example(row), question="") for row in unlabelled]
        share = args.unlabelled_share if args.scst_epochs or self.unlabelled else 0.0
        self.unlabelled_share = exact_share(share, self.gold_examples, len(self.unlabelled))
        mixes = self.unlabelled_share > 0
        # The pools of the schedule, in its order.
        pools: list[Any] = [pool for pool in (train_dataset, self.unlabelled) if pool is not None and len(pool)]
        super().__init__(
            model=model,
            args=args,
            data_collator=self.encoder,
            train_dataset=ConcatDataset(pools) if mixes else train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        if self.args.bf16:
            warn_if_slow(torch.bfloat16, self.args.device, "training.precision=no")
        self.model_accepts_loss_kwargs = True  # makes the library count the target tokens of the whole update
        self.special_tokens = SpecialTokens.of(model)
        self.decoding_rules = args.decoding_rules()
        self.rollout_retry = OutOfMemoryRetry("rollout", "lower training.batch_size or scst.num_samples")
        self.scorer: RewardScorer | None = None
        if reward is not None:
            self.scorer = args.scorer_of(reward)
        self.held_out_questions = None if self.scorer is None else HeldOutQuestions(self.scorer, held_out)
        self.failed_rewards = FailedRewards(Path(args.output_dir) / "samples.jsonl", args.on_bad_reward)
        self.kl_coefficient = KLCoefficient(args.kl_coefficient, args.kl_target)
        self.finite_updates = FiniteUpdates()
        self.advantage_scale = AdvantageScale()
        self.equal_rewards = EqualRewards(lambda: self.boundary)
        self.rollouts = RolloutReuse()
        self.schedule = self.row_schedule() if mixes or args.updates_per_rollout > 1 else None
        self.reference: ReferencePolicy | None = None
        self.step_metrics = StepMetrics()
        self.logged_samples: list[dict[str, Any]] = []
        self.eval_losses: list[tuple[QAExample, float]] = []
        self._add_callbacks()

    def _add_callbacks(self) -> None:
        by_reward = (self.kl_coefficient, self.finite_updates, self.advantage_scale, self.equal_rewards)
        for callback in (RunFiles(self), *by_reward, HackingReport(lambda: self.boundary)):
            self.add_callback(callback)
        if self.schedule is not None:
            self.args.num_train_epochs = 1
            self.add_callback(CountPasses(self.schedule))
        if self.args.stop_on is not None:
            best = Path(self.args.output_dir) / "best"
            self.add_callback(
                HeldOutStopping(
                    self.args.stop_on,
                    self.args.patience,
                    boundary=lambda: self.boundary,
                    keep=lambda: save_model_folder(self, best),
                )
            )

    # --- the update

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> Any:
        """The library's count of target tokens over all processes, in which a row without a question counts too."""
        counted = [{"labels": objectives.counted_labels(batch["labels"])} for batch in batch_samples]
        return super()._get_num_items_in_batch(counted, device)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """L_ce up to the boundary, then λ · L_scst + w · L_ce + β · KL; each term summed over sequences and divided by
        the number of target tokens of the whole update (`objectives.target_tokens`).
        """
        step, labels = self.state.global_step + 1, inputs["labels"]
        tokens = num_items_in_batch if num_items_in_batch is not None else objectives.target_tokens(labels)
        self.step_metrics.count(labels.shape[0])
        if step <= self.boundary:
            loss = self._cross_entropy_loss(model, inputs)
        else:
            self._keep_reference()
            loss = self._self_critical_loss(model, inputs, step)
        loss, processes = loss / tokens, self.accelerator.num_processes
        if self.args.average_tokens_across_devices:
            loss = loss * processes  # cancels the mean over processes
        self.step_metrics.add(loss=(loss.detach() / processes, 0.0))  # `RunFiles` adds its weight, one for each update
        return (loss, {}) if return_outputs else loss

    def _cross_entropy_loss(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """L_ce, summed over the batch."""
        labels = inputs["labels"]
        with self.step_metrics.timed("update"):
            loss = self._cross_entropy(self._logits(model, inputs, labels), labels).sum()
            self.step_metrics.add(loss_ce=(loss.detach(), labels.ne(-100).sum()))
        return loss

    def _self_critical_loss(self, model: nn.Module, inputs: dict[str, Any], step: int) -> Tensor:
        """λ · L_scst + w · L_ce + β · KL, summed over the batch of b contexts with k samples each."""
        args, labels, examples = self.args, inputs["labels"], inputs["examples"]
        # 1. Rollout, rewards and advantages, without gradient.
        learned = self._rollout_of(inputs, step)
        samples = learned.rollout.samples
        assert samples is not None
        with self.step_metrics.timed("update"):
            # 2. One forward pass with gradient for the gold and the sampled questions.
            gold = labels.ne(-100).any(-1).nonzero().squeeze(-1)
            gold_logits, logits = self._gold_and_sample_logits(model, inputs, gold, samples)
            logprobs = token_logprobs(logits, samples.tokens)
            # 3. The terms of the loss.
            ce = self._cross_entropy(gold_logits, labels[gold])
            scst = self._policy_loss(learned, logprobs) / args.num_samples
            loss = self.scst_weight(step) * scst.sum() + self.ce_weight(step) * ce.sum()
            if self.kl_coefficient.value > 0:
                loss = loss + self._kl_penalty(inputs, samples, logits, logprobs)
        # 4. What is logged.
        gold_tokens = labels.ne(-100).sum()
        self.step_metrics.add(
            loss_ce=(ce.detach().sum(), gold_tokens),
            loss_scst=(scst.detach().sum(), objectives.target_tokens(labels)),
            length_gold=(gold_tokens, len(gold)),
            **learned.scored.measures(learned.advantage),
            **rollout_metrics(learned.rollout, logprobs.detach()),
        )
        self.logged_samples = learned.scored.rows(examples[: args.samples_logged])
        return loss

    def _rollout_of(self, inputs: dict[str, Any], step: int) -> LearnedRollout:
        """A new rollout with its rewards and advantages, or the one that an earlier update made for these contexts."""
        args, examples = self.args, inputs["examples"]
        number = step if self.schedule is None else self.schedule.rollout_of(step)
        if (kept := self.rollouts.next(number, step)) is not None:
            return kept
        # Sampled questions, and greedy ones for the baseline, without dropout.
        with self.step_metrics.timed("rollout"):
            rollout = self._roll_out(inputs, samples=args.num_samples, greedy=args.baseline == "greedy")
        with self.step_metrics.timed("reward"):
            scored = self._score(examples, rollout, step)
            advantage = advantages_of(scored, args.baseline, args.credit)
        self.advantage_scale.add(advantage)
        self.equal_rewards.add(scored.rewards, scored.greedy)
        learned = LearnedRollout(rollout, scored, advantage)
        if args.updates_per_rollout > 1:
            self.rollouts.keep(learned)
        return learned

    def _policy_loss(self, learned: LearnedRollout, logprobs: Tensor) -> Tensor:
        """L_scst of each of the b · k samples, given their log-probabilities (b · k, t)."""
        args, samples = self.args, learned.rollout.samples
        assert samples is not None
        shaped = objectives.shaped(
            learned.advantage,
            scale=args.reward_scale,
            normalise=args.normalise_advantage == "batch",
            spread=self.advantage_scale.value if args.normalise_advantage in ("running", "group") else None,
            by_group=args.normalise_advantage == "group",
            clip=args.clip_advantage,
        )
        separator = self.processing_class.convert_tokens_to_ids(QUESTION)
        advantage = shaped.flatten() if shaped.dim() == 2 else of_questions(shaped, samples, separator)
        if args.updates_per_rollout == 1:
            return objectives.policy_gradient(logprobs, samples.mask, advantage)
        if learned.logprobs is None:
            learned.logprobs = logprobs.detach()
        with torch.no_grad():
            ratio = ((logprobs - learned.logprobs) * samples.mask).exp()
            clipped = ((ratio - 1).abs() > args.clip_ratio).sum()
            self.step_metrics.add(clip_fraction=(clipped, samples.mask.sum()))
        return objectives.clipped_policy_gradient(logprobs, learned.logprobs, samples.mask, advantage, args.clip_ratio)

    def _gold_and_sample_logits(
        self, model: nn.Module, inputs: dict[str, Any], gold: Tensor, samples: Decoded
    ) -> tuple[Tensor, Tensor]:
        """Logits of the gold questions of the contexts `gold` (g,), (g, gold length, v), and of the samples of all,
        (b · k, sample length, v).
        """
        labels = inputs["labels"]
        rows = _stack(labels[gold], samples.tokens.masked_fill(~samples.mask, -100))
        first, rest = self._logits(model, inputs, rows, gold=gold).split([len(gold), len(samples.tokens)])
        return first[:, : labels.shape[1]], rest[:, : samples.tokens.shape[1]]

    def _logits(
        self, model: nn.Module, inputs: dict[str, Any], labels: Tensor, *, gold: Tensor | None = None
    ) -> Tensor:
        """Logits (rows, t, v) of `labels` (rows, t): first one row for each context in `gold`, then equally many rows
        for each context, side by side. Each context is encoded once.
        """
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        every = torch.arange(len(mask), device=mask.device)
        gold = every[:0] if gold is None else gold
        context = torch.cat((gold, every.repeat_interleave((len(labels) - len(gold)) // len(mask))))
        starts = self.special_tokens.starts(inputs.get("starts"), mask)[context]
        tokens = shift_right(labels, starts, self.special_tokens.pad)
        with share_encoder_pass(self.accelerator.unwrap_model(model), mask, context):
            logits = model(input_ids=ids, attention_mask=mask[context], decoder_input_ids=tokens).logits
        return about_labels(logits, labels)

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return objectives.cross_entropy(logits, labels, label_smoothing=self.args.label_smoothing_factor)

    # --- rollout and reward

    @torch.no_grad()
    def _roll_out(self, inputs: dict[str, Any], *, samples: int, greedy: bool) -> Rollout:
        draws = None
        if samples:
            keys = [example.id for example in inputs["examples"]]
            length, step = self.decoding_rules.max_new_tokens, self.state.global_step
            draws = uniform_draws(keys, samples, length, seed=self.args.seed, step=step)
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        starts = self.special_tokens.starts(inputs.get("starts"), mask)

        def roll_out(rows: Sequence[int]) -> Rollout:
            part = slice(rows[0], rows[-1] + 1)
            states = policy.get_encoder()(input_ids=ids[part], attention_mask=mask[part]).last_hidden_state
            options: Any = {"draws": None if draws is None else draws[part], "starts": starts[part]}
            return decode(policy, states, mask[part], self.decoding_rules, greedy=greedy, **options)

        with self.whole_model() as policy, self.accelerator.autocast():
            training = policy.training
            policy.eval()
            try:
                return concatenate(self.rollout_retry(roll_out, range(len(ids))), self.special_tokens.pad)
            finally:
                policy.train(training)

    def _score(self, examples: Sequence[QAExample], rollout: Rollout, step: int) -> ScoredRollout:
        assert self.scorer is not None and rollout.samples is not None
        sampled = self._texts(rollout.samples, examples)
        greedy = [] if rollout.greedy is None else self._texts(rollout.greedy, examples)
        copies = len(sampled) // len(examples)
        repeated = [*(example for example in examples for _ in range(copies)), *examples[: len(greedy)]]
        with torch.autocast(self.args.device.type, enabled=False):  # a metric has its own precision setting
            batch = self.scorer(repeated, sampled + greedy)
        self.failed_rewards.handle(step, repeated, sampled + greedy, batch)
        return ScoredRollout.of(batch, sampled, greedy, copies=copies, device=self.args.device)

    def _texts(self, decoded: Decoded, examples: Sequence[QAExample]) -> list[str]:
        texts = self.encoder.decoded(decoded.tokens, examples)
        return without_cut_question(texts, decoded, self.special_tokens.end) if self.args.task == "sets" else texts

    # --- evaluation

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
        **gen_kwargs: Any,
    ) -> tuple[Tensor, None, None]:
        """Cross-entropy per token, averaged over questions (so that it does not depend on the batches). Greedy
        questions are collected for `evaluation_loop`, with their divergence from the reference policy.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            labels = inputs["labels"]
            losses = objectives.cross_entropy(self._logits(model, inputs, labels), labels) / labels.ne(-100).sum(-1)
            self.eval_losses += zip(inputs["examples"], losses.tolist(), strict=True)
            if self.held_out_questions is not None:
                greedy = self._roll_out(inputs, samples=0, greedy=True).greedy
                assert greedy is not None
                divergence = None
                if self.reference is not None:
                    reference = self._reference_logits(inputs, greedy)
                    divergence = objectives.kl_over_vocabulary(self._logits(model, inputs, greedy.tokens), reference)
                texts = self._texts(greedy, inputs["examples"])
                self.held_out_questions.add(inputs["examples"], texts, greedy.mask, divergence)
        return losses.mean(), None, None

    def _reference_logits(self, inputs: dict[str, Any], decoded: Decoded) -> Tensor:
        """Logits (n, t, v) of the reference policy at the tokens of n = b · k questions."""
        assert self.reference is not None
        # The unsharded copy of a model does not cast by itself, unlike the model in training.
        with self.whole_model() as policy, self.reference.swapped_into(policy), self.accelerator.autocast():
            return self._logits(policy, inputs, decoded.tokens).float()

    # --- logging and checkpoints

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add the metrics since the last line, over all samples of all processes."""
        if "loss" in logs:
            step = self.state.global_step
            logs |= self.step_metrics.collect(self.accelerator)
            logs |= {"lambda": self.scst_weight(step), "ce_weight": self.ce_weight(step)}
            if step > self.boundary:
                skipped = float(self.finite_updates.skipped)
                logs |= {"kl_coefficient": self.kl_coefficient.value, "updates_skipped": skipped}
                if self.args.normalise_advantage in ("running", "group"):
                    logs["advantage_scale"] = self.advantage_scale.value
        super().log(logs, start_time)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """The library's, after bringing this run into the state in which a resumed run begins, bit for bit."""
        self.step_metrics.gather_on_main(self.accelerator)
        self.rollouts.clear()
        if self.held_out_questions is not None:
            self.held_out_questions.reset_cache()  # the caches of a resumed run are empty
        super()._save_checkpoint(model, trial)


def _stack(first: Tensor, second: Tensor) -> Tensor:
    """Both batches of labels in one, padded with -100 to the longer length."""
    length = max(first.shape[1], second.shape[1])
    return torch.cat([nn.functional.pad(rows, (0, length - rows.shape[1]), value=-100) for rows in (first, second)])
