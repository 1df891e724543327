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
    PASSES,
    POSITIVE,
    RATE,
    SEED,
    SHARE,
    Limits,
    Section,
    choice,
    key,
)

WORLD = "world"
"""The value of `data.train` and `data.validation` that names the embedded corpus."""


@dataclass
class WorldSettings(Section):
    """Sizes of the embedded corpus (`rl_qg.data.corpus`), used when `data.train` is `world`."""

    train_passages: int = key(600, "passages to train on", COUNT)
    validation_passages: int = key(120, "passages to validate on", COUNT)
    seed: int = key(0, "of the facts and their wording", SEED)
    shared_facts: float = key(
        0.0, "probability that the second subject of a passage has facts of the same kinds as the first", FRACTION
    )
    new_wordings: bool = key(False, "ask about validation passages in wordings that no training question has")


@dataclass
class DataSettings(Section):
    """Sources of QA examples. A source is a path, a Hub data set name, or `world`."""

    train: Any = key(MISSING, "file(s), Hub data set, or world (the embedded corpus)")
    validation: Any = key(MISSING, "held-out file(s), Hub data set, or world")
    unlabelled: Any = key(None, "file(s) of passages without questions to learn on and to ask about: text, or QA data")
    max_train: int | None = key(None, "at most this many training examples (a seeded sample); null: all", COUNT)
    max_validation: int | None = key(None, "at most this many validation examples; null: all", COUNT)
    hotpotqa_context: str = choice(
        "facts paragraphs all",
        "the passage of a HotpotQA question: its supporting sentences (facts), all sentences of their paragraphs, or "
        "all ten paragraphs",
    )
    labelled_fraction: float = key(
        1.0, "fraction of training passages whose questions are used; the rest gives only passages and answers", SHARE
    )
    labelled_unit: str = choice(
        "passages questions",
        "what labelled_fraction is a fraction of: passages (with all their questions) or questions",
    )
    seed: int = key(0, "of the samples above", SEED)
    world: WorldSettings = key(WorldSettings(), "the embedded corpus")


@dataclass
class ModelSettings(Section):
    """The question generator: any seq2seq checkpoint, `miniature:bart` or `miniature:t5`; for `algorithm=rloo` and
    `algorithm=grpo` a causal one, such as `gpt2` or `miniature:gpt2`.
    """

    path: str = key(MISSING, "Hub name, local folder, miniature:bart, miniature:t5 or miniature:questions")
    task: str = choice(
        "questions answers multitask pairs sets",
        "what the model writes: questions, answers, multitask (both), pairs (all of a passage at once), or sets "
        "(questions without given answers, see ask.granularity)",
    )
    input: str = choice(
        "paragraph_answer sentence_answer paragraph_sentence paragraph",
        "what it reads: paragraph_answer (the passage, its answer marked), sentence_answer (the sentence of the "
        "answer alone), paragraph_sentence (the passage, that sentence marked) or paragraph (nothing marked)",
    )
    language: str | None = key(
        None,
        "of models with language codes (mBART, NLLB), such as de or de_DE; null: the model's own. A language field of "
        "the data comes first",
    )
    format: str | None = key(None, "of its texts: one of rl-qg models, or rl-qg; null: recognised by name or files")
    prefix: str | None = key(
        None, 'text before every input; null: that of the task for T5, such as "generate question: ", none for others'
    )
    max_source_length: int = key(512, "tokens; a longer context is cut to a window around the answer", Limits(16))
    max_target_length: int = key(64, "tokens of a gold question, or of what another task writes", Limits(2))
    dropout: float | None = key(
        None, "rate while it learns, in attention at most its own; null: the model's own", Limits(0, 0.99)
    )

    def conflicts(self) -> Iterator[str]:
        if self.task == "multitask" and self.prefix is not None:
            yield f"prefix={self.prefix!r}: set it to null; with task=multitask each input has that of its own task"


@dataclass
class TrimSettings(Section):
    """The vocabulary of a generator without what a corpus does not use (`rl_qg.generation.trim`)."""

    corpus: Any = key("", "text file(s), or QA data as data.train; their pieces are kept")
    pieces: int | None = key(None, "of these pieces the most frequent so many; null: all", COUNT)
    common: int = key(
        0, "of the whole vocabulary, keep besides the so many most frequent pieces of pretraining", NOT_NEGATIVE
    )


