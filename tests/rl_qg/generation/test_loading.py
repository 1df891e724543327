"""What is refused when a question generator is loaded."""

import json
from pathlib import Path

import pytest
from transformers import GPT2LMHeadModel, PreTrainedModel

from rl_qg.generation.loading import load_generator
from rl_qg.runtime.errors import InputError
from tests.tiny_models import byte_tokenizer, save, tiny, tiny_bart, word_tokenizer

FIELDS = ("bos_token_id", "pad_token_id", "eos_token_id", "decoder_start_token_id")


def generators(folder: Path) -> list[tuple[str, PreTrainedModel]]:
    words, bytes_ = word_tokenizer("w1 w2"), byte_tokenizer(["w1 w2"], {"bos_token": "<|e|>", "eos_token": "<|e|>"})
    models = (words, tiny_bart(len(words))), (bytes_, tiny(GPT2LMHeadModel, len(bytes_)))
    return [(save(folder / model.config.model_type, tokenizer, model), model) for tokenizer, model in models]


@pytest.mark.parametrize("file", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("field", FIELDS)
def test_a_special_token_beyond_the_vocabulary_is_refused_or_replaced(tmp_path: Path, file: str, field: str) -> None:
    refused = 0
    for folder, model in generators(tmp_path):
        rows, path = model.get_input_embeddings().weight.shape[0], Path(folder, file)
        config = json.loads(path.read_text())
        path.write_text(json.dumps(config | {field: rows - 1}))
        load_generator(folder)  # the last one of the vocabulary is a token
        path.write_text(json.dumps(config | {field: rows}))
        try:
            loaded, _ = load_generator(folder)
        except InputError as error:
            refused += 1
            assert f"model.path={folder}: " in str(error)
        else:  # a causal model has the end and padding of its tokenizer, and begins with its prompt
            assert not model.config.is_encoder_decoder
            assert all(getattr(loaded.generation_config, name) < rows for name in ("eos_token_id", "pad_token_id"))
    assert refused == 1
