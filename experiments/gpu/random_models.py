"""Models of the published sizes with random weights, and made-up text: speed does not depend on either.

A word of the made-up text is a token of every model (`step.tokenizer`). The miniatures that come with the package,
and the embedded corpus, are there for what depends on the values.
"""

import argparse
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from models import BUILDERS
from step import SIZES, VOCABULARY, examples, tokenizer
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
    T5Config,
    T5ForConditionalGeneration,
)

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample

Rows = dict[str, list[str]]  # questions, contexts and answers; the questions about one context side by side
TEMPLATE = "<s> $A </s>"


@dataclass(frozen=True)
class Generator:
    """The size of an encoder-decoder: width, layers of each stack and heads, entries of the vocabulary."""

    family: str
    shape: tuple[int, int, int]
    vocabulary: int = VOCABULARY

    def build(self, dropout: float = 0.0) -> PreTrainedModel:
        torch.manual_seed(0)
        return (self._t5 if self.family == "t5" else self._bart)(dropout)

    def _bart(self, dropout: float) -> PreTrainedModel:
        width, layers, heads = self.shape
        config = BartConfig(
            vocab_size=self.vocabulary,
            d_model=width,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=4 * width,
            decoder_ffn_dim=4 * width,
            dropout=dropout,
            forced_eos_token_id=None,
        )
        return BartForConditionalGeneration(config)

    def _t5(self, dropout: float) -> PreTrainedModel:
        width, layers, heads = self.shape
        config = T5Config(
            vocab_size=self.vocabulary,
            d_model=width,
            d_ff=4 * width,
            d_kv=width // heads,
            num_layers=layers,
            num_decoder_layers=layers,
            num_heads=heads,
            dropout_rate=dropout,
            pad_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
        )
        return T5ForConditionalGeneration(config)

    def words(self) -> PreTrainedTokenizerFast:
        return tokenizer(self.vocabulary, TEMPLATE)


FULL = {
    "bart-base": Generator("bart", SIZES["base"]),
    "bart-large": Generator("bart", (1024, 12, 16)),
    "t5-base": Generator("t5", (768, 12, 12), 32128),
}
TINY = {
    "bart-base": Generator("bart", SIZES["tiny"]),
    "t5-base": Generator("t5", SIZES["tiny"], 32128),
}


def generators(size: str) -> dict[str, Generator]:
    """By their published names; tiny ones keep the names."""
    return TINY if size == "tiny" else FULL


def settings(batch: int, tokens: tuple[int, int], steps: int = 2) -> argparse.Namespace:
    """What `step.ours` and `step.operations` read: `tokens` of a context and of a question."""
    context, new = tokens
    return argparse.Namespace(
        batch=batch,
        context_tokens=context,
        new_tokens=new,
        steps=steps,
        precision="no",
        samples=1,
        baseline="greedy",
    )


# --- models of rewards


_NARROW: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
_TINY_BUILDERS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert-base": lambda: BertForMaskedLM(BertConfig(vocab_size=28996, intermediate_size=64, **_NARROW)),
    "distilbert-base": lambda: DistilBertForQuestionAnswering(
        DistilBertConfig(vocab_size=28996, dim=32, n_layers=2, n_heads=2, hidden_dim=64)
    ),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)),
    "roberta-large": lambda: RobertaForMaskedLM(
        RobertaConfig(vocab_size=50265, intermediate_size=64, max_position_embeddings=514, pad_token_id=1, **_NARROW)
    ),
    "bart-base": lambda: TINY["bart-base"].build(),
}


def saved(name: str, folder: Path, size: str) -> str:
    """The folder of a model of that name, written if it is not there; it is whole or absent."""
    target = folder / size / name
    if not target.is_dir():
        torch.manual_seed(0)
        partial = target.with_name(f".{name}.part")
        shutil.rmtree(partial, ignore_errors=True)
        model = (_TINY_BUILDERS if size == "tiny" else BUILDERS)[name]()
        model.save_pretrained(partial)
        tokenizer(model.config.vocab_size, "$A" if name == "gpt2" else TEMPLATE).save_pretrained(partial)
        partial.replace(target)
    return str(target)


# --- rows to score


def made_up_rows(contexts: int, candidates: int, size: str) -> Rows:
    """Contexts of 192 words, questions of 16 and answers of 3, of the made-up text; a tenth of that for `tiny`."""
    words = (20, 4, 1) if size == "tiny" else (192, 16, 3)
    found: Rows = {"questions": [], "contexts": [], "answers": []}
    asked = iter(examples(contexts * candidates, words[0] + 4, words[1] + 2))
    for group in ([next(asked) for _ in range(candidates)] for _ in range(contexts)):
        context = group[0].context
        found["questions"] += [example.question for example in group]
        found["contexts"] += [context] * candidates
        found["answers"] += [" ".join(context.split()[5 : 5 + words[2]])] * candidates
    return found


def corpus_rows(contexts: int, candidates: int) -> Rows:
    """Passages of the embedded corpus, each with one answer: its question, others about the passage, and strange
    ones.
    """
    by_context: dict[str, list[QAExample]] = {}
    for example in synthetic_examples(contexts, seed=0, prefix="gpu"):
        by_context.setdefault(example.context, []).append(example)
    draw, spare = random.Random(0), [one.question for group in by_context.values() for one in group]
    found: Rows = {"questions": [], "contexts": [], "answers": []}
    for context, group in by_context.items():
        asked = [example.question for example in group][:candidates]
        found["questions"] += asked + draw.sample(spare, candidates - len(asked))
        found["contexts"] += [context] * candidates
        found["answers"] += [group[0].answers[0].text] * candidates
    return found