@dataclass
class PeftSettings(Section):
    """Adapters instead of full fine-tuning (`peft=lora`). Adapters are merged into the saved models."""

    method: str = choice("none lora", "none (all weights are trained) or lora (low-rank adapters)")
    r: int = key(16, "rank of the update", COUNT)
    alpha: int = key(32, "scale times rank of the update", COUNT)
    dropout: float = key(0.05, "in the adapters", Limits(0, 0.99))
    target_modules: list[str] | None = key(
        None, "layers with an adapter, such as [q_proj,v_proj]; null: peft's choice for the architecture"
    )
    learning_rate_factor: float = key(10.0, "factor on both learning rates: adapters need larger steps", POSITIVE)


@dataclass
class MiniatureSettings(Section):
    """How small models are pretrained on the training text (`rl_qg.miniatures.cache`)."""

    steps: int = key(800, "updates of the generator", COUNT)
    metric_steps: int = key(400, "updates of each reward model and of the reader", COUNT)
    batch_size: int = key(16, "passages per update", COUNT)
    learning_rate: float = key(2e-3, "peak of the schedule", RATE)
    hidden_size: int = key(128, "of every model", COUNT)
    layers: int = key(2, "of every model; encoder and decoder each", COUNT)
    vocab_size: int = key(2000, "tokens in the vocabulary", COUNT)
    max_tokens: int = key(256, "longest training input", COUNT)
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
SCHEDULES = ("linear", "constant", "cosine", "warmup")


@dataclass
class TrainingSettings(Section):
    """What both stages share; passed to `transformers.TrainingArguments`."""

    batch_size: int = key(16, "examples per device", COUNT)
    gradient_accumulation_steps: int = key(1, "batches per update", COUNT)
    rate_schedule: str = choice(
        "linear constant", "the learning rate after the warm-up of a stage: linear (falls to 0) or constant"
    )
    rate_factors: dict[str, float] = key(
        {},
        "factors on the generator's learning rate, by a part of the names of parameters, such as {encoder_attn: 5}",
        lambda factors: next(filter(None, map(POSITIVE, factors.values())), ""),
    )
    stop_after: float | None = key(
        None,
        "passes over the data after which the command stops, of those planned; the same command with a later stop, or "
        "null, goes on as if it had not stopped",
        POSITIVE,
    )
    weight_decay: float = key(0.01, "of AdamW", NOT_NEGATIVE)
    max_grad_norm: float = key(1.0, "gradients are clipped to this norm", NOT_NEGATIVE)
    precision: str = choice("no bf16 fp16", "no (float32), bf16 or fp16")
    gradient_checkpointing: bool = key(False, "less memory, a third more time")
    use_cpu: bool = key(False, "do not use the accelerator")
    reward_placement: Any = key(
        "device",
        "of the reward's models: device, cpu, or a fraction of GPU memory, such as 0.2 (see the scaling guide)",
        fault_of_placement,
    )
    dataloader_num_workers: int = key(
        0, "processes beside each training process that make its batches; 0: it makes them itself", NOT_NEGATIVE
    )
    logging_steps: int = key(10, "updates between lines of metrics.jsonl", COUNT)
    eval_steps: int = key(500, "updates between evaluations", COUNT)
    eval_samples: int = key(256, "validation examples used at each evaluation", COUNT)
    save_steps: int = key(500, "updates between checkpoints", COUNT)
    save_total_limit: int = key(2, "checkpoints kept", COUNT)
    report_to: str = key("tensorboard", "a tracker of transformers, such as wandb, trackio or mlflow, or none")
    hub_model: str | None = key(
        None, "Hub repository for the final model and its card, such as me/bart-qg; null: not published"
    )


@dataclass
class CESettings(Section):
    """The cross-entropy stage."""

    epochs: float = key(4.0, "passes over the data", PASSES)
    learning_rate: float = key(5e-5, "peak of the schedule", RATE)
    warmup_fraction: float = key(0.05, "fraction of the stage in which the learning rate rises", FRACTION)
    label_smoothing: float = key(0.0, "0: none", Limits(0, 0.99))
    by_length: bool = key(False, "updates from inputs of similar length, so that less is padded")
    early_stopping_patience: int = key(
        0, "evaluations without a lower validation loss before stages=ce stops; 0: never", NOT_NEGATIVE
    )
    average: int = key(
        1,
        "the model of stages=ce is the mean over the weights of so many last checkpoints; 1: the checkpoint with the "
        "lowest validation loss",
        COUNT,
    )


