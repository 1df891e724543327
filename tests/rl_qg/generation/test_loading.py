"""What is refused when a question generator is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertModel, GPT2LMHeadModel, LlamaForCausalLM, PreTrainedModel

from rl_qg.asking.models import generator_path
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.loading import load_causal, load_generator, load_seq2seq, weights_hash
from rl_qg.generation.prompts import Prompt
from rl_qg.runtime.errors import InputError
from tests.questions import example
from tests.tiny_models import byte_tokenizer, save, tiny, tiny_bart, tiny_pair, tiny_prefix, tiny_t5, word_tokenizer

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


@pytest.mark.parametrize("field", FIELDS[1:])
def test_a_special_token_that_no_file_of_the_model_names_is_asked_for_or_that_of_the_tokenizer(
    tmp_path: Path, field: str
) -> None:
    tokenizer, model = word_tokenizer("w1 w2"), tiny_bart(7)
    for config in (model.config, model.generation_config):
        setattr(config, field, None)
    folder = save(tmp_path, tokenizer, model)
    if field == "decoder_start_token_id":
        with pytest.raises(InputError, match=f"has no {field}; add it to generation_config.json"):
            load_generator(folder)
        tokenizer.cls_token = "<s>"
        tokenizer.save_pretrained(folder)
    loaded = load_generator(folder)[0].generation_config
    assert (loaded.pad_token_id, loaded.eos_token_id) == (tokenizer.pad_token_id, tokenizer.eos_token_id)
    assert loaded.decoder_start_token_id == (0 if field == "decoder_start_token_id" else 2)


def test_a_start_token_of_number_0_counts_and_the_known_end_is_kept(tmp_path: Path) -> None:
    folder = save(tmp_path, word_tokenizer("w1 w2"), tiny_t5(7, decoder_start_token_id=0))
    path = tmp_path / "generation_config.json"
    config = json.loads(path.read_text())
    del config["decoder_start_token_id"]
    path.write_text(json.dumps(config))
    loaded = load_generator(folder)[0].generation_config
    assert (loaded.decoder_start_token_id, loaded.eos_token_id) == (0, 2)


def test_a_tokenizer_without_padding_pads_as_the_model_does(tmp_path: Path) -> None:
    tokenizer = word_tokenizer("w1 w2")
    tokenizer.pad_token = None
    folder = save(tmp_path, tokenizer, tiny_bart(7))
    rows = [example("w1 w2 w1", "w2", "w1", id="a"), example("w1 w2", "w2", "w1", id="b")]
    assert len(CandidateGenerator(folder, device=torch.device("cpu")).greedy(rows, max_new_tokens=3)) == 2


def test_of_several_end_tokens_a_line_says_which_one_ends_a_question(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny_bart(7)
    for ends in ([2], [2, 6]):
        model.generation_config.eos_token_id = ends
        load_generator(folder := save(tmp_path, word_tokenizer("w1 w2"), model))
    assert caplog.messages == [f"model.path={folder}: of its end tokens [2, 6] only the first ends a question"]


@pytest.mark.parametrize("made", [tiny_bart, tiny_t5, tiny_pair, tiny_prefix, BertModel, GPT2LMHeadModel])
def test_dropout_is_that_of_the_settings(tmp_path: Path, caplog: pytest.LogCaptureFixture, made: Any) -> None:
    """Hidden states too: without dropout two passes while it learns are equal, with it they are not."""
    tokenizer = word_tokenizer("w1 w2")
    model = tiny(made, len(tokenizer)) if isinstance(made, type) else made(len(tokenizer))
    if made in (tiny_pair, tiny_prefix):
        model.generation_config.update(decoder_start_token_id=0, eos_token_id=2, pad_token_id=1)
    folder = save(tmp_path, tokenizer, model)
    load = load_causal if made is GPT2LMHeadModel else load_seq2seq
    ids = torch.tensor([[2, 3, 4]])
    given = {"input_ids": ids} if made is GPT2LMHeadModel else {"input_ids": ids, "decoder_input_ids": ids}
    for rate in (0.0, 0.5):
        loaded = load(folder, rate)[0].train()
        with torch.no_grad():
            first, second = (loaded(**given).logits for _ in range(2))
        assert first.equal(second) == (rate == 0), rate
    assert not any("model.dropout" in line for line in caplog.messages)
    untouched, _ = load(folder)
    assert all(
        value == model.config.to_dict()[name] for name, value in untouched.config.to_dict().items() if "drop" in name
    )


def test_a_model_without_dropout_of_hidden_states_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = save(tmp_path, tokenizer := word_tokenizer("w1 w2"), tiny(LlamaForCausalLM, len(tokenizer)))
    load_causal(folder, 0.1)
    assert caplog.messages == ["model.dropout=0.1: a llama model has none of hidden states to set"]
