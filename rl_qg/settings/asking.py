"""Questions and answers for documents."""

from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, FRACTION, SEED, Section, key


@dataclass
class AskModelSettings(Section):
    """The generator that asks."""

    path: str = key(
        "", "a run, folder, Hub name or miniature; empty: runs/quickstart or runs/first, else miniature:questions"
    )


@dataclass
class AskSettings(Section):
    """Question-answer pairs of documents (`rl_qg.asking.stage`)."""

    input: Any = key("", "document(s): .txt, .md, .html, .pdf, or - for standard input")
    output: str = key("", "the file to write, such as pairs.jsonl")
    format: str = key(
        "auto",
        "jsonl, json, csv, squad, anki or gift; auto: by the ending of output",
        choices=("auto", "jsonl", "json", "csv", "squad", "anki", "gift"),
    )
    model: AskModelSettings = key(AskModelSettings(), "the generator that asks")
    number: int | None = key(5, "pairs of a passage; null: all that are good enough", limits=COUNT)
    way: str = key(
        "auto",
        "pipeline (answers, then questions), multitask or end2end; auto: what the model was trained for",
        choices=("auto", "pipeline", "multitask", "end2end"),
    )
    min_score: float = key(0.0, "pairs with a lower score are left out", limits=FRACTION)
    language: str = key("en", "of the documents, an ISO 639-1 code")
    seed: int | None = key(None, "null: the most probable questions; a number draws other ones", limits=SEED)
    reader: str = key("", "an extractive reader that has to find each answer; empty: not checked")
    rerank: Any = key(None, "the metric, as an entry of metrics=[…], that orders the pairs; null: their score")
    extractor: str = key("", "the output folder of train-answers, which proposes answers; empty: rules")
    batch_size: int = key(16, "answers that are decoded together", limits=COUNT)
    granularity: str | None = key(
        None,
        "train: what questions are asked about, paragraph, sentence or type (a sentence and a type of questions); "
        "means model.task=sets",
        choices=(None, "paragraph", "sentence", "type"),
    )
    mode: str = key(
        "one2many",
        "train with granularity: one2one (a question at a time) or one2many (all of a unit in one text)",
        choices=("one2one", "one2many"),
    )
    order: str = key(
        "position",
        "train with granularity: of the questions in a text, position (of their answers), shuffle, or best (that of "
        "the questions which model.path writes)",
        choices=("position", "shuffle", "best"),
    )