@dataclass
class SelfCriticalOptions(Section):
    """The options of self-critical training that settings and trainer share.

    `SCSTSettings` and `rl_qg.training.config.SelfCriticalConfig` both inherit them; `rl_qg.training.objectives` has
    the equations. Rewards in the log are neither scaled nor clipped.
    """

    baseline: str = choice(
        BASELINES, "what a sample's reward is compared with: greedy (the paper), leave_one_out, mean or none"
    )
    num_samples: int | None = key(None, "samples per context; null: 1 for greedy and none, 4 for the others")
    credit: str = choice(
        "whole marginal to_go",
        "model.task=sets: what a token of a question answers for, the reward of the whole set (whole), what its "
        "question adds to the others (marginal, biased), or what the set gains from it on (to_go, not biased)",
    )
    reward_scale: float = key(1.0, "factor on the advantage, with normalise_advantage=none", POSITIVE)
    normalise_advantage: str = choice(
        "running group batch none",
        "divide advantages by their root mean square over earlier updates (running), by that and the one of the "
        "context's own samples (group), by that of this batch (batch), or by none",
    )
    clip_advantage: float | None = key(
        None, "largest absolute advantage, after scale and normalisation; null: no limit", POSITIVE
    )
    schedule: str = choice(
        SCHEDULES, "of lambda over the stage: linear (from 0, the paper), constant, cosine, or warmup (then constant)"
    )
    lambda_max: float = key(1.0, "the largest lambda", NOT_NEGATIVE)
    lambda_warmup: float = key(0.1, "fraction of the stage in which schedule=warmup rises", FRACTION)
    ce_weight: str = choice("one rest", "weight of the cross-entropy: one (the paper) or rest (1 - lambda)")
    unlabelled_share: float | None = key(
        None,
        "share of the stage's examples that have no question; null: by the numbers of examples, 0: none",
        FRACTION,
    )
    updates_per_rollout: int = key(1, "updates from each rollout; above 1 with clipped importance ratios (PPO)", COUNT)
    clip_ratio: float = key(0.2, "largest change of a probability ratio, with updates_per_rollout above 1", POSITIVE)
    kl_coefficient: float = key(
        0.0, "weight of the divergence from the generator at the start of the stage, per target token", NOT_NEGATIVE
    )
    kl_target: float | None = key(
        None, "divergence in nats per token that kl_coefficient is adapted to hold; null: not adapted", POSITIVE
    )
    kl_estimator: str = choice("k3 exact", "k3 (from the sampled tokens) or exact (over the vocabulary)")
    watch_kl: bool = key(
        True,
        "report the divergence at evaluations even where it is not in the loss; costs a copy of the trained weights",
    )
    on_bad_reward: str = choice("skip stop", "reward not finite, or an error: skip (the row teaches nothing) or stop")
    pair_floor: float | None = key(
        None,
        "model.task=pairs: reward of a pair whose answer is not in the passage; null: the reward's smallest value",
        FINITE,
    )
    answer_weight: float = key(1.0, "factor on the reward of answers (model.task=multitask or answers)", NOT_NEGATIVE)
    stop_on: str | None = key(None, "end when a held-out measure stops improving (bleu4, …); the best model is kept")
    patience: int = key(3, "evaluations without improvement of stop_on before the stage ends", COUNT)
    max_new_tokens: int = key(64, "longest sampled question", COUNT)
    min_new_tokens: int = key(
        0, "shortest one; this and the keys below change what is sampled, the loss stays the same", NOT_NEGATIVE
    )
    temperature: float = key(1.0, "of sampling", POSITIVE)
    top_k: int = key(0, "sample from this many most likely tokens; 0: all", NOT_NEGATIVE)
    top_p: float = key(1.0, "sample from the most likely tokens of this total probability; 1: all", SHARE)
    no_repeat_ngram: int = key(0, "no n-gram of this length twice; 0: off", NOT_NEGATIVE)

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

    epochs: float = key(2.0, "passes over the data", PASSES)
    learning_rate: float = key(1e-5, "peak of the schedule, which starts anew at this stage", RATE)
    warmup_fraction: float = key(0.05, "fraction of the stage in which the learning rate rises", FRACTION)


@dataclass
class SCSTSettings(SelfCriticalOptions, RewardStage):
    """The stage that learns from the reward; `algorithm=rloo` and `algorithm=grpo` read it too."""
