"""The beam search finds the same beams with the same log-probabilities as `generate`, for many small random models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartForConditionalGeneration,
    BertLMHeadModel,
    BertModel,
    BlenderbotForConditionalGeneration,
    BlenderbotSmallForConditionalGeneration,
    GPT2LMHeadModel,
    LEDForConditionalGeneration,
    M2M100ForConditionalGeneration,
    MarianMTModel,
    MBartForConditionalGeneration,
    MT5ForConditionalGeneration,
    PegasusForConditionalGeneration,
    PreTrainedModel,
    RobertaForCausalLM,
    RobertaModel,
    T5ForConditionalGeneration,
    UMT5ForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.generation import beam_search as module
from rl_qg.generation.beam_search import beam_search
from rl_qg.generation.decoding import PATIENCE, SpecialTokens
from rl_qg.generation.generator import beam_options
from rl_qg.generation.sharing import DECODERS, FAMILIES, share_passages
from tests.pretended_gpu import PretendedGPU, move_model, moved
from tests.tiny_models import tiny, tiny_pair, tiny_prefix

VOCABULARY, START, PAD, END = 40, 0, 1, 2
LENGTHS = (9, 3, 7, 1, 8)
SPECIAL: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START}
BART: dict[str, Any] = {"decoder_layers": 2, "spread": 0.4, "forced_eos_token_id": None, **SPECIAL}
T5: dict[str, Any] = {"layers": 2, "spread": 1.5, **SPECIAL}
KINDS: dict[str, tuple[type[PreTrainedModel], dict[str, Any]]] = {
    "bart": (BartForConditionalGeneration, BART),
    "blenderbot": (BlenderbotForConditionalGeneration, BART),
    "blenderbot-small": (BlenderbotSmallForConditionalGeneration, BART),
    "m2m_100": (M2M100ForConditionalGeneration, BART),
    "marian": (MarianMTModel, BART),
    "mbart": (MBartForConditionalGeneration, BART),
    "mt5": (MT5ForConditionalGeneration, T5),
    "pegasus": (PegasusForConditionalGeneration, BART),
    "t5": (T5ForConditionalGeneration, T5),
    "umt5": (UMT5ForConditionalGeneration, T5),
}
DECODERS_OF_PAIRS = {"bert": BertLMHeadModel, "gpt2": GPT2LMHeadModel, "roberta": RobertaForCausalLM}


def pair(decoder: type[PreTrainedModel], seed: int) -> PreTrainedModel:
    model = tiny_pair(VOCABULARY, decoder, layers=2, spread=0.4, pad_token_id=PAD, seed=seed)
    for name, value in SPECIAL.items():
        setattr(model.generation_config, name, value)
    return model


MODELS: dict[str, Callable[[int], PreTrainedModel]] = {
    name: lambda seed, kind=kind, sizes=sizes: tiny(kind, VOCABULARY, seed=seed, **sizes)
    for name, (kind, sizes) in KINDS.items()
}
PAIRS: dict[str, Callable[[int], PreTrainedModel]] = {
    name: lambda seed, kind=kind: pair(kind, seed) for name, kind in DECODERS_OF_PAIRS.items()
}


def prefix(encoder: type[PreTrainedModel], seed: int) -> PreTrainedModel:
    model = tiny_prefix(VOCABULARY, encoder, layers=2, spread=0.4, pad_token_id=PAD, seed=seed)
    for name, value in SPECIAL.items():
        setattr(model.generation_config, name, value)
    return model


PREFIXES: dict[str, Callable[[int], PreTrainedModel]] = {
    "prefix": lambda seed: prefix(BertModel, seed),
    "prefix of roberta": lambda seed: prefix(RobertaModel, seed),
}


def build(make: Callable[[int], PreTrainedModel], seed: int, end: float) -> PreTrainedModel:
    """A model with random weights. `end` is added to the logit of the end token, so questions differ in length."""
    model = make(seed)

    def raised(_: Any, __: Any, output: Any) -> Any:
        output.logits[..., END] += end
        return output

    model.register_forward_hook(raised)
    return model


@torch.no_grad()
def encoded(model: PreTrainedModel, seed: int) -> tuple[Tensor, Tensor]:
    """States and mask of five contexts of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    mask = (torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)).long()
    ids = torch.randint(5, VOCABULARY, mask.shape, generator=generator).masked_fill(mask == 0, PAD)
    return model.get_encoder()(input_ids=ids, attention_mask=mask).last_hidden_state, mask


