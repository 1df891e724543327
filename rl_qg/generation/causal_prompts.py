"""The input of a causal generator: the passage with its answer marked, then a separator; the question follows.

TRL's trainers tokenise the text of a prompt themselves. So a prompt is a text, and one that is too long is cut as
text, to the longest part around the answer whose tokens fit.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_qg.data.examples import QAExample, as_example
from rl_qg.generation.prompts import HIGHLIGHT, EncodedPrompt, PromptEncoder, highlight


class CausalPromptEncoder(PromptEncoder):
    """Turns examples into prompts and batches: padded on the left for generation, and on the right with the question
    after the prompt for training.

    `prompt.separator` ends every prompt. `prompt.max_source_length` counts all of the prompt's tokens. One that is too
    long is cut around what is marked, or at its end if nothing is.
    """

    def texts(self, examples: Sequence[QAExample]) -> list[str]:
        """The prompt of each example; one that is too long is cut."""
        return [text for text, _ in self._prompts(examples)]

    def encode(self, examples: Sequence[QAExample]) -> list[EncodedPrompt]:
        """Token ids of each prompt."""
        return [source for _, source in self._prompts(examples)]

    def _prompts(self, examples: Sequence[QAExample]) -> list[tuple[str, EncodedPrompt]]:
        examples = [self._with_mark(example) for example in examples]
        texts = [self._prompt(highlight(example)) for example in examples]
        encoded = self.tokenizer(texts, verbose=False)["input_ids"]
        return [
            (text, EncodedPrompt(ids, 0, False))
            if len(ids) <= self.prompt.max_source_length
            else self._cut(example, len(ids))
            for example, text, ids in zip(examples, texts, encoded, strict=True)
        ]

    def _cut(self, example: QAExample, length: int) -> tuple[str, EncodedPrompt]:
        """The prompt with the longest part around the answer that fits, found by bisection."""
        passage = highlight(example)
        first, last = 0, 0
        if example.answers:
            first, last = passage.index(HIGHLIGHT), passage.rindex(HIGHLIGHT) + len(HIGHLIGHT)
        fits, too_long = 0, len(passage)
        while too_long - fits > 1:
            size = (fits + too_long) // 2
            if len(self._ids(_part_around(passage, first, last, size))) <= self.prompt.max_source_length:
                fits = size
            else:
                too_long = size
        part = _part_around(passage, first, last, fits)
        ids = self._ids(part)
        return self._prompt(part), EncodedPrompt(ids, length - len(ids), fits < last - first)

    def _prompt(self, passage: str) -> str:
        return f"{self.prompt.prefix}{passage}{self.prompt.separator}"

    def _ids(self, passage: str) -> list[int]:
        return self.tokenizer(self._prompt(passage), verbose=False)["input_ids"]

    def targets(self, examples: Sequence[QAExample]) -> list[list[int]]:
        """Token ids of each gold question and the end token; a longer question is cut before the end token."""
        texts = [f" {example.question}" for example in examples]
        rows = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        return [[*row[: self.prompt.max_target_length - 1], self.tokenizer.eos_token_id] for row in rows]

    def batch(self, examples: Sequence[QAExample]) -> dict[str, Tensor]:
        """`input_ids` and `attention_mask` of the prompts, both (batch, prompt length), padded on the left."""
        rows = [source.ids[::-1] for source in self.encode(examples)]
        return {name: tensor.flip(-1) for name, tensor in self._pad(rows).items()}

    def __call__(self, rows: Sequence[QAExample | Mapping[str, Any]]) -> dict[str, object]:
        """Collate prompts with their questions: `input_ids`, `attention_mask`, `labels` (-100 in the prompt and at
        padding), padded on the right, and the `examples`.
        """
        examples = [as_example(row) for row in rows]
        prompts, targets = [source.ids for source in self.encode(examples)], self.targets(examples)
        inputs = self._pad([prompt + target for prompt, target in zip(prompts, targets, strict=True)])
        after_prompt = (
            torch.arange(inputs["input_ids"].shape[1]) >= torch.tensor([len(ids) for ids in prompts])[:, None]
        )
        question = after_prompt & inputs["attention_mask"].bool()
        labels = inputs["input_ids"].masked_fill(~question, -100)
        return {**inputs, "labels": labels, "examples": examples}


def _part_around(passage: str, first: int, last: int, size: int) -> str:
    """`size` characters of the passage with the marked answer (`first` to `last`) as near the middle as possible; of a
    longer answer its beginning. Words at the edges are not split.
    """
    if size <= last - first:
        return passage[first : first + size]
    start = min(max((first + last - size) // 2, 0), len(passage) - size)
    end = start + size
    if start > 0 and not passage[start - 1].isspace():
        start = next((index + 1 for index in range(start, first) if passage[index].isspace()), start)
    if end < len(passage) and not passage[end].isspace():
        end = next((index for index in range(end - 1, last - 1, -1) if passage[index].isspace()), end)
    return passage[start:end]


def positions_of(mask: Tensor) -> Tensor:
    """Position of each token in its text, not counting padding before it: (b, t) from an attention mask (b, t)."""
    return (mask.long().cumsum(-1) - 1).clamp(min=0)
