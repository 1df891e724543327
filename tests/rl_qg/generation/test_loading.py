"""What is refused when a question generator is loaded."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from transformers import GPT2LMHeadModel, LlamaForCausalLM, PreTrainedModel

from rl_qg.asking.models import generator_path
from rl_qg.generation.loading import load_generator, weights_hash
from rl_qg.generation.prompts import Prompt
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


def test_weights_that_a_folder_lacks_are_not_drawn_at_random(tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(["w1 w2"], {"bos_token": "<|e|>", "eos_token": "<|e|>"})
    model = tiny(LlamaForCausalLM, len(tokenizer), tie_word_embeddings=False)
    folder = save(tmp_path / "llama", tokenizer, model)
    load_generator(folder)
    weights = load_file(Path(folder, "model.safetensors"))
    del weights["lm_head.weight"]  # as `AutoModel` saves it
    save_file(weights, Path(folder, "model.safetensors"), metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"it lacks 'lm_head\.weight', of 1; save it again by AutoModelForCausalLM"):
        load_generator(folder)


def test_a_folder_in_the_home_folder_has_its_prompt_and_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, model = generators(tmp_path)[0]
    monkeypatch.setenv("HOME", str(tmp_path))
    Prompt(task="pairs").save(Path(folder))
    short = f"~/{Path(folder).name}"
    model, tokenizer = load_generator(short)
    assert Prompt.of(short, model, tokenizer) == Prompt(task="pairs")
    assert weights_hash(short) == weights_hash(folder) != folder
    assert generator_path(short) == folder
