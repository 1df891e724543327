"""What classifiers of sentences learn from: the sentences of passages that people asked about, and what they asked.

Source: "Multi-Question Generation" (docs/papers.md), section 6.1 and 6.2: a sentence is worthy if a question has its
answer there, and its types are those of its questions.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from rl_qg.data.examples import QAExample, passage_hash, seeded_rank
from rl_qg.readers.token_classifier import IGNORED
from rl_qg.text.nine_types import NINE_TYPES, nine_type
from rl_qg.text.spans import sentence_at, sentence_spans

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


@dataclass(frozen=True)
class SentenceCounts:
    """What was read: examples with a question and an answer; those without either, which are left out; passages,
    sentences and how many of these are worthy; and answers that go beyond the end of their sentence, which count where
    they begin.
    """

    questions: int
    without_question: int
    passages: int
    sentences: int
    worthy: int
    answers_beyond_sentence: int


def labelled_sentences(examples: Sequence[QAExample], kind: str) -> tuple[list[LabelledSentences], SentenceCounts]:
    """The sentences of each passage with the labels of a `kind` of classifier; `types` has only the worthy ones.

    A sentence is worthy if the first answer of a question begins in it, and has the nine types of these questions.
    """
    passages: dict[str, list[QAExample]] = {}
    for example in examples:
        if example.question.strip() and example.answers:
            passages.setdefault(example.context, []).append(example)
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
        labelled.append(_with_labels(context, [context[start:end] for start, end in spans], types, kind))
        count, worthy = count + len(spans), worthy + sum(map(bool, types))
    questions = sum(map(len, passages.values()))
    counts = SentenceCounts(questions, len(examples) - questions, len(passages), count, worthy, beyond)
    return labelled, counts


def _with_labels(context: str, texts: Sequence[str], types: Sequence[set[str]], kind: str) -> LabelledSentences:
    if kind != "types":
        return LabelledSentences(context, tuple(texts), np.array([[bool(those)] for those in types]))
    worthy = [number for number, those in enumerate(types) if those]
    rows = [[name in types[number] for name in NINE_TYPES] for number in worthy]
    return LabelledSentences(context, tuple(texts[number] for number in worthy), np.array(rows))


def set_aside(
    examples: Sequence[QAExample], fraction: float, seed: int
) -> tuple[list[QAExample], list[QAExample], str]:
    """Divide into the rest, a fraction of the articles with all their examples, and the unit: `articles`, or
    `passages` where there are fewer than ten titles. At least one is set aside, and at least one is left if there are
    two.
    """
    unit = "articles" if len({example.title for example in examples}) >= FEW_ARTICLES else "passages"
    keys = [example.title if unit == "articles" else passage_hash(example.context) for example in examples]
    ranked = sorted(set(keys), key=lambda key: seeded_rank(seed, key))
    chosen = set(ranked[: min(max(1, round(fraction * len(ranked))), len(ranked) - 1)])
    pairs = list(zip(examples, keys, strict=True))
    return (
        [example for example, key in pairs if key not in chosen],
        [example for example, key in pairs if key in chosen],
        unit,
    )


def positive_weights(passages: Sequence[LabelledSentences]) -> list[float]:
    """For each label the number of sentences without it over that with it; 1 where either is 0 (section 6.3)."""
    labels = np.concatenate([passage.labels for passage in passages])
    positive = labels.sum(axis=0)
    negative = len(labels) - positive
    return [float(n / p) if n and p else 1.0 for n, p in zip(negative, positive, strict=True)]


class SentenceItems(Dataset[dict[str, Any]]):
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
        self._items: list[dict[str, Any]] = []
        self.cut = 0
        for passage in passages:
            whole = tokenizer(list(passage.sentences), verbose=False)["input_ids"]
            self.cut += sum(len(ids) > max_length for ids in whole)
            rows = tokenizer(list(passage.sentences), truncation=True, max_length=max_length)["input_ids"]
            labels = passage.labels.astype(np.float32)
            if together:
                self._items.append({"input_ids": rows, "labels": labels})
            else:
                self._items += [
                    {"input_ids": [row], "labels": label[None]} for row, label in zip(rows, labels, strict=True)
                ]

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._items[index]


@dataclass(frozen=True)
class SentenceCollator:
    """Pads passages on the right: `input_ids` and `attention_mask` (passages, sentences, tokens) and, where items have
    them, `labels`, float (passages, sentences, labels), with IGNORED for sentences that are not there.
    """

    pad_id: int

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of `items`."""
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
