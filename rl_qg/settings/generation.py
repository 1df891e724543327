"""Answers and questions that are generated for new training data."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, FRACTION, NOT_NEGATIVE, POSITIVE, SEED, SHARE, Section, choice, key
from rl_qg.text.languages import code_fault


@dataclass
class AnswersSettings(Section):
    """Candidate answers of passages without questions (`rl_qg.generation.propose_answers`)."""

    input: Any = key("", "file(s): .txt, or .jsonl, .json, .parquet with a context")
    output: str = key("", "the file to write, such as answers.jsonl; or .parquet")
    method: str = choice(
        "rules spacy extractor generator",
        "rules (no model), spacy (a pipeline of that library), extractor (trained by train-answers) or generator "
        "(trained with model.task=answers or multitask)",
    )
    max_per_context: int | None = key(10, "the best so many of a passage; null: all", COUNT)
    passages: str = choice("line paragraph", "of text files: line (each a passage) or paragraph (between blank lines)")
    exclude: Any = key(None, "file(s) whose passages are left out, such as the validation data")
    language: str = key(
        "auto",
        "of the passages, for the rules: a code such as ko; auto (found in each passage) or other (rules for any "
        "language alone)",
        code_fault,
    )
    spacy_model: str = key("en_core_web_sm", "an installed pipeline, or its folder")
    extractor: str = key("", "the output folder of train-answers")
    generator: str = key("", "a generator trained with model.task=answers or multitask, such as RUN/ce")
    min_probability: float = key(
        0.1, "smallest probability of the extractor that an answer begins at a word", FRACTION
    )
    batch_size: int = key(32, "passages", COUNT)

    def conflicts(self) -> Iterator[str]:
        needed = ("extractor", "extractor"), ("min_probability", "extractor"), ("spacy_model", "spacy")
        for name, method in (*needed, ("generator", "generator"), ("language", "rules")):
            for given in self.changed(name) if self.method != method else ():
                yield f"{given} has no effect with method={self.method}: add method={method}"


@dataclass
class EndpointSettings(Section):
    """A language model behind an OpenAI-compatible address, which `model.path` is (`rl_qg.generation.endpoint`)."""

    name: str = key("", "of the model, as the server knows it")
    prompt: str | None = key(None, "a text file with {passage} and {answer} in it; null: configs/prompt/question.txt")
    key_variable: str = key("OPENAI_API_KEY", "environment variable with the API key, where the server needs one")
    concurrency: int = key(8, "requests at a time", COUNT)
    max_new_tokens: int = key(256, "of an answer, with what the model thinks before it", COUNT)
    budget: int | None = key(None, "tokens of prompts and answers after which a command stops; null: no limit", COUNT)
    input_price: float | None = key(None, "of a million tokens of prompts, in any currency", NOT_NEGATIVE)
    output_price: float | None = key(None, "of a million tokens of answers, in the same currency", NOT_NEGATIVE)
    max_cost: float | None = key(None, "cost, by both prices, at which a command stops; null: no limit", POSITIVE)
    kept: str = key("~/.cache/rl-qg/endpoint", "folder of the answers: no request is sent twice")


@dataclass
class GenerateSettings(Section):
    """Candidate questions: the outputs of one beam search, or nucleus samples, best first."""

    output: str = key("", "the file to write, such as questions.jsonl; or .parquet")
    engine: str = choice(
        "own library", "own (beams share the encoded passage) or library (the model's generate() of transformers)"
    )
    num_beams: int = key(8, "every output of the beam search is kept", COUNT)
    do_sample: bool = key(False, "nucleus samples instead of beams")
    num_samples: int = key(8, "samples per answer, with do_sample", COUNT)
    top_p: float = key(0.9, "sample from the most likely tokens of this total probability", SHARE)
    temperature: float = key(1.0, "of sampling", POSITIVE)
    max_new_tokens: int = key(64, "longest question", COUNT)
    rerank: Any = key(
        None, "the metric, as an entry of metrics=[…], that orders the candidates of an answer; null: probability"
    )
    keep: int | None = key(None, "write the best so many candidates of each answer; null: all")
    max_answers: int | None = key(None, "ask about so many answers, a seeded sample; null: all", COUNT)
    batch_size: int = key(16, "answers per device", COUNT)
    precision: str = choice("no bf16", "no (float32), or bf16: half the memory for weights, maybe other questions")

    @property
    def candidates(self) -> int:
        return self.num_samples if self.do_sample else self.num_beams

    def conflicts(self) -> Iterator[str]:
        if self.keep is not None and not 1 <= self.keep <= self.candidates:
            name = "num_samples" if self.do_sample else "num_beams"
            yield f"keep={self.keep} must be from 1 to {name}={self.candidates}, or null for all"


AUTO = "auto"
STRATEGIES = (
    *("paragraph_one2one", "paragraph_one2many", "sentence_one2one", "sentence_one2many"),
    *("type_one2one", "type_one2many"),
)
SELECTORS = ("auto", "all", "rand", "top1", "rank", "mmr", "coverage", "learned")
FOR_PAIRS = ("way", "min_score", "language", "rerank", "extractor", "batch_size")
FOR_SETS = ("select", "worthiness", "types", "selector", "similarity", "candidates")
FOR_TRAIN = ("granularity", "mode", "order")
FORMATS_OF_SETS = ("auto", "jsonl", "json", "csv")


@dataclass
class AskModelSettings(Section):
    """The generator that asks."""

    path: str = key("", "a run, folder, Hub name or miniature; empty: runs/quickstart, runs/first or packaged:english")
    format: str | None = key(None, "of its texts: one of rl-qg models, or rl-qg; null: recognised by name or files")


@dataclass
class AskSettings(Section):
    """Question-answer pairs of documents or sets of questions (`rl_qg.asking.ask_documents`)."""

    input: Any = key("", "document(s): .txt, .md, .html, .pdf, or - for standard input")
    output: str = key(
        "",
        "the file to write, such as pairs.jsonl or sets.jsonl; empty or -: standard output, as a table or JSON lines",
    )
    format: str = choice(
        "auto jsonl json csv squad squad2 anki gift retrieval ragas deepeval",
        "jsonl, json, csv, squad, anki or gift, which auto knows by the ending of output; squad2 (SQuAD 2.0); or for "
        "other libraries: retrieval (sentence-transformers), ragas, deepeval",
    )
    model: AskModelSettings = key(AskModelSettings(), "the generator that asks")
    number: Any = key(
        5,
        "pairs of a document, the best of it, or questions of a set of each passage; null: all that are good enough; "
        "auto, with strategy: as many as select finds worth it",
    )
    way: str = choice(
        "auto pipeline multitask end2end",
        "pipeline (answers, then questions), multitask or end2end; auto: what the model was trained for",
    )
    min_score: float | None = key(
        None, "pairs with a lower score are left out; null: 0.55 for packaged:english, else 0", FRACTION
    )
    language: str = key("en", "of the documents, an ISO 639-1 code")
    seed: int | None = key(None, "null: the most probable questions; a number draws other ones", SEED)
    reader: str = key(
        "",
        "an extractive reader that has to find each answer, or that says which questions of a set are answerable; "
        "empty: the one that comes with a packaged generator, else none; none: not checked",
    )
    rerank: Any = key(None, "the metric, as an entry of metrics=[…], that orders the pairs; null: their score")
    extractor: str = key("", "the output folder of train-answers, which proposes answers; empty: rules")
    batch_size: int = key(16, "answers that are decoded together", COUNT)
    granularity: str | None = choice(
        "null paragraph sentence type",
        "train: what questions are asked about, paragraph, sentence or type (a sentence and a type of questions); "
        "means model.task=sets. null: of model.task",
    )
    mode: str = choice(
        "one2one one2many",
        "train with granularity: one2one (a question at a time) or one2many (all of a unit in one text)",
        "one2many",
    )
    order: str = choice(
        "position shuffle best",
        "train with granularity: of the questions in a text, position (of their answers), shuffle, or best (that of "
        "the questions which model.path writes)",
    )
    strategy: str | None = choice(
        ("null", *STRATEGIES),
        "sets of questions without answers by a model of model.task=sets: paragraph_one2one, paragraph_one2many, "
        "sentence_one2one, sentence_one2many, type_one2one or type_one2many, as it was trained; null: pairs",
    )
    select: str = choice(
        SELECTORS,
        "which questions are a set: all, rand, top1 (the greedy one of each unit), rank (by answerability), mmr, "
        "coverage or learned; auto: coverage, but with number=null all of one2many and top1 of one2one",
    )
    worthiness: str = key(
        "",
        "the output folder of train-sentences kind=hierarchical or worthiness; empty: every sentence is asked about",
    )
    types: str = key("", "the same of kind=types, for strategy=type_…; empty: all nine types of each sentence")
    selector: str = key("", "the output of train-selector, for select=learned")
    similarity: str = key(
        "words", "of questions, for select: words (Jaccard), or folder or Hub name of an encoder (cosine of its means)"
    )
    candidates: int | None = key(
        None,
        "texts that are decoded for each paragraph, sentence or type; null: of one2one 20, 10 or 5, of one2many 1",
        COUNT,
    )

    def conflicts(self) -> Iterator[str]:
        whole = isinstance(self.number, int) and not isinstance(self.number, bool)
        if not (self.number is None or self.number == AUTO or (whole and self.number >= 1)):
            yield f"number={self.number} is neither a whole number from 1, auto nor null"
        given = self.changed(*(FOR_PAIRS if self.strategy else FOR_SETS))
        given += ["number=auto"] if self.number == AUTO and not self.strategy else []
        if given:
            kind = "pairs; leave it out, or leave out strategy=" if self.strategy else "sets; give strategy= too"
            yield f"{', '.join(given)}: is for {kind}"
        if self.strategy and self.types and not self.strategy.startswith("type"):
            yield f"types={self.types}: is for strategy=type_one2one and type_one2many; leave it out"
        if self.strategy and self.selector and self.select != "learned":
            yield f"selector={self.selector}: is for select=learned; give that, or leave it out"
        if self.select == "learned" and self.similarity != "words":
            yield f"similarity={self.similarity}: select=learned was trained with similarity=words; leave it out"
        if self.strategy and self.format not in FORMATS_OF_SETS:
            yield f"format={self.format}: needs answers, and sets have none; use {', '.join(FORMATS_OF_SETS[1:])}"


@dataclass
class TrainSelectorSettings(Section):
    """A selector of questions for sets (`rl_qg.asking.ask_documents`)."""

    output: str = key("", "the file to write, such as selector.json")
    model: AskModelSettings = key(AskModelSettings(), "the generator of the sets")
    worthiness: str = key("", "as in ask")
    types: str = key("", "as in ask")
    reader: str = key("", "as in ask; what it says is then known to the selector, and needed by it")
    candidates: int | None = key(None, "as in ask", COUNT)
    seed: int = key(0, "of the samples", SEED)
    max_passages: int | None = key(500, "the first passages of data.train; null: all", COUNT)


@dataclass
class AugmentSettings(Section):
    """Filters of candidate questions, then a sample of those kept (`rl_qg.augmentation`)."""

    questions: str = key("", "the file of generate, such as questions.jsonl; or .parquet")
    gold: Any = key("", "file(s) of human questions; none for text without questions")
    output: str = key("", "the file to write: .json (SQuAD), .parquet or .jsonl (flat rows)")
    format: str | None = choice(
        "null squad2 csv anki gift retrieval ragas deepeval prompts",
        "of a second file beside the output, as rl-qg export writes it (squad2, csv, anki, gift, retrieval, ragas, "
        "deepeval or prompts); null: none",
    )
    num_samples: int = key(90_000, "synthetic questions added, or as many as are kept", NOT_NEGATIVE)
    filters: dict[str, Any] = key({}, "name and options of each, in order (group filters); null switches one off")
    sampling: str = choice(
        "uniform reward diverse",
        "of those kept: uniform (the paper), reward (the best) or diverse (good ones that differ)",
    )
    sample_by: str = key(
        "logprob", "what reward and diverse rank by: a filter with a measure, or a number in the questions file"
    )
    sample_relevance: float = key(0.5, "diverse: weight of the rank; the rest is that of being different", FRACTION)
    seed: int = key(0, "of the sample", SEED)
    hub_dataset: str | None = key(
        None, "Hub data set for the rows and their card, such as me/squad-augmented; null: not published"
    )

    def conflicts(self) -> Iterator[str]:
        for name, ways in (("sample_by", ("reward", "diverse")), ("sample_relevance", ("diverse",))):
            for given in self.changed(name) if self.sampling not in ways else ():
                yield f"{given} has no effect with sampling={self.sampling}: add sampling={' or '.join(ways)}"
