"""Typed settings: every key is declared once, in the dataclass of its section, with its default and its comment.

Hydra composes these dataclasses with the files of `configs/` (`rl_qg.commands.compose`), and every part receives plain
typed values. The defaults are those of the research preset.
"""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from types import MappingProxyType
from typing import Any

import yaml

from rl_qg.settings.evaluation import (
    BaselinesSettings,
    BenchSettings,
    CorrelateSettings,
    EvaluateSettings,
    EvaluationSettings,
    ExplainSettings,
    ExportSettings,
    RobustnessSettings,
    ScoreSettings,
    SeparateSettings,
)
from rl_qg.settings.generation import (
    AnswersSettings,
    AskSettings,
    AugmentSettings,
    EndpointSettings,
    GenerateSettings,
    TrainSelectorSettings,
)
from rl_qg.settings.keys import CELLS, SEED, Limits, Section, choice, key, part_fault
from rl_qg.settings.readers import (
    QAEvaluateSettings,
    QASettings,
    ReaderTrials,
    RetrieveSettings,
    TrainAnswersSettings,
    TrainKPQASettings,
    TrainSentencesSettings,
)
from rl_qg.settings.training import (
    CESettings,
    DataSettings,
    MiniatureSettings,
    ModelSettings,
    PeftSettings,
    QAModelSettings,
    SCSTSettings,
    SelfCriticalOptions,
    TrainingSettings,
    TrimSettings,
    WorldSettings,
)
from rl_qg.settings.web import (
    RateAnalyseSettings,
    RateDemoSettings,
    RateExportSettings,
    RateForgetSettings,
    RatePlanSettings,
    RateServeSettings,
    RateStatusSettings,
    ServeSettings,
)

REWARD_MODELS = {
    "bert": "bert-base-cased",
    "gpt2": "gpt2",
    "roberta": "roberta-base",
    "bart": "facebook/bart-large-cnn",
    "reader": "distilbert-base-cased-distilled-squad",
}


@dataclass
class ClusterSettings(Section):
    """Jobs that submitit gives to a scheduler: parts of a command, or the runs of a search."""

    kind: str = choice("slurm local", "slurm, or local: processes of this machine, all at once")
    parameters: dict[str, Any] = key({}, "of submitit's AutoExecutor, such as {timeout_min: 600, gpus_per_node: 1}")


