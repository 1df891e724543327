"""The reader that answers questions about passages: the windows that it reads."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import FunnelConfig, RobertaForQuestionAnswering, XLNetForQuestionAnsweringSimple

from rl_qg.data.examples import QAExample
from rl_qg.readers.reader import AnswerReader, encode, load_model, load_tokenizer
from rl_qg.runtime.errors import InputError
from tests.tiny_models import save
from tests.toy_reader import save_bert, toy_tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    saved = tmp_path_factory.mktemp("reader")
    load_model(str(save_bert(tmp_path_factory.mktemp("bert")))).save_pretrained(saved)
    toy_tokenizer(model_input_names=["input_ids", "token_type_ids", "attention_mask"]).save_pretrained(saved)
    return str(saved)


@pytest.mark.parametrize(
    ("options", "length", "shared"),
    [
        ({}, 64, 21),  # what the model can read, and a third of it
        ({"max_length": 32}, 32, 10),
        ({"max_length": 32, "doc_stride": 5}, 32, 5),
        ({"max_length": 32, "doc_stride": 0}, 32, 0),
    ],
)
def test_windows_share_a_third_unless_said_otherwise(
    folder: str, options: dict[str, int], length: int, shared: int
) -> None:
    reader = AnswerReader(folder, device=torch.device("cpu"), **options)
    assert (reader.max_length, reader.doc_stride) == (length, shared)
    context = " ".join(["fox", "cat", "owl", "bee"] * 40)
    windows = encode(
        [QAExample("x", "", context, "which animal ?", ())], reader.tokenizer, max_length=reader.max_length,
        doc_stride=reader.doc_stride, token_types=reader.token_types,
    )  # fmt: skip
    starts = [
        windows.offsets[begin + first : begin + last, 0]
        for begin, (first, last) in zip(windows.bounds[:-1], windows.contexts, strict=True)
    ]
    assert windows.lengths[0] == length and len(starts) > 2
    assert {int((before >= after[0]).sum()) for before, after in pairwise(starts)} == {shared}
    assert isinstance(reader(["which animal ?"], [context])[0], str)


XLNET = {"d_model": 16, "n_layer": 1, "n_head": 2, "d_inner": 16}  # it has no limit of its own
ROBERTA = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 40}


@pytest.mark.parametrize(
    ("kind", "sizes", "longest"),
    [(XLNetForQuestionAnsweringSimple, XLNET, 64), (RobertaForQuestionAnswering, ROBERTA, 38)],  # two are never used
)
def test_a_window_is_what_the_model_can_read(tmp_path: Path, kind: Any, sizes: dict[str, int], longest: int) -> None:
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "attention_mask"])
    save(tmp_path, tokenizer, kind(kind.config_class(vocab_size=len(tokenizer), pad_token_id=1, **sizes)))
    reader = AnswerReader(str(tmp_path), device=torch.device("cpu"))
    assert reader.max_length == longest
    assert len(reader(["which animal ?"], ["fox cat owl bee " * 40])) == 1
    with pytest.raises(InputError, match=f"max_length=65 is above the {longest} tokens"):
        AnswerReader(str(tmp_path), device=torch.device("cpu"), max_length=65)


def test_the_window_of_a_model_whose_folder_does_not_say_its_class(tmp_path: Path) -> None:
    """Of Funnel the library has two, and would look for the one that `architectures` names."""
    tokenizer = toy_tokenizer(model_input_names=["input_ids", "attention_mask"])
    tokenizer.save_pretrained(tmp_path)
    FunnelConfig(vocab_size=len(tokenizer), block_sizes=[1], d_model=16, n_head=2, d_head=8).save_pretrained(tmp_path)
    load_tokenizer(str(tmp_path), max_length=64)
    with pytest.raises(InputError, match="max_length=65 is above the 64 tokens"):
        load_tokenizer(str(tmp_path), max_length=65)
