"""The metrics between two log lines, by hand."""

import json
import math

import pytest
import torch
from accelerate import Accelerator

from rl_qg.training.step_metrics import StepMetrics


@pytest.fixture(scope="module")
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def test_means_and_rates_by_hand(accelerator: Accelerator) -> None:
    metrics = StepMetrics()
    metrics.add(loss=(torch.tensor(3.0), torch.tensor(2)), length=(10, 4))
    metrics.add(loss=(torch.tensor(1.0), 6), reward=(0.0, 0))
    metrics.count(5)
    with metrics.timed("sampling"):
        pass
    found = metrics.collect(accelerator)
    assert (found["loss"], found["length"]) == (0.5, 2.5) and math.isnan(found["reward"])
    assert found["seconds_sampling"] >= 0 and found["samples_per_second"] > 0
    again = metrics.collect(accelerator)
    assert again.keys() == {"samples_per_second"} and again["samples_per_second"] == 0


def test_a_run_that_resumes_between_two_log_lines_logs_the_same_means(accelerator: Accelerator) -> None:
    """The sums of the steps before the checkpoint are added to those after it; the checkpoint itself is JSON."""
    first = StepMetrics()
    first.add(loss=(torch.tensor(3.0), 2), length=(10, 4))
    first.gather_on_main(accelerator)
    assert first.sums == {"loss": [3.0, 2.0], "length": [10.0, 4.0]}
    stored = json.loads(json.dumps(first.sums))
    resumed = StepMetrics()
    resumed.sums = stored
    for metrics in (first, resumed):
        metrics.add(loss=(torch.tensor(2.0), 8), reward=(1.0, 4))
        assert metrics.sums == {"loss": [5.0, 10.0], "length": [10.0, 4.0], "reward": [1.0, 4.0]}
        found = metrics.collect(accelerator)
        assert {name: found[name] for name in ("loss", "length", "reward")} == {
            "loss": 0.5, "length": 2.5, "reward": 0.25,
        }  # fmt: skip
    assert stored == {"loss": [3.0, 2.0], "length": [10.0, 4.0]}  # the state of the trainer is not changed
