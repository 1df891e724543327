"""`SelfCriticalTrainer`: a transformers trainer that learns first by cross-entropy, then by reward.

One trainer runs both stages, because the stage boundary is only a step. Up to it λ is 0, there is no rollout, and the
update is plain cross-entropy; after it every update minimises

    L = λ · L_scst + L_ce,    L_scst = (r(greedy) − r(sample)) · Σ_t log p(sample_t)    (QRelScore paper, eq. 11-15)

Settings select other baselines, several samples, another weight of L_ce, or a divergence from the policy at the
boundary (`rl_qg.training.objectives`).

An update is read from top to bottom: `compute_loss`, `self_critical_loss`, then what this calls, in order. Precision,
accumulation, processes, checkpoints and resume are those of the library.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn
from torch.utils.data import ConcatDataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Seq2SeqTrainer

from rewards.arithmetic import packed
from rl_qg.data.examples import QAExample, as_example
from rl_qg.generation.decoding import Decoded, Rollout, SpecialTokens, concatenate, decode, encode, uniform_draws
from rl_qg.generation.logprobs import about_labels, shift_right, token_logprobs
from rl_qg.generation.prompts import PromptEncoder, add_highlight
from rl_qg.generation.sharing import FAMILIES, share_encoder_pass, unread_mask
from rl_qg.generation.tasks import PAIR, QUESTION
from rl_qg.runtime.errors import InputError, LocalError
from rl_qg.runtime.ranks import OutOfMemoryRetry
from rl_qg.runtime.trainer_base import Resumable
from rl_qg.scoring.reward_scorer import FailedRewards, Reward
from rl_qg.training import objectives
from rl_qg.training.callbacks import AdvantageScale, EqualRewards, HackingReport, HeldOutStopping, KLCoefficient
from rl_qg.training.config import SelfCriticalConfig
from rl_qg.training.reference_policy import ReferencePolicy
from rl_qg.training.row_schedule import RowSchedule, ScheduleSampler, exact_share
from rl_qg.training.run_files import RunFiles, save_model_folder
from rl_qg.training.set_credit import ScoredRollout, advantages_of, of_questions, without_cut_part
from rl_qg.training.step_metrics import HeldOutQuestions, StepMetrics, sample_rows

__all__ = ["SelfCriticalConfig", "SelfCriticalTrainer"]


@dataclass
class LearnedRollout:
    """A rollout with its rewards and its advantages: (b, k), for sets of questions (b, k, m). `logprobs` (b · k, t)
    are those that the first of several updates has computed.
    """

    rollout: Rollout
    scored: ScoredRollout
    advantage: Tensor
    logprobs: Tensor | None = None

    @property
    def samples(self) -> Decoded:
        assert self.rollout.samples is not None
        return self.rollout.samples


class SelfCriticalTrainer(Resumable, Seq2SeqTrainer):
    """Trains a seq2seq question generator on `QAExample`s, or on a `datasets.Dataset` with the columns of SQuAD.

    `reward` is a metric of `rewards` or any object with the same `score`; None if there is no self-critical stage.
    `held_out` is a second reward, which evaluations report and nothing optimises. `unlabelled` are examples whose
    questions are unknown, for the self-critical stage (`scst.unlabelled_share`); their questions are not read. Without
    that stage they only decide that gold examples have the order of a run with it. For another task than `questions`
    all of them are rows of `rl_qg.generation.tasks.task_rows`, or of `rl_qg.generation.sets.set_rows`. `files` makes
    what writes the files of the run.
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
        files: Callable[[Any], RunFiles] = RunFiles,
        **kwargs: Any,
    ) -> None:
        if reward is None and args.scst_epochs > 0:
            raise ValueError("a self-critical stage (scst_epochs > 0) needs a reward")
        add_highlight(processing_class, model, args.task, args.format)
        self.encoder = PromptEncoder(processing_class, args.prompt().fitting(model))
        # 1. The examples of each stage.
        self.gold_examples = 0 if train_dataset is None else len(train_dataset)
        self.unlabelled = [replace(as_example(row), question="") for row in unlabelled]
        share = args.unlabelled_share if args.scst_epochs or self.unlabelled else 0.0
        self.unlabelled_share = exact_share(share, self.gold_examples, len(self.unlabelled))
        mixes = self.unlabelled_share > 0
        # The pools of the schedule, in its order.
        pools: list[Any] = [pool for pool in (train_dataset, self.unlabelled) if pool is not None and len(pool)]
        if args.ddp_find_unused_parameters is None and model.config.model_type in {*FAMILIES, "prefix-lm"}:
            args.ddp_find_unused_parameters = False  # their losses use all weights, adapters too
        super().__init__(
            model=model,
            args=args,
            data_collator=self.encoder,
            train_dataset=ConcatDataset(pools) if mixes else train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )
        self.model_accepts_loss_kwargs = True  # makes the library count the target tokens of the whole update
        self.schedule = self.row_schedule() if mixes or args.updates_per_rollout > 1 or args.by_length else None
        # 2. Rollout and reward.
        self.special_tokens = SpecialTokens.of(model)
        self.decoding_rules = args.decoding_rules()
        self.rollout_retry = OutOfMemoryRetry("rollout", "lower training.batch_size or scst.num_samples")
        self.scorer = args.scorer_of(reward)
        self.failed_rewards = FailedRewards(Path(args.output_dir) / "samples.jsonl", args.on_bad_reward)
        self.kept: dict[int, LearnedRollout] = {}  # accumulated batch of an update -> what later updates learn from
        self.kept_number = self.last_step = -1
        self.accumulated = 0
        self.reference: ReferencePolicy | None = None
        # 3. What is logged and evaluated.
        self.step_metrics = StepMetrics()
        self.logged_samples: list[dict[str, Any]] = []
        self.held_out_questions: HeldOutQuestions | None = None
        if self.scorer is not None:
            of_held_out = args.scorer_of(held_out, optimised=False)
            self.held_out_questions = HeldOutQuestions(reward_greedy=self.scorer, held_out=of_held_out)
        self.eval_losses: list[tuple[QAExample, float]] = []
        # 4. Callbacks.
        self.files = files(self)
        self.kl_coefficient = KLCoefficient(args.kl_coefficient, args.kl_target)
        self.advantage_scale = AdvantageScale()
        self.equal_rewards = EqualRewards(lambda: self.boundary)
        by_reward = (self.kl_coefficient, self.advantage_scale, self.equal_rewards)
        for callback in (self.files, *by_reward, HackingReport(lambda: self.boundary)):
            self.add_callback(callback)
        if self.schedule is not None:
            self.args.num_train_epochs = 1  # to the library the schedule is a single epoch
        if args.stop_on is not None:
            keep = partial(save_model_folder, self, self.files.folder / "best")
            begin: dict[str, Any] = {"boundary": lambda: self.boundary} if args.scst_epochs else {}
            self.add_callback(HeldOutStopping(args.stop_on, args.patience, keep=keep, **begin))

    # --- the schedule of updates: functions of the step alone

    def row_schedule(self) -> RowSchedule:
        """The rows of every update. Without a schedule the library reads the examples in its own order."""
        args, share = self.args, self.unlabelled_share
        size = self._train_batch_size * args.gradient_accumulation_steps * self.accelerator.num_processes
        pools = {  # what an update takes of each at most, and what there is: no example twice
            "examples with a question": (size - (0 if args.ce_epochs else int(size * share)), self.gold_examples),
            "passages without questions": (math.ceil(size * share) if args.scst_epochs else 0, len(self.unlabelled)),
        }
        for what, (taken, there) in pools.items():
            if taken > there:
                fault = f"an update takes {taken} {what}, and there are {there}; lower it"
                raise InputError(f"training.batch_size: {fault}")
        gold = range(self.gold_examples if args.by_length and args.ce_epochs else 0)
        return RowSchedule(
            gold=self.gold_examples,
            unlabelled=len(self.unlabelled),
            share=self.unlabelled_share,
            update_size=size,
            ce_epochs=args.ce_epochs,
            scst_epochs=args.scst_epochs,
            max_steps=args.max_steps,
            updates_per_rollout=args.updates_per_rollout,
            seed=args.seed if args.data_seed is None else args.data_seed,
            lengths=self.encoder.lengths([self.train_dataset[row] for row in gold]),
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        if self.schedule is None:
            return super()._get_train_sampler(train_dataset)
        return ScheduleSampler(self.schedule)

    @property
    def boundary(self) -> int:
        return self.boundary_of(self.state.max_steps)

    def boundary_of(self, max_steps: int) -> int:
        return self.args.boundary(max_steps) if self.schedule is None else self.schedule.boundary

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
        """W in the update that completes `step`."""
        return 1.0 if self.args.ce_weight == "one" else 1.0 - self.scst_weight(step)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if is_new and self.args.rate_factors:
            names = {parameter: name for name, parameter in (model or self.model).named_parameters()}
            optimizer.param_groups = objectives.divided_by_rate(optimizer.param_groups, names, self.args.rate_factors)
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        if self.lr_scheduler is None:  # type: ignore[has-type]
            args, boundary = self.args, self.boundary_of(num_training_steps)
            updates = {"ce": (args.ce_epochs, boundary), "scst": (args.scst_epochs, num_training_steps - boundary)}
            for stage, (epochs, own) in updates.items():
                if epochs and not own:
                    raise InputError(f"{stage}.epochs={epochs:g}: is none of {num_training_steps} updates; give more")
            self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
                optimizer or self.optimizer,
                lambda step: objectives.learning_rate_factor(
                    step,
                    boundary,
                    num_training_steps,
                    warmup=(args.ce_warmup, args.scst_warmup),
                    second=args.scst_learning_rate / args.learning_rate,
                    decays=args.rate_schedule == "linear",
                ),
            )
            self._created_lr_scheduler = True
        return self.lr_scheduler

    # --- the loss of an update

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
        if step <= self.boundary:
            loss = self.cross_entropy_loss(model, inputs)
        else:
            self.keep_reference()
            loss = self.self_critical_loss(model, inputs, step)
        tokens = num_items_in_batch if num_items_in_batch is not None else objectives.target_tokens(labels)
        loss, processes = loss / tokens, self.accelerator.num_processes
        if self.args.average_tokens_across_devices:
            loss = loss * processes  # cancels the mean over processes
        self.step_metrics.count(labels.shape[0])
        self.step_metrics.add(**self.files.measures(inputs["examples"]))
        self.step_metrics.add(loss=(loss.detach() / processes, 0.0))  # `RunFiles` adds its weight, one for each update
        return (loss, {}) if return_outputs else loss

    def cross_entropy_loss(self, model: nn.Module, inputs: dict[str, Any]) -> Tensor:
        """L_ce, summed over the batch."""
        labels = inputs["labels"]
        with self.step_metrics.timed("update"):
            loss = self.cross_entropy(self.logits(model, inputs, labels), labels).sum()
            self.step_metrics.add(loss_ce=(loss.detach(), labels.ne(-100).sum()))
        return loss

    def self_critical_loss(self, model: nn.Module, inputs: dict[str, Any], step: int) -> Tensor:
        """λ · L_scst + w · L_ce + β · KL, summed over the batch of b contexts with k samples each."""
        labels = inputs["labels"]
        # 1. Without gradient or dropout: k questions a context, their rewards, and advantages (b, k), for sets by
        #    question (b, k, m). A failed reward is NaN and gives no advantage. Later updates of `updates_per_rollout`
        #    take what the first one has made.
        learned = self.kept_rollout(step) or self.new_rollout(inputs, step)
        samples = learned.samples
        with self.step_metrics.timed("update"):
            # Where probabilities are compared, dropout would be taken for a difference between the policies.
            model.train(self.kl_coefficient.value == 0 and self.args.updates_per_rollout == 1)
            # 2. One forward pass with gradient, gold rows first: `gold` are the contexts that have a question. The end
            #    token of a sample counts, what follows it is masked.
            gold = torch.tensor([row for row, one in enumerate(inputs["examples"]) if one.question], dtype=torch.long)
            gold_logits, logits = self.gold_and_sample_logits(model, inputs, gold, samples)
            logprobs = token_logprobs(logits, samples.tokens)  # (b · k, t)
            # 3. The terms of the loss. Each sample is divided by k before the sum: the other order rounds otherwise.
            ce = self.cross_entropy(gold_logits, labels[gold.to(labels.device, non_blocking=True)])
            scst = self.policy_loss(learned, logprobs) / self.args.num_samples
            loss = self.scst_weight(step) * scst.sum() + self.ce_weight(step) * ce.sum()
            if self.kl_coefficient.value > 0:
                loss = loss + self.kl_penalty(inputs, samples, logits, logprobs)
        self.step_metrics.add(loss_ce=(ce.detach().sum(), labels.ne(-100).sum()))
        self.step_metrics.add(loss_scst=(scst.detach().sum(), objectives.target_tokens(labels)))
        self.step_metrics.add_rollout(learned.scored, learned.advantage, learned.rollout, logprobs.detach(), labels)
        self.logged_samples = sample_rows(learned.scored, inputs["examples"][: self.args.samples_logged])
        return loss

    # --- rollout, rewards, advantages

    def kept_rollout(self, step: int) -> LearnedRollout | None:
        """What an earlier update has made for the contexts of this batch, with `updates_per_rollout` above 1."""
        number = step if self.schedule is None else self.schedule.rollout_of(step)
        self.accumulated = self.accumulated + 1 if step == self.last_step else 0
        self.last_step = step
        if number != self.kept_number:
            self.kept.clear()
            self.kept_number = number
        return self.kept.get(self.accumulated)

    def new_rollout(self, inputs: dict[str, Any], step: int) -> LearnedRollout:
        args = self.args
        with self.step_metrics.timed("rollout"):
            rollout = self.roll_out(inputs, samples=args.num_samples, greedy=args.baseline == "greedy")
        with self.step_metrics.timed("reward"):
            try:
                scored = self.score(inputs["examples"], rollout, step)
            except LocalError:  # such as that of a judge whose budget has ended
                self.save_before_update()
                raise
            advantage = advantages_of(scored, args.baseline, args.credit)
        self.advantage_scale.add(advantage)
        self.equal_rewards.add(scored.rewards, scored.greedy)
        learned = LearnedRollout(rollout, scored, advantage)
        if args.updates_per_rollout > 1:
            self.kept[self.accumulated] = learned
        return learned

    def save_before_update(self) -> None:
        """Save the last update, within one that cannot end, where a run can begin: before anything of this one counts,
        and not at the start of an epoch, whose order has been drawn. Else an earlier checkpoint is the last one.
        """
        begun = self.accumulated > 0 or self.state.epoch == int(self.state.epoch or 0)
        if not begun and self.accelerator.num_processes == 1:
            self._save_checkpoint(self.model, None)

    @torch.no_grad()
    def roll_out(self, inputs: dict[str, Any], *, samples: int, greedy: bool) -> Rollout:
        """Decode without dropout, in parts if memory runs out. Each context is encoded once."""
        ids, mask, starts = inputs["input_ids"], inputs["attention_mask"], inputs.get("starts")
        draws = None
        if samples:
            # Random numbers by seed, step and example: a resumed run draws the same questions.
            keys = [example.id for example in inputs["examples"]]
            length, step = self.decoding_rules.max_new_tokens, self.state.global_step
            draws = uniform_draws(keys, samples, length, seed=self.args.seed, step=step)

        def roll_out(rows: Sequence[int]) -> Rollout:
            part = slice(rows[0], rows[-1] + 1)
            return decode(
                policy,
                encode(policy, ids[part], mask[part]),
                mask[part],
                self.decoding_rules,
                draws=None if draws is None else draws[part],
                greedy=greedy,
                starts=None if starts is None else starts[part],
            )

        with self.whole_model() as policy, self.accelerator.autocast(), packed(policy):
            training = policy.training
            policy.eval()
            try:
                return concatenate(self.rollout_retry(roll_out, range(len(ids))), self.special_tokens.pad)
            finally:
                policy.train(training)

    def score(self, examples: Sequence[QAExample], rollout: Rollout, step: int) -> ScoredRollout:
        assert self.scorer is not None and rollout.samples is not None
        sampled = self.texts(rollout.samples, examples)
        greedy = [] if rollout.greedy is None else self.texts(rollout.greedy, examples)
        copies = len(sampled) // len(examples)
        repeated = [*(example for example in examples for _ in range(copies)), *examples[: len(greedy)]]
        with torch.autocast(self.args.device.type, enabled=False):  # a metric has its own precision setting
            batch = self.scorer(repeated, sampled + greedy)
        self.failed_rewards.handle(step, repeated, sampled + greedy, batch)
        return ScoredRollout.of(batch, sampled, greedy, copies=copies)

    def texts(self, decoded: Decoded, examples: Sequence[QAExample]) -> list[str]:
        """What the tokens say; of sets and pairs without the last part of a text that the longest length has cut."""
        texts = self.encoder.decoded(decoded.tokens, examples)
        separator = {"pairs": PAIR, "sets": QUESTION}.get(self.args.task)
        return without_cut_part(texts, decoded, self.special_tokens.end, separator) if separator else texts

    # --- the terms of the loss

    def gold_and_sample_logits(
        self, model: nn.Module, inputs: dict[str, Any], gold: Tensor, samples: Decoded
    ) -> tuple[Tensor, Tensor]:
        """Logits of the gold questions of the contexts `gold` (g,), in the host's memory, (g, gold length, v), and of
        the samples of all, (b · k, sample length, v).
        """
        labels = inputs["labels"]
        both = (labels[gold.to(labels.device, non_blocking=True)], samples.tokens.masked_fill(~samples.mask, -100))
        longest = max(rows.shape[1] for rows in both)
        rows = torch.cat([nn.functional.pad(rows, (0, longest - rows.shape[1]), value=-100) for rows in both])
        logits = self.logits(model, inputs, rows, gold=gold).split([len(gold), len(samples.tokens)])
        first, rest = (part[:, : rows.shape[1]] for part, rows in zip(logits, both, strict=True))
        return first, rest

    def logits(
        self, model: nn.Module, inputs: dict[str, Any], labels: Tensor, *, gold: Tensor | None = None
    ) -> Tensor:
        """Logits (rows, t, v) of `labels` (rows, t): first one row for each context in `gold`, then equally many rows
        for each context, side by side. Each context is encoded once.
        """
        bare, starts = self.accelerator.unwrap_model(model), inputs.get("starts")
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        every = torch.arange(len(mask))
        gold = every[:0] if gold is None else gold
        of_row = torch.cat((gold, every.repeat_interleave((len(labels) - len(gold)) // len(mask))))
        context = of_row.to(mask.device, non_blocking=True)
        # What the decoder reads before a question: a language code of its example, else the start token.
        begin = labels.new_full((len(labels), 1), self.special_tokens.start) if starts is None else starts[context]
        tokens = shift_right(labels, begin, self.special_tokens.pad)
        mask = unread_mask(bare, mask)
        earlier = None  # where the library must not read masks, that of the decoder's own tokens
        if mask.dim() > 2:
            earlier = torch.ones((1, 1, *[tokens.shape[1]] * 2), dtype=torch.bool, device=mask.device).tril()
        with share_encoder_pass(bare, mask, of_row):
            of_rows = {"attention_mask": mask[context], "decoder_attention_mask": earlier}
            logits = model(input_ids=ids, decoder_input_ids=tokens, **of_rows).logits
        return about_labels(logits, labels)

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return objectives.cross_entropy(logits, labels, label_smoothing=self.args.label_smoothing_factor)

    def policy_loss(self, learned: LearnedRollout, logprobs: Tensor) -> Tensor:
        """L_scst of each of the b · k samples, given their log-probabilities (b · k, t)."""
        args, samples = self.args, learned.samples
        advantage = objectives.shaped(
            learned.advantage,
            scale=args.reward_scale,
            normalise=args.normalise_advantage == "batch",
            spread=self.advantage_scale.value if args.normalise_advantage in ("running", "group") else None,
            rewarded=learned.scored.rewards.isfinite() if args.normalise_advantage == "group" else None,
            clip=args.clip_advantage,
        )
        advantage = advantage.to(logprobs.device, non_blocking=True)
        if advantage.dim() == 2:
            advantage = advantage.flatten()  # one for each sample
        else:
            (separator,) = self.encoder.ids_of(QUESTION)
            advantage = of_questions(advantage, samples, separator)  # one for each token
        if args.updates_per_rollout == 1:
            return objectives.policy_gradient(logprobs, samples.mask, advantage)
        if learned.logprobs is None:
            learned.logprobs = logprobs.detach()
        with torch.no_grad():
            ratio = ((logprobs - learned.logprobs) * samples.mask).exp()
            clipped = ((ratio - 1).abs() > args.clip_ratio).sum()
            self.step_metrics.add(clip_fraction=(clipped, samples.mask.sum()))
        return objectives.clipped_policy_gradient(logprobs, learned.logprobs, samples.mask, advantage, args.clip_ratio)

    # --- the divergence from the policy at the start of the self-critical stage

    def keep_reference(self) -> None:
        reported = self.args.watch_kl and self.eval_dataset is not None
        if (self.args.kl_coefficient > 0 or reported) and self.reference is None:
            self.reference = ReferencePolicy.at_stage_start(self, resumed=self.state.global_step > self.boundary)

    def reference_logits(self, inputs: dict[str, Any], decoded: Decoded) -> Tensor:
        """Logits (n, t, v) of the reference policy at the tokens of n = b · k questions."""
        assert self.reference is not None
        # The unsharded copy of a model does not cast by itself, unlike the model in training.
        whole = self.whole_model(without=self.reference.weights)
        with whole as policy, self.reference.swapped_into(policy), self.accelerator.autocast():
            return self.logits(policy, inputs, decoded.tokens).float()

    def kl_penalty(self, inputs: dict[str, Any], samples: Decoded, logits: Tensor, logprobs: Tensor) -> Tensor:
        """β · KL from the reference policy, summed over the batch."""
        reference = self.reference_logits(inputs, samples)
        if self.args.kl_estimator == "exact":
            kl = objectives.kl_over_vocabulary(logits, reference)
        else:
            # After the end both are set equal: an infinite value there would remain NaN when it is masked later.
            reference_logprobs = token_logprobs(reference, samples.tokens)
            kl = objectives.kl_from_samples(logprobs, torch.where(samples.mask, reference_logprobs, logprobs.detach()))
        kl = kl * samples.mask
        total = (kl.detach().sum(), samples.mask.sum())
        self.kl_coefficient.add(*total)
        self.step_metrics.add(kl=total)
        return self.kl_coefficient.value * kl.sum() / self.args.num_samples

    # --- evaluation, logging, checkpoints

    def prediction_step(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> tuple[Tensor, None, None]:
        """Cross-entropy per token, averaged over questions (so that it does not depend on the batches). Greedy
        questions are collected for `evaluation_loop`, with their divergence from the reference policy.
        """
        inputs = self._prepare_inputs(inputs)
        unasked = [example.id for example in inputs["examples"] if not example.question]
        if unasked and self.is_in_train:  # a loss that is no number would end the training
            raise InputError(f"example {unasked[0]}: evaluations need a question; leave it out of the evaluation data")
        with torch.no_grad(), self.compute_loss_context_manager():
            labels = inputs["labels"]
            losses = objectives.cross_entropy(self.logits(model, inputs, labels), labels) / labels.ne(-100).sum(-1)
            self.eval_losses += zip(inputs["examples"], losses.tolist(), strict=True)
            if self.held_out_questions is not None:
                greedy = self.roll_out(inputs, samples=0, greedy=True).greedy
                assert greedy is not None
                divergence = None
                if self.reference is not None:
                    reference = self.reference_logits(inputs, greedy)
                    divergence = objectives.kl_over_vocabulary(self.logits(model, inputs, greedy.tokens), reference)
                texts = self.texts(greedy, inputs["examples"])
                self.held_out_questions.add(inputs["examples"], texts, greedy.mask, divergence)
        return losses.mean(), None, None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """The library's loop; reward, held-out reward and held-out measures of the greedy questions are added to the
        metrics (`docs/explanation/method.md`).
        """
        whole = nullcontext() if self.held_out_questions is None else self.whole_model()  # for all batches at once
        with self.step_metrics.paused():
            with whole:
                output = super().evaluation_loop(*args, **kwargs)
            losses = dict(gather_object(self.eval_losses)).values()  # the library's mean depends on the batches
            self.eval_losses = []
            measures = {"loss": sum(losses) / len(losses)}
            if self.held_out_questions is not None:
                measures |= self.held_out_questions.collect()
            prefix = kwargs.get("metric_key_prefix", "eval")
            output.metrics.update({f"{prefix}_{name}": value for name, value in measures.items()})
        return output

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
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
        self.kept.clear()
        if self.held_out_questions is not None:
            self.held_out_questions.reset_cache()  # the caches of a resumed run are empty
        super()._save_checkpoint(model, trial)