@dataclass
class Settings(Section):
    """Everything one run needs; the resolved form is `config.yaml` in the run folder."""

    output_dir: str = key("runs/paper", "the run folder; the same folder and settings resume a run")
    seed: int = key(13, "of weights, data order and rollouts", SEED)
    stages: str = choice(
        "ce scst both", "both, ce (alone, best checkpoint kept) or scst (alone, from model.path=RUN/ce)", "both"
    )
    algorithm: str = choice(
        "scst best_of_n rloo grpo",
        "scst (encoder-decoders), best_of_n (encoder-decoders; cross-entropy on the best of several samples), "
        "or rloo, grpo (TRL's trainers, for causal models such as gpt2)",
    )
    accept_changed_data: bool = key(False, "continue although a data file has changed since the run or output began")
    yes: bool = key(False, "documents may be sent to a language model on another machine, without a question")
    part: str | None = key(
        None, "i/n, such as 3/7: make the i-th of n parts, which rl-qg merge makes one file; null: all", part_fault
    )
    launcher: str | None = choice("null submitit", "submitit: run all parts and their merge as jobs; null: here")
    parts: int | None = key(None, "with launcher: the number of parts", Limits(1, CELLS))
    cluster: ClusterSettings = key(ClusterSettings(), "where launcher=submitit runs the parts")
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
    endpoint: EndpointSettings = key(EndpointSettings(), "a language model behind the address in model.path")
    generate: GenerateSettings = key(GenerateSettings(), "candidate questions")
    ask: AskSettings = key(AskSettings(), "question-answer pairs of documents, or sets of questions")
    train_selector: TrainSelectorSettings = key(
        TrainSelectorSettings(), "what chooses the questions of a set, learned from human ones"
    )
    augment: AugmentSettings = key(AugmentSettings(), "filters and sample of candidate questions")
    export: ExportSettings = key(ExportSettings(), "questions in the formats of other programs")
    qa: QASettings = key(QASettings(), "the extractive reader")
    qa_evaluate: QAEvaluateSettings = key(
        QAEvaluateSettings(), "readers taught by generated questions alone, scored on human ones"
    )
    retrieve: RetrieveSettings = key(RetrieveSettings(), "a retriever taught by generated, judged on human questions")
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
    def second_reward(self) -> dict[str, Any]:
        """`held_out`, but {} where it is the reward itself, which is optimised."""
        return {} if self.stages != "ce" and self.held_out == self.reward else self.held_out

    @property
    def task(self) -> str:
        """What the generator writes: `model.task`, or sets where `ask.granularity` says of what."""
        return "sets" if self.ask.granularity is not None else self.model.task

    def conflicts(self) -> Iterator[str]:
        if self.model.task == "sets" and self.ask.granularity is None:
            yield "model.task=sets: ask.granularity has no value; give paragraph, sentence or type"
        if self.task == "sets" and self.model.task not in ("questions", "sets"):
            yield f"model.task={self.model.task}: ask.granularity={self.ask.granularity} is one of model.task=sets"
        if self.model.input != "paragraph_answer" and self.task not in ("questions", "multitask"):
            yield f"model.input={self.model.input}: is for model.task=questions or multitask, not {self.task}"
        if (last := self.ce if self.stages == "ce" else self.scst).epochs == 0:
            name, instead = ("ce", "") if last is self.ce else ("scst", ", or give stages=ce")
            yield f"{name}.epochs=0 leaves stages={self.stages} without an update in its last stage: raise it{instead}"
        if (self.launcher is None) != (self.parts is None) or (self.parts and self.part):
            yield "launcher, parts, part: give launcher=submitit parts=n for all parts, or part=i/n for one of them"
        if not self.output_dir.strip():
            yield "output_dir has no value; name a folder"


WIDTH = 119  # of a line
COLUMN = 28  # of a comment


def describe(*names: str) -> str:
    """The keys of `Settings` as YAML with their defaults and comments, for `--help` and the documentation: of these
    sections and single keys (`model.path`), or all. Raises `KeyError` where there is no such key.
    """
    settings, section = Settings(), ""
    lines: list[str] = []
    for name in names or [item.name for item in fields(Settings)]:
        owner, _, inner = name.partition(".")
        if not inner:
            lines += _key(settings, name, "")
        else:
            if owner != section:
                comment = Settings.__dataclass_fields__[owner].metadata["help"]
                lines.append(f"{f'{owner}:'.ljust(COLUMN - 2)}  # {comment}")
            lines += _key(getattr(settings, owner), inner, "  ")
        section = owner
    return "\n".join(lines)


@cache
def all_keys() -> Mapping[str, Any]:
    """The type of every key by its dotted name, sections left out."""
    return MappingProxyType(dict(_types(Settings(), "")))


def _types(owner: Section, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in fields(owner):
        value, name = getattr(owner, item.name), prefix + item.name
        yield from _types(value, f"{name}.") if isinstance(value, Section) else [(name, item.type)]


def _key(owner: Section, name: str, indent: str) -> Iterator[str]:
    comment, value = owner.__dataclass_fields__[name].metadata["help"], getattr(owner, name)
    nested = isinstance(value, Section) or (isinstance(value, dict) and value)
    text = f"{indent}{_scalar(name)}:"  # quoted where YAML reads another value: yes
    text += "" if nested else f" {_scalar(value)}"
    line = f"{text.ljust(COLUMN - 2)}  # {comment}"
    if len(line) <= WIDTH:
        yield line
    else:
        marker = f"{indent}# "
        yield from textwrap.wrap(comment, WIDTH, initial_indent=marker, subsequent_indent=marker)
        yield text
    if isinstance(value, Section):
        for item in fields(value):
            yield from _key(value, item.name, f"{indent}  ")
    elif nested:
        yield from (f"{indent}  {inner}: {_scalar(text)}" for inner, text in value.items())


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        return re.sub(r"e([+-])0+", r"e\1", repr(value))
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
    return json.dumps(value) if text.startswith("'") else text
