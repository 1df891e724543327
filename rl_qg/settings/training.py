"""The two training stages of the question generator."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import (
    COUNT,
    FINITE,
    FRACTION,
    MISSING,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    SHARE,
    Limits,
    Section,
    key,
)

# Where the data come from.


WORLD = "world"
"""The value of `data.train` and `data.validation` that names the embedded corpus."""


@dataclass
class WorldSettings(Section):
    """Sizes of the embedded corpus (`rl_qg.data.corpus`), used when `data.train` is `world`."""

    train_passages: int = key(600, "passages to train on", limits=COUNT)
    validation_passages: int = key(120, "passages to validate on", limits=COUNT)
    seed: int = key(0, "of the facts and their wording", limits=SEED)
    shared_facts: float = key(
        0.0,
        "probability that the second subject of a passage has facts of the same kinds as the first",
        limits=FRACTION,
    )
    new_wordings: bool = key(False, "ask about validation passages in wordings that no training question has")


@dataclass
class DataSettings(Section):
    """Sources of QA examples. A source is a path, a Hub data set name, or `world`."""

    train: Any = key(MISSING, "file(s), Hub data set, or world (the embedded corpus)")
    validation: Any = key(MISSING, "held-out file(s), Hub data set, or world")
    unlabelled: Any = key(None, "file(s) of passages without questions to learn on and to ask about: text, or QA data")
    max_train: int | None = key(None, "at most this many training examples (a seeded sample); null: all", limits=COUNT)
    max_validation: int | None = key(None, "at most this many validation examples; null: all", limits=COUNT)
    hotpotqa_context: str = key(
        "facts",
        "the passage of a HotpotQA question: its supporting sentences (facts), all sentences of their paragraphs, or "
        "all ten paragraphs",
        choices=("facts", "paragraphs", "all"),
    )
    labelled_fraction: float = key(
        1.0,
        "fraction of training passages whose questions are used; the rest gives only passages and answers",
        limits=SHARE,
    )
    labelled_unit: str = key(
        "passages",
        "what labelled_fraction is a fraction of: passages (with all their questions) or questions",
        choices=("passages", "questions"),
    )
    seed: int = key(0, "of the samples above", limits=SEED)
    world: WorldSettings = key(WorldSettings(), "the embedded corpus")


# The question generator, its adapters, and small models for work without a model hub.


@dataclass
class ModelSettings(Section):
    """The question generator: any seq2seq checkpoint, `miniature:bart` or `miniature:t5`; for `algorithm=rloo` and
    `algorithm=grpo` a causal one, such as `gpt2` or `miniature:gpt2`.
    """

    path: str = key(MISSING, "Hub name, local folder, miniature:bart, miniature:t5 or miniature:questions")
    task: str = key(
        "questions",
        "what the model writes: questions, answers, multitask (both), pairs (all of a passage at once), or sets "
        "(questions without given answers, see ask.granularity)",
        choices=("questions", "answers", "multitask", "pairs", "sets"),
    )
    input: str = key(
        "paragraph_answer",
        "what it reads: paragraph_answer (the passage, its answer marked), sentence_answer (the sentence of the "
        "answer alone), paragraph_sentence (the passage, that sentence marked) or paragraph (nothing marked)",
        choices=("paragraph_answer", "sentence_answer", "paragraph_sentence", "paragraph"),
    )
    language: str | None = key(
        None,
        "of models with language codes (mBART, NLLB), such as de or de_DE; null: the model's own. A language field of "
        "the data comes first",
    )
    prefix: str | None = key(
        None, 'text before every input; null: that of the task for T5, such as "generate question: ", none for others'
    )
    max_source_length: int = key(
        512, "tokens; a longer context is cut to a window around the answer", limits=Limits(16)
    )
    max_target_length: int = key(64, "tokens of a gold question, or of what another task writes", limits=Limits(2))

    def conflicts(self) -> Iterator[str]:
        if self.task == "multitask" and self.prefix is not None:
            yield f"prefix={self.prefix!r}: set it to null; with task=multitask each input has that of its own task"


@dataclass
class TrimSettings(Section):
    """The vocabulary of a generator without what a corpus does not use (`rl_qg.generation.trim`)."""

    corpus: Any = key("", "text file(s), or QA data as data.train; their pieces are kept")
    pieces: int | None = key(None, "of these pieces the most frequent so many; null: all", limits=COUNT)
    common: int = key(
        0, "of the whole vocabulary, keep besides the so many most frequent pieces of pretraining", limits=NOT_NEGATIVE
    )


@dataclass
class PeftSettings(Section):
    """Adapters instead of full fine-tuning (`peft=lora`). Adapters are merged into the saved models."""

    method: str = key("none", "none (all weights are trained) or lora (low-rank adapters)", choices=("none", "lora"))
    r: int = key(16, "rank of the update", limits=COUNT)
    alpha: int = key(32, "scale times rank of the update", limits=COUNT)
    dropout: float = key(0.05, "in the adapters", limits=FRACTION)
    target_modules: list[str] | None = key(
        None, "layers with an adapter, such as [q_proj,v_proj]; null: peft's choice for the architecture"
    )
    learning_rate_factor: float = key(
        10.0, "factor on both learning rates: adapters need larger steps", limits=POSITIVE
    )


@dataclass
class MiniatureSettings(Section):
    """How small models are pretrained on the training text (`rl_qg.miniatures.cache`)."""

    steps: int = key(800, "updates of the generator", limits=COUNT)
    metric_steps: int = key(400, "updates of each reward model and of the reader", limits=COUNT)
    batch_size: int = key(16, "passages per update", limits=COUNT)
    learning_rate: float = key(2e-3, "peak of the schedule", limits=POSITIVE)
    hidden_size: int = key(128, "of every model", limits=COUNT)
    layers: int = key(2, "of every model; encoder and decoder each", limits=COUNT)
    vocab_size: int = key(2000, "tokens in the vocabulary", limits=COUNT)
    max_tokens: int = key(256, "longest training input", limits=COUNT)
    cache_dir: str = key("~/.cache/rl-qg/miniature", "where trained miniatures are kept")


@dataclass
class QAModelSettings(Section):
    """An encoder to fine-tune: any checkpoint that the task's `AutoModelFor…` class loads, or a miniature."""

    path: str = key("distilbert-base-uncased", "Hub name, local folder, or a miniature such as miniature:distilbert")


