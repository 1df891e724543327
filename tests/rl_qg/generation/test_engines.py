"""Both engines of generation give the same questions: the own beam search and decoding, and `generate`."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from rl_qg.generation import generator as generator_module
from rl_qg.generation.decoding import within_positions
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.generation.prompts import Prompt
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.settings import GenerateSettings
from tests.rl_qg.generation.test_generation_stage import BEAMS, SAMPLES, WORDS, data, run
from tests.tiny_models import tiny_bart, tiny_pair, tiny_t5, word_tokenizer


@pytest.fixture(scope="module", params=[tiny_bart, tiny_t5])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = word_tokenizer(WORDS)
    request.param(len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("settings", [BEAMS, replace(SAMPLES, top_p=0.8, temperature=1.5)])
def test_both_engines_find_the_same_questions(model: str, settings: GenerateSettings, tmp_path: Path) -> None:
    with patch.object(generator_module, "beam_search", wraps=generator_module.beam_search) as search:
        own = run(model, tmp_path / "own.jsonl", settings)
        assert bool(search.call_count) == (not settings.do_sample)
        search.reset_mock()
        with patch.object(generator_module, "decode", side_effect=AssertionError):
            library = run(model, tmp_path / "library.jsonl", replace(settings, engine="library"))
        assert search.call_count == 0
    assert len({row["question"] for row in own}) > 7
    # The order may differ where two candidates are equally likely.
    keys = [sorted((row["id"], row["question"], row["logprob"]) for row in rows) for rows in (own, library)]
    assert [key[:2] for key in keys[0]] == [key[:2] for key in keys[1]]
    assert [key[2] for key in keys[0]] == pytest.approx([key[2] for key in keys[1]], abs=1e-4)
    logprobs = [[row["logprob"] for row in rows] for rows in (own, library)]
    assert logprobs[1] == pytest.approx(logprobs[0], rel=1e-4)


def test_the_library_gives_the_same_greedy_questions(model: str) -> None:
    own, library = (
        CandidateGenerator(model, device=torch.device("cpu"), engine=engine).greedy(data(), max_new_tokens=6)
        for engine in ("own", "library")
    )
    assert own == library and any(own)


@pytest.mark.parametrize("engine", ["own", "library"])
def test_texts_end_where_the_decoder_has_no_more_positions(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = word_tokenizer(WORDS)
    model = tiny_bart(len(tokenizer))
    positions = model.config.max_position_embeddings
    with torch.no_grad():
        model.final_logits_bias[:, model.config.eos_token_id] = -1e4  # no text ends by itself
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = CandidateGenerator(tmp_path, device=torch.device("cpu"), engine=engine)
    found = generator.candidates(data()[:1], 2, max_new_tokens=positions + 9, top_p=None, temperature=1.0)
    found += generator.candidates(data()[:1], 2, max_new_tokens=positions + 9, top_p=0.9, temperature=1.0)
    generator.greedy(data()[:1], max_new_tokens=positions + 9)
    assert {candidate.tokens for group in found for candidate in group} == {positions}
    prompt = Prompt(max_source_length=16, max_target_length=positions + 9)
    assert prompt.fitting(model).max_target_length == positions


@pytest.mark.parametrize(("reads", "writes"), [(64, 20), (20, 64)])
def test_each_half_of_a_pair_has_its_own_limit(reads: int, writes: int) -> None:
    pair = tiny_pair(30)
    pair.config.encoder.max_position_embeddings, pair.config.decoder.max_position_embeddings = reads, writes
    fitted = Prompt(max_source_length=99, max_target_length=99).fitting(pair)
    assert (fitted.max_source_length, fitted.max_target_length) == (reads, writes)
    assert within_positions(pair, 99) == writes


def test_the_note_names_only_an_engine_that_is_not_the_default(model: str, tmp_path: Path) -> None:
    """Files of versions without the setting are continued."""
    own, library = tmp_path / "own.jsonl", tmp_path / "library.jsonl"
    run(model, own)
    assert "engine" not in read_json(tmp_path / "own.jsonl.settings.json")
    with pytest.raises(InputError, match=r"made with other settings \(engine: None -> library\)"):
        run(model, own, replace(BEAMS, engine="library"))
    run(model, library, replace(BEAMS, engine="library"))
    assert read_json(tmp_path / "library.jsonl.settings.json")["engine"] == "library"
    with pytest.raises(InputError, match=r"made with other settings \(engine: library -> None\)"):
        run(model, library)
