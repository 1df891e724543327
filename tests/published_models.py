"""Tiny models with the configurations and tokenizers of published question generators."""

import string
from pathlib import Path

from transformers import T5Tokenizer

from tests.tiny_models import save, tiny_t5

LMQG = ("lmqg", "research-backup")
TOKENS = {"valhalla": ["<sep>", "<hl>"], "iarfmoose": ["<answer>", "<context>"]}


def t5_tokenizer(publisher: str) -> T5Tokenizer:
    """T5's tokenizer (SentencePiece's unigrams) over letters and a few words, with the tokens of a publisher, added as
    they were added there.
    """
    words = ["▁question", "▁answer", "▁context", "▁|", "▁a", "▁the", "▁", *string.ascii_letters, *string.digits]
    pieces = [*words, *(mark for mark in string.punctuation if mark not in "<>")]
    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *((piece, -2.0) for piece in dict.fromkeys(pieces))]
    tokenizer = T5Tokenizer(vocab=vocabulary, extra_ids=0)
    if publisher == "potsawee":
        tokenizer.add_special_tokens({"sep_token": "<sep>"})
    elif publisher in LMQG:
        tokenizer.add_special_tokens({"extra_special_tokens": ["<hl>"]})
    else:
        tokenizer.add_tokens(TOKENS.get(publisher, []))
    return tokenizer


def published(folder: Path, name: str) -> str:
    """A folder of a tiny T5 with a published name, such as `lmqg/t5-base-squad-qag`; its path."""
    publisher = name.partition("/")[0]
    tokenizer = t5_tokenizer(publisher)
    config = {"add_prefix": True} if publisher in LMQG else {}
    special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    return save(folder / name, tokenizer, tiny_t5(len(tokenizer) + 8, **special, **config))
