"""Metrics learned from judgements: Usability, and BLEURT, COMET, CTC and RQUGE of other projects."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self

import torch
from torch import Tensor
from transformers import PretrainedConfig

from rewards.base import Inputs, Metric, MetricResult, Pair
from rewards.embedding.token_embeddings import needs_of
from rewards.errors import MetricInputError, batch_of, first_line, installed_version, library, number, one_of
from rewards.frozen import CountsCuts, FrozenModel, batches_by_length, best_of_rows
from rewards.relevance.reading import PairFormat, TokenizedPassage, tokenized_passages
from rewards.signature import file_hash, model_identity
from rewards.words import normalise_answer

_TOKENISING = Lock()  # calls change how a tokenizer cuts, and threads may share a metric


def load_or_explain(metric: str, model: str, loader: Any, *arguments: Any, **options: Any) -> Any:
    """Packages raise all kinds of errors; each becomes one line."""
    try:
        return loader(*arguments, **options)
    except Exception as error:
        raise MetricInputError(f"{metric}: cannot load {model!r}: {first_line(error)}") from error


def check_outputs(metric: str, model: FrozenModel, wanted: int, what: str) -> None:
    if (outputs := model.model.config.num_labels) != wanted:
        raise MetricInputError(f"{metric}: {model.name!r} has {outputs} outputs; {what}")


def _best(values: Iterable[float], owners: Sequence[int], inputs: Inputs) -> MetricResult:
    best = best_of_rows(torch.tensor([*values], dtype=torch.float64), owners, len(inputs.questions))
    return MetricResult(best.tolist(), {})


def _device(device: str | torch.device | None) -> str | torch.device:
    return device if device is not None else "cuda" if torch.cuda.is_available() else "cpu"


def classified(model: FrozenModel, encoded: Any, batch_size: int) -> Tensor:
    """Return the outputs of a classifier for each row of a tokenizer's result: float32 (rows, outputs)."""
    rows = encoded["input_ids"]
    values = torch.zeros(len(rows), model.model.config.num_labels)
    for batch in batches_by_length([len(row) for row in rows], batch_size, model.tokens_at_once):
        types = [encoded["token_type_ids"][at] for at in batch] if "token_type_ids" in encoded else None
        values[batch] = model.model(**model.batch([rows[at] for at in batch], types)).logits.float().cpu()
    return values


def _cut(metric: str, model: FrozenModel, limit: int, *texts: Sequence[str]) -> Any:
    """Tokenise texts, or pairs of them, of which the longest are cut at so many tokens and counted."""
    with _TOKENISING:
        encoded = model.tokenizer(*texts, verbose=False)
        if model.note_long(metric, map(len, encoded["input_ids"]), limit):
            encoded = model.tokenizer(*texts, truncation=True, max_length=limit)
        return encoded


