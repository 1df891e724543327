"""Pretraining objectives of the miniatures: each turns a batch of passages into model inputs with labels.

The objectives are those of the full-size models: text infilling (BART, T5), masked tokens (BERT, RoBERTa, DistilBERT)
and next tokens (GPT-2). Generators also learn cloze. Sentences and questions are shown together with their passage,
because the metrics and the reader see a question together with a passage.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from rl_qg.generation.prompts import HIGHLIGHT
from rl_qg.text.spans import sentence_texts

Batch = dict[str, Tensor]


@dataclass(frozen=True)
class PretrainingPassage:
    """A training passage and its known questions (none for an unlabelled passage)."""

    context: str
    questions: tuple[str, ...] = ()


def _unit(passage: PretrainingPassage, rng: random.Random) -> str:
    """A sentence of the passage; half of the time a known question instead, if there is one."""
    if passage.questions and rng.random() < 0.5:
        return rng.choice(passage.questions)
    return rng.choice(sentence_texts(passage.context))


def infilling_and_cloze(
    tokenizer: PreTrainedTokenizerFast, max_tokens: int
) -> Callable[[list[PretrainingPassage]], Batch]:
    """Cloze (70 %) and text infilling (BART, 30 %).

    Infilling restores one sentence or question in which each masked span is a single mask token, alone or within its
    passage. Cloze marks a few words of the passage as `<hl> answer <hl>`, exactly as in the input of a question
    generator; the target is the sentence with a mask in place of these words.
    """
    rng = random.Random(0)

    def collate(passages: list[PretrainingPassage]) -> Batch:
        pairs = [_cloze(p, tokenizer, rng) if rng.random() < 0.7 else _infill(p, tokenizer, rng) for p in passages]
        sources, targets = zip(*pairs, strict=True)
        options = {"truncation": True, "max_length": max_tokens, "padding": True, "return_tensors": "pt"}
        batch = tokenizer(list(sources), **options)
        labels = tokenizer(text_target=list(targets), **options)
        batch["labels"] = labels["input_ids"].masked_fill(labels["attention_mask"] == 0, -100)
        return dict(batch)

    return collate


def _infill(passage: PretrainingPassage, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> tuple[str, str]:
    unit = _unit(passage, rng)
    masked = _mask_spans(unit.split(" "), tokenizer.mask_token, rng)
    before, match, after = passage.context.partition(unit)
    return (before + masked + after if match and rng.random() < 0.5 else masked), unit


def _cloze(passage: PretrainingPassage, tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> tuple[str, str]:
    sentence = rng.choice(sentence_texts(passage.context))
    words = sentence.split(" ")
    first = rng.randrange(len(words))
    last = min(len(words), first + rng.randint(1, 3))
    head, answer, tail = (" ".join(part) for part in (words[:first], words[first:last], words[last:]))
    before, _, after = passage.context.partition(sentence)
    marked = f"{HIGHLIGHT} {answer} {HIGHLIGHT}"
    source = before + " ".join(part for part in (head, marked, tail) if part) + after
    return source, " ".join(part for part in (head, tokenizer.mask_token, tail) if part)


def _mask_spans(words: list[str], mask: str, rng: random.Random) -> str:
    """Replace about a third of the words, in spans of one to four, each span by one mask."""
    output: list[str] = []
    position = 0
    while position < len(words):
        if rng.random() < 0.15:
            position += rng.randint(1, 4)
            output.append(mask)
        else:
            output.append(words[position])
            position += 1
    return " ".join(output)


def masked_tokens(tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> Callable[[list[PretrainingPassage]], Batch]:
    """Masked tokens (BERT, RoBERTa) of `unit [SEP] passage`: 30 % of the unit's tokens, 10 % of the passage's."""
    rng = random.Random(0)
    special = torch.tensor(tokenizer.all_special_ids)

    def collate(passages: list[PretrainingPassage]) -> Batch:
        units = [_unit(passage, rng) for passage in passages]
        contexts = [passage.context for passage in passages]
        batch = tokenizer(
            units, contexts, truncation="longest_first", max_length=max_tokens, padding=True, return_tensors="pt"
        )
        ids = batch["input_ids"]
        second = torch.tensor([[part == 1 for part in batch.sequence_ids(row)] for row in range(len(units))])
        chosen = torch.rand(ids.shape) < torch.where(second, 0.1, 0.3)
        chosen &= ~torch.isin(ids, special)
        batch["labels"] = ids.masked_fill(~chosen, -100)
        batch["input_ids"] = ids.masked_fill(chosen & (torch.rand(ids.shape) < 0.9), tokenizer.mask_token_id)
        return dict(batch)

    return collate


def next_tokens(tokenizer: PreTrainedTokenizerFast, max_tokens: int) -> Callable[[list[PretrainingPassage]], Batch]:
    """Next tokens (GPT-2) of the passage, alone or after one of its sentences or questions."""
    rng = random.Random(0)

    def collate(passages: list[PretrainingPassage]) -> Batch:
        rows = []
        for passage in passages:
            text = passage.context if rng.random() < 0.25 else f"{_unit(passage, rng)} {passage.context}"
            ids = tokenizer(text, truncation=True, max_length=max_tokens - 2)["input_ids"]
            rows.append(torch.tensor([tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]))
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=tokenizer.eos_token_id)
        lengths = torch.tensor([len(row) for row in rows])
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        return {"input_ids": ids, "attention_mask": real.long(), "labels": ids.masked_fill(~real, -100)}

    return collate
