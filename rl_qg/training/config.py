"""The training arguments of `SelfCriticalTrainer`: those of transformers, and what self-critical training adds."""

from dataclasses import dataclass

from transformers import Seq2SeqTrainingArguments

from rl_qg.generation.decoding import DecodingRules
from rl_qg.training.objectives import BASELINES, CE_WEIGHTS, KL_ESTIMATORS, SCHEDULES

ON_BAD_REWARD = ("skip", "stop")


@dataclass
class SelfCriticalConfig(Seq2SeqTrainingArguments):
    """Training arguments plus what self-critical training adds. `rl_qg.training.objectives` has the equations.

    Args:
        ce_epochs: passes over the data by cross-entropy alone (λ = 0). `learning_rate` and `ce_warmup` belong to this
            stage.
        scst_epochs: passes with λ above 0. `num_train_epochs` is the sum of both; with `max_steps` the two give the
            shares.
        scst_learning_rate: peak of the schedule that starts anew at the stage boundary.
        ce_warmup, scst_warmup: share of each stage that the learning rate spends warming up.
        baseline: what the reward of a sample is compared with, see `rl_qg.training.objectives.advantages`. Only `greedy` (the
            paper) decodes a greedy question too.
        num_samples: questions sampled per context; None takes 1 for `greedy` and `none`, 4 for the others.
        reward_scale: factor on the advantage, 1 in the paper. Rewards that differ by thousandths between two questions
            need more than that to be heard beside L_ce. Logged rewards are not scaled.
        normalise_advantage: divide the advantages of a batch by their root mean square.
        clip_advantage: largest absolute advantage, after scale and normalisation; None for no limit.
        schedule: course of λ over the stage: linear from 0 to `lambda_max` (the paper), constant, cosine, or warmup
            (linear over `lambda_warmup` of the stage, then constant).
        ce_weight: weight of L_ce in the self-critical stage: `one` (the paper) or `rest` (1 − λ).
        kl_coefficient: weight β of the divergence from the policy that the stage began with, per target token.
        kl_target: divergence in nats per token that β is adapted to hold; None keeps β as it is.
        kl_estimator: `k3` from the sampled tokens, or `exact` over the vocabulary at their positions.
        watch_kl: report the divergence at evaluations, where it is not part of the loss; costs a copy of the trained
            weights (under LoRA: of the adapters).
        on_bad_reward: a reward that is None, not finite or raises: `skip` teaches nothing by that row, `stop` ends the
            run. Either way the text is written to `samples.jsonl`.
        stop_on: name of a held-out measure (`rl_qg.evaluation.text_measures`), such as `bleu4`, that must not stop improving.
        patience: evaluations without improvement of `stop_on` before the stage ends.
        max_new_tokens, min_new_tokens, temperature, top_k, top_p, no_repeat_ngram: rules of the rollout, see
            `rl_qg.generation.decoding.DecodingRules`. All but the first are off by default: sampling is on-policy.
        prefix, max_source_length, max_target_length: see `rl_qg.generation.prompts.Prompt`.
        samples_logged: rollouts written to `samples.jsonl` at each logging step.
    """

    ce_epochs: float = 0.0
    scst_epochs: float = 2.0
    scst_learning_rate: float = 1e-5
    ce_warmup: float = 0.05
    scst_warmup: float = 0.05
    baseline: str = "greedy"
    num_samples: int | None = None
    reward_scale: float = 1.0
    normalise_advantage: bool = False
    clip_advantage: float | None = None
    schedule: str = "linear"
    lambda_max: float = 1.0
    lambda_warmup: float = 0.1
    ce_weight: str = "one"
    kl_coefficient: float = 0.0
    kl_target: float | None = None
    kl_estimator: str = "k3"
    watch_kl: bool = True
    on_bad_reward: str = "skip"
    stop_on: str | None = None
    patience: int = 3
    max_new_tokens: int = 64
    min_new_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    no_repeat_ngram: int = 0
    prefix: str = ""
    max_source_length: int = 512
    max_target_length: int = 64
    samples_logged: int = 4

    def __post_init__(self) -> None:
        faults = [text for wrong, text in self._faults() if wrong]
        if faults:
            raise ValueError("; ".join(faults))
        if self.num_samples is None:
            self.num_samples = 1 if self.baseline in ("greedy", "none") else 4
        self.num_train_epochs = self.ce_epochs + self.scst_epochs
        self.remove_unused_columns = False  # the collator reads whole examples
        super().__post_init__()

    def _faults(self) -> list[tuple[bool, str]]:
        choices = {
            "baseline": BASELINES,
            "schedule": SCHEDULES,
            "ce_weight": CE_WEIGHTS,
            "kl_estimator": KL_ESTIMATORS,
            "on_bad_reward": ON_BAD_REWARD,
        }
        compares_samples = self.baseline in ("leave_one_out", "mean")
        return [
            *(
                (getattr(self, name) not in names, f"{name}={getattr(self, name)} is not one of {', '.join(names)}")
                for name, names in choices.items()
            ),
            (
                self.ce_epochs < 0 or self.scst_epochs < 0 or self.ce_epochs + self.scst_epochs == 0,
                f"ce_epochs={self.ce_epochs}, scst_epochs={self.scst_epochs}: none negative, one above 0",
            ),
            (
                self.num_samples is not None and self.num_samples < 1 + compares_samples,
                f"num_samples={self.num_samples}: baseline={self.baseline} needs at least {1 + compares_samples}",
            ),
            (
                self.clip_advantage is not None and self.clip_advantage <= 0,
                f"clip_advantage={self.clip_advantage} must be above 0",
            ),
            (not 0 <= self.lambda_warmup <= 1, f"lambda_warmup={self.lambda_warmup} is not in [0, 1]"),
            (
                self.lambda_max < 0 or (self.ce_weight == "rest" and self.lambda_max > 1),
                f"lambda_max={self.lambda_max} must not be negative, nor above 1 with ce_weight=rest",
            ),
            (self.kl_coefficient < 0, f"kl_coefficient={self.kl_coefficient} must not be negative"),
            (
                self.kl_target is not None and (self.kl_target <= 0 or self.kl_coefficient == 0),
                f"kl_target={self.kl_target} must be above 0, and so must kl_coefficient, where it starts",
            ),
            (self.patience < 1, f"patience={self.patience} must be at least 1"),
            (self.temperature <= 0, f"temperature={self.temperature} must be above 0"),
            (not 0 < self.top_p <= 1, f"top_p={self.top_p} is not in (0, 1]"),
            (
                not 0 <= self.min_new_tokens <= self.max_new_tokens or self.max_new_tokens < 1,
                f"min_new_tokens={self.min_new_tokens}, max_new_tokens={self.max_new_tokens}: not in order",
            ),
            (
                min(self.top_k, self.no_repeat_ngram) < 0,
                f"top_k={self.top_k}, no_repeat_ngram={self.no_repeat_ngram}: 0 switches off, none may be negative",
            ),
        ]

    def boundary(self, max_steps: int) -> int:
        """The last step of the cross-entropy stage, of `max_steps` in all."""
        return round(max_steps * self.ce_epochs / (self.ce_epochs + self.scst_epochs))

    def decoding_rules(self) -> DecodingRules:
        """What rollouts obey."""
        return DecodingRules(
            self.max_new_tokens,
            self.min_new_tokens,
            self.no_repeat_ngram,
            self.temperature,
            self.top_k,
            self.top_p,
        )
