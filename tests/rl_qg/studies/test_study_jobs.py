import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rl_qg.runtime.json_files import read_json
from rl_qg.studies.grid import Job, is_done
from rl_qg.studies.jobs import _State, found_outcome, run_jobs
from tests.study_work import work

ROOT = Path(__file__).parents[3]


def job(folder: Path, name: str, command: str = "write", *rest: str, needs: tuple[str, ...] = (), apart: str = ""):
    arguments = (str(folder / "calls.txt"), *rest)
    return Job(name, "kind", 1, command, arguments, folder / "jobs" / name, needs, apart)


def calls(folder: Path) -> list[str]:
    return [
        line.split()[0] + " " + " ".join(line.split()[1:-1])
        for line in (folder / "calls.txt").read_text().split("\n")[:-1]
    ]


def run(jobs, devices=("cpu",)):
    return run_jobs(jobs, devices, work, lambda job: None)


def test_jobs_run_in_order_once_and_say_it_in_their_logs(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a", "write", "1"), job(tmp_path, "b", "write", "2", needs=("a",))]
    assert run(jobs).done == ["a", "b"]
    assert calls(tmp_path) == ["write 1", "write 2"]
    assert (jobs[1].folder / "log.txt").read_text() == "said 2\n"
    assert (jobs[1].folder / "command.txt").read_text() == f"rl-qg write {tmp_path}/calls.txt 2\n"
    noted = read_json(jobs[1].folder / "job.json")
    assert noted["needs"] == ["a"] and noted["seconds"] >= 0
    assert run([*jobs, job(tmp_path, "c", "write", "3")]).done == ["a", "b", "c"]
    assert calls(tmp_path) == ["write 1", "write 2", "write 3"]  # what was done is not done again


def test_a_failed_job_takes_what_needs_it_along_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        job(tmp_path, "bad", "fail", "the reason"),
        job(tmp_path, "worse", "crash", "a fault of ours"),
        job(tmp_path, "child", needs=("bad",)),
        job(tmp_path, "grandchild", needs=("child",)),
        job(tmp_path, "good"),
    ]
    found = run(jobs)
    assert found.done == ["good"] and found.skipped == ["child", "grandchild"]
    assert found.failed == {"bad": "the reason", "worse": "ValueError: a fault of ours"}
    assert "Traceback" in (jobs[1].folder / "log.txt").read_text()
    told = [line for line in capfd.readouterr().err.splitlines() if "failed:" in line]
    assert len(told) == 2 and f"log: {jobs[0].folder / 'log.txt'}" in told[0] and "the reason" in told[0]
    assert not is_done(jobs[0])
    assert found_outcome(jobs) == found  # told again from what stands in the folders
    mended = [job(tmp_path, "bad"), *jobs[2:]]
    assert run(mended).done == ["good", "bad", "child", "grandchild"]
    assert list(found_outcome(jobs).failed) == ["worse"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_gpu_that_is_not_there_is_not_taken_for_the_cpu(tmp_path: Path) -> None:
    assert run([job(tmp_path, "a")], ("7",)).failed == {"a": "there is no GPU 7 on this machine; see devices"}


def test_trackers_of_one_job_end_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(finish=lambda: ended.append("wandb")))
    _State(0).restore()
    assert ended == ["wandb"]


def test_a_killed_worker_costs_its_job_alone(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "victim", "die"), job(tmp_path, "next"), job(tmp_path, "child", needs=("victim",))]
    found = run(jobs)
    assert found.done == ["next"] and found.skipped == ["child"]
    assert found.failed == {"victim": "its process ended with exit code -9"}


def test_jobs_on_the_same_questions_wait_for_one_another(tmp_path: Path) -> None:
    times = tmp_path / "times.txt"
    jobs = [job(tmp_path, str(n), "wait", "0.3", str(times), apart="questions") for n in range(2)]
    jobs += [job(tmp_path, f"other{n}", "wait", "0.01", str(tmp_path / "other.txt")) for n in range(2)]
    assert len(run(jobs, ("cpu", "cpu")).done) == 4
    assert [line.split()[0] for line in times.read_text().splitlines()] == ["begin", "end"] * 2


def test_independent_jobs_run_side_by_side(tmp_path: Path) -> None:
    times = [tmp_path / f"{n}.txt" for n in range(2)]
    jobs = [job(tmp_path, path.stem, "wait", "3", str(path)) for path in times]
    run(jobs, ("cpu", "cpu"))
    (begun, ended), (other_begun, other_ended) = (
        [float(line.split()[1]) for line in path.read_text().splitlines()] for path in times
    )
    assert max(begun, other_begun) < min(ended, other_ended)


def test_a_used_worker_is_as_good_as_a_fresh_one(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("first", "second")]
    run([job(tmp_path, Path(name).name, "draw", name) for name in names])
    alone = tmp_path / "alone"
    run([job(tmp_path, "alone", "draw", str(alone))])
    first, second = (eval(Path(name).read_text()) for name in names)
    assert first == second  # random numbers, environment, folder
    assert eval(alone.read_text()) == first
    assert first[1] == [None, os.getcwd(), "", os.cpu_count()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_pool_and_the_rest_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from tests.rl_qg.studies.test_study_jobs import job, run\n"
        "from rl_qg.runtime.errors import Terminated\n"
        "def end(*_):\n    raise Terminated\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGTERM, end)\n"
        "    at = Path(sys.argv[1])\n"
        "    run([job(at, 'a'), job(at, 'b', 'wait', sys.argv[2], str(at / 'times.txt')), job(at, 'c')])\n"
    )
    begin = [sys.executable, str(script), str(tmp_path)]
    process = subprocess.Popen([*begin, "600"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    end = time.monotonic() + 120
    while not (tmp_path / "times.txt").exists() and time.monotonic() < end:
        time.sleep(0.05)
    worker = int((tmp_path / "calls.txt").read_text().splitlines()[1].split()[-1])
    process.send_signal(number)
    assert process.wait(60) != 0
    while _lives(worker) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _lives(worker)
    assert [path.parent.name for path in tmp_path.glob("jobs/*/job.json")] == ["a"]
    subprocess.run([*begin, "0"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120)
    assert [line.split()[0] for line in calls(tmp_path)] == ["write", "wait", "wait", "write"]


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
