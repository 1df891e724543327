"""Encoders that are fine-tuned on QA data: reader, answer extractor, keyphrase predictor, sentence classifiers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import (
    ABOVE_NO_PASS,
    COUNT,
    FRACTION,
    NOT_NEGATIVE,
    POSITIVE,
    RATE,
    RESAMPLES,
    SEED,
    SHARE,
    Limits,
    Section,
    choice,
    fault_of_updates,
    key,
)
from rl_qg.settings.training import QAModelSettings


@dataclass
class QASettings(Section):
    """Training and evaluation of the extractive reader."""

    model: QAModelSettings = key(QAModelSettings(), "the encoder")
    head: str = choice(
        "softmax sigmoid",
        "softmax: one distribution over the positions for each end of an answer; sigmoid: a decision at each position",
    )
    epochs: float = key(2.0, "passes over the data", ABOVE_NO_PASS)
    max_steps: int = key(-1, "updates; overrides epochs when positive", fault_of_updates)
    learning_rate: float = key(3e-5, "peak of the schedule", RATE)
    warmup_fraction: float = key(0.1, "fraction of the training in which the learning rate rises", FRACTION)
    weight_decay: float = key(0.0, "of AdamW", NOT_NEGATIVE)
    batch_size: int = key(16, "windows per device", COUNT)
    by_length: bool = key(False, "batches of windows of similar length, so that less is padded")
    save_steps: int = key(500, "updates between checkpoints", COUNT)
    max_length: int = key(384, "tokens of question and context window", COUNT)
    doc_stride: int = key(128, "tokens that neighbouring windows share")
    max_answer_length: int = key(30, "tokens", COUNT)
    n_best: int = key(20, "answer starts and ends considered", COUNT)
    seeds: list[int] = key([0, 1, 2], "one reader each")
    threads: int | None = key(
        None,
        "CPU threads of each reader; readers then train side by side, as many as the cores allow; null: one after the "
        "other, each with all cores",
        COUNT,
    )
    unanswerable: float = key(
        0.0,
        "share of training questions beside which an unanswerable one is made, so that the reader learns to abstain",
        FRACTION,
    )
    impossible: bool = key(False, "rl-qg qa: learn to refuse impossible questions (SQuAD 2.0), and judge by them")
    equal_updates: bool = key(
        True,
        "pipeline and study: readers that are compared make as many updates as the one on most data; false: epochs",
    )

    def conflicts(self) -> Iterator[str]:
        if not self.seeds:
            yield "seeds is empty: name at least one seed, such as qa.seeds=[0]"
        yield from (f"seeds={fault}" for seed in self.seeds if (fault := SEED(seed)))
        yield from stride_faults(self.doc_stride, self.max_length)


@dataclass
class TrainAnswersSettings(Section):
    """The model that proposes answers: any checkpoint that `AutoModelForTokenClassification` loads."""

    model: QAModelSettings = key(QAModelSettings(), "the encoder")
    epochs: float = key(3.0, "passes over the data", ABOVE_NO_PASS)
    max_steps: int = key(-1, "updates; overrides epochs when positive", fault_of_updates)
    learning_rate: float = key(5e-5, "peak of the schedule", RATE)
    warmup_fraction: float = key(0.1, "fraction of the training in which the learning rate rises", FRACTION)
    batch_size: int = key(16, "windows per device", COUNT)
    save_steps: int = key(500, "updates between checkpoints", COUNT)
    max_length: int = key(384, "tokens of a window", COUNT)
    doc_stride: int = key(128, "tokens that neighbouring windows share")

    def conflicts(self) -> Iterator[str]:
        yield from stride_faults(self.doc_stride, self.max_length)


@dataclass
class TrainKPQASettings(Section):
    """The keyphrase predictor of KPQA: any encoder that `AutoModelForTokenClassification` loads.

    The values are those of the released training script, except for its weight decay of 0.1. Those of the paper are in
    `preset=kpqa-paper`.
    """

    model: QAModelSettings = key(QAModelSettings("bert-base-uncased"), "the encoder")
    question: bool = key(True, "false: the sentence alone, the paper's ablation -KP")
    head: str = choice("linear tanh", "linear, or tanh: a layer as wide as the encoder and tanh before it (the paper)")
    keep: str = choice("last best", "the last weights, or best: of the epoch with the lowest loss on validation data")
    repetitions: int = key(1, "trainings, with the seeds seed, seed + 1, …; the folder's model is the first", COUNT)
    development: float = key(
        0.1, "without data.validation: fraction of the training passages that are set aside as validation data", SHARE
    )
    epochs: float = key(5.0, "passes over the data", ABOVE_NO_PASS)
    max_steps: int = key(-1, "updates; overrides epochs when positive", fault_of_updates)
    learning_rate: float = key(5e-5, "peak of the schedule", RATE)
    warmup_fraction: float = key(0.0, "fraction of the training in which the learning rate rises", FRACTION)
    batch_size: int = key(64, "sentences per device", COUNT)
    save_steps: int = key(500, "updates between checkpoints (keep=best: one after each epoch)", COUNT)
    max_length: int = key(96, "tokens of question and sentence; the question is cut first", Limits(8))


@dataclass
class TrainSentencesSettings(Section):
    """A classifier of sentences: any encoder that `AutoModelForTokenClassification` loads.

    The values are those of the paper on sets of questions (section 6.3), and the encoder that of its released code.
    """

    kind: str = choice(
        "worthiness hierarchical types",
        "which sentences are worth a question, from the sentence alone (worthiness) or with the others of its passage "
        "(hierarchical); or types: of questions about a worthy sentence",
    )
    model: QAModelSettings = key(QAModelSettings("google/electra-base-discriminator"), "the encoder")
    pooling: str = choice("cls mean", "the vector of a sentence: of its first token (cls), or the mean of all tokens")
    threshold: str = choice(
        "0.5 tuned", "0.5, or tuned: for each label the threshold with the best F1 on the part that is set aside"
    )
    development: float = key(
        0.1,
        "fraction of the training articles (passages, below ten titles) that chooses epoch and thresholds; 0: the "
        "validation data do",
        Limits(0, 0.9),
    )
    epochs: float = key(30.0, "at most so many passes over the data", ABOVE_NO_PASS)
    patience: int = key(2, "stop after so many epochs that have not lowered the held-out loss", COUNT)
    max_steps: int = key(-1, "updates; overrides epochs when positive", fault_of_updates)
    learning_rate: float = key(2e-5, "of RAdam, constant", RATE)
    warmup_fraction: float = key(0.0, "fraction of the training in which the learning rate rises", FRACTION)
    weight_decay: float = key(0.01, "of RAdam", NOT_NEGATIVE)
    max_grad_norm: float = key(5.0, "longer gradients are cut to this norm", POSITIVE)
    batch_size: int = key(64, "sentences (hierarchical: passages) per device", COUNT)
    max_length: int = key(512, "tokens of a sentence", Limits(8))


@dataclass
class RetrieveSettings(Section):
    """A bi-encoder that finds passages, taught on questions and judged on human ones (`rl_qg.readers.retriever`)."""

    questions: str = key("", "the questions that teach, with their passages: any file of questions that score reads")
    data: str = key("", "human questions about other passages, which judge")
    model: QAModelSettings = key(QAModelSettings("sentence-transformers/all-MiniLM-L6-v2"), "the encoder")
    mined: bool = key(True, "a passage that BM25 finds as a negative, beside those of the batch")
    epochs: float = key(1.0, "passes over the questions", ABOVE_NO_PASS)
    max_steps: int = key(-1, "updates; overrides epochs when positive", fault_of_updates)
    learning_rate: float = key(2e-5, "peak of the schedule", RATE)
    warmup_fraction: float = key(0.1, "fraction of the training in which the learning rate rises", FRACTION)
    batch_size: int = key(32, "questions per device", Limits(2))
    save_steps: int = key(500, "updates between checkpoints", COUNT)
    max_length: int = key(256, "tokens of a question or passage; what is longer is cut", Limits(8))


def stride_faults(doc_stride: int, max_length: int) -> Iterator[str]:
    """A fault where neighbouring windows would share everything, or less than nothing."""
    if not 0 <= doc_stride < max_length:
        yield f"doc_stride={doc_stride} must be below max_length={max_length}, and not negative"


@dataclass
class ReaderTrials(Section):
    """Random trials of a reader's training on a part of the synthetic questions; the best has the highest sum of exact
    match and F1 on other ones. The defaults are those of lmqg (Ushio et al., ACL Findings 2023), but for `count`.
    """

    count: int = key(0, "trials before each training (10 in lmqg); 0: none, the keys of qa count", NOT_NEGATIVE)
    train: int = key(1000, "questions that a trial trains on, of whole passages", COUNT)
    validation: int = key(500, "questions of other passages that judge it", COUNT)
    lowest_rate: float = key(1e-6, "of the learning rates, drawn evenly on the logarithmic scale", RATE)
    highest_rate: float = key(1e-4, "of the learning rates", POSITIVE)
    epochs: list[int] = key([1, 2, 3, 4, 5], "numbers of passes that are drawn from")
    batch_sizes: list[int] = key([4, 8, 16, 32, 64], "numbers of windows that are drawn from")
    seed: int = key(42, "of the draws and of the questions", SEED)

    def conflicts(self) -> Iterator[str]:
        if self.lowest_rate > self.highest_rate:
            yield f"lowest_rate={self.lowest_rate} is above highest_rate={self.highest_rate}"
        for name in ("epochs", "batch_sizes"):
            values = getattr(self, name)
            if not values:
                yield f"{name}={values}: give numbers of at least 1, such as {name}=[1,2]"
            yield from (f"{name}={fault}" for value in values if (fault := COUNT(value)))


@dataclass
class QAEvaluateSettings(Section):
    """Readers trained on the questions of generators alone, and scored on human questions
    (`rl_qg.evaluation.qa_evaluation`). The reader itself is that of the section `qa`.
    """

    data: Any = key("", "human questions that every reader is scored on, in the forms of data.train")
    questions: Any = key(
        "",
        "questions of a generator with passages and answers, in the forms of data.train or of generate; of several by "
        "name: {ce: ce.jsonl, scst: [scst-1.jsonl, scst-2.jsonl]}, where several files of one are its seeds",
    )
    output: str = key("", "a .json file; its page and the folder of the readers lie beside it, under the same name")
    max_questions: int | None = key(None, "questions of each file used, a seeded sample; null: all", COUNT)
    max_context: int | None = key(None, "characters of the longest passage used; null: any", COUNT)
    max_data: int | None = key(None, "human questions used, a seeded sample; null: all", COUNT)
    seed: int = key(42, "of the samples", SEED)
    trials: ReaderTrials = key(ReaderTrials(), "random trials of the reader's training")
    evaluations: Any = key(
        None,
        "evaluate.json files, or their folders, with metrics of the same generators under the same names, to be "
        "correlated with exact match and F1; null: none",
    )
    keep_readers: bool = key(False, "keep the readers' weights; false: only their answers and scores")
    resamples: int = key(1000, "bootstrap resamples of passages and of seeds, for intervals and tests", RESAMPLES)
