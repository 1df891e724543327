"""The whole job with a causal generator, as a user runs it."""

import json
from pathlib import Path

import pytest

from tests.processes import rl_qg

pytest.importorskip("trl")


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_the_pipeline_runs_end_to_end(home: dict[str, str], tmp_path: Path, algorithm: str) -> None:
    run = tmp_path / "run"
    command = "pipeline", "preset=smoke", f"algorithm={algorithm}", "model=miniature-gpt2", f"output_dir={run}"
    done = rl_qg(home, *command, fresh=algorithm == "rloo")
    assert done.returncode == 0, done.stderr[-3000:]
    for name in "ce/config.json scst/config.json metrics.jsonl samples.jsonl evaluation.json report.html".split():
        assert (run / name).exists(), name
    questions = [json.loads(line) for line in (run / "questions.jsonl").read_text().splitlines()]
    assert any(question["question"] for question in questions)
    assert all(question["logprob"] < 0 for question in questions)
    assert json.loads((run / "qa" / "scst" / "qa_metrics.json").read_text())["total"] > 0
    for noise in ("FutureWarning", "Traceback", "telemetry", "DeepSpeed", "real_accelerator"):
        assert noise not in done.stderr
    before = {path: path.stat().st_mtime_ns for path in run.rglob("model.safetensors")}
    assert rl_qg(home, *command).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before  # nothing was trained twice