def fault_of_placement(value: Any) -> str:
    """A fault for a place that is no word of `reward_placement` and no fraction; YAML's true is not a number."""
    is_fraction = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
    return "" if value in ("device", "cpu") or is_fraction else f"{value} is not device, cpu, or a fraction in (0, 1]"


BASELINES = ("greedy", "leave_one_out", "mean", "none")
NORMALISATIONS = ("running", "group", "batch", "none")
CREDITS = ("whole", "marginal", "to_go")
SCHEDULES = ("linear", "constant", "cosine", "warmup")
RATE_SCHEDULES = ("linear", "constant")


@dataclass
class TrainingSettings(Section):
    """What both stages share; passed to `transformers.TrainingArguments`."""

    batch_size: int = key(16, "examples per device", limits=COUNT)
    gradient_accumulation_steps: int = key(1, "batches per update", limits=COUNT)
    rate_schedule: str = key(
        "linear",
        "the learning rate after the warm-up of a stage: linear (falls to 0) or constant",
        choices=RATE_SCHEDULES,
    )
    stop_after: float | None = key(
        None,
        "passes over the data after which the command stops, of those planned; the same command with a later stop, or "
        "null, goes on as if it had not stopped",
        limits=POSITIVE,
    )
    weight_decay: float = key(0.01, "of AdamW", limits=NOT_NEGATIVE)
    max_grad_norm: float = key(1.0, "gradients are clipped to this norm", limits=NOT_NEGATIVE)
    precision: str = key("no", "no (float32), bf16 or fp16", choices=("no", "bf16", "fp16"))
    gradient_checkpointing: bool = key(False, "less memory, a third more time")
    use_cpu: bool = key(False, "do not use the accelerator")
    reward_placement: Any = key(
        "device",
        "of the reward's models: device, cpu, or a fraction of GPU memory, such as 0.2 (see the scaling guide)",
        fault=fault_of_placement,
    )
    logging_steps: int = key(10, "updates between lines of metrics.jsonl", limits=COUNT)
    eval_steps: int = key(500, "updates between evaluations", limits=COUNT)
    eval_samples: int = key(256, "validation examples used at each evaluation", limits=COUNT)
    save_steps: int = key(500, "updates between checkpoints", limits=COUNT)
    save_total_limit: int = key(2, "checkpoints kept", limits=COUNT)
    report_to: str = key("tensorboard", "tensorboard, wandb, trackio or none")
    hub_model: str | None = key(
        None, "Hub repository for the final model and its card, such as me/bart-qg; null: not published"
    )


