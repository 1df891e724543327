"""Models of the published sizes with random weights, and rows of real length: speed does not depend on the values."""

import gzip
import json
import random
from pathlib import Path

import torch
from transformers import (
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForQuestionAnswering,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaForMaskedLM,
)

BUILDERS = {
    "bert-base": lambda: BertForMaskedLM(BertConfig(vocab_size=28996)),
    "distilbert-base": lambda: DistilBertForQuestionAnswering(DistilBertConfig(vocab_size=28996)),
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0)),
    "roberta-large": lambda: RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=50265,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            max_position_embeddings=514,
            type_vocab_size=1,
            pad_token_id=1,
        )
    ),
    "bart-base": lambda: BartForConditionalGeneration(
        BartConfig(
            vocab_size=50265,
            d_model=768,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=12,
            decoder_attention_heads=12,
            encoder_ffn_dim=3072,
            decoder_ffn_dim=3072,
            forced_eos_token_id=None,
        )
    ),
}


def build(name: str, folder: Path, tokenizers: Path) -> str:
    """Save a model of that size with random weights and a real tokenizer of the same kind; return its folder."""
    target = folder / name
    if not (target / "config.json").is_file():
        torch.manual_seed(0)
        kind = name.split("-")[0].removeprefix("distil")
        tokenizer = AutoTokenizer.from_pretrained(tokenizers / f"tiny-{kind}", trust_remote_code=False)
        tokenizer.save_pretrained(target)
        BUILDERS[name]().save_pretrained(target)
    return str(target)


def rows(source: Path, contexts: int, candidates: int, seed: int = 0) -> dict[str, list[str]]:
    """Return `contexts` passages drawn from a SQuAD file, each with `candidates` questions and an answer of its own.

    A passage's own questions come first; where it has too few, those of other passages fill up.
    """
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt", encoding="utf-8") as stream:
        articles = json.load(stream)["data"]
    passages = [paragraph for article in articles for paragraph in article["paragraphs"] if paragraph["qas"]]
    draw = random.Random(seed)
    spare = [qa["question"] for passage in passages for qa in passage["qas"]]
    found: dict[str, list[str]] = {"questions": [], "contexts": [], "answers": []}
    for passage in draw.sample(passages, contexts):
        own = [qa["question"] for qa in passage["qas"]][:candidates]
        own += draw.sample(spare, candidates - len(own))
        for at, question in enumerate(own):
            found["questions"].append(question)
            found["contexts"].append(passage["context"])
            found["answers"].append(passage["qas"][at % len(passage["qas"])]["answers"][0]["text"])
    return found
