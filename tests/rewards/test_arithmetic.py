"""The rule of packed products, from features that are given, and the warning about types of 16 bits."""

import copy
import json
import logging

import pytest
import torch
from torch import nn
from transformers import GPT2LMHeadModel

import rewards.arithmetic as rule
from rewards import MetricInputError
from rewards.arithmetic import (
    SMALLEST,
    VOCABULARY,
    PackedLinear,
    arithmetic,
    can_pack,
    pack,
    packed,
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


@pytest.mark.parametrize(
    ("features", "layers"),
    [({}, {(768, 768), (1, SMALLEST)}), ({"onednn": ()}, {(768, 768), (1, SMALLEST)}), ({"amd": False}, set())],
)
def test_a_model_that_decodes_packs_smaller_layers_without_avx_512_too(processor, features, layers):
    processor(**features)
    sizes = ((768, 768), (1, SMALLEST), (1, SMALLEST - 1))
    assert {size for size in sizes if packs(*size, decodes=True)} == layers


def policy():
    """A model with layers in two depths, with and without bias, large and small."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(SMALLEST // 256, 256), nn.Sequential(nn.ReLU(), nn.Linear(256, 512, bias=False)))
    return model.append(nn.Linear(512, 4))


@pytest.mark.parametrize("features", [{}, {"onednn": ()}])
def test_a_policy_is_packed_for_a_rollout_alone(processor, features):
    processor(**features)
    model = policy()
    if not can_pack(torch.float32):
        pytest.skip("this PyTorch has no oneDNN")
    plain, layers, x = copy.deepcopy(model), [*model.modules()], torch.randn(5, 3, SMALLEST // 256)
    for _ in range(2):  # of other weights each time
        with torch.no_grad(), packed(model):
            kinds = [type(layer) for layer in model.modules() if type(layer) is not nn.ReLU]
            assert kinds[1:] == [PackedLinear, nn.Sequential, PackedLinear, nn.Linear]
            torch.testing.assert_close(model(x), plain(x), atol=1e-5, rtol=1e-5)
        assert [*map(id, model.modules())] == [*map(id, layers)]
        for one in (model, plain):
            one.zero_grad()
            one(x).square().sum().backward()
            torch.optim.SGD(one.parameters(), 1e-4).step()
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)  # updates are as before, to the last digit
    with pytest.raises(RuntimeError, match="out of memory"), packed(model):
        raise RuntimeError("out of memory")
    assert [*map(id, model.modules())] == [*map(id, layers)]


def test_a_packed_policy_multiplies_in_the_type_of_autocast(processor):
    model, x = policy(), torch.randn(5, SMALLEST // 256)
    if not can_pack(torch.bfloat16) or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        pytest.skip("oneDNN has no bfloat16 here")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        want = model(x)
        with packed(model):
            assert model[0].weight.dtype is torch.bfloat16
            found = model(x)
    assert found.dtype is want.dtype is torch.bfloat16
    torch.testing.assert_close(found, want)
    processor(onednn=())
    with torch.autocast("cpu", torch.bfloat16), packed(model):
        assert type(model[0]) is nn.Linear  # there the layout would be slow


@pytest.mark.parametrize("choice", ["never", "rule"])
def test_a_policy_is_as_it_was_where_a_user_or_the_processor_says_so(processor, monkeypatch, choice):
    processor(amd=choice == "never")
    monkeypatch.setenv(rule.VARIABLE, choice)
    model = policy()
    with packed(model):
        assert type(model[0]) is nn.Linear


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
    if not can_pack(model.dtype):
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
