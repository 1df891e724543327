"""Tiny models with random weights and word-level tokenizers, built in memory: no test loads anything from a hub."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from rl_qg.data.examples import Answer, QAExample

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def word_tokenizer(words: str, template: str = "<s> $A </s>") -> PreTrainedTokenizerFast:
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *sorted(set(words.split()))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    specials = [(token, index) for index, token in enumerate(SPECIAL) if token in template]
    tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=specials)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_input_names=["input_ids", "attention_mask"],
    )


def tiny_bart(
    vocab_size: int, *, seed: int = 0, dropout: float = 0.0, hidden: int = 16
) -> BartForConditionalGeneration:
    torch.manual_seed(seed)
    config = BartConfig(
        vocab_size=vocab_size,
        d_model=hidden,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=2 * hidden,
        decoder_ffn_dim=2 * hidden,
        max_position_embeddings=64,
        dropout=dropout,
        init_std=0.3,
        forced_eos_token_id=None,
    )
    return BartForConditionalGeneration(config).eval()


def tiny_t5(vocab_size: int, *, seed: int = 0) -> T5ForConditionalGeneration:
    torch.manual_seed(seed)
    config = T5Config(
        vocab_size=vocab_size,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        dropout_rate=0.0,
        decoder_start_token_id=1,
        pad_token_id=1,
        eos_token_id=2,
        initializer_factor=3.0,
    )
    return T5ForConditionalGeneration(config).eval()


def example(context: str, answer: str, question: str, id: str = "x", start: int | None = None) -> QAExample:
    at = context.index(answer) if start is None else start
    return QAExample(id, "title", context, question, (Answer(answer, at),))
