"""Products of an update by oneDNN: the values and gradients of plain layers, in float64 and in a whole model."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rl_qg.readers.encoders import fine_tuning_arguments
from rl_qg.settings import QASettings
from rl_qg.training.cpu_products import OneDnnLinear, use_fastest_products
from tests.rl_qg.training.word_task import WORDS, data, trainer
from tests.tiny_models import tiny_bart, tiny_t5, word_tokenizer


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(3, 5, 24), (64, 24), (1, 24), (130, 24)])
def test_output_and_gradients_are_those_in_float64(shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(24, 40, bias=bias)
    layer = copy.deepcopy(plain)
    assert use_fastest_products(layer) == 1 and type(layer) is OneDnnLinear
    x = torch.randn(shape, requires_grad=True)
    exact, wide = copy.deepcopy(plain).double(), x.detach().double().requires_grad_()
    weights = torch.randn(*shape[:-1], 40)
    output, expected = layer(x), exact(wide)
    torch.testing.assert_close(output.double(), expected, rtol=1e-5, atol=1e-5)
    (output * weights).sum().backward()
    (expected * weights.double()).sum().backward()
    for found, wanted in [(x, wide), *zip(layer.parameters(), exact.parameters(), strict=True)]:
        assert found.grad is not None and wanted.grad is not None
        torch.testing.assert_close(found.grad.double(), wanted.grad, rtol=1e-4, atol=1e-5)


def test_a_frozen_weight_has_no_gradient_and_passes_one_on() -> None:
    layer = nn.Linear(8, 4)
    layer.requires_grad_(False)
    plain = copy.deepcopy(layer)
    use_fastest_products(layer)
    found, expected = (torch.ones(2, 8, requires_grad=True) for _ in range(2))
    layer(found).sum().backward()
    plain(expected).sum().backward()
    assert layer.weight.grad is None
    torch.testing.assert_close(found.grad, expected.grad)


def test_mixed_precision_is_left_to_the_library() -> None:
    layer = nn.Linear(8, 4)
    plain = copy.deepcopy(layer)
    use_fastest_products(layer)
    x = torch.randn(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(x).dtype is torch.bfloat16
        assert layer(x).equal(plain(x))


def test_training_in_bf16_is_compared_with_float32(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    for module in ("rl_qg.training.trainer", "rl_qg.readers.encoders"):
        monkeypatch.setattr(
            f"{module}.warn_if_slower",
            lambda dtype, device, instead, *, trained: asked.append((dtype, device.type, instead, trained)),
        )
    for precision in ("no", "bf16"):
        trainer(tmp_path / precision, ce_epochs=0, max_steps=4, watch_kl=False, bf16=precision == "bf16")
        fine_tuning_arguments(QASettings(), tmp_path, seed=0, use_cpu=True, precision=precision)
    assert asked == [(torch.bfloat16, "cpu", "training.precision=no", True)] * 2


def test_it_is_used_only_where_it_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RL_QG_PACKED", "never")
    layer = nn.Linear(8, 4)
    assert use_fastest_products(layer) == 0 and type(layer) is nn.Linear


@pytest.mark.parametrize("build", [tiny_bart, tiny_t5])
def test_a_whole_update_is_the_same_within_rounding(
    tmp_path: Path, build: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {}
    for choice in ("always", "never"):
        monkeypatch.setenv("RL_QG_PACKED", choice)
        model = build(len(word_tokenizer(WORDS)), seed=1)
        subject = trainer(tmp_path / choice, model, ce_epochs=0, max_steps=4, watch_kl=False)
        kinds = {type(layer) for layer in subject.model.modules() if isinstance(layer, nn.Linear)}
        assert kinds == {OneDnnLinear if choice == "always" else nn.Linear}
        subject.state.max_steps, subject.state.global_step = 4, 1
        loss = subject.compute_loss(subject.model.train(), dict(subject.encoder(data(8))))
        gradients = torch.autograd.grad(loss, list(subject.model.parameters()))
        found[choice] = loss, torch.cat([value.flatten() for value in gradients])
    (loss, fast), (expected, slow) = found["always"], found["never"]
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
    assert slow.norm() > 1e-2 and (fast - slow).norm() < 1e-4 * slow.norm()
