"""A toy reading task, tiny readers with random weights, and a run of the QA stage on them."""

import random
from dataclasses import replace
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    PreTrainedTokenizerFast,
)

from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.stage import train_reader
from rl_qg.settings import QAModelSettings, QASettings

KINDS = {
    "animal": ["fox", "cat", "owl", "bee", "old horse"],
    "colour": ["red", "blue", "deep green", "pink"],
    "city": ["paris", "rome", "new york", "oslo"],
}
FILLER = ["the", "saw", "and", "near", "a", "ran", "to", "was", "very"]
WORDS = sorted({word for phrases in KINDS.values() for phrase in phrases for word in phrase.split()})


def toy_examples(count: int, seed: int) -> list[QAExample]:
    """Passages with one animal, one colour and one city in any order; each question asks for one of the three."""
    rng = random.Random(seed)
    examples = []
    for number in range(count):
        chosen = {kind: rng.choice(phrases) for kind, phrases in KINDS.items()}
        pieces = [*chosen.values(), *rng.choices(FILLER, k=8)]
        rng.shuffle(pieces)
        asked = rng.choice(list(KINDS))
        start = len(" ".join(pieces[: pieces.index(chosen[asked])]))
        answer = Answer(chosen[asked], start + (start > 0))
        examples.append(QAExample(f"q{number}", "toy", " ".join(pieces), f"which {asked} ?", (answer,)))
    return examples


def toy_tokenizer(**options) -> PreTrainedTokenizerFast:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = [*special, "which", "?", *KINDS, *FILLER, *WORDS]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names, **options)


def save_distilbert(folder: Path, *, dropout: float = 0.0, size: int = 64) -> Path:
    """A language model with random weights: as with a real checkpoint, the span head is new."""
    torch.manual_seed(0)
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "attention_mask"])
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=size,
        n_layers=2,
        n_heads=4,
        hidden_dim=2 * size,
        max_position_embeddings=64,
        initializer_range=0.1,  # so that attention learns within a hundred steps
        dropout=dropout,
        attention_dropout=dropout,
        qa_dropout=dropout,
    )
    DistilBertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def save_bert(folder: Path) -> Path:
    torch.manual_seed(0)
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        initializer_range=0.1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=3,  # a classifier's left-over, which must not become the width of the span head
    )
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def toy_settings(model: Path, **changes) -> QASettings:
    base = QASettings(
        model=QAModelSettings(str(model)),
        epochs=2,
        learning_rate=3e-3,
        batch_size=16,
        max_length=32,
        doc_stride=8,
        max_answer_length=4,
        save_steps=3,
        seeds=[0],
    )
    return replace(base, **changes)


def run(output: Path, settings: QASettings, train=None, validation=None, **options) -> dict:
    train, validation = train or toy_examples(48, 1), validation or toy_examples(24, 2)
    return train_reader(train, validation, settings=settings, output_dir=output, use_cpu=True, **options)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
