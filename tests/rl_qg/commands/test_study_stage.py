"""A whole study by its command: smallest models, every kind of job once."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rl_qg.runtime.json_files import read_json

ROOT = Path(__file__).parents[3]
RL_QG = [sys.executable, "-c", "from rl_qg.commands.cli import main; main()"]
FILE = """
output_dir: study
preset: smoke
settings: [training.report_to=none]
data: {train: world, validation: world, development: 0.1, max_spans: 8}
resources: {half: 0.5}
generators: {ce: {stages: ce}, qrelscore: {reward: qrelscore}}
filters: {paper: []}
amounts: [0, 0.5]
seeds: [1]
resamples: 200
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.yaml").write_text(FILE)
    return folder


def environment(place: Path, threads: int = 1) -> dict[str, str]:
    own = {"HOME": str(place), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads)}
    return {**os.environ, **own}


def rl_qg(place: Path, *arguments: str, threads: int = 1) -> subprocess.CompletedProcess[str]:
    command = [*RL_QG, *arguments]
    own = environment(place, threads)
    return subprocess.run(command, cwd=place, env=own, capture_output=True, text=True, timeout=900)


def jobs(folder: Path) -> dict[str, Path]:
    return {path.parent.name.split("-s1-")[0]: path.parent for path in sorted(folder.glob("study/jobs/*/job.json"))}


@pytest.fixture(scope="module")
def finished(place: Path) -> dict[str, Path]:
    """Run it with a kill of the runner as soon as the second generator is being trained, then to its end."""
    process = subprocess.Popen(
        [*RL_QG, "study", "study.yaml"], cwd=place, env=environment(place), stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 600
    while not list(place.glob("study/jobs/scst-*/out/config.yaml")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {name: path.stat().st_mtime_ns for name, folder in jobs(place).items() for path in [folder / "job.json"]}
    assert "ce-half-ce" in before and "scst-half-qrelscore" not in before
    done = rl_qg(place, "study", "study.yaml")
    assert done.returncode == 0, done.stderr[-3000:]
    found = jobs(place)
    assert {name: (found[name] / "job.json").stat().st_mtime_ns for name in before} == before  # nothing twice
    return found


def test_every_job_was_run(finished: dict[str, Path]) -> None:
    assert set(finished) == {
        "ce-half-ce",
        "scst-half-qrelscore",
        "generate-half-ce",
        "generate-half-qrelscore",
        "augment-half-ce-paper-x0.5",
        "augment-half-qrelscore-paper-x0.5",
        "reader-half-none-x0",
        "reader-half-ce-paper-x0.5",
        "reader-half-qrelscore-paper-x0.5",
    }


def test_the_record_is_that_of_the_files(finished: dict[str, Path], place: Path) -> None:
    record = read_json(place / "study" / "study.json")
    assert record["jobs"]["done"] == record["jobs"]["total"] == 9
    for row in record["cells"]:
        name = f"reader-half-{row['generator']}" + (f"-paper-x{row['amount']:g}" if row["amount"] else "-x0")
        metrics = read_json(finished[name] / "out" / "qa_metrics.json")
        assert row["scores"]["all"]["f1"]["mean"] == pytest.approx(metrics["f1"])
    assert record["rewards"]["ce"] is None and record["rewards"]["qrelscore"].startswith("qrelscore|")
    assert "rl-qg study" in (place / "study" / "study.html").read_text()


@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("scst-half-qrelscore", ["scst/model.safetensors"]),
        ("reader-half-qrelscore-paper-x0.5", ["predictions.json", "question_scores.json"]),
    ],
)
def test_a_job_typed_by_hand_gives_the_same_bytes(
    finished: dict[str, Path], place: Path, name: str, results: list[str]
) -> None:
    """In a process of its own with as many threads, where the worker had run others before."""
    folder = finished[name]
    kept = folder.with_name(f"kept-{name}")
    if not kept.exists():
        shutil.move(folder / "out", kept)
    line = (folder / "command.txt").read_text().strip()
    done = rl_qg(place, *shlex.split(line)[1:], threads=read_json(folder / "job.json")["threads"])
    assert done.returncode == 0, done.stderr[-3000:]
    for result in results:
        assert (folder / "out" / result).read_bytes() == (kept / result).read_bytes()


def test_the_same_command_again_and_a_look_at_the_jobs(finished: dict[str, Path], place: Path) -> None:
    looked = rl_qg(place, "study", "study.yaml", "--dry-run", "seeds=[1, 2]", "devices=[cpu, cpu]")
    assert looked.returncode == 0, looked.stderr[-3000:]
    assert looked.stdout.count("done  ") == 9 and looked.stdout.count("to do  ") == 9
    assert "6 readers in the grid; 18 jobs (2 ce, 2 scst, 4 generate, 4 augment, 6 reader), 9 done" in looked.stdout
    told = rl_qg(place, "study", "study.yaml", "filters.paper=[qa.nothing=1]")
    assert told.returncode == 2 and "there is no key or group 'qa.nothing'" in told.stderr
    assert "Traceback" not in told.stderr
