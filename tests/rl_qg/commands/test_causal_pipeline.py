"""The whole job with a causal generator, as a user runs it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with an empty home and no hub."""
    folder = tmp_path_factory.mktemp("home")
    return {**os.environ, "HOME": str(folder), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


def pipeline(home: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from rl_qg.commands.cli import main; main()",
        "pipeline",
        "preset=smoke",
        *arguments,
    ]
    return subprocess.run(command, env=home, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_the_pipeline_runs_end_to_end(home: dict[str, str], tmp_path: Path, algorithm: str) -> None:
    run = tmp_path / "run"
    command = f"algorithm={algorithm}", "model=miniature-gpt2", f"output_dir={run}"
    done = pipeline(home, *command)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in "ce/config.json scst/config.json metrics.jsonl samples.jsonl evaluation.json report.html".split():
        assert (run / name).exists(), name
    questions = [json.loads(line) for line in (run / "questions.jsonl").read_text().splitlines()]
    assert any(question["question"] for question in questions)
    assert all(question["logprob"] < 0 for question in questions)
    assert json.loads((run / "qa" / "augmented" / "qa_metrics.json").read_text())["total"] > 0
    for noise in ("FutureWarning", "Traceback", "telemetry", "DeepSpeed", "real_accelerator"):
        assert noise not in done.stderr
    before = {path: path.stat().st_mtime_ns for path in run.rglob("model.safetensors")}
    assert pipeline(home, *command).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing was trained twice
