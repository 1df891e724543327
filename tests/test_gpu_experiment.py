"""The GPU experiment, with tiny sizes on a CPU: every part runs, and once; the page has what there is."""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = [str(ROOT / "experiments" / name) for name in ("gpu", "speed", "serving")]
sys.path[:0] = FOLDERS

import packages  # noqa: E402
import part  # noqa: E402
import table  # noqa: E402
from parity import Waits, difference  # noqa: E402
from reward_speed import agreement  # noqa: E402
from steps import planned  # noqa: E402

for folder in FOLDERS:
    sys.path.remove(folder)

ONLY_ON_A_GPU = {"waits", "launch ZeRO-2", "launch ZeRO-3"}


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = {"PYTHON": sys.executable, "MODELS": str(folder / "models"), "RESULTS": str(folder / "results")}
    environment = {**os.environ, **where, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        ["sh", "experiments/gpu/run.sh", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpu")


@pytest.mark.parametrize("name", table.PARTS)
def test_each_part_runs_and_measures_nothing_twice(folder: Path, name: str) -> None:
    first = run(folder, "--tiny", name)
    assert first.returncode == 0, first.stdout + first.stderr
    path = folder / "results" / f"{name}.json"
    found = json.loads(path.read_text())
    assert found["measured"] and {*found["skipped"]} <= ONLY_ON_A_GPU
    assert {name for name, value in found["measured"].items() if value is None} == {*found["skipped"]}
    again = run(folder, "--tiny", name)
    assert again.returncode == 0, again.stdout + again.stderr
    assert json.loads(path.read_text()) == found
    begun = {line.removesuffix(" …") for line in again.stdout.splitlines() if line.endswith(" …")}
    assert begun <= ONLY_ON_A_GPU


def test_each_page_has_all_parts(folder: Path) -> None:
    """Runs after the parts, in the same process."""
    page = (folder / "results" / "gpu.md").read_text()
    assert "Not measured yet" not in page and "failed" not in page and "Tiny sizes" in page
    assert all(f"## {title}" in page for title, _ in table.SECTIONS.values())
    assert "| operation | calls |" in page
    cells = [line.count("|") for line in page.splitlines() if line.startswith("|")]
    assert len(cells) > 60 and "nan" not in page


# --- what is quick


def test_a_page_without_results() -> None:
    page = (ROOT / "experiments" / "speed" / "gpu.md").read_text()
    assert table.page({}).endswith("No GPU has run it yet.\n")
    assert page.startswith(table.TITLE)


def test_a_page_names_what_is_missing_and_what_failed() -> None:
    processor = {"name": "CPU", "cores": 16, "torch": "2.13.0", "gpu": "NVIDIA H200"}
    beside = {"settings": {"size": "full", "transformers": "5.23.0"}, "processor": processor}
    seconds = {"step": 0.5, "rollout": 0.1, "reward": 0.3, "update": 0.1}
    ours: dict[str, Any] = {"first": seconds, "second": seconds, "peak_gib": 12.0, "gflop_needed": {"step": 5000.0}}
    measured = {
        "peak float32": 50_000.0,
        "bart-base | 16 | float32 | trainer": ours,
        "bart-base | 16 | float32 | straightforward": {"step": 1.5},
        "bart-large | 128 | float32 | trainer": None,
    }
    skipped = {"bart-large | 128 | float32 | trainer": "out of memory"}
    page = table.page({"step": {**beside, "measured": measured, "skipped": skipped}})
    row = (
        "| bart-base | 16 | float32 | 1.50 | 0.500 / 0.500 | 0.100 | 0.300 | 0.100 | 3.0 / 3.0 | 0.100 | 20 % | 12.0 |"
    )
    assert row in page and "NVIDIA H200" in page and "Tiny" not in page
    assert "Not measured yet: parity, decode, rewards, launch, server, curve." in page
    assert "- step, bart-large | 128 | float32 | trainer: out of memory" in page


def test_a_failure_costs_no_other_measurement_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(part.signal, "signal", lambda *_: None)
    monkeypatch.setattr(part.transformers.logging, "disable_progress_bar", lambda: None)
    calls: list[str] = []

    def action(name: str, error: BaseException | None) -> Any:
        calls.append(name)
        if error is not None:
            raise error
        return {"seconds": (1.0, 2.0)}

    def measure(errors: dict[str, BaseException | None], minutes: float = 1) -> dict[str, Any]:
        options = argparse.Namespace(output=tmp_path / "found.json", size="tiny", minutes=minutes)
        subject = part.Part(options, {"tokens": (16, 4)})
        for name, error in errors.items():
            subject.measure(name, lambda name=name, error=error: action(name, error))
        with pytest.raises(SystemExit) as end:
            subject.finish()
        found = json.loads(options.output.read_text())
        assert bool(end.value.code) == any(reason.startswith("failed") for reason in found["skipped"].values())
        return found

    memory = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    found = measure(
        {"large": memory, "wrong": ValueError("no such\nthing"), "ended": SystemExit("gone"), "good": None}
    )
    failures = {"wrong": "failed: ValueError: no such", "ended": "failed: SystemExit: gone"}
    assert found["skipped"] == {"large": "out of memory", **failures}
    assert found["measured"]["good"] == {"seconds": [1.0, 2.0]} and found["measured"]["large"] is None
    found = measure({"large": None, "wrong": None, "good": None})
    assert calls == ["large", "wrong", "ended", "good", "large", "wrong"]
    assert found["skipped"] == {"ended": failures["ended"]}
    assert measure({"ended": None}, minutes=0)["skipped"] == {"ended": part.NO_TIME} and len(calls) == 6
    assert "3 measured, 1 skipped (0 failed, 1 for want of time)" in capsys.readouterr().out


def test_the_largest_batch_is_of_one_generator_and_comes_last() -> None:
    plan = [*planned("full")]
    assert plan[-3:] == [("bart-base", 256, precision) for precision in part.PRECISIONS]
    assert max(batch for _, batch, _ in plan[:-3]) == 128 and len(plan) == 3 * 3 * 3 + 3


def test_a_profile_is_a_table_of_operations() -> None:
    of = {"seconds": 0.4, "gpu_seconds": 0.25, "launches": 12000, "operations": [["aten::mm", 310, 4.2, 120.25]]}
    lines = [*table.step({"profile | bart-base | 64 | bf16 | TF32": of})]
    assert "| `aten::mm` | 310 | 4.2 | 120.2 |" in lines
    (line,) = (line for line in lines if "the reward in TF32" in line)
    assert "0.400 s, in which the GPU works 0.250 s; 12,000 launches." in line


@pytest.mark.slow
def test_missing_packages_are_named_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name in ("hydra", "fastapi") else name)
    assert packages.missing(["parity", "step"]) == []
    assert packages.missing(["step", "server"]) == ["hydra-core", "fastapi"]
    assert "pip install -c constraints.txt hydra-core fastapi" in packages.fault("full", ["server"])
    for arguments in (("--tiny", "no-such-part"), ("parity",)):  # the second one has no GPU
        done = run(tmp_path, *arguments)
        assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout


def test_agreement_of_advantages() -> None:
    exact = [1.0, 2.0, 3.0, 11.0, 12.0, 13.0]
    shifted = [value + 5 * (value > 10) for value in exact]  # what is added to all of a passage changes no advantage
    found = agreement(exact, shifted, 3)
    assert found["advantage_correlation"] == pytest.approx(1) and found["same_sign"] == 1
    assert found["rank_correlation"] == pytest.approx(1) and found["largest_difference"] == 5
    turned = agreement(exact, [3.0, 2.0, 1.0, 13.0, 12.0, 11.0], 3)
    assert turned["advantage_correlation"] == pytest.approx(-1) and turned["same_sign"] == pytest.approx(1 / 3)
    assert agreement(exact, [1.0] * 6, 3)["rank_correlation"] is None


def test_differences_of_weights() -> None:
    import torch

    one = {"a": torch.zeros(2), "b": torch.ones(2)}
    assert difference(one, one) == {"equal": True, "differing": 0, "of": 2, "largest_difference": 0.0}
    found = difference(one, {**one, "b": torch.tensor([1.0, 1.5])})
    assert found == {"equal": False, "differing": 1, "of": 2, "largest_difference": 0.5}


def test_waits_are_counted_by_line_in_one_whole_step() -> None:
    waits = Waits()
    for count in (3, 2, 4):
        waits.on_step_begin()
        for _ in range(count):
            waits.note(UserWarning("called a synchronizing CUDA operation"))
        waits.note(UserWarning("another"))
    waits.on_step_begin()
    (place,) = waits.whole_step
    assert waits.whole_step[place] == 4 and place.startswith("tests/test_gpu_experiment.py:")
