"""Typed settings: one dataclass per config group, checked once at the door.

Hydra composes `configs/`, `rl_qg.commands.cli` turns the result into `Settings`, and every part receives plain typed values.
The YAML files hold the values and a comment on each key; the defaults here are those of the research preset.
"""

from dataclasses import dataclass, field
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.settings.ranges import faults_of_augmentation
from rl_qg.text.question_types import language_fault


@dataclass
class WorldSettings:
    """Sizes of the embedded corpus (`rl_qg.data.synthetic_corpus`), used when `data.train` is `world`."""

    train_passages: int = 600
    validation_passages: int = 120
    seed: int = 0


@dataclass
class DataSettings:
    """Where QA examples come from. A source is a path, a Hub data set name, or `world`."""

    train: Any = "rajpurkar/squad"
    validation: Any = "rajpurkar/squad"
    unlabelled: Any = None
    max_train: int | None = None
    max_validation: int | None = None
    labelled_fraction: float = 1.0
    seed: int = 0
    world: WorldSettings = field(default_factory=WorldSettings)


@dataclass
class ModelSettings:
    """The question generator: any seq2seq checkpoint, `miniature:bart` or `miniature:t5`; for `algorithm=rloo` and
    `algorithm=grpo` a causal one, such as `gpt2` or `miniature:gpt2`.
    """

    path: str = "facebook/bart-base"
    prefix: str | None = None
    max_source_length: int = 512
    max_target_length: int = 64


@dataclass
class PeftSettings:
    """Adapters instead of full fine-tuning (`peft=lora`); the saved models are whole ones, adapters merged in."""

    method: str = "none"
    r: int = 16
    alpha: int = 32
    dropout: float = 0.05
    target_modules: list[str] | None = None
    learning_rate_factor: float = 10.0


@dataclass
class MiniatureSettings:
    """How small models are pretrained on the text at hand (`rl_qg.miniatures.cache`)."""

    steps: int = 800
    metric_steps: int = 400
    batch_size: int = 16
    learning_rate: float = 2e-3
    hidden_size: int = 128
    layers: int = 2
    vocab_size: int = 2000
    max_tokens: int = 256
    cache_dir: str = "~/.cache/rl-qg/miniature"


@dataclass
class TrainingSettings:
    """What both stages share; handed to `transformers.TrainingArguments`."""

    batch_size: int = 16
    eval_batch_size: int = 32
    gradient_accumulation_steps: int = 1
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    precision: str = "no"
    gradient_checkpointing: bool = False
    use_cpu: bool = False
    reward_placement: Any = "device"
    logging_steps: int = 10
    eval_steps: int = 500
    eval_samples: int = 256
    save_steps: int = 500
    save_total_limit: int = 2
    report_to: str = "tensorboard"
    hub_model: str | None = None


@dataclass
class CESettings:
    """The cross-entropy stage."""

    epochs: float = 4.0
    learning_rate: float = 5e-5
    warmup_fraction: float = 0.05
    label_smoothing: float = 0.0
    early_stopping_patience: int = 0


@dataclass
class SCSTSettings:
    """The stage that learns by reward (the loss: `rl_qg.training.objectives`; the fields: `rl_qg.training.config`)."""

    epochs: float = 2.0
    learning_rate: float = 1e-5
    warmup_fraction: float = 0.05
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


@dataclass
class AnswersSettings:
    """Candidate answers of passages without questions (`rl_qg.generation.answers.stage`)."""

    input: Any = ""
    output: str = ""
    method: str = "rules"
    max_per_context: int | None = 10
    passages: str = "line"
    exclude: Any = None
    spacy_model: str = "en_core_web_sm"
    extractor: str = ""
    min_probability: float = 0.1
    batch_size: int = 32


@dataclass
class GenerateSettings:
    """Candidate questions: all outputs of one beam search, or nucleus samples."""

    output: str = ""
    num_beams: int = 8
    do_sample: bool = False
    num_samples: int = 8
    top_p: float = 0.9
    temperature: float = 1.0
    max_new_tokens: int = 64
    batch_size: int = 16
    precision: str = "no"


@dataclass
class AugmentSettings:
    """Filters of candidate questions, then a sample of those kept (`rl_qg.augmentation`)."""

    questions: str = ""
    gold: Any = ""
    output: str = ""
    num_samples: int = 90_000
    filters: dict[str, Any] = field(default_factory=dict)
    sampling: str = "uniform"
    sample_by: str = "logprob"
    sample_relevance: float = 0.5
    seed: int = 0
    hub_dataset: str | None = None


