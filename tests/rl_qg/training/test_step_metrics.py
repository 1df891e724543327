"""The metrics between two log lines, by hand."""

import json
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator

from rl_qg.training import step_metrics
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


class Event:
    """One of a GPU that is two seconds behind: it is not reached before the host waits, and reading it waits."""

    reached, queued = 0.0, 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        Event.queued += 2.0
        self.at = Event.queued

    def elapsed_time(self, end: "Event") -> float:
        assert Event.reached >= end.at, "read before the GPU has come there"
        return 1000 * (end.at - self.at)


def test_on_a_gpu_the_seconds_of_a_part_are_those_of_its_work(accelerator: Accelerator, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(step_metrics, "PartialState", lambda: SimpleNamespace(device=torch.device("cuda")))
    metrics = StepMetrics()
    for _ in range(2):
        with metrics.timed("update"):
            pass  # the host has only queued the work
    metrics.add(loss=(torch.tensor(1.0), 1))
    read = metrics._global_sums

    def wait(accelerator: Accelerator) -> dict[str, list[float]]:
        Event.reached = Event.queued  # what reads the sums waits for all that was queued before
        return read(accelerator)

    monkeypatch.setattr(metrics, "_global_sums", wait)
    assert metrics.collect(accelerator)["seconds_update"] == 4.0
    assert "seconds_update" not in metrics.collect(accelerator)