@dataclass
class CESettings(Section):
    """The cross-entropy stage."""

    epochs: float = key(4.0, "passes over the data", limits=NOT_NEGATIVE)
    learning_rate: float = key(5e-5, "peak of the schedule", limits=POSITIVE)
    warmup_fraction: float = key(0.05, "fraction of the stage in which the learning rate rises", limits=FRACTION)
    label_smoothing: float = key(0.0, "0: none", limits=FRACTION)
    early_stopping_patience: int = key(
        0,
        "evaluations without a lower validation loss before stages=ce stops; 0: never",
        limits=NOT_NEGATIVE,
    )


@dataclass
class SelfCriticalOptions(Section):
    """The options of self-critical training that settings and trainer share.

    `SCSTSettings` and `rl_qg.training.config.SelfCriticalConfig` both inherit them; `rl_qg.training.objectives` has
    the equations. Rewards in the log are neither scaled nor clipped.
    """

    baseline: str = key(
        "greedy",
        "what a sample's reward is compared with: greedy (the paper), leave_one_out, mean or none",
        choices=BASELINES,
    )
    num_samples: int | None = key(None, "samples per context; null: 1 for greedy and none, 4 for the others")
    credit: str = key(
        "whole",
        "model.task=sets: what a token of a question answers for, the reward of the whole set (whole), what its "
        "question adds to the others (marginal, biased), or what the set gains from it on (to_go, not biased)",
        choices=CREDITS,
    )
    reward_scale: float = key(1.0, "factor on the advantage; has an effect with normalise_advantage=none only")
    normalise_advantage: str = key(
        "running",
        "divide advantages by their root mean square over earlier updates (running), by that and the one of the "
        "context's own samples (group), by that of this batch (batch), or by none",
        choices=NORMALISATIONS,
    )
    clip_advantage: float | None = key(
        None,
        "largest absolute advantage, after scale and normalisation; null: no limit",
        limits=POSITIVE,
    )
    schedule: str = key(
        "linear",
        "of lambda over the stage: linear (from 0, the paper), constant, cosine, or warmup (then constant)",
        choices=SCHEDULES,
    )
    lambda_max: float = key(1.0, "the largest lambda", limits=NOT_NEGATIVE)
    lambda_warmup: float = key(0.1, "fraction of the stage in which schedule=warmup rises", limits=FRACTION)
    ce_weight: str = key(
        "one", "weight of the cross-entropy: one (the paper) or rest (1 - lambda)", choices=("one", "rest")
    )
    unlabelled_share: float | None = key(
        None,
        "share of the stage's examples that have no question; null: by the numbers of examples, 0: none",
        limits=FRACTION,
    )
    updates_per_rollout: int = key(
        1, "updates from each rollout; above 1 with a clipped importance ratio (PPO)", limits=COUNT
    )
    clip_ratio: float = key(
        0.2, "with updates_per_rollout above 1: largest change of a token's probability ratio", limits=POSITIVE
    )
    kl_coefficient: float = key(
        0.0,
        "weight of the divergence from the generator at the start of the stage, per target token",
        limits=NOT_NEGATIVE,
    )
    kl_target: float | None = key(
        None,
        "divergence in nats per token that kl_coefficient is adapted to hold; null: not adapted",
        limits=POSITIVE,
    )
    kl_estimator: str = key(
        "k3", "k3 (from the sampled tokens) or exact (over the vocabulary)", choices=("k3", "exact")
    )
    watch_kl: bool = key(
        True,
        "report the divergence at evaluations even where it is not in the loss; costs a copy of the trained weights",
    )
    on_bad_reward: str = key(
        "skip",
        "a reward that is not finite, or raises: skip (the row teaches nothing) or stop",
        choices=("skip", "stop"),
    )
    pair_floor: float | None = key(
        None,
        "model.task=pairs: reward of a pair whose answer is not in the passage; null: the reward's smallest value",
        limits=FINITE,
    )
    answer_weight: float = key(
        1.0, "factor on the reward of answers, with model.task=multitask or answers", limits=NOT_NEGATIVE
    )
    stop_on: str | None = key(
        None, "end when this held-out measure no longer improves, such as bleu4; the best model is kept"
    )
    patience: int = key(3, "evaluations without improvement of stop_on before the stage ends", limits=COUNT)
    max_new_tokens: int = key(64, "longest sampled question", limits=COUNT)
    min_new_tokens: int = key(
        0,
        "shortest one; this and the keys below change what is sampled, the loss stays the same",
        limits=NOT_NEGATIVE,
    )
    temperature: float = key(1.0, "of sampling", limits=POSITIVE)
    top_k: int = key(0, "sample from this many most likely tokens; 0: all", limits=NOT_NEGATIVE)
    top_p: float = key(1.0, "sample from the most likely tokens of this total probability; 1: all", limits=SHARE)
    no_repeat_ngram: int = key(0, "no n-gram of this length twice; 0: off", limits=NOT_NEGATIVE)

    def __post_init__(self) -> None:
        # Before there were three choices this was a switch: true divided by the spread of the batch.
        switch = str(self.normalise_advantage).lower()
        self.normalise_advantage = {"true": "batch", "false": "none"}.get(switch, self.normalise_advantage)

    def conflicts(self) -> Iterator[str]:
        needed = 2 if self.baseline in ("leave_one_out", "mean") else 1
        if self.num_samples is not None and self.num_samples < needed:
            yield f"num_samples={self.num_samples}: baseline={self.baseline} needs at least {needed}"
        if self.ce_weight == "rest" and self.lambda_max > 1:
            yield f"lambda_max={self.lambda_max} must not be above 1 with ce_weight=rest"
        if self.kl_target is not None and self.kl_coefficient == 0:
            yield f"kl_target={self.kl_target}: kl_coefficient, from which it starts, must be above 0"
        if self.min_new_tokens > self.max_new_tokens:
            yield f"min_new_tokens={self.min_new_tokens} is above max_new_tokens={self.max_new_tokens}"


@dataclass
class RewardStage(Section):
    """Length and learning rate of the stage that learns from the reward."""

    epochs: float = key(2.0, "passes over the data", limits=NOT_NEGATIVE)
    learning_rate: float = key(1e-5, "peak of the schedule, which starts anew at this stage", limits=POSITIVE)
    warmup_fraction: float = key(0.05, "fraction of the stage in which the learning rate rises", limits=FRACTION)


@dataclass
class SCSTSettings(SelfCriticalOptions, RewardStage):
    """The stage that learns from the reward; `algorithm=rloo` and `algorithm=grpo` read it too."""
