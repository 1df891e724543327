"""Trackers against their local stores, installed beside this environment's packages, which come first."""

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT

# The store that a tracker leaves in the working directory.
STORES = {"mlflow": "store.db", "trackio": "trackio/rl-qg.db", "wandb": "wandb/offline-run-*/*.wandb"}
RUN = "import sys; sys.path.append({!r}); from rl_qg.commands.cli import main; main()"


@pytest.mark.slow
@pytest.mark.skipif("RL_QG_LIBRARIES" not in os.environ, reason="installs other libraries: make test-all")
@pytest.mark.parametrize("tracker", STORES)
def test_a_run_is_in_the_store_of_its_tracker(tracker: str, tmp_path: Path) -> None:
    packages = str(tmp_path / "packages")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--target", packages, tracker]
    if subprocess.run(pip, capture_output=True).returncode:
        pytest.skip(f"{tracker} cannot be installed here")
    stores = {"MLFLOW_TRACKING_URI": "sqlite:///store.db", "TRACKIO_DIR": "trackio", "WANDB_MODE": "offline"}
    options = ["preset=smoke", "reward=qascore", f"training.report_to={tracker}", "output_dir=first"]
    subprocess.run(
        [sys.executable, "-c", RUN.format(packages), "train", *options],
        check=True,
        cwd=tmp_path,
        env=os.environ | stores | {"PYTHONPATH": str(ROOT)},
    )
    (store,) = tmp_path.glob(STORES[tracker])
    assert store.stat().st_size > 1000
    if tracker == "mlflow":
        found = sqlite3.connect(store)
        assert found.execute("SELECT name, status FROM runs").fetchall() == [("first", "FINISHED")]
        logged = {name for (name,) in found.execute("SELECT DISTINCT key FROM metrics")}
        assert {"loss", "reward_sample", "eval_reward_greedy"} <= logged
        assert ("rl-qg",) in found.execute("SELECT name FROM experiments").fetchall()