@torch.no_grad()
def by_the_library(
    model: PreTrainedModel, states: Tensor, mask: Tensor, beams: int, longest: int
) -> tuple[Tensor, Tensor]:
    """Tokens and sums of log-probabilities; the library's score is a mean over the tokens."""
    result = model.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        attention_mask=mask,
        return_dict_in_generate=True,
        output_scores=True,
        **beam_options(beams, longest),
    )
    tokens = result.sequences[:, 1:]
    return tokens, result.sequences_scores * (result.beam_indices >= 0).sum(-1)


def lengths(tokens: Tensor) -> list[int]:
    return [row.index(END) + 1 if END in row else len(row) for row in tokens.tolist()]


@pytest.mark.parametrize("name", [*MODELS, *PAIRS, *PREFIXES])
def test_the_beams_are_those_of_generate(name: str) -> None:
    """There are no ties: the scores of these random models differ by more than rounding errors."""
    make, seen = {**MODELS, **PAIRS, **PREFIXES}[name], set()
    for seed, (beams, longest, end) in enumerate([(8, 7, 1.0), (2, 12, 3.0), (5, 20, 2.0), (3, 1, 0.0), (4, 18, 3.5)]):
        model = build(make, seed, end)
        states, mask = encoded(model, seed)
        tokens, logprobs = by_the_library(model, states, mask, beams, longest)
        assert share_passages(model)
        result = beam_search(model, states, mask, beams, longest)
        assert result.tokens.equal(tokens), (seed, beams, longest)
        torch.testing.assert_close(result.logprobs, logprobs, rtol=1e-5, atol=1e-4)
        seen |= set(lengths(tokens))
    assert len(seen) > 4  # some searches end early, some late, some at the maximum length


def test_a_pad_token_that_is_the_end_token_is_no_end_of_the_longest_question() -> None:
    seen = set()
    for seed, (beams, longest, end) in enumerate([(2, 6, 3.0), (1, 4, 60.0), (4, 9, 2.0)]):
        model = build(PAIRS["gpt2"], seed, end)
        model.generation_config.pad_token_id = END
        states, mask = encoded(model, seed)
        expected, _ = by_the_library(model, states, mask, max(2, beams), longest)
        assert share_passages(model)
        tokens = beam_search(model, states, mask, beams, longest).tokens
        if beams == 1:
            assert tokens.tolist() == [[END]] * len(LENGTHS)  # ends at once
        else:
            assert lengths(tokens) == lengths(expected)
            seen |= {tokens.shape[1] == max(lengths(expected))}
    assert seen == {True}


def test_every_supported_model_family_is_compared() -> None:
    assert set(MODELS) == FAMILIES and set(PAIRS) == DECODERS


