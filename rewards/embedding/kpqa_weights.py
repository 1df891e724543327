"""Keyphrase weights: how likely each token of a text belongs to the answer to a question.

Source: Lee, Yoon, Dernoncourt, Kim, Bui, Shin, Jung, "KPQA: A Metric for Generative Question Answering Using Keyphrase
Weights", NAACL 2021, section 3 (the keyphrase predictor and its weights, KPW), and its released code
(hwanheelee1993/KPQA, `kpw.py`).
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rewards.errors import MetricInputError
from rewards.frozen import FrozenModel, batches_by_length

LABELS = ("keyphrase", "other")
"""Labels of a predictor that `rl-qg train-kpqa` trained, in the order of its classes; the released one has K and O."""

READS_QUESTION = "reads_question"
"""Key of such a predictor's configuration: whether it was trained with questions; others do not have it."""

_NAMES = ("keyphrase", "k")
logger = logging.getLogger(__name__)


class KeyphraseWeights:
    """Weights of a text's tokens, given the question or passage that it belongs to.

    The predictor reads ``<cls> condition <sep> text <sep>``, or ``<cls> text <sep>`` without a condition (the paper's
    ablation without the question); a token's weight is the probability of the class ``keyphrase`` (label `keyphrase`
    or `K`; of two unnamed labels the first, as released). Segments: 0 up to and including the first ``<sep>``, 1
    after it, and 1 for ``<cls>``, as in the released code at scoring time; 0 everywhere without a condition. Where the
    input is too long for the model, the condition is cut at its end, and so is a text that alone is too long; the
    released code fails there. A predictor must be used as it was trained: one trained with questions needs a
    condition, one trained without questions accepts none, and one whose configuration does not say accepts both.

    Args:
        model: a token classifier: the folder of `rl-qg train-kpqa`, or the released checkpoint as safetensors.
        batch_size: texts per forward pass.

    Raises:
        MetricInputError: it has no class of that name, or no special tokens around a text.
    """

    def __init__(self, model: FrozenModel, *, batch_size: int) -> None:
        labels = {int(number): str(name).casefold() for number, name in model.model.config.id2label.items()}
        unnamed = labels == {0: "label_0", 1: "label_1"}
        named = [number for number, name in labels.items() if name in _NAMES]
        if not unnamed and len(named) != 1:
            raise MetricInputError(
                f"kpqa: {model.name!r} has the labels {', '.join(labels.values())} and none for keyphrases; give a "
                "folder of rl-qg train-kpqa"
            )
        if model.tokenizer.cls_token_id is None or model.tokenizer.sep_token_id is None:
            raise MetricInputError(f"kpqa: {model.name!r} has no special tokens around a text; use BERT or RoBERTa")
        self.model = model
        self.batch_size = batch_size
        self.truncated = 0
        """How many inputs were cut at the predictor's length so far."""
        self._class = 0 if unnamed else named[0]

    def check(self, *, conditioned: bool) -> None:
        """Check that the predictor was trained on texts with, or without, a condition.

        Raises:
            MetricInputError: it was trained differently.
        """
        trained_with = getattr(self.model.model.config, READS_QUESTION, None)
        if trained_with is None or trained_with == conditioned:
            return
        if conditioned:
            raise MetricInputError(
                f"kpqa: {self.model.name!r} was trained without questions (the ablation -KP) and cannot read a "
                "condition; use condition=none, or a predictor trained with train_kpqa.question=true"
            )
        raise MetricInputError(
            f"kpqa: {self.model.name!r} was trained with questions and cannot weigh a text without a condition; use "
            "condition=context or answer, or a predictor trained with train_kpqa.question=false"
        )

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, cut at what the predictor can read."""
        room = self.model.max_tokens - 3
        return [ids[:room] for ids in self.model.ids(texts)]

    def __call__(self, texts: Sequence[str], conditions: Sequence[str] | None) -> list[list[float]]:
        """Return one weight for each token (of `tokens`) of each text; ``conditions`` has one text for each, or is
        None.

        Raises:
            MetricInputError: the predictor was trained with conditions and gets none, or the reverse.
        """
        self.check(conditioned=conditions is not None)
        rows, types, lengths = [], [], []
        condition_ids = [None] * len(texts) if conditions is None else self.model.ids(conditions)
        for condition, ids in zip(condition_ids, self.model.ids(texts), strict=True):
            row, segments, kept = predictor_input(self.model.tokenizer, condition, ids, self.model.max_tokens)
            self._note(len(row) < len(ids) + (2 if condition is None else len(condition) + 3))
            rows.append(row)
            types.append(segments)
            lengths.append(kept)
        weights: list[list[float]] = [[]] * len(texts)
        for batch in batches_by_length([len(row) for row in rows], self.batch_size, self.model.tokens_at_once):
            probabilities = self._probabilities([rows[at] for at in batch], [types[at] for at in batch])
            for index, at in enumerate(batch):
                end = len(rows[at]) - 1
                weights[at] = probabilities[index, end - lengths[at] : end].tolist()
        return weights

    def _probabilities(self, rows: list[list[int]], types: list[list[int]]) -> Tensor:
        """Return the probability of the class at each position, [rows, longest] (float64, on the CPU)."""
        ids, lengths = self.model.pad(rows, self.model.tokenizer.pad_token_id or 0)
        mask = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]).long()
        arguments: dict[str, Tensor] = {"input_ids": ids, "attention_mask": mask}
        if getattr(self.model.model.config, "type_vocab_size", 0) > 1:
            arguments["token_type_ids"] = self.model.pad(types)[0]
        logits = self.model.model(**arguments).logits
        return logits.float().softmax(-1)[..., self._class].cpu().double()

    def _note(self, is_cut: bool) -> None:
        if is_cut and not self.truncated:
            logger.warning(
                "kpqa: a text with its condition is longer than the predictor's %d tokens and is cut, the condition "
                "first (logged once; the count is in `truncated`)",
                self.model.max_tokens,
            )
        self.truncated += is_cut


def predictor_input(
    tokenizer: Any, condition: Sequence[int] | None, text: Sequence[int], max_tokens: int
) -> tuple[list[int], list[int], int]:
    """Return the input of a predictor: token ids, segment ids, and how many of the text's tokens are in it (they are
    before the last special token).
    """
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id
    kept = list(text[: max_tokens - 3])
    if condition is None:
        row = [cls, *kept, sep]
        return row, [0] * len(row), len(kept)
    front = list(condition[: max_tokens - 3 - len(kept)])
    return [cls, *front, sep, *kept, sep], [1, *[0] * (len(front) + 1), *[1] * (len(kept) + 1)], len(kept)
