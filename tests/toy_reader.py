"""A toy reading task, tiny readers with random weights, and a run of the QA stage on them."""

import random
from dataclasses import replace
from pathlib import Path

from transformers import BertModel, DistilBertForMaskedLM, PreTrainedTokenizerFast

from rl_qg.data.examples import Answer, QAExample
from rl_qg.readers.train_reader import train_reader
from rl_qg.settings import QAModelSettings, QASettings
from tests.tiny_models import piece_tokenizer, save, tiny

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
    return piece_tokenizer(["which", "?", *KINDS, *FILLER, *WORDS], model_max_length=64, **options)


def save_distilbert(folder: Path, *, dropout: float = 0.0, size: int = 64) -> Path:
    """A language model with random weights: as with a real checkpoint, the span head is new."""
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "attention_mask"])
    # a small spread, so that attention learns within a hundred steps
    sizes = {"hidden": size, "layers": 2, "heads": 4, "spread": 0.1, "dropout": dropout}
    save(folder, tokenizer, tiny(DistilBertForMaskedLM, len(tokenizer), **sizes))
    return folder


def save_bert(folder: Path) -> Path:
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"])
    # three labels, left over from a classifier: they must not become the width of the span head
    model = tiny(BertModel, len(tokenizer), hidden=64, layers=2, heads=4, spread=0.1, num_labels=3)
    save(folder, tokenizer, model)
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
