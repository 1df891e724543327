"""Commands that score questions, compare metrics, and explain scores."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rl_qg.settings.keys import COUNT, FRACTION, NOT_NEGATIVE, RESAMPLES, SEED, Limits, Section, choice, key
from rl_qg.text.languages import code_fault
from rl_qg.text.question_types import language_fault

LANGUAGE = "of the questions, for their types: en, de, fr, es, or other (no types)"


@dataclass
class EvaluationSettings(Section):
    """How the generators of both stages are compared on held-out passages."""

    max_examples: int = key(500, "validation examples", COUNT)
    batch_size: int = key(32, "examples", COUNT)
    check_reward: int = key(
        100,
        "validation examples on which the reward is tested before training with it (rl-qg separate); 0: no test",
        NOT_NEGATIVE,
    )


@dataclass
class ScoreColumns(Section):
    """The fields of the input that hold what a metric reads."""

    question: str = key("question", "the text to score")
    context: str = key("context", "its passage; without this field, paragraph")
    answer: str = key("answer", "a text, or SQuAD's answers, of which the first is used")
    references: str = key("references", "a list of texts or one text; without this field, reference")
    title: str = key("title", "of the passage, for metrics that read it")
    sentence: str = key("sentence", "the sentence that holds the answer, for level=sentence of evaluate")


@dataclass
class ScoreSettings(Section):
    """Scoring a file of questions with one metric; `input` is a path, or a text file for each column."""

    input: Any = key("", ".jsonl, SQuAD .json, .parquet, .tsv or .csv; or texts: {question: q.txt, context: c.txt}")
    output: str = key("", "a .jsonl or .parquet file: the input's rows with their score and its parts")
    columns: ScoreColumns = key(ScoreColumns(), "the fields of the input")
    batch_size: int = key(256, "rows read and scored at a time", COUNT)


@dataclass
class ExportSettings(Section):
    """Questions of a file in the format of another program (`rl_qg.asking.exports`)."""

    input: Any = key("", "the questions, with passages: any file that score reads")
    output: str = key("", "the file to write, such as pairs.jsonl; of format=beir a folder")
    format: str = choice(
        "squad squad2 csv anki gift retrieval ragas deepeval beir prompts preferences",
        "squad, squad2, csv, anki, gift, retrieval, ragas, deepeval as ask has them; beir (a collection for "
        "retrievers); for TRL prompts (one an answer, for GRPO) or preferences (best and worst question of an answer, "
        "for DPO)",
    )
    columns: ScoreColumns = key(ScoreColumns(), "the fields of the input")
    score: str = key("score", "of preferences: the field with the number that is higher for the better question")
    prompt: str = key("Passage: {context}\nAnswer: {answer}\nQuestion:", "of prompts and preferences; also {title}")
    unanswerable: float = key(0.0, "of squad2: unanswerable questions for each answerable one, at most", NOT_NEGATIVE)
    readers: list[str] = key(
        ["packaged:english/reader"],
        "folders or Hub names of readers that have learned to abstain, all of which have to refuse such a question",
    )
    seed: int = key(0, "of what is exchanged, and which questions are kept", SEED)

    def conflicts(self) -> Iterator[str]:
        if self.unanswerable and self.format != "squad2":
            yield f"unanswerable={self.unanswerable:g} has no effect with format={self.format}: add format=squad2"
        for given in self.changed("score") if self.format not in ("csv", "preferences") else ():
            yield f"{given} has no effect with format={self.format}: add format=csv or preferences"
        if not self.readers:
            yield "readers=[] would keep questions that have an answer: name one, such as packaged:english/reader"


@dataclass
class EvaluateSettings(Section):
    """Generated questions under several metrics (`rl_qg.evaluation.evaluate`)."""

    predictions: Any = key("", "a file that score reads; a list, or by name: {ce: ce.jsonl, scst: scst.jsonl}")
    references: Any = key("", "human questions, in the forms of data.train: joined by id, or by passage and answer")
    references_split: str = key("train", "the split of a Hub data set among them")
    sets: bool = key(False, "also score a passage's questions together against all references (Multi-M, Self-BLEU)")
    gap: Any = key(
        None,
        "with sets=true: {random: NAME, oracle: NAME}, two names of predictions; the others are placed between them; "
        "null: none",
    )
    page: str = key(
        "", "with sets=true: a page .html with the questions of a passage side by side, such as sets.html; empty: none"
    )
    page_passages: int = key(20, "passages on that page, spread over all", COUNT)
    pairs: bool = key(False, "question-answer pairs: each passage's against all human ones (QAAligned, one to one)")
    passages: str = choice(
        "all asked",
        "with pairs=true: all with human pairs, those that a file has no pair for counting as 0; or asked: that some "
        "file has a row for",
    )
    compat: str = choice(
        "none lmqg",
        "none, or lmqg: metrics as its published numbers were computed (only the questions normalised; BERTScore's "
        "precision, version 2 of MoverScore)",
    )
    level: str = choice(
        "answer sentence paragraph",
        "with compat=lmqg: answer (each question), or one question for each distinct sentence or paragraph, against "
        "all human questions about it",
    )
    aggregation: str = choice(
        "first last long short middle",
        "with level=sentence or paragraph, the question that is scored: first, last, long, short or middle",
    )
    metrics: Any = key("", "names, dotted paths or options: [bleu4,qrelscore,{metric: bertscore, layer: 5, label: b}]")
    output: str = key("", "the folder of tables, page and scores")
    columns: ScoreColumns = key(ScoreColumns(), "the fields of the input, as in score")
    language: str = key(
        "auto",
        "that the questions should be in: a code such as de; auto (that of the passages, or references) or other; it "
        "decides how words are split, the types of questions, and which share of them is in it",
        code_fault,
    )
    examples: Any = key(
        0,
        "questions of all files side by side, with the human ones and their scores: how many, spread over all, or "
        "which, as [3,17]",
    )
    lengths: list[int] = key([8, 12, 16], "numbers of words at which a new class of length begins")
    resamples: int = key(1000, "bootstrap resamples of passages, for intervals and tests", RESAMPLES)
    seed: int = key(0, "of the resamples", SEED)
    batch_size: int = key(256, "rows scored and kept at a time", COUNT)

    def conflicts(self) -> Iterator[str]:
        if self.pairs and self.sets:
            yield "pairs=true and sets=true are two commands; choose one"
        for name, value in (("gap", self.gap), ("page", self.page)):
            if value and not self.sets:
                yield f"{name}={value} is for sets of questions; add sets=true"
        if self.page and not self.page.endswith(".html"):
            yield f"page={self.page}: it is a page; give a name that ends in .html"
        numbers = self.examples if isinstance(self.examples, list) else [self.examples]
        if not all(type(number) is int and number >= isinstance(self.examples, list) for number in numbers):
            yield f"examples={self.examples} is neither a number of questions nor a list of such numbers, from 1 on"
        if self.examples and self.pairs:
            yield f"examples={self.examples} is for single questions; leave pairs out"
        if self.lengths != sorted({length for length in self.lengths if length > 0}):
            yield f"lengths={self.lengths} must rise, from 1 on"
        if self.compat == "none" and self.level != "answer":
            yield f"level={self.level} is a way to score of compat=lmqg; add it, or leave level out"
        if self.level == "answer" and self.aggregation != "first":
            yield f"aggregation={self.aggregation} is for level=sentence or paragraph; add one, or leave it out"
        if self.compat == "lmqg" and (self.sets or (self.pairs and self.level != "answer")):
            yield "compat=lmqg scores single questions, or pairs=true of passages; leave sets and level out"


@dataclass
class JudgementColumns(Section):
    """The columns of a file of rated questions (`rl_qg.judging.judgements`)."""

    question: str = key("question", "the text judged")
    context: str = key("context", "its passage")
    answer: str = key("answer", "a text")
    references: str = key("references", "a list of texts; of a table one text")
    system: str = key("system", "who asked")
    item: str = key("item", "what systems are compared on")
    group: str = key("group", "what bootstraps draw")
    type: str = key("type", "the type of the question asked")
    subset: str = key("subset", "a label of a part of the file")
    control: str = key("control", "true where the question tests raters")
    human: Any = key(None, "{criterion: column}, such as {fluency: FLUENCY}; null: the field human, an object")
    ratings: Any = key(None, "{criterion: [a column for each rater]}; null: the field ratings, an object")
    metrics: Any = key(None, "{name: column} of values that the data's authors give; null: the field metrics")


@dataclass
class CorrelateSettings(Section):
    """Metrics compared with human ratings of the same questions (`rl_qg.judging.correlate`)."""

    human: str = key("", "JSON lines of rated questions, or a table: .tsv, .csv, .parquet")
    columns: JudgementColumns = key(JudgementColumns(), "the columns or fields of that file")
    metrics: Any = key("", "as in evaluate")
    output: str = key("", "the folder of tables, page and scores")
    criteria: list[str] | None = key(None, "the file's criteria to use, such as [fluency]; null: all")
    references: str = choice(
        "together best",
        "several references of a question: together, as each metric takes them; best: the best score of a single one",
    )
    provided: bool = key(True, "also compare metric values that the data's authors provide")
    rater_filter: str = choice(
        "none both_sides above",
        "leave out ratings far from the others of the question: on both_sides, or above alone; none",
    )
    filter_above: float = key(1.0, "standard deviations from which on rater_filter leaves out", NOT_NEGATIVE)
    filter_most: int = key(5, "ratings of a question that rater_filter leaves out at most", COUNT)
    standardise: str = choice(
        "none rater rater_with_controls",
        "z-scores of each rater in place of ratings: rater; rater_with_controls (scale also of controls); none",
    )
    overall: bool = key(False, "also the mean of all criteria, as the criterion overall")
    replication: str = key("", "a second file of ratings, whose systems' means are correlated with the first's")
    language: str = key("en", LANGUAGE, language_fault)
    min_gap: float = key(0.0, "ratings of questions about one item must differ by more than this", NOT_NEGATIVE)
    sentences_of: str = choice(
        "none question references",
        "look apart at texts of several sentences: the judged one (question), or its references; none",
    )
    disagreements: int = key(
        100, "questions on which a metric and people differ most, of each metric and criterion", NOT_NEGATIVE
    )
    folds: int = key(5, "of passages, for the regression", Limits(2))
    repeats: int = key(10, "times that the folds are drawn anew, for the regression", COUNT)
    select_on: str = choice(
        "all training",
        "the folds on which metrics are selected: all, or training (each fold is predicted by its own selection)",
    )
    max_selected: int = key(8, "metrics in the regression at most; 0: no regression", NOT_NEGATIVE)
    resamples: int = key(1000, "bootstrap resamples of passages, for intervals and tests", RESAMPLES)
    seed: int = key(0, "of resamples and folds", SEED)
    batch_size: int = key(256, "rows scored and kept at a time", COUNT)

    def conflicts(self) -> Iterator[str]:
        if self.select_on == "training" and self.folds < 3:
            yield f"folds={self.folds} must be at least 3 with select_on=training"


@dataclass
class RobustnessSettings(Section):
    """Metrics on questions that were made wrong, or paraphrased (`rl_qg.judging.robustness`)."""

    input: Any = key("", "human questions with their passages, in any form that score reads")
    metrics: Any = key("", "as in evaluate")
    output: str = key("", "the folder of tables, page, perturbed questions and scores")
    columns: ScoreColumns = key(ScoreColumns(), "the fields of the input, as in score")
    language: str = key(
        "en", "of the questions; where it is not en: kinds=[entity], paraphrases of people or models, and spacy_model"
    )
    kinds: list[str] = key(["entity", "pronoun", "negation"], "how questions are made wrong")
    rules: str = choice(
        "own qrelscore",
        "own, or qrelscore: entities and pronouns drawn within groups, verbs to negate drawn (its Appendix C)",
    )
    entity_groups: str = choice(
        "three four",
        "under rules=qrelscore: three (person; place or organisation; number), or four (organisations apart)",
    )
    negation: str = choice(
        "not antonym either", "not; antonym (a verb's, by WordNet, which must be installed); or either (drawn)"
    )
    paraphrases: str = key("", "JSON lines {question, paraphrase}; empty: paraphraser")
    paraphraser: Any = key(
        "",
        "a seq2seq model that paraphrases: folder or Hub name; or a class with its options, "
        "{_target_: experiments.robustness.back_translation.BackTranslation, languages: [fr, de]}; empty: rules",
    )
    paraphraser_prefix: str = key("", 'text before each question for that model, such as "paraphrase: "')
    positives: int | None = key(None, "paraphrases drawn, 10000 in the paper of QRelScore; null: all", COUNT)
    negatives: int | None = key(None, "wrong questions drawn, of all kinds; null: all", COUNT)
    supervised: Any = key(
        "",
        "classifiers trained in folds: dotted paths, or with options such as "
        "{_target_: experiments.robustness.classifiers.Encoder, model: bert-base-uncased, label: bert}",
    )
    spacy_model: str = key("en_core_web_sm", "finds entities where it is installed; else rules do, in English only")
    max_questions: int | None = key(1000, "a seeded sample of this many; null: all", COUNT)
    resamples: int = key(1000, "bootstrap resamples of passages, for intervals", RESAMPLES)
    seed: int = key(0, "of sample, swaps and resamples", SEED)
    batch_size: int = key(256, "rows scored and kept at a time", COUNT)

    def conflicts(self) -> Iterator[str]:
        if len({*self.kinds}) < len(self.kinds):
            yield f"kinds=[{','.join(self.kinds)}]: names one twice; give each once"


@dataclass
class SeparateModelSettings(Section):
    """The generator whose errors are looked at."""

    path: str = key("", "a run, folder, Hub name or miniature whose questions are sampled; empty: none")


@dataclass
class SeparateSettings(Section):
    """A reward on right and wrong questions, before training with it (`rl_qg.scoring.separation`)."""

    output: str = key("", "the folder of table, page and record; a run folder will do")
    model: SeparateModelSettings = key(SeparateModelSettings(), "the generator whose errors are looked at")
    samples: int = key(4, "questions that it samples for each answer, with scst.temperature and scst.top_p", COUNT)
    reader: str = key(
        "", "a second extractive reader that has to find each answer, off the embedded corpus; empty: not checked"
    )
    max_examples: int | None = key(200, "a seeded sample of this many human questions; null: all", COUNT)
    resamples: int = key(10000, "bootstrap resamples of passages, for intervals", RESAMPLES)
    seed: int = key(0, "of the sample, of the wrong and of the sampled questions", SEED)

    def conflicts(self) -> Iterator[str]:
        if self.reader and not self.model.path:
            yield f"reader={self.reader} reads what a generator samples; name one with model.path=RUN"


@dataclass
class ExplainSettings(Section):
    """One question whose score is explained, token by token."""

    question: str = key("", "the question whose score is explained")
    context: str = key("", "its passage")
    output: str = key("", "an .html file; the same data are written beside it as .json")


@dataclass
class BaselinesSettings(Section):
    """Random pairs of question and passage, whose mean parts are the baselines of QRelScore."""

    output: str = key("", "a .json file, for reward.baselines=")
    pairs: int = key(1000, "random pairs of a question and another passage", COUNT)
    seed: int = key(0, "of the pairs", SEED)


@dataclass
class BenchSettings(Section):
    """Sources, how they are divided, and the seed of that. A source is a path, or a Hub data set (`name`, or
    `name:configuration`), of which each key reads the split of its name (`data`: train).
    """

    data: Any = key(None, "file(s) or Hub data set: the training data, and what validation and test are taken from")
    validation: Any = key(None, "file(s) or Hub data set; null: taken from data")
    test: Any = key(None, "file(s) or Hub data set; null: taken from data")
    split: str = choice(
        "shares squadshifts",
        "how data are divided: shares (see below), or squadshifts (half test, one sixth validation); "
        "with validation or test given, as many questions as it has are taken for the other",
    )
    validation_share: float = key(0.1, "with split=shares: share of the questions", FRACTION)
    test_share: float = key(0.1, "with split=shares: share of the questions", FRACTION)
    clean: str = choice(
        "qg_bench none",
        "qg_bench (citation marks such as [3] and runs of white space are removed, as in QG-Bench) or none",
    )
    seed: int = key(0, "of the choice of paragraphs", SEED)

    def conflicts(self) -> Iterator[str]:
        if self.validation_share + self.test_share >= 1:
            yield f"validation_share={self.validation_share} and test_share={self.test_share} leave nothing to train"
