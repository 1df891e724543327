"""The comparison of runs that the fault injection uses: what it must find, and what it must ignore."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.distributed.comparison import differences


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs with equal results."""
    whole = tmp_path / "whole" / "run"
    (whole / "scst").mkdir(parents=True)
    (whole / "checkpoint-2").mkdir()
    save_file({"a": torch.tensor([1.0, 2.0]), "x.k_proj.bias": torch.zeros(2)}, whole / "scst" / "model.safetensors")
    (whole / "checkpoint-2" / "trainer_state.json").write_text("{}")
    lines = [{"step": step, "loss": 1.0 / step, "seconds_reward": 0.1} for step in (1, 2, 3)]
    (whole / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (whole / "augmented.report.json").write_text(json.dumps({"path": str(whole / "augmented.json"), "kept": 3}))
    resumed = tmp_path / "resumed" / "run"
    shutil.copytree(whole, resumed)
    report = resumed / "augmented.report.json"
    report.write_text(report.read_text().replace(str(whole), str(resumed)))
    return whole, resumed


def test_times_and_run_records_are_ignored(runs: tuple[Path, Path]) -> None:
    _, resumed = runs
    log = resumed / "metrics.jsonl"
    log.write_text(log.read_text().replace('"seconds_reward": 0.1', '"seconds_reward": 0.7'))
    (resumed / "run.json").write_text("another date")
    assert differences(*runs) == []


def _append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def _add(path: Path, key: str, by: float) -> None:
    weights = load_file(path)
    weights[key] = weights[key] + by
    save_file(weights, path)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda run: _append(run / "metrics.jsonl", '{"step": 3, "lo'), "metrics.jsonl: 4 lines instead of 3"),
        (lambda run: _append(run / "metrics.jsonl", '{"step": 3}\n'), "metrics.jsonl: 4 lines instead of 3"),
        (lambda run: (run / "metrics.jsonl").write_text('{"step": 1}\n'), "metrics.jsonl: 1 lines instead of 3"),
        (lambda run: (run / ".run.json.12.part").write_text(""), ".run.json.12.part: left over"),
        (lambda run: (run / "scst" / "model.safetensors").unlink(), "scst/model.safetensors: missing"),
        (lambda run: _add(run / "scst" / "model.safetensors", "a", 1e-6), "scst/model.safetensors: 1 of 2 tensors"),
        (lambda run: _add(run / "scst" / "model.safetensors", "x.k_proj.bias", 1e-6), "scst/model.safetensors: 1"),
        (lambda run: (run / "augmented.report.json").write_text("{}"), "augmented.report.json: line 1"),
        (
            lambda run: (run / "checkpoint-2" / "trainer_state.json").unlink(),
            "checkpoint-2/trainer_state.json: missing",
        ),
    ],
)
def test_every_difference_is_reported(runs: tuple[Path, Path], change: object, expected: str) -> None:
    change(runs[1])  # type: ignore[operator]
    (line,) = differences(*runs)
    assert line.startswith(expected)


def test_close_allows_small_differences_only(runs: tuple[Path, Path]) -> None:
    whole, resumed = runs
    weights, log = resumed / "scst" / "model.safetensors", resumed / "metrics.jsonl"
    _add(weights, "a", 1e-6)
    _add(weights, "x.k_proj.bias", 1e-2)  # has no effect on the output of the model
    log.write_text(log.read_text().replace('"loss": 0.5', '"loss": 0.500001'))
    assert len(differences(whole, resumed)) == 2
    assert differences(whole, resumed, close=True) == []
    _add(weights, "a", 1e-3)
    log.write_text(log.read_text().replace('"loss": 0.500001', '"loss": 0.51'))
    assert len(differences(whole, resumed, close=True)) == 2
