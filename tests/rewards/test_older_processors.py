"""What is packed or in bf16 on a processor without AVX-512: oneDNN and PyTorch limited to AVX2, in a new process."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIMITS = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
SCRIPT = """
import torch
print(torch.backends.cpu.get_cpu_capability(), torch.ops.mkldnn._is_mkldnn_bf16_supported())
"""
TESTS = """
tests/rewards/test_packed.py
tests/rewards/test_arithmetic.py
tests/rewards/relevance/test_qrelscore.py::test_other_encoders_and_half_precision
tests/rl_qg/generation/test_generation_stage.py::test_packed_layers_and_bf16_find_the_same_beams_as_float32
tests/rl_qg/training/test_trainer.py::test_bf16_trains_both_stages
tests/rl_qg/training/test_update.py::test_bf16_casts_encoder_and_decoder_and_keeps_the_direction_of_the_gradient
""".split()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the limits are those of x86 processors"),
]


def limited(*command: str) -> str:
    """Run Python in a process that is limited to AVX2; its output."""
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **LIMITS, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_everything_that_is_packed_or_in_bf16() -> None:
    capability, bf16 = limited("-c", SCRIPT).split()
    if capability != "AVX2":
        pytest.skip(f"this PyTorch cannot be limited to AVX2: it reports {capability}")
    assert bf16 == "False"  # so oneDNN is limited too
    limited("-m", "pytest", *TESTS)


def test_the_speed_scripts_skip_the_peak_that_there_is_not(tmp_path: Path) -> None:
    """And keep what they have measured; a second start does not measure it again."""
    path = tmp_path / "found.json"
    script = f"""
import sys
sys.path.insert(0, {str(ROOT / "experiments/speed")!r})
import pathlib, torch, metrics, measurements
metrics.WIDTH = 256
metrics.best = lambda action: (action(), 1.0)[1]
results = measurements.Measurements(pathlib.Path({str(path)!r}), {{"a": 1}})
metrics.peaks(results, torch.float32)
metrics.peaks(results, torch.bfloat16)
"""
    for first in (True, False):
        limited("-c", script if first else script.replace("1.0)[1]", "2.0)[1]"))
        found = json.loads(path.read_text())
        assert found["processor"]["limits"] == LIMITS and found["processor"]["name"]
        rate = 2 * 256**3 / 1e9
        assert found["measured"] == {
            "default peak of torch.float32": rate,
            "packed peak of torch.float32": rate,
            "default peak of torch.bfloat16": rate,
            "packed peak of torch.bfloat16": None,
        }
        reason = "oneDNN has no packed product of torch.bfloat16 on this processor"
        assert found["skipped"] == {"packed peak of torch.bfloat16": reason}
