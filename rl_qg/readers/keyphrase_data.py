"""What the keyphrase predictor of KPQA learns from: questions, the sentences with their answers, and token labels.

Source: Lee et al., "KPQA: A Metric for Generative Question Answering Using Keyphrase Weights" (NAACL 2021), section 3.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedTokenizerBase

from rewards.embedding.kpqa_weights import LABELS, predictor_input
from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.token_classifier import IGNORED, TokenLabelCollator
from rl_qg.text.spans import sentences

KEYPHRASE, OTHER = range(len(LABELS))
EXAMPLES_AT_ONCE = 1024


@dataclass(frozen=True)
class AnsweredSentence:
    """A question, the sentence (or sentences) that holds its answer, and where in it the answer is; `source` is the
    data set of the question.
    """

    question: str
    text: str
    start: int
    end: int
    source: str = ""


class KeyphraseItems(Dataset[dict[str, Any]]):
    """Model inputs with labels, not padded yet: `input_ids`, `token_type_ids`, `labels`.

    Labels are `KEYPHRASE` for tokens of the sentence that touch the answer, `OTHER` for the rest of it, and ignored
    for the question and the special tokens. Without `question` the sentence is alone (the paper's ablation -KP).
    Examples whose answer is cut off at `max_length` are left out and counted in `without_answer`; those without a
    question, where questions are read, in `without_question`.

    The released code (`utils.py`, `convert_examples_to_features`) labels the first word piece of each word and ignores
    the others. Here every piece has a label, because a continuation piece's weight counts in the metrics as any other.
    """

    def __init__(
        self,
        examples: Sequence[QAExample],
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_length: int,
        question: bool = True,
    ) -> None:
        usable = [example for example in examples if example.question.strip() or not question]
        self.question = question
        self.without_question = len(examples) - len(usable)
        self.without_answer = 0
        self.sentences: list[AnsweredSentence] = []
        self._items: list[dict[str, Any]] = []
        for begin in range(0, len(usable), EXAMPLES_AT_ONCE):
            batch = [answered_sentence(example) for example in usable[begin : begin + EXAMPLES_AT_ONCE]]
            for sentence, item in zip(batch, _labelled(batch, tokenizer, max_length, question), strict=True):
                if KEYPHRASE in item["labels"]:
                    self.sentences.append(sentence)
                    self._items.append(item)
                else:
                    self.without_answer += 1

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._items[index]

    def counts(self) -> dict[str, int]:
        """Numbers of examples used and left out."""
        return {
            "used": len(self),
            "without_question": self.without_question,
            "without_answer": self.without_answer,
        }


def answered_sentence(example: QAExample) -> AnsweredSentence:
    """The sentence of the context that holds the first answer; all sentences that it touches where it crosses ends.

    Of a multi-hop question it is the whole context: its supporting sentences (section 3.1 of the paper, which first
    resolves their coreferences by SpanBERT; that is not done here).
    """
    answer: Answer = example.answers[0]
    end = answer.start + len(answer.text)
    first, last = 0, len(example.context)
    if not example.multi_hop:
        touched = [span for span in sentences(example.context) if span[0] < end and span[1] > answer.start]
        first, last = touched[0][0], touched[-1][1]
    text = example.context[first:last]
    first += len(text) - len(text.lstrip())
    begin = max(0, answer.start - first)
    return AnsweredSentence(example.question, text.strip(), begin, end - first, example.source)


def _labelled(
    batch: Sequence[AnsweredSentence], tokenizer: PreTrainedTokenizerBase, max_length: int, question: bool
) -> list[dict[str, Any]]:
    options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
    fronts: list[list[int] | None] = [None] * len(batch)
    if question:
        fronts = tokenizer([sentence.question for sentence in batch], **options)["input_ids"]
    texts = tokenizer([sentence.text for sentence in batch], return_offsets_mapping=True, **options)
    items = []
    for sentence, front, ids, offsets in zip(batch, fronts, texts["input_ids"], texts["offset_mapping"], strict=True):
        row, types, kept = predictor_input(tokenizer, front, ids, max_length)
        labels = [
            KEYPHRASE if start < sentence.end and end > sentence.start else OTHER for start, end in offsets[:kept]
        ]
        unlabelled = [IGNORED] * (len(row) - kept - 1)
        items.append({"input_ids": row, "token_type_ids": types, "labels": [*unlabelled, *labels, IGNORED]})
    return items


@dataclass(frozen=True)
class KeyphraseCollator(TokenLabelCollator):
    """Pads `input_ids`, `attention_mask`, `labels` and, for models that have segments, `token_type_ids`, each (batch,
    longest).
    """

    has_segments: bool

    def __call__(self, items: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        """Return the batch of `items`."""
        batch = super().__call__(items)
        if self.has_segments:
            batch["token_type_ids"] = torch.nn.utils.rnn.pad_sequence(
                [torch.as_tensor(item["token_type_ids"]) for item in items], batch_first=True
            )
        return batch
