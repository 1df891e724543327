"""The comparison that the fault injection stands on: what it must see, and what it must overlook."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.distributed.comparison import differences


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs that left the same behind."""
    whole = tmp_path / "whole" / "run"
    (whole / "scst").mkdir(parents=True)
    (whole / "checkpoint-2").mkdir()
    save_file({"a": torch.tensor([1.0, 2.0]), "x.k_proj.bias": torch.zeros(2)}, whole / "scst" / "model.safetensors")
    (whole / "checkpoint-2" / "trainer_state.json").write_text("{}")
    lines = [{"step": step, "loss": 1.0 / step, "seconds_reward": 0.1} for step in (1, 2, 3)]
    (whole / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (whole / "augmented.report.json").write_text(json.dumps({"path": str(whole / "augmented.json"), "kept": 3}))
    struck = tmp_path / "struck" / "run"
    shutil.copytree(whole, struck)
    report = struck / "augmented.report.json"
    report.write_text(report.read_text().replace(str(whole), str(struck)))
    return whole, struck


def test_equal_runs_are_equal(runs: tuple[Path, Path]) -> None:
    _, struck = runs
    log = struck / "metrics.jsonl"
    log.write_text(log.read_text().replace('"seconds_reward": 0.1', '"seconds_reward": 0.7'))
    (struck / "run.json").write_text("of the day")
    assert differences(*runs) == []


def _append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def _nudge(path: Path, key: str, by: float) -> None:
    weights = load_file(path)
    weights[key] = weights[key] + by
    save_file(weights, path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda run: _append(run / "metrics.jsonl", '{"step": 3, "lo'), "metrics.jsonl: 4 lines instead of 3"),
        (lambda run: _append(run / "metrics.jsonl", '{"step": 3}\n'), "metrics.jsonl: 4 lines instead of 3"),
        (lambda run: (run / "metrics.jsonl").write_text('{"step": 1}\n'), "metrics.jsonl: 1 lines instead of 3"),
        (lambda run: (run / ".run.json.12.part").write_text(""), ".run.json.12.part: left over"),
        (lambda run: (run / "scst" / "model.safetensors").unlink(), "scst/model.safetensors: missing"),
        (lambda run: _nudge(run / "scst" / "model.safetensors", "a", 1e-6), "scst/model.safetensors: 1 of 2 tensors"),
        (lambda run: _nudge(run / "scst" / "model.safetensors", "x.k_proj.bias", 1e-6), "scst/model.safetensors: 1"),
        (lambda run: (run / "augmented.report.json").write_text("{}"), "augmented.report.json: line 1"),
        (
            lambda run: (run / "checkpoint-2" / "trainer_state.json").unlink(),
            "checkpoint-2/trainer_state.json: missing",
        ),
    ],
)
def test_what_is_not_the_same_is_told(runs: tuple[Path, Path], change: object, told: str) -> None:
    change(runs[1])  # type: ignore[operator]
    (line,) = differences(*runs)
    assert line.startswith(told)


def test_close_is_close_and_no_more(runs: tuple[Path, Path]) -> None:
    whole, struck = runs
    weights, log = struck / "scst" / "model.safetensors", struck / "metrics.jsonl"
    _nudge(weights, "a", 1e-6)
    _nudge(weights, "x.k_proj.bias", 1e-2)  # of no effect on what the model does
    log.write_text(log.read_text().replace('"loss": 0.5', '"loss": 0.500001'))
    assert len(differences(whole, struck)) == 2
    assert differences(whole, struck, close=True) == []
    _nudge(weights, "a", 1e-3)
    log.write_text(log.read_text().replace('"loss": 0.500001', '"loss": 0.51'))
    assert len(differences(whole, struck, close=True)) == 2
