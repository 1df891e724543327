"""Rollouts against `generate`, and sampling against the distribution it must have."""

from collections import Counter

import pytest
import torch
from transformers import PreTrainedModel

from rl_qg.rollout import choose, decode, uniforms
from tests.tiny import tiny_bart, tiny_t5

VOCAB = 12


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(5, VOCAB, (6, 7), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(7) < torch.tensor([7, 3, 5, 7, 2, 6])[:, None]).long()
    return ids.masked_fill(mask == 0, 1), mask


def states(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
def test_greedy_half_equals_generate_token_for_token(build) -> None:
    model = build(VOCAB)
    ids, mask = batch()
    greedy, sample = decode(
        model, states(model, ids, mask), mask, draws=uniforms("abcdef", 9, seed=0, step=0), max_new_tokens=9
    )
    alone, none = decode(model, states(model, ids, mask), mask, draws=None, max_new_tokens=9)
    expected = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=9, do_sample=False, num_beams=1)[
        :, 1:
    ]
    assert greedy.tokens.tolist() == expected.tolist() == alone.tokens.tolist()
    assert none is None and sample is not None


def test_mask_holds_the_end_token_and_nothing_behind_it() -> None:
    model = tiny_bart(VOCAB)
    ids, mask = batch()
    draws = uniforms([str(k) for k in range(6)], 30, seed=1, step=0)
    _, sample = decode(model, states(model, ids, mask), mask, draws=draws, max_new_tokens=30)
    assert sample is not None
    ended = 0
    for tokens, real in zip(sample.tokens.tolist(), sample.mask.tolist(), strict=True):
        length = tokens.index(2) + 1 if 2 in tokens else len(tokens)
        ended += 2 in tokens
        assert real == [position < length for position in range(len(tokens))]
        assert set(tokens[length:]) <= {1}
    assert ended  # else the test saw no end at all


def test_sampling_follows_the_policy_and_ignores_the_checkpoints_generation_rules() -> None:
    model = tiny_bart(VOCAB)
    rules = {"top_k": 1, "forced_bos_token_id": 5, "no_repeat_ngram_size": 1, "num_beams": 4}
    for name, value in rules.items():
        setattr(model.generation_config, name, value)
    ids, mask = batch()
    ids, mask = ids[:1].repeat(4000, 1), mask[:1].repeat(4000, 1)
    draws = uniforms([str(k) for k in range(4000)], 1, seed=0, step=0)
    _, sample = decode(model, states(model, ids, mask), mask, draws=draws, max_new_tokens=1)
    with torch.no_grad():
        start = torch.full((1, 1), model.generation_config.decoder_start_token_id)
        p = model(input_ids=ids[:1], attention_mask=mask[:1], decoder_input_ids=start).logits[0, 0].softmax(-1)
    assert sample is not None
    counts = Counter(sample.tokens[:, 0].tolist())
    chi_square = sum((counts[k] - 4000 * p[k].item()) ** 2 / (4000 * p[k].item()) for k in range(VOCAB))
    assert chi_square < 31.3  # 0.1 % point of chi-square with 11 degrees of freedom


def test_choose_never_takes_an_impossible_token() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]]).repeat(3, 1)
    assert set(choose(logits, torch.tensor([0.0, 0.5, 1.0 - 2**-24])).tolist()) <= {1, 3}


def test_draws_hang_on_seed_step_and_key_alone() -> None:
    both = uniforms(["a", "b"], 5, seed=3, step=7)
    assert both[1].equal(uniforms(["b"], 5, seed=3, step=7)[0])
    others = [uniforms(["b"], 5, seed=4, step=7), uniforms(["b"], 5, seed=3, step=8), both[:1]]
    assert all(not both[1].equal(other[0]) for other in others)
    assert ((both >= 0) & (both < 1)).all()


def test_rows_do_not_depend_on_their_neighbours() -> None:
    model = tiny_bart(VOCAB)
    ids, mask = batch()
    keys = [str(k) for k in range(6)]
    whole = decode(model, states(model, ids, mask), mask, draws=uniforms(keys, 8, seed=0, step=0), max_new_tokens=8)
    for row in range(6):
        one = slice(row, row + 1)
        alone = decode(
            model,
            states(model, ids[one], mask[one]),
            mask[one],
            draws=uniforms(keys[one], 8, seed=0, step=0),
            max_new_tokens=8,
        )
        for together, single in zip(whole, alone, strict=True):
            assert together is not None and single is not None
            real = single.mask[0]
            assert together.tokens[row][: len(real)][real].tolist() == single.tokens[0][real].tolist()
