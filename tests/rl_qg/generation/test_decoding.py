"""Decoding is compared with `generate`, and sampling with the distribution that it must have."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from transformers import PreTrainedModel

from rl_qg.generation.decoding import LIKELIEST, DecodingRules, Nucleus, choose_tokens, decode, uniform_draws
from tests.pretended_gpu import PretendedGPU, moved
from tests.tiny_models import tiny_bart, tiny_t5

VOCAB = 12


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.randint(5, VOCAB, (6, 7), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(7) < torch.tensor([7, 3, 5, 7, 2, 6])[:, None]).long()
    return ids.masked_fill(mask == 0, 1), mask


def states(model: PreTrainedModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state


RULES = [
    ({}, {}),
    ({"min_new_tokens": 6}, {"min_new_tokens": 6}),
    ({"no_repeat_ngram": 2}, {"no_repeat_ngram_size": 2}),
    ({"min_new_tokens": 5, "no_repeat_ngram": 1}, {"min_new_tokens": 5, "no_repeat_ngram_size": 1}),
]


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
@pytest.mark.parametrize(("rules", "library_options"), RULES)
def test_greedy_tokens_equal_those_of_generate(build: Any, rules: Any, library_options: Any) -> None:
    """With three samples or without, and with rows that end at different times and leave the batch."""
    model = build(VOCAB)
    ids, mask = batch()
    encoded, given = states(model, ids, mask), DecodingRules(9, **rules)
    both = decode(model, encoded, mask, given, draws=uniform_draws("abcdef", 3, 9, seed=0, step=0))
    alone = decode(model, encoded, mask, given)
    expected = model.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=9, do_sample=False, num_beams=1, **library_options
    )[:, 1:]
    assert both.greedy is not None and alone.greedy is not None
    assert both.greedy.tokens.tolist() == expected.tolist() == alone.greedy.tokens.tolist()
    assert alone.samples is None and both.samples is not None
    assert len(both.samples.tokens) == 18


def test_the_mask_includes_the_end_token_and_no_later_ones() -> None:
    model = tiny_bart(VOCAB)
    ids, mask = batch()
    draws = uniform_draws([str(k) for k in range(6)], 2, 30, seed=1, step=0)
    sample = decode(model, states(model, ids, mask), mask, DecodingRules(30), draws=draws).samples
    assert sample is not None
    ended = 0
    for tokens, real in zip(sample.tokens.tolist(), sample.mask.tolist(), strict=True):
        length = tokens.index(2) + 1 if 2 in tokens else len(tokens)
        ended += 2 in tokens
        assert real == [position < length for position in range(len(tokens))]
        assert set(tokens[length:]) <= {1}
    assert ended  # otherwise no row has an end token


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
def test_samples_follow_the_models_distribution_for_the_same_random_numbers(build: Any) -> None:
    """Against decoding without cache and batch; rows that leave the batch early must not change the others."""
    model = build(VOCAB)
    ids, mask = batch()
    draws = uniform_draws("abcdef", 2, 8, seed=4, step=0)
    samples = decode(model, states(model, ids, mask), mask, DecodingRules(8), draws=draws, greedy=False).samples
    assert samples is not None
    start = model.generation_config.decoder_start_token_id
    for row in range(12):
        context, tokens = row // 2, [start]
        one = slice(context, context + 1)
        for position in range(8):
            with torch.no_grad():
                logits = model(
                    input_ids=ids[one], attention_mask=mask[one], decoder_input_ids=torch.tensor([tokens])
                ).logits[0, -1]
            bounds = logits.double().softmax(-1).cumsum(-1)
            tokens.append(int((bounds < draws[context, row % 2, position]).sum()))
            if tokens[-1] == 2:
                break
        assert samples.tokens[row][samples.mask[row]].tolist() == tokens[1:]


SAMPLING = [
    ({}, {}),
    ({"temperature": 0.5}, {"temperature": 0.5}),
    ({"top_k": 4}, {"top_k": 4}),
    ({"top_p": 0.7}, {"top_p": 0.7}),
    ({"temperature": 2.0, "top_k": 6, "top_p": 0.9}, {"temperature": 2.0, "top_k": 6, "top_p": 0.9}),
    ({"min_new_tokens": 3}, {"min_new_tokens": 3}),
]


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.999])
def test_a_nucleus_is_the_fewest_likely_tokens_with_its_probability(spread: float, top_p: float) -> None:
    """Also where it is wider than the tokens looked at first; and it does not depend on the other rows."""
    scores = torch.randn(20, 3 * LIKELIEST, generator=torch.Generator().manual_seed(1)) * spread
    scores[0, 5:] = -torch.inf
    kept = (found := Nucleus(top_p)(scores[:, :0], scores)) > -torch.inf
    for row, chosen in zip(scores, kept, strict=True):
        order = row.double().softmax(-1).sort(descending=True)
        wanted = int((order.values.cumsum(-1) < top_p - 1e-9).sum()) + 1
        assert abs(int(chosen.sum()) - wanted) <= (wanted > 10), "a token at the edge may be rounded in or out"
        assert chosen[order.indices[: int(chosen.sum())]].all()
    assert found[kept].equal(scores[kept])
    assert torch.cat([Nucleus(top_p)(row[:, :0], row) for row in scores.split(1)]).equal(found)


@pytest.mark.parametrize("spread", [0.1, 10.0])
def test_on_a_gpu_a_nucleus_is_the_same_and_nothing_waits(spread: float) -> None:
    scores = torch.randn(20, 3 * LIKELIEST, generator=torch.Generator().manual_seed(1)) * spread
    with PretendedGPU() as gpu:
        found = Nucleus(0.9)(moved(scores[:, :0]), moved(scores))
    assert found.payload.equal(Nucleus(0.9)(scores[:, :0], scores))  # type: ignore[attr-defined]
    assert not gpu.waits


@pytest.mark.parametrize(("rules", "library_options"), SAMPLING)
def test_samples_have_the_distribution_of_generate(rules: Any, library_options: Any) -> None:
    """Frequencies of two-token beginnings against those of `generate` (two-sample chi-square test)."""
    count, model = 4000, tiny_bart(VOCAB)
    ids, mask = batch()
    one_ids, one_mask = ids[:1], mask[:1]
    draws = uniform_draws(["x"], count, 3, seed=0, step=0)
    ours = decode(
        model, states(model, one_ids, one_mask), one_mask, DecodingRules(3, **rules), draws=draws, greedy=False
    ).samples
    torch.manual_seed(0)
    sampled = {"top_k": 0, "top_p": 1.0, "temperature": 1.0, **library_options}
    their = model.generate(
        input_ids=one_ids.repeat(count, 1),
        attention_mask=one_mask.repeat(count, 1),
        do_sample=True,
        max_new_tokens=3,
        **sampled,
    )[:, 1:]
    assert ours is not None
    first, second = (Counter(map(tuple, rows[:, :2].tolist())) for rows in (ours.tokens, their))
    frequent = [pair for pair in first | second if first[pair] + second[pair] >= 20]
    rest = [sum(counts.values()) - sum(counts[pair] for pair in frequent) for counts in (first, second)]
    cells = [*((first[pair], second[pair]) for pair in frequent), *([rest] if sum(rest) else [])]
    assert len(frequent) > 3
    table = np.array(cells)
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3
    # The rules have an effect: without them the samples differ.
    if rules:
        plain = decode(model, states(model, one_ids, one_mask), one_mask, DecodingRules(3), draws=draws, greedy=False)
        assert plain.samples is not None and not plain.samples.tokens.equal(ours.tokens)


def test_a_temperature_may_be_a_whole_number() -> None:
    scores = torch.tensor([[2.0, 4.0]])
    assert DecodingRules(4, temperature=2).for_samples()(torch.zeros(1, 1), scores).tolist() == [[1.0, 2.0]]


def test_rules_of_a_checkpoints_generation_config_have_no_effect() -> None:
    model = tiny_bart(VOCAB)
    ids, mask = batch()
    draws = uniform_draws("abcdef", 2, 5, seed=0, step=0)
    plain = decode(model, states(model, ids, mask), mask, DecodingRules(5), draws=draws)
    rules = {"top_k": 1, "forced_bos_token_id": 5, "no_repeat_ngram_size": 1, "num_beams": 4}
    for name, value in rules.items():
        setattr(model.generation_config, name, value)
    ruled = decode(model, states(model, ids, mask), mask, DecodingRules(5), draws=draws)
    for first, second in ((plain.greedy, ruled.greedy), (plain.samples, ruled.samples)):
        assert first is not None and second is not None and first.tokens.equal(second.tokens)


def test_ended_rows_leave_the_batch() -> None:
    model = tiny_bart(VOCAB)
    ids, mask = batch()
    sizes: list[int] = []
    forward = model.forward
    model.forward = lambda *a, **k: sizes.append(len(k["decoder_input_ids"])) or forward(*a, **k)
    rollout = decode(
        model, states(model, ids, mask), mask, DecodingRules(30), draws=uniform_draws("abcdef", 3, 30, seed=1, step=0)
    )
    assert rollout.greedy is not None and rollout.samples is not None
    assert sizes[0] == 6 and sizes[1] == 24  # the first step is computed once per context
    still_open = sum(
        torch.nn.functional.pad(part.mask, (0, 30 - part.mask.shape[1])).sum(0)
        for part in (rollout.greedy, rollout.samples)
    )
    for position, size in enumerate(sizes[1:], 1):
        assert still_open[position] <= size <= max(2, still_open[position] / 0.75)
    assert sizes[-1] < 24


def test_a_token_with_probability_0_is_never_chosen() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]]).repeat(3, 1)
    assert set(choose_tokens(logits, torch.tensor([0.0, 0.5, 1.0 - 2**-24])).tolist()) <= {1, 3}


def test_a_draw_that_meets_an_impossible_token_is_the_likeliest_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, whose sums in parallel may fall by their rounding: 0.5, 0.4999999, 0.8, 1."""
    monkeypatch.setattr(torch, "searchsorted", lambda *_, **__: moved(torch.tensor([1, 3])))
    logits = torch.tensor([[0.3, 0.0, 0.5, 0.2]]).log().repeat(2, 1)
    with PretendedGPU():
        chosen = choose_tokens(moved(logits), moved(torch.tensor([0.3, 0.9])))
    assert chosen.payload.tolist() == [2, 3]  # type: ignore[attr-defined]


def test_random_numbers_depend_on_seed_step_and_key_alone() -> None:
    both = uniform_draws(["a", "b"], 2, 5, seed=3, step=7)
    assert both[1].equal(uniform_draws(["b"], 2, 5, seed=3, step=7)[0])
    assert both[:, :1].equal(uniform_draws(["a", "b"], 1, 5, seed=3, step=7))  # more samples do not change the first
    others = [uniform_draws(["b"], 2, 5, seed=4, step=7), uniform_draws(["b"], 2, 5, seed=3, step=8), both[:1]]
    assert all(not both[1].equal(other[0]) for other in others)
    assert not both[0, 0].equal(both[0, 1])
    assert ((both >= 0) & (both < 1)).all()
