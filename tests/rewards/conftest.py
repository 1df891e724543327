"""Tiny models with random weights, saved as folders, and the golden numbers where they are at hand."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden"

TEXT = [
    "The town of Arlen was founded in 1204 by Ida Koll, who built its first mill on the river Esk.",
    "Who founded the town? When was the mill built, and where did the river flow?",
    "A lighthouse keeper named Tomas Brandt wrote the novel The Grey Shore during the winter of 1931.",
]
WHITE_SPACE = "mill   \t\n" * 40  # so that runs of white space become tokens, as in the published vocabularies
ROBERTA_SPECIALS = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def byte_level(specials: list[str], roles: dict[str, str]) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([*TEXT, WHITE_SPACE], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def word_piece() -> PreTrainedTokenizerFast:
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        TEXT, trainers.WordPieceTrainer(vocab_size=150, special_tokens=specials, show_progress=False)
    )
    roles = dict(zip(["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"], specials, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **roles)


def roberta_tokenizer() -> PreTrainedTokenizerFast:
    names = ["bos_token", "pad_token", "eos_token", "unk_token", "mask_token"]
    roles = dict(zip(names, ROBERTA_SPECIALS, strict=True))
    return byte_level(ROBERTA_SPECIALS, {**roles, "cls_token": "<s>", "sep_token": "</s>"})


def save(folder: Path, tokenizer, model) -> str:
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, str]:
    """Folders of a BERT (40 positions), GPT-2 (48), RoBERTa (56 usable) and BART (40): limits are reached soon."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(5)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    tokenizers = {
        "bert": word_piece(),
        "gpt2": byte_level(["<|endoftext|>"], {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
        "roberta": roberta_tokenizer(),
        "bart": roberta_tokenizer(),
    }
    vocabulary = {name: len(tokenizer) for name, tokenizer in tokenizers.items()}
    bart = BartConfig(
        vocab_size=vocabulary["bart"],
        d_model=16,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_position_embeddings=40,
        init_std=0.4,
        forced_eos_token_id=None,
    )
    built = {
        "bert": BertForMaskedLM(
            BertConfig(vocab_size=vocabulary["bert"], max_position_embeddings=40, initializer_range=0.4, **sizes)
        ),
        "gpt2": GPT2LMHeadModel(
            GPT2Config(
                vocab_size=vocabulary["gpt2"],
                n_embd=16,
                n_layer=2,
                n_head=2,
                n_positions=48,
                initializer_range=0.4,
                bos_token_id=0,
                eos_token_id=0,
            )
        ),
        "roberta": RobertaForMaskedLM(
            RobertaConfig(
                vocab_size=vocabulary["roberta"],
                max_position_embeddings=58,
                initializer_range=0.4,
                pad_token_id=1,
                bos_token_id=0,
                eos_token_id=2,
                type_vocab_size=1,
                **sizes,
            )
        ),
        "bart": BartForConditionalGeneration(bart),
    }
    return {name: save(root / name, tokenizers[name], model) for name, model in built.items()}


@pytest.fixture(scope="session")
def rows() -> dict[str, list]:
    """Questions, contexts, answers and references of very different lengths; two contexts exceed every model."""
    contexts = [TEXT[0], TEXT[2], " ".join(TEXT), TEXT[0], "Arlen lies on the Esk.", " ".join(TEXT[::-1])]
    questions = [
        "Who founded the town of Arlen?",
        "What did Tomas Brandt write in 1931?",
        "When was the mill built?",
        "Where?",
        "Who wrote the novel The Grey Shore, and when, and why was it written at all?",
        "Who?",
    ]
    answers = ["Ida Koll", "The Grey Shore", "1204", "river Esk", "Tomas Brandt", "the winter of 1931"]
    references = [["Who built the first mill?", "Who was Ida Koll?"], *[[text] for text in reversed(questions[1:])]]
    return {"questions": questions, "contexts": contexts, "answers": answers, "references": references}


@pytest.fixture(scope="session")
def golden() -> list[dict]:
    """Cases with numbers of the published implementations; see the README beside them."""
    path = GOLDEN / "fixtures" / "qg_cases.jsonl"
    if not path.is_file():
        pytest.skip("the golden numbers (../shared/golden) are not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def golden_models(golden) -> dict[str, str]:
    return {name: str(GOLDEN / "models" / f"tiny-{name}") for name in ("bert", "gpt2", "roberta", "bart")}