@dataclass
class QAModelSettings:
    """The extractive reader: any checkpoint that `AutoModelForQuestionAnswering` loads, or `miniature:distilbert`."""

    path: str = "distilbert-base-uncased"


@dataclass
class TrainAnswersSettings:
    """The model that proposes answers: any checkpoint that `AutoModelForTokenClassification` loads."""

    model: QAModelSettings = field(default_factory=QAModelSettings)
    epochs: float = 3.0
    max_steps: int = -1
    learning_rate: float = 5e-5
    warmup_fraction: float = 0.1
    batch_size: int = 16
    save_steps: int = 500
    max_length: int = 384
    doc_stride: int = 128


@dataclass
class TrainKPQASettings:
    """The keyphrase predictor of KPQA: any encoder that `AutoModelForTokenClassification` loads; the values are those
    of the released training script, but for its weight decay of 0.1. Without `question`, the paper's ablation -KP.
    """

    model: QAModelSettings = field(default_factory=lambda: QAModelSettings("bert-base-uncased"))
    question: bool = True
    epochs: float = 5.0
    max_steps: int = -1
    learning_rate: float = 5e-5
    warmup_fraction: float = 0.0
    batch_size: int = 64
    save_steps: int = 500
    max_length: int = 96


@dataclass
class QASettings:
    """Training and evaluation of the reader."""

    model: QAModelSettings = field(default_factory=QAModelSettings)
    epochs: float = 2.0
    max_steps: int = -1
    learning_rate: float = 3e-5
    warmup_fraction: float = 0.1
    batch_size: int = 16
    save_steps: int = 500
    max_length: int = 384
    doc_stride: int = 128
    max_answer_length: int = 30
    n_best: int = 20
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2])


@dataclass
class ScoreColumns:
    """The fields of the input that hold what a metric reads."""

    question: str = "question"
    context: str = "context"
    answer: str = "answer"
    references: str = "references"


@dataclass
class ScoreSettings:
    """Scoring a file of questions with one metric; `input` is a path, or a text file for each column."""

    input: Any = ""
    output: str = ""
    columns: ScoreColumns = field(default_factory=ScoreColumns)
    batch_size: int = 256


@dataclass
class EvaluateSettings:
    """Generated questions under several metrics (`rl_qg.evaluation.evaluate`)."""

    predictions: Any = ""
    references: Any = ""
    references_split: str = "train"
    sets: bool = False
    metrics: Any = ""
    output: str = ""
    columns: ScoreColumns = field(default_factory=ScoreColumns)
    language: str = "en"
    lengths: list[int] = field(default_factory=lambda: [8, 12, 16])
    resamples: int = 1000
    seed: int = 0
    batch_size: int = 256


@dataclass
class CorrelateSettings:
    """Metrics against what people say of the same questions (`rl_qg.evaluation.meta.correlate`)."""

    human: str = ""
    metrics: Any = ""
    output: str = ""
    criteria: list[str] | None = None
    provided: bool = True
    language: str = "en"
    folds: int = 10
    max_selected: int = 8
    resamples: int = 1000
    seed: int = 0
    batch_size: int = 256


@dataclass
class RobustnessSettings:
    """Metrics under questions that were made wrong, or said in other words (`rl_qg.evaluation.meta.robustness`)."""

    input: Any = ""
    metrics: Any = ""
    output: str = ""
    columns: ScoreColumns = field(default_factory=ScoreColumns)
    language: str = "en"
    kinds: list[str] = field(default_factory=lambda: ["entity", "pronoun", "negation"])
    paraphrases: str = ""
    paraphraser: str = ""
    paraphraser_prefix: str = ""
    spacy_model: str = "en_core_web_sm"
    max_questions: int | None = 1000
    resamples: int = 1000
    seed: int = 0
    batch_size: int = 256


@dataclass
class ExplainSettings:
    """One question whose score is explained, token by token."""

    question: str = ""
    context: str = ""
    output: str = ""


@dataclass
class BaselinesSettings:
    """Random pairs of question and passage, whose mean parts are the baselines of QRelScore."""

    output: str = ""
    pairs: int = 1000
    seed: int = 0


@dataclass
class EvaluationSettings:
    """How the generators of both stages are compared on held-out passages."""

    max_examples: int = 500
    batch_size: int = 32


