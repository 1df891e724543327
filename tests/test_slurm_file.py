"""`examples/train.sbatch` as it is, but for its last line, with stand-ins for SLURM: two nodes of one CPU process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import ROOT

DATA = "data.train=train.json data.validation=dev.json reward=qrelscore training.precision=bf16 output_dir=runs/slurm"
SMALL = "preset=smoke reward=qascore training.use_cpu=true output_dir=runs/slurm"
STAND_INS = {
    # Both nodes are this machine. Given SIGTERM, srun kills its tasks (`_srun_signal_mgr` of srun_job.c); scancel
    # signals the tasks of a job, but neither what they have started nor the script (scancel(1)).
    "srun": """shift; for node in 0 1; do SLURM_NODEID=$node "$@" & tasks="$tasks $!"; done
echo $tasks > tasks; trap 'kill -KILL $tasks' TERM
code=0; for task in $tasks; do
    while kill -0 $task 2>/dev/null; do wait $task && one=0 || one=$?; done
    [ $one = 0 ] || code=$one
done; exit $code""",
    "scancel": 'echo "$@" > cancelled; kill "-${1#--signal=}" $(cat tasks)',
    "scontrol": 'if [ "$1" = show ]; then echo 127.0.0.1; echo 127.0.0.1; else echo "$@" >> requeued; fi',
}


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a job; the working directory has the file `job`."""
    (tmp_path / "bin").mkdir()
    for name, script in STAND_INS.items():
        program = tmp_path / "bin" / name
        program.write_text(f"#!/bin/bash\n{script}\n")
        program.chmod(0o755)
    text = (ROOT / "examples/train.sbatch").read_text(encoding="utf-8")
    assert text.count(DATA) == 1
    (tmp_path / "job").write_text(text.replace(DATA, SMALL))
    job = {"SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "a[1-2]", "SLURM_JOB_NUM_NODES": "2"}
    path = f"{tmp_path / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    yield os.environ | job | {"SLURM_GPUS_ON_NODE": "1", "PATH": path, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


def test_a_job_that_is_told_to_end_is_queued_again_and_goes_on(slurm: dict[str, str], tmp_path: Path) -> None:
    metrics, log = tmp_path / "runs/slurm/metrics.jsonl", (tmp_path / "log").open("w")
    job = subprocess.Popen(["bash", "job"], cwd=tmp_path, env=slurm, stdout=log, stderr=log)
    end = time.monotonic() + 300
    while job.poll() is None and time.monotonic() < end and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.2)
    assert job.poll() is None, (tmp_path / "log").read_text()[-2000:]
    job.send_signal(signal.SIGTERM)
    assert job.wait(120) == 0
    assert (tmp_path / "cancelled").read_text() == f"--signal=TERM {os.getpid()}\n"
    assert (tmp_path / "requeued").read_text() == f"requeue {os.getpid()}\n"
    assert not (tmp_path / "runs/slurm/trained.json").exists() and [*tmp_path.glob("runs/slurm/checkpoint-*")]
    again = subprocess.run(["bash", "job"], cwd=tmp_path, env=slurm, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr[-2000:]
    assert (tmp_path / "runs/slurm/scst/model.safetensors").exists()
    assert json.loads((tmp_path / "runs/slurm/run.json").read_text(encoding="utf-8"))["hardware"]["world_size"] == 2
    steps = [json.loads(line)["step"] for line in metrics.read_text(encoding="utf-8").splitlines()]
    assert steps == sorted(steps)  # it did not begin again
