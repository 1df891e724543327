"""Classifiers of sentences: which ones are worth a question, and questions of which types can be asked of them.

    classifier = SentenceClassifier.from_pretrained("RUN/worthy")
    classifier.worthy([["It was built in 1204.", "So it goes."]])        # [[True, False]]

`rl-qg train-sentences` (`rl_qg.readers.train_sentences`) trains them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import AutoConfig, AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from rewards.pretrained import ModelFault, check_weights
from rl_qg.data.examples import QAExample, by_key, passage_hash, seeded_rank
from rl_qg.readers.encoders import FLOAT32, IGNORED, load_tokenizer
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.processes import load_unsharded, loading
from rl_qg.stats.intervals import SHARE, Floats, PassageDraws, estimate, paired_test, quotient
from rl_qg.text.question_types import NINE_TYPES, nine_type
from rl_qg.text.spans import sentence_at, sentence_spans

# --- what they learn from: the sentences of passages that people asked about, and what they asked
#
# Source: "Multi-Question Generation" (docs/papers.md), section 6.1 and 6.2: a sentence is worthy if a question has its
# answer there, and its types are those of its questions.

WORTHY = "worthy"
LABELS = {"worthiness": (WORTHY,), "hierarchical": (WORTHY,), "types": NINE_TYPES}
"""The labels of each kind of classifier. Two kinds say which sentences are worth a question: `worthiness` from the
sentence alone, `hierarchical` from all sentences of the passage. `types` says what can be asked of a worthy one.
"""
FEW_ARTICLES = 10  # below this many, passages are set aside, not articles
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LabelledSentences:
    """Sentences of one passage, in order, with their labels, bool (sentences, labels)."""

    context: str
    sentences: tuple[str, ...]
    labels: NDArray[np.bool_]


def labelled_sentences(examples: Sequence[QAExample], kind: str) -> tuple[list[LabelledSentences], dict[str, int]]:
    """The sentences of each passage with the labels of a `kind` of classifier; `types` has only the worthy ones.

    A sentence is worthy if the first answer of a question begins in it, and has the nine types of these questions.
    Counted are the questions that have an answer; examples that lack either, which are left out; passages, sentences
    and how many of these are worthy; and answers that go beyond the end of their sentence.
    """
    usable = (example for example in examples if example.question.strip() and example.answers)
    passages = by_key((example.context, example) for example in usable)
    labelled: list[LabelledSentences] = []
    count = worthy = beyond = 0
    for context, asked in passages.items():
        spans = sentence_spans(context)
        types: list[set[str]] = [set() for _ in spans]
        for example in asked:
            answer = example.answers[0]
            index = sentence_at(spans, answer.start)
            beyond += answer.start + len(answer.text) > spans[index][1]
            types[index].add(nine_type(example.question, answer.text))
        rows = [(context[start:end], those) for (start, end), those in zip(spans, types, strict=True)]
        if kind == "types":
            rows = [(text, those) for text, those in rows if those]
            labels = np.array([[name in those for name in NINE_TYPES] for _, those in rows])
        else:
            labels = np.array([[bool(those)] for _, those in rows])
        labelled.append(LabelledSentences(context, tuple(text for text, _ in rows), labels))
        count, worthy = count + len(spans), worthy + sum(map(bool, types))
    questions = sum(map(len, passages.values()))
    counts = {"questions": questions, "without_question": len(examples) - questions, "passages": len(passages)}
    return labelled, counts | {"sentences": count, "worthy": worthy, "answers_beyond_sentence": beyond}


def set_aside(
    examples: Sequence[QAExample], fraction: float, seed: int
) -> tuple[list[QAExample], list[QAExample], str]:
    """Divide into the rest, a fraction of the articles with all their examples, and the unit: `articles`, or
    `passages` where there are fewer than ten titles. At least one is set aside, and one is left if there are two.
    """
    unit = "articles" if len({example.title for example in examples}) >= FEW_ARTICLES else "passages"
    keys = [example.title if unit == "articles" else passage_hash(example.context) for example in examples]
    ranked = sorted(set(keys), key=lambda key: seeded_rank(seed, key))
    chosen = set(ranked[: min(max(1, round(fraction * len(ranked))), len(ranked) - 1)])
    rest, aside = (
        [example for example, key in zip(examples, keys, strict=True) if (key in chosen) is wanted]
        for wanted in (False, True)
    )
    return rest, aside, unit


def positive_weights(passages: Sequence[LabelledSentences]) -> list[float]:
    """For each label the number of sentences without it over that with it; 1 where either is 0 (section 6.3)."""
    labels = np.concatenate([passage.labels for passage in passages])
    return [float((len(labels) - n) / n) if 0 < n < len(labels) else 1.0 for n in labels.sum(axis=0)]


class SentenceItems(list[dict[str, Any]]):
    """Model inputs, not padded: `input_ids`, one list for each sentence, and `labels`, float (sentences, labels).

    With `together` an item is a passage, else a sentence. Sentences are cut at `max_length` tokens; `cut` counts them.
    """

    def __init__(
        self,
        passages: Sequence[LabelledSentences],
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_length: int,
        together: bool,
    ) -> None:
        super().__init__()
        self.cut = 0
        for passage in passages:
            texts, labels = list(passage.sentences), passage.labels.astype(np.float32)
            self.cut += sum(len(ids) > max_length for ids in tokenizer(texts, verbose=False)["input_ids"])
            rows = tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]
            parts = [slice(None)] if together else [slice(n, n + 1) for n in range(len(rows))]
            self += [{"input_ids": rows[part], "labels": labels[part]} for part in parts]


@dataclass(frozen=True)
class SentenceCollator:
    """Pads passages on the right: `input_ids` and `attention_mask` (passages, sentences, tokens) and, where items have
    them, `labels`, float (passages, sentences, labels), with IGNORED for sentences that are not there.
    """

    pad_id: int

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        sentences = max(len(item["input_ids"]) for item in items)
        tokens = max(len(row) for item in items for row in item["input_ids"])
        ids = torch.full((len(items), sentences, tokens), self.pad_id)
        mask = torch.zeros_like(ids)
        for number, item in enumerate(items):
            for place, row in enumerate(item["input_ids"]):
                ids[number, place, : len(row)] = torch.tensor(row)
                mask[number, place, : len(row)] = 1
        batch = {"input_ids": ids, "attention_mask": mask}
        if "labels" in items[0]:
            batch["labels"] = torch.nn.utils.rnn.pad_sequence(
                [torch.as_tensor(item["labels"]) for item in items], batch_first=True, padding_value=float(IGNORED)
            )
        return batch


# --- precision, recall, F1 and accuracy, with intervals over passages, and thresholds for F1
#
# Source: "Multi-Question Generation" (docs/papers.md), tables 1 and 2: precision, recall and F1 of the positive label
# over all sentences; accuracy over all decisions.

MEASURES = ("precision", "recall", "f1", "accuracy")
Decisions = NDArray[np.bool_]


def label_scores(
    predicted: Decisions, actual: Decisions, names: Sequence[str], draws: PassageDraws
) -> dict[str, dict[str, Any]]:
    """The measures of each label as plain JSON, with the number of sentences that have it, `support`; `predicted` and
    `actual` are bool (sentences, labels), `draws` those of the passages of the sentences.
    """
    counts = _counts(predicted, actual, draws)
    return {
        name: {**_intervals(_measures(counts[:, number]), draws), "support": int(actual[:, number].sum())}
        for number, name in enumerate(names)
    }


def compared_scores(
    predicted: Decisions, actual: Decisions, baselines: Mapping[str, Decisions], draws: PassageDraws
) -> dict[str, Any]:
    """The measures over all decisions together, and with several labels `macro_f1`, the mean F1 of the labels that any
    sentence has; those of each baseline, and the paired differences from them with their p-values.
    """
    own, count, units = _together(predicted, actual, draws), len(draws.passage_index), draws.units_of()
    result: dict[str, Any] = {"scores": _intervals(own, draws), "baselines": {}}
    for name, other in baselines.items():
        values = _together(other, actual, draws)
        result["baselines"][name] = {
            "scores": _intervals(values, draws),
            "difference": {
                measure: paired_test(own[measure], values[measure], count, units, bounds=SHARE) for measure in own
            },
        }
    return result


def _counts(predicted: Decisions, actual: Decisions, draws: PassageDraws) -> Floats:
    """For each draw and label how many sentences have it by both, by the prediction, in fact, are decided rightly, and
    are there: (1 + resamples, labels, 5).
    """
    parts = (predicted & actual, predicted, actual, predicted == actual, np.ones_like(actual))
    table = np.stack([part.astype(np.float64) for part in parts], axis=-1)
    return draws.sums(table.reshape(len(table), -1)).reshape(-1, *table.shape[1:])


def _together(predicted: Decisions, actual: Decisions, draws: PassageDraws) -> dict[str, Floats]:
    counts = _counts(predicted, actual, draws)
    result = _measures(counts.sum(axis=1))
    if actual.shape[1] > 1:
        present = actual.any(axis=0)
        each = np.stack([_measures(counts[:, number])["f1"] for number in np.flatnonzero(present)])
        result["macro_f1"] = np.nan_to_num(each).mean(axis=0)
    return result


def _measures(counts: Floats) -> dict[str, Floats]:
    """The measures of counts (draws, 5), each (draws,); NaN where nothing is divided by nothing."""
    both, predicted, actual, right, total = counts.T
    parts = ((both, predicted), (both, actual), (2 * both, predicted + actual), (right, total))
    return {name: quotient(part, whole) for name, (part, whole) in zip(MEASURES, parts, strict=True)}


def _intervals(measures: Mapping[str, Floats], draws: PassageDraws) -> dict[str, Any]:
    count, units = len(draws.passage_index), draws.units_of()
    why = "no sentence to divide by"
    return {
        name: estimate(values, count, passages=units, why=why, bounds=SHARE).to_dict()
        for name, values in measures.items()
    }


def best_threshold(probabilities: NDArray[np.floating[Any]], actual: Decisions) -> float:
    """The threshold with the best F1 for `p >= threshold`, halfway to the next lower probability; of equally good ones
    the nearest to 0.5. 0.5 where no sentence has the label. Both arguments are (sentences,).
    """
    if not actual.any():
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order].astype(np.float64), np.cumsum(actual[order])
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of each group of equal probabilities
    f1 = 2 * hits[last] / (last + 1 + actual.sum())
    below = np.append(values[last[:-1] + 1], 0.0)
    thresholds = (values[last] + below) / 2
    good = thresholds[f1 == f1.max()]
    return float(good[np.abs(good - 0.5).argmin()])


# --- the network: an encoder of sentences and two layers, with a BiLSTM between them or without
#
# Source: "Multi-Question Generation" (docs/papers.md), sections 6.1 and 6.3, and its released code
# (`models/BinaryClassifier_model.py`, `models/HierarchicalLabeler_model.py`).

OPTIONS = "sentence_classifier"
"""The key of `config.json` that holds `SentenceOptions`."""
LSTM_WIDTH = 150  # of each direction
PARTS = 4  # of a batch: padding would be most of it, since sentences differ in length


@dataclass(frozen=True)
class SentenceOptions:
    """What a folder says of its classifier, beside the configuration of its encoder."""

    kind: str  # `worthiness`, `hierarchical` or `types`
    pooling: str  # the vector of a sentence: that of its first token (`cls`), or the `mean` of all its tokens
    max_length: int  # sentences were cut at this many tokens
    weights: tuple[float, ...]  # of the positive sentences of each label in the loss
    thresholds: tuple[float, ...]  # a sentence has a label whose probability is at least this


class SentenceLabeller(PreTrainedModel):
    """Logits of the labels of each sentence.

    `worthiness` and `types`: vector -> Linear(h, h) -> GELU -> Linear(h, labels). `hierarchical`: vector ->
    Linear(h, 150) -> BiLSTM over the sentences of the passage, 150 each way -> Linear(300, 300) -> GELU ->
    Linear(300, 1). The configuration is that of the encoder, with `SentenceOptions` as the mapping `OPTIONS`.
    """

    base_model_prefix = "encoder"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.options = SentenceOptions(**getattr(config, OPTIONS))
        self.encoder = AutoModel.from_config(config, trust_remote_code=False)
        if getattr(self.encoder, "pooler", None) is not None:
            self.encoder.pooler = None  # its output is not used
        width = config.hidden_size
        self.is_hierarchical = self.options.kind == "hierarchical"
        if self.is_hierarchical:
            self.compress = nn.Linear(width, LSTM_WIDTH)
            self.lstm = nn.LSTM(LSTM_WIDTH, LSTM_WIDTH, batch_first=True, bidirectional=True)
            width = 2 * LSTM_WIDTH
        self.dense = nn.Linear(width, width)
        self.out = nn.Linear(width, config.num_labels)
        self.post_init()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return `logits` (passages, sentences, labels), 0 where there is no sentence, and with float `labels` of that
        shape the `loss`: the mean binary cross-entropy over sentences and labels, where positive ones count by their
        weight. Padding takes no part in it (in the released code of HC it has the target -1). Inputs are (passages,
        sentences, tokens); a sentence that is not there has no token in the mask.
        """
        real = attention_mask.any(dim=-1)
        vectors = self._sentence_vectors(input_ids[real], attention_mask[real])
        if self.is_hierarchical:
            vectors = self._in_passage(vectors, real)
        logits = self.out(functional.gelu(self.dense(vectors)))
        result = {"logits": logits.new_zeros((*real.shape, logits.shape[-1])).masked_scatter(real[..., None], logits)}
        if labels is not None:
            weights = torch.tensor(self.options.weights, device=logits.device)
            result["loss"] = functional.binary_cross_entropy_with_logits(
                logits.float(), labels[real].float(), pos_weight=weights
            )
        return result

    def _sentence_vectors(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(sentences, tokens) to (sentences, h); the encoder reads long sentences and short ones apart."""
        lengths = mask.sum(dim=1)
        order = lengths.argsort(descending=True)
        vectors = []
        for part in order.tensor_split(PARTS):
            rows = part if len(part) else order[:1]  # every process must call a sharded encoder as often
            longest = int(lengths[rows[0]])
            vectors.append(self._pooled(ids[rows, :longest], mask[rows, :longest])[: len(part)])
        return torch.cat(vectors)[order.argsort()]

    def _pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        states = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.options.pooling == "cls":
            return states[:, 0]
        counted = mask[..., None].to(states.dtype)
        return (states * counted).sum(dim=1) / counted.sum(dim=1)

    def _in_passage(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Vectors (all sentences, h) after the BiLSTM over those of each passage, (all sentences, 300)."""
        vectors = self.compress(vectors)
        rows = vectors.new_zeros((*real.shape, LSTM_WIDTH)).masked_scatter(real[..., None], vectors)
        packed = pack_padded_sequence(rows, real.sum(dim=1).cpu(), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=real.shape[1])
        return states[real]


def new_labeller(
    path: str, key: str, tokenizer: PreTrainedTokenizerBase, options: SentenceOptions, seed: int
) -> SentenceLabeller:
    """A classifier on the encoder `path`, which the setting `key` names; `seed` initialises its other layers."""
    load_unsharded()
    names = dict(enumerate(LABELS[options.kind]))
    heads = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    transformers.set_seed(seed)
    with loading(path, key, "encoder") as name:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False, **heads)
        setattr(config, OPTIONS, asdict(options))
        model = SentenceLabeller(config)
        encoder, info = AutoModel.from_pretrained(
            name, config=config, output_loading_info=True, trust_remote_code=False, **FLOAT32
        )
        model.encoder.load_state_dict(encoder.state_dict(), strict=False)  # without the pooler
        check_weights(model, tokenizer)
    if missing := sorted(name for name in info["missing_keys"] if not name.startswith("pooler.")):
        log.warning("%s: %d weights of the encoder start at random, such as %s", path, len(missing), missing[0])
    return model.float()