@pytest.mark.parametrize("fraction", [0.0, 0.75, 1.0])
def test_a_search_does_not_depend_on_the_other_contexts(fraction: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished contexts leave the batch never, sometimes or at once."""
    monkeypatch.setattr(module, "COMPACT_BELOW", fraction)
    model = build(MODELS["bart"], 0, 3.0)
    states, mask = encoded(model, 0)
    assert share_passages(model)
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, __, given: sizes.append(len(given["attention_mask"])), with_kwargs=True)
    together = beam_search(model, states, mask, 4, 30)
    assert (min(sizes) == len(LENGTHS)) == (fraction == 0)
    for row, length in enumerate(LENGTHS):
        alone = beam_search(model, states[row : row + 1, :length], mask[row : row + 1, :length], 4, 30)
        rows = slice(4 * row, 4 * row + 4)
        width = alone.tokens.shape[1]
        assert together.tokens[rows, :width].equal(alone.tokens)
        assert (together.tokens[rows, width:] == PAD).all()
        torch.testing.assert_close(together.logprobs[rows], alone.logprobs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["bart", "t5", "gpt2", "prefix"])
def test_on_a_gpu_the_beams_are_the_same_and_ends_are_looked_for_every_few_tokens(name: str) -> None:
    make, sizes = {**MODELS, **PAIRS, **PREFIXES}[name], set[int]()
    for seed, (beams, longest, end) in enumerate([(4, 30, 3.0), (3, 10, 2.0), (2, 1, 0.0), (2, 12, 8.0)]):
        model = build(make, seed, end)
        states, mask = encoded(model, seed)
        assert share_passages(model)
        expected = beam_search(model, states, mask, beams, longest)
        steps: list[int] = []
        move_model(model).register_forward_pre_hook(
            lambda _, __, given, steps=steps: steps.append(len(given["attention_mask"])), with_kwargs=True
        )
        with PretendedGPU() as gpu:
            found = beam_search(model, moved(states), moved(mask), beams, longest)
        assert found.tokens.payload.equal(expected.tokens)  # type: ignore[attr-defined]
        torch.testing.assert_close(found.logprobs.payload, expected.logprobs)  # type: ignore[attr-defined]
        assert sum(gpu.waits.values()) == len(steps) // PATIENCE + 1, gpu.waits  # and for the longest question
        sizes |= {*steps}
    assert len(sizes) > 1 or name == "prefix"  # some contexts leave the batch before others


def test_passages_are_stored_once_and_stored_tokens_are_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of the cross attention does not grow with the number of beams."""
    caches: list[Any] = []
    original = module.EncoderDecoderCache

    def kept(*parts: Any) -> Any:
        caches.append(original(*parts))
        return caches[-1]

    monkeypatch.setattr(module, "EncoderDecoderCache", kept)
    model = build(MODELS["bart"], 0, -50.0)
    states, mask = encoded(model, 0)
    assert share_passages(model)
    written: list[Tensor] = []
    model.register_forward_hook(lambda *_: written.append(caches[0].self_attention_cache.layers[0].keys.clone()))
    beam_search(model, states, mask, 4, 20)
    assert caches[0].cross_attention_cache.layers[0].keys.shape[:3] == (len(LENGTHS), 2, max(LENGTHS))
    assert [keys.shape[2] for keys in written] == [1 + 4 * step for step in range(20)]
    assert all(written[-1][:, :, : keys.shape[2]].equal(keys) for keys in written)


def test_log_probabilities_do_not_accumulate_rounding_errors() -> None:
    """One likely token among 30,000 rare ones: the float32 sum over them has the same rounding error at every step."""
    logits = torch.zeros(30_000)
    logits[7], logits[8] = 8.0, 4.0
    exact = logits.double().log_softmax(0)
    drift = (logits.log_softmax(0)[7] - exact[7]).abs()
    assert 30 * drift > 1e-4  # otherwise this test would show nothing
    search = module._Search(torch.tensor([START]), 2, 30, SpecialTokens(START, END, PAD))
    for rows in [1] + 29 * [2]:
        search.step(logits.repeat(rows, 1))
    result = search.result()
    for tokens, logprob in zip(result.tokens, result.logprobs.double(), strict=True):
        torch.testing.assert_close(logprob, exact[tokens].sum(), rtol=1e-6, atol=0)  # 30 float32 additions
    assert result.tokens[0].tolist() == 30 * [7]


def test_half_precision_is_in_the_logits_alone() -> None:
    """A model that always has the same bfloat16 logits: the sums are those of their float32 log softmax."""
    model = MODELS["bart"](0)
    same = torch.randn(VOCABULARY, generator=torch.Generator().manual_seed(2)).bfloat16()

    def replaced(_: Any, __: Any, output: Any) -> Any:
        output.logits = same.expand(output.logits.shape)
        return output

    states, mask = encoded(model, 0)
    model.register_forward_hook(replaced)
    assert share_passages(model)
    result = beam_search(model, states, mask, 4, 6)
    exact = same.double().log_softmax(0)
    for tokens, logprob in zip(result.tokens, result.logprobs, strict=True):
        known = tokens[: lengths(tokens[None])[0]]
        assert logprob.item() == pytest.approx(exact[known].sum().item(), rel=1e-6)
    assert result.logprobs.dtype is torch.float32


def test_models_that_are_not_supported_stay_unchanged() -> None:
    assert not share_passages(tiny(LEDForConditionalGeneration, VOCABULARY))
    eager = MODELS["bart"](0)
    eager.set_attn_implementation("eager")
    assert not share_passages(eager) and eager.config._attn_implementation == "eager"


def test_generate_of_a_prepared_model_gives_the_same_results() -> None:
    model = build(MODELS["t5"], 0, 0.0)
    states, mask = encoded(model, 0)
    before = by_the_library(model, states, mask, 3, 8)
    assert share_passages(model)
    after = by_the_library(model, states, mask, 3, 8)
    assert before[0].equal(after[0]) and before[1].equal(after[1])
