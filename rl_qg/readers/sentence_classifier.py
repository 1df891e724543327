"""Classifiers of sentences: which ones are worth a question, and questions of which types can be asked of them.

    classifier = SentenceClassifier.from_pretrained("RUN/worthy")
    classifier.worthy([["It was built in 1204.", "So it goes."]])        # [[True, False]]

`rl-qg train-sentences` (`rl_qg.readers.sentence_stage`) trains them.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from rl_qg.readers.sentence_data import LABELS, LabelledSentences, SentenceCollator, SentenceItems
from rl_qg.readers.sentence_model import SentenceLabeller, load_labeller
from rl_qg.readers.token_classifier import load_tokenizer
from rl_qg.runtime.errors import InputError

Probabilities = NDArray[np.float32]
SENTENCES_AT_ONCE = 64


class SentenceClassifier:
    """A trained classifier of the sentences of passages.

    Attributes:
        kind: `worthiness` (each sentence alone), `hierarchical` (with the others of its passage) or `types`.
        labels: what the columns of probabilities stand for: `worthy`, or the nine types of questions.
        thresholds: one for each label.
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
        """Load what `rl-qg train-sentences` saved.

        Args:
            folder: its output_dir.
            device: where it runs; None: the CPU.
            key: the setting that names `folder`, for messages.
            kinds: the kinds that can be used.

        Raises:
            InputError: the folder holds no such classifier.
        """
        path = str(folder)
        tokenizer = load_tokenizer(path, key)
        return cls(load_labeller(path, key, tokenizer, kinds), tokenizer, torch.device(device or "cpu"))

    def __call__(self, paragraphs: Sequence[Sequence[str]]) -> list[Probabilities]:
        """The probability of each label for the sentences of each paragraph, float32 (sentences, labels).

        `types` and `worthiness` look at each sentence alone, so their values do not depend on the others.
        """
        together = self.kind == "hierarchical"
        width = len(self.labels)
        passages = [
            LabelledSentences("", tuple(texts), np.zeros((len(texts), width), bool)) for texts in paragraphs if texts
        ]
        options = {"max_length": self._model.options.max_length, "together": together}
        items = SentenceItems(passages, self._tokenizer, **options)
        rows = np.concatenate([*self._probabilities(items), np.zeros((0, width), np.float32)])
        ends = np.cumsum([len(texts) for texts in paragraphs])
        return [rows[end - len(texts) : end] for texts, end in zip(paragraphs, ends, strict=True)]

    @torch.inference_mode()
    def _probabilities(self, items: SentenceItems) -> list[Probabilities]:
        """(sentences, labels) of each item, in their order; items of one length share a batch."""
        collate = SentenceCollator(self._tokenizer.pad_token_id)
        order = sorted(range(len(items)), key=lambda n: max(map(len, items[n]["input_ids"])))
        found: dict[int, Probabilities] = {}
        while len(found) < len(items):
            batch = order[len(found) :][: self._batch_size(items, order[len(found) :])]
            inputs = collate([{"input_ids": items[n]["input_ids"]} for n in batch])
            logits = self._model(**{name: value.to(self._device) for name, value in inputs.items()})["logits"]
            rows = logits.float().sigmoid().cpu().numpy()
            found |= {n: row[: len(items[n]["input_ids"])] for n, row in zip(batch, rows, strict=True)}
        return [found[n] for n in range(len(items))]

    @staticmethod
    def _batch_size(items: SentenceItems, order: Sequence[int]) -> int:
        """How many of the next items have together as many sentences as fit, at least one."""
        total = 0
        for count, n in enumerate(order[:SENTENCES_AT_ONCE]):
            total += len(items[n]["input_ids"])
            if total > SENTENCES_AT_ONCE:
                return max(1, count)
        return SENTENCES_AT_ONCE

    def worthy(self, paragraphs: Sequence[Sequence[str]]) -> list[list[bool]]:
        """Whether each sentence of each paragraph is worth a question.

        Raises:
            InputError: it is a classifier of types.
        """
        if self.kind == "types":
            raise InputError("a classifier of kind=types does not say which sentences are worthy")
        return [[bool(p >= self.thresholds[0]) for p in rows[:, 0]] for rows in self(paragraphs)]

    def types(self, paragraphs: Sequence[Sequence[str]]) -> list[list[list[str]]]:
        """The types of questions for each sentence of each paragraph, in the order of `labels`; at least one each: the
        most probable.

        Raises:
            InputError: it is no classifier of types.
        """
        if self.kind != "types":
            raise InputError(f"a classifier of kind={self.kind} knows no types; train one with kind=types")
        return [
            [[name for name, chosen in zip(self.labels, row, strict=True) if chosen] for row in rows]
            for rows in (decisions(part, self.thresholds, at_least_one=True) for part in self(paragraphs))
        ]


def decisions(rows: Probabilities, thresholds: Sequence[float], *, at_least_one: bool) -> NDArray[np.bool_]:
    """Which probabilities (sentences, labels) are at least their threshold; with `at_least_one` the most probable
    label where none is.
    """
    chosen = rows >= np.asarray(thresholds, dtype=np.float64)
    if at_least_one and len(rows):
        none = ~chosen.any(axis=1)
        chosen[none, rows[none].argmax(axis=1)] = True
    return np.asarray(chosen, dtype=bool)
