"""All settings of one run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.asking import AskSettings, TrainSelectorSettings
from rl_qg.settings.augmentation import AugmentSettings
from rl_qg.settings.bench import BenchSettings
from rl_qg.settings.data import DataSettings
from rl_qg.settings.evaluation import (
    BaselinesSettings,
    CorrelateSettings,
    EvaluateSettings,
    EvaluationSettings,
    ExplainSettings,
    RobustnessSettings,
    ScoreSettings,
    SeparateSettings,
)
from rl_qg.settings.generation import AnswersSettings, GenerateSettings
from rl_qg.settings.keys import SEED, Section, key
from rl_qg.settings.models import MiniatureSettings, ModelSettings, PeftSettings, TrimSettings
from rl_qg.settings.qa_evaluation import QAEvaluateSettings
from rl_qg.settings.rating import (
    RateAnalyseSettings,
    RateDemoSettings,
    RateExportSettings,
    RateForgetSettings,
    RatePlanSettings,
    RateServeSettings,
    RateStatusSettings,
)
from rl_qg.settings.readers import QASettings, TrainAnswersSettings, TrainKPQASettings, TrainSentencesSettings
from rl_qg.settings.serving import ServeSettings
from rl_qg.settings.training import CESettings, SCSTSettings, TrainingSettings

REWARD_MODELS = {
    "bert": "bert-base-cased",
    "gpt2": "gpt2",
    "roberta": "roberta-base",
    "bart": "facebook/bart-large-cnn",
    "reader": "distilbert-base-cased-distilled-squad",
}


@dataclass
class Settings(Section):
    """Everything one run needs; the resolved form is `config.yaml` in the run folder."""

    output_dir: str = key("runs/paper", "the run folder; the same folder and settings resume a run")
    seed: int = key(13, "of weights, data order and rollouts", limits=SEED)
    stages: str = key(
        "both",
        "both, ce (alone, best checkpoint kept) or scst (alone, from model.path=RUN/ce)",
        choices=("ce", "scst", "both"),
    )
    algorithm: str = key(
        "scst",
        "scst (encoder-decoders), best_of_n (encoder-decoders; cross-entropy on the best of several samples), "
        "or rloo, grpo (TRL's trainers, for causal models such as gpt2)",
        choices=("scst", "best_of_n", "rloo", "grpo"),
    )
    accept_changed_data: bool = key(
        False, "continue although a data file has changed since the run or its output began"
    )
    data: DataSettings = key(DataSettings(), "the QA data (group data)")
    model: ModelSettings = key(ModelSettings(), "the question generator (group model)")
    peft: PeftSettings = key(PeftSettings(), "adapters instead of full fine-tuning (group peft)")
    trim: TrimSettings = key(TrimSettings(), "the vocabulary of a generator without unused pieces")
    miniature: MiniatureSettings = key(
        MiniatureSettings(), "small models pretrained on the training text, for work without a hub"
    )
    reward_models: dict[str, str] = key(REWARD_MODELS, "the frozen models of the rewards")
    reward: dict[str, Any] = key({}, "the metric to train with or to score with, and its options (group reward)")
    held_out: dict[str, Any] = key({}, "a second metric, measured but never optimised (group held_out)")
    training: TrainingSettings = key(TrainingSettings(), "both stages")
    ce: CESettings = key(CESettings(), "stage 1: cross-entropy")
    scst: SCSTSettings = key(
        SCSTSettings(), "stage 2: L = lambda * L_scst + L_ce; read by rloo and grpo too (see the method page)"
    )
    evaluation: EvaluationSettings = key(EvaluationSettings(), "both stages compared on held-out passages")
    answers: AnswersSettings = key(AnswersSettings(), "candidate answers of passages without questions")
    train_answers: TrainAnswersSettings = key(
        TrainAnswersSettings(), "a model that tags answers: the extractor of answers.method=extractor"
    )
    train_kpqa: TrainKPQASettings = key(TrainKPQASettings(), "the model that weighs tokens in the metrics of KPQA")
    train_sentences: TrainSentencesSettings = key(
        TrainSentencesSettings(), "classifiers of sentences worth a question, and of the types of questions"
    )
    generate: GenerateSettings = key(GenerateSettings(), "candidate questions")
    ask: AskSettings = key(AskSettings(), "question-answer pairs of documents, or sets of questions")
    train_selector: TrainSelectorSettings = key(
        TrainSelectorSettings(), "what chooses the questions of a set, learned from human ones"
    )
    augment: AugmentSettings = key(AugmentSettings(), "filters and sample of candidate questions")
    qa: QASettings = key(QASettings(), "the extractive reader")
    qa_evaluate: QAEvaluateSettings = key(
        QAEvaluateSettings(), "readers taught by generated questions alone, scored on human ones"
    )
    score: ScoreSettings = key(ScoreSettings(), "one metric on a file of questions")
    evaluate: EvaluateSettings = key(EvaluateSettings(), "generated questions under several metrics")
    correlate: CorrelateSettings = key(CorrelateSettings(), "metrics compared with human ratings")
    robustness: RobustnessSettings = key(RobustnessSettings(), "metrics on questions made wrong, or paraphrased")
    separate: SeparateSettings = key(SeparateSettings(), "a reward on right and wrong questions")
    explain: ExplainSettings = key(ExplainSettings(), "one score, token by token")
    baselines: BaselinesSettings = key(BaselinesSettings(), "QRelScore of unrelated questions and passages")
    bench: BenchSettings = key(BenchSettings(), "data of a benchmark, divided for training and testing")
    serve: ServeSettings = key(ServeSettings(), "questions over HTTP")
    rate_plan: RatePlanSettings = key(RatePlanSettings(), "people judge: tasks for raters")
    rate_serve: RateServeSettings = key(RateServeSettings(), "people judge: the web application")
    rate_status: RateStatusSettings = key(RateStatusSettings(), "people judge: how far a study is")
    rate_export: RateExportSettings = key(RateExportSettings(), "people judge: ratings as files")
    rate_forget: RateForgetSettings = key(RateForgetSettings(), "people judge: one rater's data deleted")
    rate_analyse: RateAnalyseSettings = key(RateAnalyseSettings(), "people judge: the statistics")
    rate_demo: RateDemoSettings = key(RateDemoSettings(), "people judge: a study to try")

    @property
    def task(self) -> str:
        """What the generator writes: `model.task`, or sets where `ask.granularity` says of what."""
        return "sets" if self.ask.granularity is not None else self.model.task

    def faults(self) -> Iterator[str]:
        """Choices and limits, and a run folder."""
        yield from super().faults()
        if self.model.task == "sets" and self.ask.granularity is None:
            yield "model.task=sets: ask.granularity has no value; give paragraph, sentence or type"
        if self.task == "sets" and self.model.task not in ("questions", "sets"):
            yield f"model.task={self.model.task}: ask.granularity={self.ask.granularity} is one of model.task=sets"
        if self.model.input != "paragraph_answer" and self.task not in ("questions", "multitask"):
            yield f"model.input={self.model.input}: is for model.task=questions or multitask, not {self.task}"
        if not self.output_dir.strip():
            yield "output_dir has no value; name a folder"
