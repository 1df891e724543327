"""Rows of one context share its encoder pass and its keys and values: the same logits and gradients with less work."""

from typing import Any

import pytest
import torch
from transformers import BertLMHeadModel, GPT2LMHeadModel

from rl_qg.generation.sharing import cross_attention_projections, share_encoder_pass
from tests.tiny_models import tiny_bart, tiny_pair, tiny_prefix, tiny_t5

VOCABULARY = 20
IDS = torch.tensor([[5, 6, 7, 8, 9], [10, 11, 1, 1, 1], [12, 13, 14, 1, 1]])
MASK = IDS.ne(1).long()
ROWS = {
    "gold and one sample": [0, 1, 2, 0, 1, 2],
    "samples alone": [0, 0, 0, 1, 1, 1, 2, 2, 2],
    "gold of two contexts": [2, 0, 0, 0, 1, 1, 2, 2],
    "a context without rows": [0, 0, 2, 2],
}


def bert_decoder(vocabulary: int, **options: Any) -> Any:
    return tiny_pair(vocabulary, BertLMHeadModel, pad_token_id=1, **options)


def gpt2_decoder(vocabulary: int, **options: Any) -> Any:
    return tiny_pair(vocabulary, GPT2LMHeadModel, pad_token_id=1, **options)


BUILDERS = {
    "bart": tiny_bart,
    "t5": tiny_t5,
    "bert decoder": bert_decoder,
    "gpt2 decoder": gpt2_decoder,
    "prefix": tiny_prefix,
}


def targets(rows: int) -> torch.Tensor:
    return torch.randint(5, VOCABULARY, (rows, 4), generator=torch.Generator().manual_seed(1))


def gradients(model: Any, logits: torch.Tensor) -> dict[str, torch.Tensor]:
    weights = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    model.zero_grad()
    (weights * logits).sum().backward()
    return {name: value.grad.clone() for name, value in model.named_parameters() if value.grad is not None}


def shared_and_plain(model: Any, context: torch.Tensor) -> list[tuple[torch.Tensor, dict[str, torch.Tensor]]]:
    given = {"attention_mask": MASK[context], "decoder_input_ids": targets(len(context))}
    with share_encoder_pass(model, MASK, context):
        shared = model(input_ids=IDS, **given).logits
    plain = model(input_ids=IDS[context], **given).logits
    return [(logits, gradients(model, logits)) for logits in (shared, plain)]


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)
def test_logits_and_gradients_are_those_of_separate_rows(build: Any, rows: list[int]) -> None:
    model = build(VOCABULARY, seed=1)
    (shared, found), (plain, expected) = shared_and_plain(model, torch.tensor(rows))
    torch.testing.assert_close(shared, plain, rtol=1e-5, atol=1e-5)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-4, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize(("build", "count"), [(tiny_bart, 2), (tiny_t5, 2), (bert_decoder, 2), (gpt2_decoder, 0)])
def test_keys_and_values_are_projected_once_for_each_context(build: Any, count: int) -> None:
    """In GPT-2 one layer projects both, so there it is left as it is."""
    model, seen = build(VOCABULARY, seed=1), list[tuple[int, int]]()
    layers = cross_attention_projections(model)
    assert len(layers) == count  # a decoder of one layer
    context = torch.tensor([0, 1, 2] + 4 * [0] + 4 * [1] + 4 * [2])
    given = {"attention_mask": MASK[context], "decoder_input_ids": targets(len(context))}

    def note(layer: Any, x: torch.Tensor) -> torch.Tensor:
        seen.append((len(x), len(context)))
        return original(layer, x)

    original = torch.nn.Linear.forward
    for layer in layers:
        layer.forward = note.__get__(layer)
    with share_encoder_pass(model, MASK, context):
        model(input_ids=IDS, **given)
    assert seen == count * [(3, 15)]
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)  # nothing stays behind


def test_layers_that_run_again_in_the_backward_pass_are_left_alone() -> None:
    context = torch.tensor([0, 0, 1, 1, 2, 2])
    model = tiny_bart(VOCABULARY, seed=1).train()
    expected = shared_and_plain(model, context)[0][1]
    model.gradient_checkpointing_enable()
    found = shared_and_plain(model, context)[0][1]
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
