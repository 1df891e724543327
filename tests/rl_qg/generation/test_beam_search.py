"""Our beam search against `generate`: the same beams with the same log-probabilities, of many random small models."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    BlenderbotConfig,
    BlenderbotForConditionalGeneration,
    BlenderbotSmallConfig,
    BlenderbotSmallForConditionalGeneration,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    GPT2Config,
    LEDConfig,
    LEDForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MarianConfig,
    MarianMTModel,
    MBartConfig,
    MBartForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    PegasusConfig,
    PegasusForConditionalGeneration,
    PreTrainedModel,
    RobertaConfig,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)
from transformers.modeling_outputs import BaseModelOutput

from rl_qg.generation import beam_search as module
from rl_qg.generation.beam_search import DECODERS, FAMILIES, beam_search, share_passages
from rl_qg.generation.decoding import SpecialTokens
from rl_qg.generation.generator import beam_options

VOCABULARY, START, PAD, END = 40, 0, 1, 2
LENGTHS = (9, 3, 7, 1, 8)
SPECIAL: dict[str, Any] = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": START}
BART: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "init_std": 0.4,
    "forced_eos_token_id": None,
    **SPECIAL,
}
T5: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "d_model": 16,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "initializer_factor": 1.5,
    **SPECIAL,
}
BERT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "initializer_range": 0.4,
    "max_position_embeddings": 64,
    "pad_token_id": PAD,
}
GPT2: dict[str, Any] = {"vocab_size": VOCABULARY, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}
AS_DECODER = {"is_decoder": True, "add_cross_attention": True}


def pair(decoder: Any) -> PreTrainedModel:
    model = EncoderDecoderModel(EncoderDecoderConfig.from_encoder_decoder_configs(BertConfig(**BERT), decoder))
    for name, value in SPECIAL.items():
        setattr(model.generation_config, name, value)
    return model


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "bart": lambda: BartForConditionalGeneration(BartConfig(**BART)),
    "blenderbot": lambda: BlenderbotForConditionalGeneration(BlenderbotConfig(**BART)),
    "blenderbot-small": lambda: BlenderbotSmallForConditionalGeneration(BlenderbotSmallConfig(**BART)),
    "m2m_100": lambda: M2M100ForConditionalGeneration(M2M100Config(**BART)),
    "marian": lambda: MarianMTModel(MarianConfig(**BART)),
    "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**BART)),
    "mt5": lambda: MT5ForConditionalGeneration(MT5Config(**T5)),
    "pegasus": lambda: PegasusForConditionalGeneration(PegasusConfig(**BART)),
    "t5": lambda: T5ForConditionalGeneration(T5Config(**T5)),
    "umt5": lambda: UMT5ForConditionalGeneration(UMT5Config(**T5)),
}
PAIRS: dict[str, Callable[[], PreTrainedModel]] = {
    "bert": lambda: pair(BertConfig(**BERT, **AS_DECODER)),
    "gpt2": lambda: pair(GPT2Config(**GPT2, initializer_range=0.4, **AS_DECODER)),
    "roberta": lambda: pair(RobertaConfig(**BERT, **AS_DECODER)),
}


def build(make: Callable[[], PreTrainedModel], seed: int, end: float) -> PreTrainedModel:
    """A model with random weights, whose end token's logit is raised by `end`: questions end at different lengths."""
    torch.manual_seed(seed)
    model = make().eval()

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
    found = model.generate(
        encoder_outputs=BaseModelOutput(last_hidden_state=states),
        attention_mask=mask,
        return_dict_in_generate=True,
        output_scores=True,
        **beam_options(beams, longest),
    )
    tokens = found.sequences[:, 1:]
    return tokens, found.sequences_scores * (found.beam_indices >= 0).sum(-1)


def lengths(tokens: Tensor) -> list[int]:
    return [row.index(END) + 1 if END in row else len(row) for row in tokens.tolist()]


