"""The rule of packed products, from features that are given, and the warning about types of 16 bits."""

import copy
import json
import logging
import pickle

import pytest
import torch
from torch import nn
from transformers import GPT2LMHeadModel

import rewards.arithmetic as rule
from rewards import MetricInputError
from rewards.arithmetic import (
    FEW_ROWS,
    LARGE,
    SMALLEST,
    VOCABULARY,
    FewRowsLinear,
    PackedLinear,
    arithmetic,
    can_pack,
    multiply_few_rows,
    pack,
    packs,
    warn_if_slow,
)
from rewards.frozen import FrozenModel
from tests.tiny_models import tiny

CPU = torch.device("cpu")


@pytest.fixture
def processor(monkeypatch):
    """Set what the processor is and has; by default an AMD with AVX-512, under the rule."""

    def change(amd=True, onednn=("bf16",), avx512_bf16=False, amx=False, machine="x86_64"):
        monkeypatch.setattr(rule, "_is_amd", lambda: amd)
        monkeypatch.setattr(rule, "_onednn_has", lambda kind: kind in onednn)
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512_bf16)
        monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
        monkeypatch.setattr(rule.platform, "machine", lambda: machine)

    monkeypatch.delenv(rule.VARIABLE)
    monkeypatch.setattr(rule, "_warned", set())
    change()
    return change


@pytest.mark.parametrize(
    ("features", "packed"),
    [
        ({}, {(768, 768), (3072, 768), (1, SMALLEST), (50257, 768), (VOCABULARY, 100)}),
        ({"onednn": ()}, {(50257, 768), (VOCABULARY, 100), (VOCABULARY, 1)}),  # AVX2 alone, or a limit on oneDNN
        ({"amd": False}, set()),  # Intel: MKL uses all instructions
        ({"amd": False, "onednn": ()}, set()),
    ],
)
def test_the_rule(processor, features, packed):
    processor(**features)
    sizes = {(768, 768), (3072, 768), (1, SMALLEST), (1, SMALLEST - 1), (50257, 768)}
    sizes |= {(VOCABULARY, 100), (VOCABULARY, 1), (VOCABULARY - 1, 1)}
    assert {size for size in sizes if packs(*size)} == packed


@pytest.mark.parametrize(("features", "changed"), [({"onednn": ()}, True), ({}, False), ({"amd": False}, False)])
def test_products_of_few_rows_are_those_of_the_layer(processor, monkeypatch, features, changed):
    processor(**features)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(LARGE // 512, 512), nn.Linear(512, 4), nn.Linear(4, LARGE // 4, bias=False))
    model = copy.deepcopy(plain)
    multiply_few_rows(model)
    assert [type(layer) is FewRowsLinear for layer in model] == [changed, False, changed]
    model = pickle.loads(pickle.dumps(model))
    assert model.state_dict().keys() == plain.state_dict().keys()
    for shape in ((1,), (2,), (5, 3), (FEW_ROWS,), (FEW_ROWS + 1,), (0,), ()):
        x = torch.randn(*shape, LARGE // 512)
        with torch.no_grad():
            torch.testing.assert_close(model(x), plain(x))
            assert model(x).is_contiguous()  # FSMT's attention, among others, views it in another shape
    x = torch.randn(5, LARGE // 512)
    gradients = []
    for one in (model, plain):  # in training each product is as before, to the last digit
        one(x).square().sum().backward()
        gradients.append([weight.grad for weight in one.parameters()])
    assert all(torch.equal(*pair) for pair in zip(*gradients, strict=True))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model(x), plain(x))


def test_few_rows_are_multiplied_as_before_where_a_user_says_so(processor, monkeypatch):
    processor(onednn=())
    monkeypatch.setenv(rule.VARIABLE, "never")
    model = nn.Linear(LARGE, 1)
    multiply_few_rows(model)
    assert type(model) is nn.Linear


@pytest.mark.parametrize(("choice", "packed"), [("always", True), ("never", False)])
def test_the_environment_decides_for_every_layer_and_processor(processor, monkeypatch, choice, packed):
    monkeypatch.setenv(rule.VARIABLE, choice)
    for amd in (True, False):
        processor(amd=amd)
        assert packs(1, 1) is packs(10**4, 10**4) is packed


@pytest.mark.parametrize("choice", ["measure", "", "Always"])
def test_an_unknown_choice_is_one_line(processor, monkeypatch, choice):
    monkeypatch.setenv(rule.VARIABLE, choice)
    line = f"RL_QG_PACKED={choice!r} does not exist; use rule, always or never"
    for ask in (lambda: packs(1, 1), arithmetic):
        with pytest.raises(MetricInputError) as fault:
            ask()
        assert str(fault.value) == line


def test_layers_of_a_model_are_packed_by_their_size(processor, monkeypatch):
    monkeypatch.setattr(rule, "SMALLEST", 16 * 64)
    model = tiny(GPT2LMHeadModel, 50, hidden=16, layers=2, positions=32).requires_grad_(False)
    if not can_pack(model):
        pytest.skip("this PyTorch has no oneDNN")
    ids = torch.arange(20).reshape(2, 10)
    want = model(ids).logits
    pack(model)
    torch.testing.assert_close(model(ids).logits, want, atol=1e-6, rtol=1e-6)
    found = {tuple(layer.weight.shape) for layer in model.modules() if isinstance(layer, PackedLinear)}
    assert found == {(64, 16), (16, 64)}  # not (48, 16), (16, 16) and (50, 16)
    model = nn.Sequential(nn.Linear(2, 3))
    pack(model, every=True)
    assert type(model[0]) is PackedLinear


def test_the_record_says_what_was_chosen_and_why(processor, monkeypatch):
    found = arithmetic()
    assert found["packed"] is found["amd"] is found["mkldnn_bf16"] is True
    assert found["threads"] == torch.get_num_threads()
    assert found["reason"].startswith(f"RL_QG_PACKED=rule: on an AMD processor layers of {SMALLEST} weights or more")
    assert json.loads(json.dumps(found)) == found
    processor(amd=False)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    assert (arithmetic()["packed"], arithmetic()["onednn_max_isa"]) == (False, "AVX2")
    monkeypatch.setenv(rule.VARIABLE, "always")
    assert (arithmetic()["packed"], arithmetic()["reason"]) == (True, "RL_QG_PACKED=always")


@pytest.mark.parametrize(
    ("features", "slow"),
    [
        ({}, ["bfloat16", "float16"]),  # AVX-512 without bfloat16: its products are there, but slow
        ({"avx512_bf16": True}, ["float16"]),
        ({"amx": True, "onednn": ("bf16", "fp16")}, []),
        ({"avx512_bf16": True, "onednn": ()}, ["bfloat16", "float16"]),  # limited to AVX2
        ({"machine": "aarch64"}, ["float16"]),
    ],
)
def test_types_without_instructions_are_named_once(processor, caplog, features, slow):
    processor(**features)
    for _ in range(2):
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
            warn_if_slow(dtype, CPU, "training.precision=no")
        warn_if_slow(torch.float16, torch.device("meta"), "x")
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert lines == [
        f"this processor has no instructions for products in {name}, so it is slower than float32: "
        "set training.precision=no to be faster"
        for name in slow
    ]


def test_a_frozen_model_warns(processor, caplog, folders):
    FrozenModel(folders["gpt2"], "causal", device="cpu", dtype="float32")
    assert not caplog.records
    FrozenModel(folders["gpt2"], "causal", device="cpu", dtype="bfloat16")
    (record,) = caplog.records
    assert record.getMessage().endswith("set dtype=float32 (reward.dtype=float32) to be faster")