Probabilities = NDArray[np.float32]
SENTENCES_AT_ONCE = 64


class SentenceClassifier:
    """A trained classifier of sentences, of a `kind`: `worthiness` (each sentence alone), `hierarchical` (with the
    others of its passage) or `types`. Each of its `labels`, `worthy` or the nine types, has a threshold.
    """

    def __init__(self, model: SentenceLabeller, tokenizer: PreTrainedTokenizerBase, device: torch.device) -> None:
        self._model, self._tokenizer, self._device = model.to(device).eval(), tokenizer, device
        self.kind: str = model.options.kind
        self.labels: tuple[str, ...] = LABELS[self.kind]
        self.thresholds: tuple[float, ...] = tuple(model.options.thresholds)

    @classmethod
    def from_pretrained(
        cls,
        folder: str | Path,
        *,
        device: torch.device | str | None = None,
        key: str = "folder",
        kinds: Sequence[str] = tuple(LABELS),
    ) -> "SentenceClassifier":
        """Load what `rl-qg train-sentences` saved, to run on `device` (None: the CPU). `key` is the setting that names
        the folder, and `kinds` are those that can be used.
        """
        tokenizer = load_tokenizer(str(folder), key)
        load_unsharded()
        with loading(str(folder), key, "sentence classifier") as name:
            config = AutoConfig.from_pretrained(name, trust_remote_code=False)
            options = getattr(config, OPTIONS, None)
            if not isinstance(options, dict) or options.get("kind") not in LABELS:
                raise ModelFault("it is no folder of rl-qg train-sentences")
            if options["kind"] not in kinds:
                raise ModelFault(f"it is of kind={options['kind']}; train one with kind={' or '.join(kinds)}")
            model: SentenceLabeller = SentenceLabeller.from_pretrained(
                name, config=config, trust_remote_code=False, **FLOAT32
            )
            check_weights(model, tokenizer)
        return cls(model, tokenizer, torch.device(device or "cpu"))

    def __call__(self, paragraphs: Sequence[Sequence[str]]) -> list[Probabilities]:
        """The probability of each label for the sentences of each paragraph, float32 (sentences, labels).

        `types` and `worthiness` look at each sentence alone, so their values do not depend on the others.
        """
        width, options = len(self.labels), self._model.options
        passages = [
            LabelledSentences("", tuple(texts), np.zeros((len(texts), width), bool)) for texts in paragraphs if texts
        ]
        together = self.kind == "hierarchical"
        items = SentenceItems(passages, self._tokenizer, max_length=options.max_length, together=together)
        rows = np.concatenate([*self._probabilities(items), np.zeros((0, width), np.float32)])
        ends = np.cumsum([len(texts) for texts in paragraphs])
        return [rows[end - len(texts) : end] for texts, end in zip(paragraphs, ends, strict=True)]

    @torch.inference_mode()
    def _probabilities(self, items: SentenceItems) -> list[Probabilities]:
        """(sentences, labels) of each item, in order; a batch has items of one length, at least one."""
        collate = SentenceCollator(self._tokenizer.pad_token_id)
        batches, total = list[list[int]](), 0
        for n in sorted(range(len(items)), key=lambda n: max(map(len, items[n]["input_ids"]))):
            total += len(items[n]["input_ids"])
            if not batches or total > SENTENCES_AT_ONCE:
                batches.append([])
                total = len(items[n]["input_ids"])
            batches[-1].append(n)
        found: dict[int, Probabilities] = {}
        for batch in batches:
            inputs = collate([{"input_ids": items[n]["input_ids"]} for n in batch])
            logits = self._model(**{name: value.to(self._device) for name, value in inputs.items()})["logits"]
            rows = logits.float().sigmoid().cpu().numpy()
            found |= {n: row[: len(items[n]["input_ids"])] for n, row in zip(batch, rows, strict=True)}
        return [found[n] for n in range(len(items))]

    def worthy(self, paragraphs: Sequence[Sequence[str]]) -> list[list[bool]]:
        if self.kind == "types":
            raise InputError("a classifier of kind=types does not say which sentences are worthy")
        return [[bool(p >= self.thresholds[0]) for p in rows[:, 0]] for rows in self(paragraphs)]

    def types(self, paragraphs: Sequence[Sequence[str]]) -> list[list[list[str]]]:
        """The question types of each sentence of each paragraph, in the order of `labels`; at least the likeliest."""
        if self.kind != "types":
            raise InputError(f"a classifier of kind={self.kind} knows no types; train one with kind=types")
        chosen = (decisions(part, self.thresholds, at_least_one=True) for part in self(paragraphs))
        return [[[self.labels[n] for n in np.flatnonzero(row)] for row in rows] for rows in chosen]


def decisions(rows: Probabilities, thresholds: Sequence[float], *, at_least_one: bool) -> NDArray[np.bool_]:
    """Which probabilities (sentences, labels) reach their threshold; with `at_least_one` else the likeliest."""
    chosen = rows >= np.asarray(thresholds, dtype=np.float64)
    if at_least_one and len(rows):
        none = ~chosen.any(axis=1)
        chosen[none, rows[none].argmax(axis=1)] = True
    return np.asarray(chosen, dtype=bool)
