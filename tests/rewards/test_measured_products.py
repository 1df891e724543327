"""Which product is chosen, from times that are given; no test depends on real ones."""

import json
import os
from functools import partial

import pytest
import torch
from torch import nn
from transformers import GPT2LMHeadModel

import rewards.measured_products as products
from rewards import MetricInputError
from rewards.packed import PackedLinear, can_pack, pack
from rl_qg.training.cpu_products import use_fastest_products
from tests.tiny_models import tiny


@pytest.fixture
def times(tmp_path, monkeypatch):
    """Times by inputs and outputs that replace measured ones; the calls are noted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(products.VARIABLE, "measure")
    monkeypatch.setattr(products, "_known", {})
    given, calls = {}, []

    def milliseconds(plain, packed, x):
        size = (x.shape[1], plain(x).shape[1])
        calls.append((*size, len(x)))
        return given.get(size, (2.0, 1.0))

    monkeypatch.setattr(products, "milliseconds", milliseconds)
    return given, calls


def packed_sizes(rows=1000):
    model = tiny(GPT2LMHeadModel, 50, hidden=16, layers=2, positions=32).requires_grad_(False)
    if not can_pack(model):
        pytest.skip("this PyTorch has no oneDNN")
    ids = torch.arange(20).reshape(2, 10)
    want = model(ids).logits
    pack(model, rows)
    torch.testing.assert_close(model(ids).logits, want, atol=1e-6, rtol=1e-6)
    layers = [module for module in model.modules() if isinstance(module, PackedLinear)]
    return sorted({tuple(reversed(layer.weight.shape)) for layer in layers})


def test_each_size_is_chosen_by_its_own_times(times):
    given, calls = times
    given |= {(16, 64): (1.0, 2.0), (16, 50): (1.0, 1.2)}
    assert packed_sizes() == [(16, 16), (16, 48), (64, 16)]
    assert sorted(calls) == [(16, 16, 1000), (16, 48, 1000), (16, 50, 1000), (16, 64, 1000), (64, 16, 1000)]


def test_near_a_tie_the_packed_one_is_chosen(times):
    given, _ = times
    given |= {(16, 64): (1.0, products.MARGIN - 0.01), (16, 48): (1.0, products.MARGIN + 0.01)}
    chosen = packed_sizes()
    assert (16, 64) in chosen and (16, 48) not in chosen


def test_a_machine_is_measured_once(times, monkeypatch):
    given, calls = times
    given[16, 64] = (1.0, 2.0)
    first = packed_sizes()
    measured = len(calls)
    assert packed_sizes() == first
    monkeypatch.setattr(products, "_known", {})  # as in another process
    given.clear()
    assert packed_sizes() == first
    assert len(calls) == measured
    kept = json.loads(products.cache_file().read_text())
    assert len(kept) == measured
    assert all("torch" in key and "float32" in key and "rows" in key for key in kept)


def test_processes_that_measure_at_once_make_the_choice_of_the_first(times, monkeypatch):
    path, layer = products.cache_file(), nn.Linear(3, 2)
    packed_is_faster = partial(products.packed_is_faster, layer, lambda: layer, (3, 2), 4)
    assert packed_is_faster()
    ((key, _),) = json.loads(path.read_text()).items()
    path.unlink()
    monkeypatch.setattr(products, "_known", {})

    def while_another_does(plain, packed, x):
        path.write_text(json.dumps({key: [1.0, 2.0], "another layer": [1.0, 1.0]}))
        return (2.0, 1.0)

    monkeypatch.setattr(products, "milliseconds", while_another_does)
    assert not packed_is_faster()
    assert json.loads(path.read_text()) == {key: [1.0, 2.0], "another layer": [1.0, 1.0]}


def test_a_run_is_the_same_whether_it_measures_or_not(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(products.VARIABLE, "measure")
    monkeypatch.setattr(products, "_known", {})
    model = tiny(GPT2LMHeadModel, 50, hidden=16, layers=2, positions=32).requires_grad_(False)
    trained = nn.Linear(7, 5)
    before = torch.get_rng_state()
    pack(model, 100)
    use_fastest_products(trained)
    assert products.cache_file().exists()
    assert torch.get_rng_state().equal(before)


def test_a_user_without_a_home(monkeypatch):
    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(products.Path, "expanduser", no_home)
    assert products.cache_file().name == "products.json"


@pytest.mark.parametrize("change", ["machine", "rows"])
def test_another_situation_is_measured_again(times, monkeypatch, change):
    _, calls = times
    packed_sizes()
    measured = len(calls)
    if change == "machine":
        monkeypatch.setattr(products, "_machine", lambda: "another")
    packed_sizes(rows=64 if change == "rows" else 1000)
    assert len(calls) == 2 * measured


@pytest.mark.parametrize("content", ["", "{", "[]", "3", '{"a": 1}', '{"a": [1]}'])
def test_a_damaged_file_is_replaced(times, content):
    path = products.cache_file()
    path.parent.mkdir()
    path.write_text(content)
    packed_sizes()
    assert len(json.loads(path.read_text())) == len(times[1])
    assert sorted(os.listdir(path.parent)) == [path.name, path.with_suffix(".lock").name]


def test_a_folder_that_cannot_be_written_is_no_error(times, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert packed_sizes()
    assert times[1]


@pytest.mark.parametrize(("choice", "packed"), [("always", True), ("never", False)])
def test_the_environment_decides_without_measuring(times, monkeypatch, choice, packed):
    monkeypatch.setenv(products.VARIABLE, choice)
    assert bool(packed_sizes()) == packed
    assert not times[1]
    assert not products.cache_file().exists()


def test_an_unknown_choice(monkeypatch):
    monkeypatch.setenv(products.VARIABLE, "sometimes")
    with pytest.raises(
        MetricInputError, match="RL_QG_PACKED='sometimes' does not exist; use always, never or measure"
    ):
        products.packed_is_faster(nn.Linear(2, 2), lambda: nn.Linear(2, 2), (2, 2), 1)


def test_both_layers_are_called_equally_often_on_one_thread():
    calls, before = [], torch.get_num_threads()
    layers = [lambda x, name=name: calls.append((name, torch.get_num_threads())) for name in ("plain", "packed")]
    found = products.milliseconds(*layers, torch.ones(1, 1))
    assert calls == [("plain", 1), ("packed", 1)] * (products.ROUNDS + 1)
    assert torch.get_num_threads() == before
    assert min(found) >= 0
