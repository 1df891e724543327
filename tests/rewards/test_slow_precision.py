"""The warning about types that are slower than float32, from times that are given."""

import logging

import pytest
import torch
import torch.utils.flop_counter

import rewards.measured_products as products
import rewards.slow_precision as precision
from rewards import MetricInputError
from rewards.frozen import FrozenModel
from rewards.slow_precision import warn_if_slower

CPU = torch.device("cpu")


@pytest.fixture
def times(tmp_path, monkeypatch):
    """Times of float32 and of the other type, in milliseconds; what was timed is noted."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(products.VARIABLE, "measure")
    monkeypatch.setattr(products, "_known", {})
    monkeypatch.setattr(precision, "_warned", set())
    given, calls = {"times": (2.0, 9.0)}, []

    def milliseconds(exact, rough, x):
        assert exact(x).dtype is x.dtype is torch.float32
        calls.append(rough(x).dtype)
        return given["times"]

    monkeypatch.setattr(precision, "milliseconds", milliseconds)
    return given, calls


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_one_line_for_each_type_says_how_slow_it_is_and_what_to_set(times, caplog):
    for _ in range(3):
        warn_if_slower(torch.bfloat16, CPU, "training.precision=no")
    (line,) = warnings_of(caplog)
    assert line == (
        "bfloat16 takes 4.5 times as long as float32 on this processor (frozen layer of 768 x 768): "
        "set training.precision=no to be faster"
    )
    warn_if_slower(torch.float16, CPU, "dtype=float32")
    assert warnings_of(caplog)[1:] == [
        line.replace("bfloat16", "float16").replace("training.precision=no", "dtype=float32")
    ]
    assert times[1] == [torch.bfloat16, torch.float16]


@pytest.mark.parametrize(("factor", "lines"), [(0.5, 0), (products.MARGIN - 0.01, 0), (products.MARGIN + 0.01, 1)])
def test_times_decide(times, caplog, factor, lines):
    times[0]["times"] = (2.0, 2.0 * factor)
    warn_if_slower(torch.bfloat16, CPU, "x")
    assert len(warnings_of(caplog)) == lines


def test_times_are_measured_once_on_a_machine_and_for_each_limit_of_onednn(times, caplog, monkeypatch):
    for limit in (None, "AVX2"):
        if limit:
            products._machine.cache_clear()
            monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)
        for _ in range(2):  # as in another process
            monkeypatch.setattr(products, "_known", {})
            monkeypatch.setattr(precision, "_warned", set())
            warn_if_slower(torch.bfloat16, CPU, "x")
    products._machine.cache_clear()
    assert len(times[1]) == 2 and len(warnings_of(caplog)) == 4


@pytest.mark.parametrize(
    ("dtype", "device"), [(torch.float32, "cpu"), (torch.float64, "cpu"), (torch.bfloat16, "meta")]
)
def test_other_types_and_devices_are_not_timed(times, caplog, dtype, device):
    warn_if_slower(dtype, torch.device(device), "x")
    assert not times[1] and not warnings_of(caplog)


@pytest.mark.parametrize("choice", ["always", "never"])
def test_nothing_is_timed_where_the_environment_decides(times, caplog, monkeypatch, choice):
    monkeypatch.setenv(products.VARIABLE, choice)
    warn_if_slower(torch.bfloat16, CPU, "x")
    assert not times[1] and not warnings_of(caplog)
    monkeypatch.setenv(products.VARIABLE, "sometimes")
    with pytest.raises(MetricInputError, match="does not exist"):
        warn_if_slower(torch.bfloat16, CPU, "x")


def test_a_frozen_model_warns(times, caplog, monkeypatch, folders):
    monkeypatch.setattr(products, "milliseconds", lambda plain, packed, x: (1.0, 2.0))
    FrozenModel(folders["gpt2"], "causal", device="cpu", dtype="float32")
    assert not warnings_of(caplog)
    FrozenModel(folders["gpt2"], "causal", device="cpu", dtype="bfloat16")
    (line,) = warnings_of(caplog)
    assert line.endswith("set dtype=float32 (reward.dtype=float32) to be faster")


def test_training_is_timed_with_its_gradients_and_kept_apart(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(products.VARIABLE, "measure")
    monkeypatch.setattr(products, "_known", {})
    counted = []

    def milliseconds(exact, rough, x):
        for layer in (exact, rough):
            with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
                layer(x)
            counted.append(counter.get_total_flops())
        return (2.0, 1.0)

    monkeypatch.setattr(precision, "milliseconds", milliseconds)
    for trained in (False, True, False, True):
        warn_if_slower(torch.bfloat16, CPU, "x", trained=trained)
    once = 2 * precision.ROWS * precision.WIDTH**2
    assert counted == [once, once, 3 * once, 3 * once]


def test_random_numbers_are_those_of_a_run_that_does_not_measure(times):
    before = torch.get_rng_state()
    warn_if_slower(torch.bfloat16, CPU, "x")
    assert times[1] and torch.get_rng_state().equal(before)
