"""Linear layers in oneDNN's layout: the same numbers, and back to plain layers."""

import copy
import pickle

import pytest
import torch
from torch import nn
from transformers import GPT2LMHeadModel
from transformers.activations import NewGELUActivation

from rewards.arithmetic import PackedLinear, can_pack, pack, unpack
from tests.tiny_models import tiny


@pytest.fixture
def model():
    built = tiny(GPT2LMHeadModel, 50, layers=2, positions=32).requires_grad_(False)
    if not can_pack(built.dtype):
        pytest.skip("this PyTorch has no oneDNN")
    return built


IDS = torch.arange(20).reshape(2, 10)


def linear_layers(model):
    return [type(module).__name__ for module in model.modules() if type(module).__name__ in ("Linear", "Conv1D")]


@pytest.mark.parametrize("inputs", [(3, 7), (2, 5, 7), (0, 7)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_computes_what_the_plain_one_computes(inputs, bias):
    torch.manual_seed(1)
    plain, x = nn.Linear(7, 11, bias=bias), torch.randn(inputs)
    packed = PackedLinear(plain.weight, plain.bias)
    torch.testing.assert_close(packed(x), plain(x))
    torch.testing.assert_close(packed.unpacked()(x), plain(x))
    assert packed.weight.dtype is torch.float32
    assert not packed(x.requires_grad_()).requires_grad


def test_a_row_is_the_same_to_the_last_digit_beside_any_number_of_others():
    torch.manual_seed(1)
    packed, x = PackedLinear(torch.randn(500, 96), torch.randn(500)), torch.randn(200, 96)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several divide a product by its number of rows
    whole = packed(x)
    same = [torch.equal(packed(x[40 : 40 + rows]), whole[40 : 40 + rows]) for rows in (1, 7, 8, 20, 63, 64, 65, 130)]
    torch.set_num_threads(threads)
    assert all(same), same


def test_a_model_computes_what_it_computed_before(model):
    want, before = model(IDS).logits, linear_layers(model)
    pack(model)
    assert linear_layers(model) == []
    assert not any(isinstance(module, NewGELUActivation) for module in model.modules())
    torch.testing.assert_close(model(IDS).logits, want, atol=1e-5, rtol=1e-5)
    unpack(model)
    assert linear_layers(model) == before
    torch.testing.assert_close(model(IDS).logits, want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_packed_model_can_be_copied(model, duplicate):
    pack(model)
    torch.testing.assert_close(duplicate(model)(IDS).logits, model(IDS).logits)


def test_the_type_of_the_numbers_decides():
    assert not can_pack(torch.float16)
    assert not can_pack(torch.float64)