@dataclass
class Settings:
    """Everything one run needs; the resolved form is `config.yaml` in the run folder."""

    output_dir: str = "runs/paper"
    seed: int = 13
    stages: str = "both"
    algorithm: str = "scst"
    accept_changed_data: bool = False
    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    peft: PeftSettings = field(default_factory=PeftSettings)
    miniature: MiniatureSettings = field(default_factory=MiniatureSettings)
    reward_models: dict[str, str] = field(default_factory=dict)
    reward: dict[str, Any] = field(default_factory=dict)
    held_out: dict[str, Any] = field(default_factory=dict)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    ce: CESettings = field(default_factory=CESettings)
    scst: SCSTSettings = field(default_factory=SCSTSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    answers: AnswersSettings = field(default_factory=AnswersSettings)
    train_answers: TrainAnswersSettings = field(default_factory=TrainAnswersSettings)
    train_kpqa: TrainKPQASettings = field(default_factory=TrainKPQASettings)
    generate: GenerateSettings = field(default_factory=GenerateSettings)
    augment: AugmentSettings = field(default_factory=AugmentSettings)
    qa: QASettings = field(default_factory=QASettings)
    score: ScoreSettings = field(default_factory=ScoreSettings)
    evaluate: EvaluateSettings = field(default_factory=EvaluateSettings)
    correlate: CorrelateSettings = field(default_factory=CorrelateSettings)
    robustness: RobustnessSettings = field(default_factory=RobustnessSettings)
    explain: ExplainSettings = field(default_factory=ExplainSettings)
    baselines: BaselinesSettings = field(default_factory=BaselinesSettings)

    def check(self) -> None:
        """Raise one `InputError` that names every setting that is wrong, before any model is loaded."""
        faults = [text for wrong, text in [*self._faults(), *faults_of_augmentation(self)] if wrong]
        if faults:
            raise InputError("settings: " + "; ".join(faults))

    def _faults(self) -> list[tuple[bool, str]]:
        return [
            (self.stages not in ("ce", "scst", "both"), f"stages={self.stages} is not one of ce, scst, both"),
            (
                self.algorithm not in ("scst", "rloo", "grpo"),
                f"algorithm={self.algorithm} is not one of scst, rloo, grpo",
            ),
            (self.peft.method not in ("none", "lora"), f"peft.method={self.peft.method} is not one of none, lora"),
            (
                self.training.precision not in ("no", "bf16", "fp16"),
                f"training.precision={self.training.precision} is not one of no, bf16, fp16",
            ),
            (
                not _is_placement(self.training.reward_placement),
                f"training.reward_placement={self.training.reward_placement} is not device, cpu, or a share in (0, 1]",
            ),
            (
                not 0 < self.data.labelled_fraction <= 1,
                f"data.labelled_fraction={self.data.labelled_fraction} is not in (0, 1]",
            ),
            (self.training.batch_size < 1, f"training.batch_size={self.training.batch_size} must be at least 1"),
            (self.train_kpqa.max_length < 8, f"train_kpqa.max_length={self.train_kpqa.max_length} must be at least 8"),
            (self.baselines.pairs < 1, f"baselines.pairs={self.baselines.pairs} must be at least 1"),
            (self.score.batch_size < 1, f"score.batch_size={self.score.batch_size} must be at least 1"),
            *(
                (getattr(judging, key) < 1, f"{name}.{key}={getattr(judging, key)} must be at least 1")
                for name, judging in self._judging().items()
                for key in ("resamples", "batch_size")
            ),
            (
                self.evaluate.lengths != sorted({length for length in self.evaluate.lengths if length > 0}),
                f"evaluate.lengths={self.evaluate.lengths} must rise, from 1 on",
            ),
            *(
                (bool(language_fault(judging.language)), f"{name}.language={language_fault(judging.language)}")
                for name, judging in (("evaluate", self.evaluate), ("correlate", self.correlate))
            ),
            (self.correlate.folds < 2, f"correlate.folds={self.correlate.folds} must be at least 2"),
            (not self.qa.seeds, "qa.seeds is empty: name at least one seed, such as qa.seeds=[0]"),
            (
                not 0 <= self.qa.doc_stride < self.qa.max_length,
                f"qa.doc_stride={self.qa.doc_stride} must be below qa.max_length={self.qa.max_length}",
            ),
        ]

    def _judging(self) -> dict[str, EvaluateSettings | CorrelateSettings | RobustnessSettings]:
        """The sections of the commands that judge questions with several metrics."""
        return {"evaluate": self.evaluate, "correlate": self.correlate, "robustness": self.robustness}


def _is_placement(value: Any) -> bool:
    """Whether a value of `reward_placement` is one of its words or a share; YAML's true is no number."""
    if isinstance(value, str):
        return value in ("device", "cpu")
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1