@pytest.mark.parametrize("name", [*MODELS, *PAIRS])
def test_the_beams_are_those_of_generate(name: str) -> None:
    """Nothing is left out for being a tie: the scores of these random models are further apart than rounding."""
    make, seen = {**MODELS, **PAIRS}[name], set()
    for seed, (beams, longest, end) in enumerate([(8, 7, 1.0), (2, 12, 3.0), (5, 20, 2.0), (3, 1, 0.0), (4, 18, 3.5)]):
        model = build(make, seed, end)
        states, mask = encoded(model, seed)
        tokens, logprobs = by_the_library(model, states, mask, beams, longest)
        assert share_passages(model)
        found = beam_search(model, states, mask, beams, longest)
        assert found.tokens.equal(tokens), (seed, beams, longest)
        torch.testing.assert_close(found.logprobs, logprobs, rtol=1e-5, atol=1e-4)
        seen |= set(lengths(tokens))
    assert len(seen) > 4  # the searches ended early, late and not at all


def test_every_family_that_shares_passages_is_compared() -> None:
    assert set(MODELS) == FAMILIES and set(PAIRS) == DECODERS


@pytest.mark.parametrize("share", [0.0, 0.75, 1.0])
def test_a_context_is_searched_as_if_it_were_alone(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the contexts that are done leave the batch: never, now and then, at once."""
    monkeypatch.setattr(module, "COMPACT_BELOW", share)
    model = build(MODELS["bart"], 0, 3.0)
    states, mask = encoded(model, 0)
    assert share_passages(model)
    sizes: list[int] = []
    model.register_forward_pre_hook(lambda _, __, given: sizes.append(len(given["attention_mask"])), with_kwargs=True)
    together = beam_search(model, states, mask, 4, 30)
    assert (min(sizes) == len(LENGTHS)) == (share == 0)
    for row, length in enumerate(LENGTHS):
        alone = beam_search(model, states[row : row + 1, :length], mask[row : row + 1, :length], 4, 30)
        own = slice(4 * row, 4 * row + 4)
        width = alone.tokens.shape[1]
        assert together.tokens[own, :width].equal(alone.tokens)
        assert (together.tokens[own, width:] == PAD).all()
        torch.testing.assert_close(together.logprobs[own], alone.logprobs, rtol=1e-5, atol=1e-5)


def test_passages_are_kept_once_and_tokens_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the decoder holds of a context grows neither with its beams nor with their moves."""
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


def test_log_probabilities_do_not_add_up_the_errors_of_a_log_softmax() -> None:
    """One likely token among 30,000 rare ones: a float32 sum over them is rounded one way at every step."""
    logits = torch.zeros(30_000)
    logits[7], logits[8] = 8.0, 4.0
    exact = logits.double().log_softmax(0)
    drift = (logits.log_softmax(0)[7] - exact[7]).abs()
    assert 30 * drift > 1e-4  # else this test says nothing
    search = module._Search(1, 2, 30, SpecialTokens(START, END, PAD), logits.device)
    for rows in [1] + 29 * [2]:
        search.step(logits.repeat(rows, 1))
    found = search.result()
    for tokens, logprob in zip(found.tokens, found.logprobs.double(), strict=True):
        torch.testing.assert_close(logprob, exact[tokens].sum(), rtol=1e-6, atol=0)  # 30 float32 additions
    assert found.tokens[0].tolist() == 30 * [7]


def test_other_models_are_left_to_the_library() -> None:
    sizes: dict[str, Any] = {"d_model": 16, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    led = LEDForConditionalGeneration(LEDConfig(vocab_size=VOCABULARY, encoder_layers=1, decoder_layers=1, **sizes))
    assert not share_passages(led)
    eager = MODELS["bart"]()
    eager.set_attn_implementation("eager")
    assert not share_passages(eager) and eager.config._attn_implementation == "eager"


def test_what_else_the_model_does_stays_as_it_was() -> None:
    model = build(MODELS["t5"], 0, 0.0)
    states, mask = encoded(model, 0)
    before = by_the_library(model, states, mask, 3, 8)
    assert share_passages(model)
    after = by_the_library(model, states, mask, 3, 8)
    assert before[0].equal(after[0]) and before[1].equal(after[1])
