"""The cells of the notebook, one after the other in one namespace, as a kernel runs them; the training is smaller."""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.processes import ROOT

NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"


def source_of(kind: str) -> list[str]:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def test_it_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert all(text.strip() for text in (*source_of("code"), *source_of("markdown")))


def test_its_cells_run_from_first_to_last(tmp_path: Path) -> None:
    script = tmp_path / "cells.py"
    # Smaller, but with the baseline of the quickstart, without which other fields are logged.
    small = "preset=smoke scst.baseline=leave_one_out"
    script.write_text("\n".join(source_of("code")).replace("preset=quickstart", small), encoding="utf-8")
    environment = os.environ | {
        "MPLBACKEND": "agg",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "runs/notebook/reward.png").stat().st_size > 1000
