"""Rollouts over one copy of a passage's keys and values: the tokens of decoding with a copy for each row."""

from typing import Any

import pytest
import torch

from rl_qg.generation import decoding
from rl_qg.generation.decoding import DecodingRules, Rollout, decode, uniform_draws
from rl_qg.generation.sharing import SHARED, is_sharing
from tests.rl_qg.generation.test_beam_search import LENGTHS, MODELS, PAIRS, PREFIXES, build, encoded, lengths


def roll_out(model: Any, states: torch.Tensor, mask: torch.Tensor, copies: int) -> Rollout:
    draws = uniform_draws([f"e{k}" for k in range(len(states))], copies, 14, seed=3, step=0)
    return decode(model, states, mask, DecodingRules(14), draws=draws, logprobs=True)


@pytest.mark.parametrize("name", [*MODELS, *PAIRS, *PREFIXES])
def test_samples_are_those_of_a_copy_for_each_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after rows have left the batch, from which on each row has its own copy."""
    seen = set()
    for seed, (copies, end) in enumerate([(1, 1.0), (4, 2.5), (3, 0.0), (2, 12.0), (2, 25.0)]):
        model = build({**MODELS, **PAIRS, **PREFIXES}[name], seed, end)
        states, mask = encoded(model, seed)
        shared = roll_out(model, states, mask, copies)
        with monkeypatch.context() as patch:
            patch.setattr(decoding, "is_sharing", lambda model: False)
            plain = roll_out(model, states, mask, copies)
        for found, expected in ((shared.samples, plain.samples), (shared.greedy, plain.greedy)):
            assert found is not None and expected is not None
            assert found.tokens.equal(expected.tokens) and found.mask.equal(expected.mask)
            torch.testing.assert_close(found.logprobs, expected.logprobs, rtol=1e-4, atol=1e-4)
            seen |= set(lengths(expected.tokens))
    assert len(seen) > 4


def test_keys_of_a_passage_have_one_row_until_rows_leave_the_batch() -> None:
    model = build(MODELS["bart"], 0, 2.0)
    states, mask = encoded(model, 0)
    rows: list[tuple[int, int]] = []

    def note(module: Any, args: Any, given: Any) -> None:
        cache = given["past_key_values"]
        if cache is not None:
            rows.append((len(given["decoder_input_ids"]), len(cache.cross_attention_cache.layers[0].keys)))
        assert is_sharing(model)

    model.register_forward_pre_hook(note, with_kwargs=True)
    roll_out(model, states, mask, 3)
    examples = len(LENGTHS)
    first = [keys for count, keys in rows if count == 4 * examples]
    later = [(count, keys) for count, keys in rows if count < 4 * examples]
    assert first and set(first) == {examples}
    assert later and all(count == keys for count, keys in later)
    assert model.config._attn_implementation == "sdpa" != SHARED  # the model that is trained stays as it was
