"""What a causal generator reads: the passage with its answer marked, then a separator, behind which it writes the
question.

TRL's trainers tokenise the text of a prompt themselves, so here a prompt is a text, and one that is too long is cut as
text: to the longest stretch around the answer whose tokens fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_qg.data.examples import QAExample, as_example
from rl_qg.generation.prompts import HIGHLIGHT, PromptEncoder, Source, highlight


class CausalPromptEncoder(PromptEncoder):
    """Turns examples into prompts, and into batches: padded on the left to generate from, on the right with the
    question behind them to learn from.

    `prompt.separator` ends every prompt. `prompt.max_source_length` counts all of the prompt's tokens.
    """

    def texts(self, examples: Sequence[QAExample]) -> list[str]:
        """The prompt of each example, cut to fit around the answer where it is too long."""
        return [text for text, _ in self._prompts(examples)]

    def sources(self, examples: Sequence[QAExample]) -> list[Source]:
        """Token ids of each prompt."""
        return [source for _, source in self._prompts(examples)]

    def _prompts(self, examples: Sequence[QAExample]) -> list[tuple[str, Source]]:
        wholes = [self._around(highlight(example)) for example in examples]
        encoded = self.tokenizer(wholes, verbose=False)["input_ids"]
        return [
            (whole, Source(ids, 0, False))
            if len(ids) <= self.prompt.max_source_length
            else self._cut(example, len(ids))
            for example, whole, ids in zip(examples, wholes, encoded, strict=True)
        ]

    def _cut(self, example: QAExample, length: int) -> tuple[str, Source]:
        """The prompt with the longest stretch around the answer that fits, found by halving."""
        passage = highlight(example)
        first, last = passage.index(HIGHLIGHT), passage.rindex(HIGHLIGHT) + len(HIGHLIGHT)
        fits, too_long = 0, len(passage)
        while too_long - fits > 1:
            size = (fits + too_long) // 2
            if len(self._ids(_stretch(passage, first, last, size))) <= self.prompt.max_source_length:
                fits = size
            else:
                too_long = size
        stretch = _stretch(passage, first, last, fits)
        ids = self._ids(stretch)
        return self._around(stretch), Source(ids, length - len(ids), fits < last - first)

    def _around(self, passage: str) -> str:
        return f"{self.prompt.prefix}{passage}{self.prompt.separator}"

    def _ids(self, passage: str) -> list[int]:
        return self.tokenizer(self._around(passage), verbose=False)["input_ids"]

    def targets(self, examples: Sequence[QAExample]) -> list[list[int]]:
        """Token ids of each gold question and the end token; a longer question is cut, its end token stays."""
        texts = [f" {example.question}" for example in examples]
        rows = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [[*row[: self.prompt.max_target_length - 1], self.tokenizer.eos_token_id] for row in rows]

    def batch(self, examples: Sequence[QAExample]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask` of the prompts, both (batch, prompt length), padded on the left."""
        rows = [source.ids[::-1] for source in self.sources(examples)]
        return {name: tensor.flip(-1) for name, tensor in self._pad(rows).items()}

    def __call__(self, rows: Sequence[QAExample | Mapping[str, Any]]) -> dict[str, object]:
        """Collate prompts with their questions: `input_ids`, `attention_mask`, `labels` (-100 in the prompt and at
        padding), padded on the right, and the `examples`.
        """
        examples = [as_example(row) for row in rows]
        prompts, targets = [source.ids for source in self.sources(examples)], self.targets(examples)
        inputs = self._pad([prompt + target for prompt, target in zip(prompts, targets, strict=True)])
        behind = torch.arange(inputs["input_ids"].shape[1]) >= torch.tensor([len(ids) for ids in prompts])[:, None]
        question = behind & inputs["attention_mask"].bool()
        labels = inputs["input_ids"].masked_fill(~question, -100)
        return {**inputs, "labels": labels, "examples": examples}


def _stretch(passage: str, first: int, last: int, size: int) -> str:
    """`size` characters of the passage, as far as possible with the marked answer (`first` to `last`) in their middle;
    of an answer that is longer than that, the beginning. Words at the edges stay whole.
    """
    if size <= last - first:
        return passage[first : first + size]
    start = min(max((first + last - size) // 2, 0), len(passage) - size)
    end = start + size
    if start > 0 and not passage[start - 1].isspace():
        start = next((at + 1 for at in range(start, first) if passage[at].isspace()), start)
    if end < len(passage) and not passage[end].isspace():
        end = next((at for at in range(end - 1, last - 1, -1) if passage[at].isspace()), end)
    return passage[start:end]


def positions_of(mask: Tensor) -> Tensor:
    """Position of each token in its own text, whatever is padded before it: (b, t) from an attention mask (b, t)."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)
