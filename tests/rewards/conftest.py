"""Tiny models with random weights, saved as folders, and the golden numbers where they are available."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
    RobertaForMaskedLM,
)

from tests.tiny_models import WORD_ROLES, byte_tokenizer, piece_tokenizer, save, tiny, tiny_bart

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden"

TEXT = [
    "The town of Arlen was founded in 1204 by Ida Koll, who built its first mill on the river Esk.",
    "Who founded the town? When was the mill built, and where did the river flow?",
    "A lighthouse keeper named Tomas Brandt wrote the novel The Grey Shore during the winter of 1931.",
]
ROBERTA = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
WHITE_SPACE = "mill   \t\n" * 40  # so that runs of white space become tokens, as in the published vocabularies


def word_piece() -> PreTrainedTokenizerFast:
    return piece_tokenizer(text=TEXT, pairs=False)


def byte_level(roles: dict[str, str]) -> PreTrainedTokenizerFast:
    return byte_tokenizer([*TEXT, WHITE_SPACE], roles)


def roberta_tokenizer() -> PreTrainedTokenizerFast:
    return byte_level({**WORD_ROLES, "cls_token": "<s>", "sep_token": "</s>"})


def without(folder: str, copy: Path, *roles: str) -> str:
    """A copy of a model's folder whose tokenizer lacks special tokens, such as ``pad_token``."""
    file = Path(shutil.copytree(folder, copy), "tokenizer_config.json")
    kept = {key: value for key, value in json.loads(file.read_text()).items() if key not in roles}
    file.write_text(json.dumps(kept))
    return str(copy)


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, str]:
    """Folders of a BERT (40 positions), GPT-2 (48), RoBERTa (56 usable), BART (40) and a reader (40): limits
    are reached soon.
    """
    root = tmp_path_factory.mktemp("models")
    tokenizers = {
        "bert": word_piece(),
        "gpt2": byte_level({"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
        "roberta": roberta_tokenizer(),
        "bart": roberta_tokenizer(),
        "reader": piece_tokenizer(text=TEXT),
    }
    sizes = {name: {"vocab_size": len(tokenizer), "spread": 0.4} for name, tokenizer in tokenizers.items()}
    models = {
        "bert": tiny(BertForMaskedLM, **sizes["bert"], layers=2, positions=40),
        "gpt2": tiny(GPT2LMHeadModel, **sizes["gpt2"], layers=2, positions=48, bos_token_id=0, eos_token_id=0),
        "roberta": tiny(RobertaForMaskedLM, **sizes["roberta"], layers=2, positions=58, **ROBERTA),
        "bart": tiny_bart(**sizes["bart"], positions=40, decoder_layers=2),
        "reader": tiny(BertForQuestionAnswering, **sizes["reader"], layers=2, positions=40),
    }
    return {name: save(root / name, tokenizers[name], model) for name, model in models.items()}


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
    """Cases with numbers of the published implementations; see the README next to them."""
    path = GOLDEN / "fixtures" / "qg_cases.jsonl"
    if not path.is_file():
        pytest.skip("the golden numbers (../shared/golden) are not here")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="session")
def golden_models(golden) -> dict[str, str]:
    return {name: str(GOLDEN / "models" / f"tiny-{name}") for name in ("bert", "gpt2", "roberta", "bart")}