class Usability(Metric):
    """The probability that a reader of the passage calls the question usable for its answer: it can be understood,
    the answer is right, and it needs no mending. Learned from readings of generated questions, from 0 to 1.

    Source: a linear layer on the vector of ``[CLS]``, as in BLEURT (Sellam et al., ACL 2020, section 3), that reads
    question, answer and passage, as the span scorer of RQUGE (Mohammadshahi et al., Findings of ACL 2023, section 3).
    The model reads ``[CLS] question [SEP] answer [SEP] passage [SEP]``; of a passage that is too long for it the part
    around the answer's first place, and where a question leaves no room for its answer, the question's beginning. The
    probability is the softmax of the last of its two labels.

    Cost: one pass of the encoder for each question.

    Args:
        model: classifier of pairs of texts with two labels, unusable and usable: a local folder or a Hub name.
        max_length: tokens that it reads, special tokens included.
    """

    name = "usability"
    needs = frozenset({"contexts", "answers"})
    bounds = (0.0, 1.0)

    def __init__(
        self,
        model: str,
        *,
        max_length: int = 256,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self.model = FrozenModel(model, "regressor", device=device, dtype=dtype)
        check_outputs(self.name, self.model, 2, "one of unusable and usable questions has two")
        self.model.need_special_tokens(self.name)
        PairFormat.of(self.model)  # raises where its tokenizer gives no offsets
        length = int(number(self.name, "max_length", max_length, low=8, whole=True))
        self.max_length = min(length, self.model.max_tokens)

    def choices(self) -> Mapping[str, object]:
        return {"model": self.model.identity, "max_length": self.max_length, "dtype": self.dtype}

    def compute(self, inputs: Inputs) -> MetricResult:
        tokenizer, asked, parts = self.model.tokenizer, list[str](), list[str]()
        ends = [f" {tokenizer.sep_token} {answer}" for answer in inputs.answers]
        room = self.max_length - tokenizer.num_special_tokens_to_add(pair=True)
        with _TOKENISING:
            both = self.model.ids([*map(str.__add__, inputs.questions, ends)])
            questions, passages = (tokenized_passages(self.model, one) for one in (inputs.questions, inputs.contexts))
            rows = [*zip(questions, ends, both, passages, inputs.answers, strict=True)]
            self.model.note_long(self.name, [len(ids) + len(passage.ids) for *_, ids, passage, _ in rows], room)
            for question, end, ids, passage, answer in rows:
                left = room - len(ids) - min(1, len(passage.ids))
                asked.append((question.text if left >= 0 else _around(question, "", len(question.ids) + left)) + end)
                parts.append(_around(passage, answer, room - len(ids)))
            encoded = tokenizer(asked, parts, truncation=True, max_length=self.max_length, verbose=False)
        logits = classified(self.model, encoded, self.batch_size).double()
        return MetricResult(logits.softmax(1)[:, 1].tolist(), {})


def _around(passage: TokenizedPassage, answer: str, room: int) -> str:
    """The part of a text of so many tokens that has the answer's first place in its middle; at least one token."""
    if not passage.ids:
        return ""
    room, (first, last) = max(1, room), next(iter(passage.places(answer)), (0, 0))
    start = max(0, min((first + last - room) // 2 + 1, len(passage.ids) - room))
    return passage.span(start, min(start + room, len(passage.ids)) - 1)


class BLEURT(Metric):
    """A regression of people's ratings from a reference and a candidate, read together by a BERT.

    Source: Sellam, Das, Parikh, "BLEURT: Learning Robust Metrics for Text Generation", ACL 2020, section 3 (a linear
    layer on the vector of ``[CLS]``), and its released code (google-research/bleurt, TensorFlow). Models of the second
    generation (Pu et al. 2021, BLEURT-20) give about 0 to 1, without bounds; higher is better. The model reads
    ``[CLS] reference [SEP] question [SEP]``.

    Differences from the released code: PyTorch and converted checkpoints; it takes one reference, here the score is
    the largest over several; long pairs are cut at 512 tokens (plain form: the model's length), the longer text first.

    ``model`` is a checkpoint in transformers form with one output. Those of model type ``bleurt`` need the package
    bleurt-pytorch (lucadiliello/bleurt-pytorch), whose converted checkpoints (``lucadiliello/BLEURT-20-D12``) are on
    the Hub, and have no option ``dtype``; any other type, such as a BERT, needs none, but safetensors.

    Checked: the plain form against a checkpoint built for the test, pair by pair; of the package's form only the
    classes and calls of its README, with a stand-in. That converted checkpoints give Google's numbers is claimed by
    their author.
    """

    name = "bleurt"
    needs = frozenset({"references"})

    def __init__(
        self,
        model: str = "lucadiliello/BLEURT-20-D12",
        *,
        batch_size: int = 32,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.batch_size, self.dtype, model = batch_of(self.name, batch_size), dtype, os.path.expanduser(model)
        config, _ = load_or_explain("bleurt", model, PretrainedConfig.get_config_dict, model)
        self._model = _PackagedBleurt(model, device) if config.get("model_type") == "bleurt" else None
        if self._model and dtype != "float32":
            raise MetricInputError(f"bleurt: dtype {dtype!r} is for checkpoints that need no package; leave it out")
        self.regressor = None if self._model else FrozenModel(model, "regressor", device=device, dtype=dtype)
        if self.regressor is not None:
            check_outputs(self.name, self.regressor, 1, "a regression has one")

    def choices(self) -> Mapping[str, object]:
        if self.regressor is not None:
            return {"model": self.regressor.identity, "dtype": self.dtype}
        identity = self._model.identity if self._model else ""
        return {"model": identity, "bleurt-pytorch": installed_version("bleurt-pytorch")}

    def compute(self, inputs: Inputs) -> MetricResult:
        pairs, owners = inputs.pairs("references")
        if self.regressor is None:
            assert self._model
            return _best(self._model(pairs, self.batch_size), owners, inputs)
        questions, references = map(list, zip(*pairs, strict=True))
        encoded = _cut(self.name, self.regressor, self.regressor.max_tokens, references, questions)
        return _best(classified(self.regressor, encoded, self.batch_size)[:, 0].tolist(), owners, inputs)

    def to(self, device: str | torch.device) -> Self:
        if self._model:
            self._model.model.to(device)
        return super().to(device)


class _PackagedBleurt(CountsCuts):
    def __init__(self, model: str, device: str | torch.device | None) -> None:
        package = library("bleurt_pytorch", "bleurt", "git+https://github.com/lucadiliello/bleurt-pytorch.git")
        self.tokenizer = load_or_explain("bleurt", model, package.BleurtTokenizer.from_pretrained, model)
        self.model = load_or_explain("bleurt", model, package.BleurtForSequenceClassification.from_pretrained, model)
        self.identity = model_identity(model, self.model.config)
        self.model.eval().to(_device(device))

    def __call__(self, pairs: Sequence[Pair], batch_size: int) -> list[float]:
        values = [0.0] * len(pairs)
        lengths = [len(question) + len(reference) for question, reference in pairs]
        for batch in batches_by_length(lengths, batch_size, 1 << 40):
            questions, references = (list(side) for side in zip(*(pairs[at] for at in batch), strict=True))
            options = {"padding": "longest", "truncation": True, "max_length": 512, "return_tensors": "pt"}
            with _TOKENISING:
                whole = self.tokenizer(references, questions, verbose=False)["input_ids"]
                encoded = self.tokenizer(references, questions, **options)
            self.note_long("bleurt", map(len, whole), 512)
            device = next(self.model.parameters()).device
            logits = self.model(**{name: value.to(device) for name, value in encoded.items()}).logits
            for at, value in zip(batch, logits.flatten().tolist(), strict=True):
                values[at] = value
        return values


class COMET(Metric):
    """A regression of people's ratings of translations, through the package unbabel-comet.

    Source: Rei, Stewart, Farinha, Lavie, "COMET: A Neural Framework for MT Evaluation", EMNLP 2020, section 2 (the
    estimator), and its released code (Unbabel/COMET), which computes the score. Checkpoints since 2022 give 0 to 1,
    earlier ones z-scores; higher is better. ``against="context"`` is for checkpoints that read source and translation
    alone (``Unbabel/wmt22-cometkiwi-da``: Rei et al., "CometKiwi", WMT 2022).

    Differences: it was trained on translations; here the source is the passage, the translation the question, the
    reference a gold question, so a score has no validated meaning for questions. It takes one reference; here the
    score is the largest over several.

    Checked: the calls are those of the package's README and source (2.2.7: `download_model`, `load_from_checkpoint`,
    ``predict(samples, batch_size, gpus, progress_bar)``), with a stub. Not run against a released checkpoint.

    Args:
        model: Hub name, or the path of a checkpoint file (``…/checkpoints/model.ckpt``).
        device: a GPU is used when it names one or there is one.
    """

    name = "comet"

    def __init__(
        self,
        model: str = "Unbabel/wmt22-comet-da",
        *,
        against: Literal["references", "context"] = "references",
        batch_size: int = 16,
        device: str | torch.device | None = None,
    ) -> None:
        self.needs = needs_of(against, self.name) | {"contexts"}
        self.against, self.batch_size, model = against, batch_of(self.name, batch_size), os.path.expanduser(model)
        package = library("comet", self.name, "unbabel-comet")
        path = model if model.endswith(".ckpt") else load_or_explain(self.name, model, package.download_model, model)
        self._model = load_or_explain(self.name, model, package.load_from_checkpoint, path)
        checkpoint = Path(path)
        known = checkpoint.name if model.endswith(".ckpt") else model
        self.identity = f"{known}@{load_or_explain(self.name, model, file_hash, checkpoint)}"
        self.to(_device(device))

    def choices(self) -> Mapping[str, object]:
        return {"model": self.identity, "against": self.against, "unbabel-comet": installed_version("unbabel-comet")}

    def compute(self, inputs: Inputs) -> MetricResult:
        pairs, owners = inputs.pairs(self.against)
        samples = [{"src": inputs.contexts[row], "mt": text} for row, (text, _) in zip(owners, pairs, strict=True)]
        if self.against == "references":
            samples = [{**sample, "ref": reference} for sample, (_, reference) in zip(samples, pairs, strict=True)]
        predicted = self._model.predict(samples, batch_size=self.batch_size, gpus=self._gpus, progress_bar=False)
        return _best(map(float, predicted.scores), owners, inputs)

    def to(self, device: str | torch.device) -> Self:
        self._gpus = int(torch.device(device).type == "cuda")
        return self


class CTC(Metric):
    """How much of the information of one text is grounded in another, word by word, by the package ctc_score.

    Source: Deng, Tan, Liu, Xing, Hu, "Compression, Transduction, and Creation: A Unified Framework for Evaluating
    Natural Language Generation", EMNLP 2021, section 4 (compression: consistency and relevance), and its released code
    (tanyuqian/ctc-gen-eval), which computes the score. ``aspect="consistency"`` is the mean alignment of the words of
    the question with the passage, ``"relevance"`` that times the mean over references of their alignment with the
    question. About 0 to 1, higher is better. Differences: a question is treated as a summary of its passage; where
    the package cannot align a text it returns None, which is 0 here.

    Checked: the calls are those of its source (``SummarizationScorer(align, device).score(doc, refs, hypo, aspect,
    remove_stopwords)``), with a stub. Not run against its checkpoints, which it downloads from Google Drive.

    ``align`` is the package's alignment model, such as ``D-cnndm``, ``E-roberta``.
    """

    name = "ctc"

    def __init__(
        self,
        align: str = "D-cnndm",
        aspect: Literal["consistency", "relevance"] = "consistency",
        *,
        device: str | torch.device | None = None,
    ) -> None:
        self.align, self.aspect = align, one_of(self.name, "aspect", aspect, ("consistency", "relevance"))
        self.needs = frozenset({"contexts"} if aspect == "consistency" else {"contexts", "references"})
        self._scorer_class = library("ctc_score", self.name, "ctc_score").SummarizationScorer
        self.to(_device(device))

    def choices(self) -> Mapping[str, object]:
        return {"align": self.align, "aspect": self.aspect, "ctc_score": installed_version("ctc_score")}

    def compute(self, inputs: Inputs) -> MetricResult:
        rows = zip(inputs.questions, inputs.contexts, inputs.references, strict=True)
        options = {"aspect": self.aspect, "remove_stopwords": False}
        scores = [self._scorer.score(doc=doc, refs=[*gold], hypo=asked, **options) for asked, doc, gold in rows]
        return MetricResult([0.0 if value is None else float(value) for value in scores], {})

    def to(self, device: str | torch.device) -> Self:
        self._scorer = load_or_explain(self.name, self.align, self._scorer_class, align=self.align, device=str(device))
        return self


class RQUGE(Metric):
    r"""Whether a model that reads question and passage gives the answer that the question was generated for.

    Source: Mohammadshahi, Scialom, Yazdani, Yanki, Fan, Henderson, Saeidi, "RQUGE: Reference-Free Metric for
    Evaluating Question Generation by Answering the Question", Findings of ACL 2023, section 3 (the question-answering
    module and the span scorer), and its released code (alirezamshi/RQUGE, `rquge_score/scorer.py`). A
    question-answering model (``qa_model``, an encoder-decoder) reads ``question \n context`` (backslash and n as two
    characters, as it was trained) and writes at most 30 tokens, greedily as its configuration says; a regression
    (``span_scorer``, in transformers form with one output) reads ``question <q> answer <r> given answer <c> context``,
    all without capitals, articles and punctuation, cut at 512 tokens. About 1 to 5, higher is better.

    Differences from the released code: the two checkpoints alone, from safetensors, no package; batches sorted by
    length, which changes scores by rounding only. Checked: against its steps written with calls of transformers, on
    small models of the same types (T5 and RoBERTa); not run on the released checkpoints.

    Cost: one generation and one pass of the regression for each question.
    """

    name = "rquge"
    needs = frozenset({"contexts", "answers"})

    def __init__(
        self,
        qa_model: str = "allenai/unifiedqa-v2-t5-large-1363200",
        span_scorer: str = "alirezamsh/quip-512-mocha",
        *,
        batch_size: int = 16,
        device: str | torch.device | None = None,
        dtype: str = "float32",
    ) -> None:
        self.batch_size, self.dtype = batch_of(self.name, batch_size), dtype
        self.reader = FrozenModel(qa_model, "seq2seq", device=device, dtype=dtype)
        rules = Path(self.reader.name, "generation_config.json")  # in no hash of a folder; the Hub's revision has it
        self._rules = {"generation": file_hash(rules)} if rules.is_file() else {}
        self.regressor = FrozenModel(span_scorer, "regressor", device=device, dtype=dtype)
        check_outputs(self.name, self.regressor, 1, "a regression has one")

    def choices(self) -> Mapping[str, object]:
        span_scorer = self.regressor.identity
        return {"qa_model": self.reader.identity, **self._rules, "span_scorer": span_scorer, "dtype": self.dtype}

    def compute(self, inputs: Inputs) -> MetricResult:
        tokenizer, config = self.reader.tokenizer, self.reader.model.config
        limit = self.reader.max_tokens if getattr(config, "max_position_embeddings", 0) else sys.maxsize  # of T5
        texts = [f"{asked} \\n {text}" for asked, text in zip(inputs.questions, inputs.contexts, strict=True)]
        rows = _cut(self.name, self.reader, limit, texts)["input_ids"]
        answers = [""] * len(rows)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size, self.reader.tokens_at_once):
            written = self.reader.model.generate(**self.reader.batch([rows[at] for at in batch]), max_new_tokens=30)
            for at, text in zip(batch, tokenizer.batch_decode(written, skip_special_tokens=True), strict=True):
                answers[at] = text
        columns = (inputs.questions, inputs.answers, answers, inputs.contexts)
        texts = ["{} <q> {} <r> {} <c> {}".format(*map(normalise_answer, row)) for row in zip(*columns, strict=True)]
        encoded = _cut(self.name, self.regressor, min(512, self.regressor.max_tokens), texts)
        return MetricResult(classified(self.regressor, encoded, self.batch_size)[:, 0].tolist(), {})
