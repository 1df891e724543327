import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from rewards.loading import own_code_only
from rl_qg.runtime.files import read_json
from rl_qg.runtime.processes import available_cores
from rl_qg.studies.jobs import Job, JobOutcomes, _next_job, is_done, job_outcomes, run_jobs
from tests.study_work import PROGRAM

ROOT = Path(__file__).parents[3]


def job(
    folder: Path, name: str, command: str = "write", *rest: str, needs: tuple[str, ...] = (), exclusive: str = ""
) -> Job:
    arguments = (str(folder / "calls.txt"), *rest)
    return Job(name, "kind", 1, command, arguments, folder / "jobs" / name, needs, exclusive)


def calls(folder: Path) -> list[str]:
    """The commands that were run, without the process at the end of the line."""
    return [line.rpartition(" ")[0].strip() for line in (folder / "calls.txt").read_text().splitlines()]


def run(jobs: Sequence[Job], devices: Sequence[str] = ("cpu",)) -> JobOutcomes:
    return run_jobs(jobs, devices, lambda job: None, program=PROGRAM)


def test_jobs_run_in_order_once_and_write_logs(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "a", "write", "1"), job(tmp_path, "b", "write", "2", needs=("a",))]
    assert run(jobs).done == ["a", "b"]
    assert calls(tmp_path) == ["write 1", "write 2"]
    assert (jobs[1].folder / "log.txt").read_text() == "wrote 2\n"
    assert (jobs[1].folder / "command.txt").read_text() == f"rl-qg write {tmp_path}/calls.txt 2\n"
    record = read_json(jobs[1].folder / "job.json")
    assert record["needs"] == ["a"] and record["seconds"] >= 0 and record["device"] == "cpu"
    assert run([*jobs, job(tmp_path, "c", "write", "3")]).done == ["a", "b", "c"]
    assert calls(tmp_path) == ["write 1", "write 2", "write 3"]  # what was done is not done again


def test_the_next_job_is_found_without_going_through_all_that_are_done(tmp_path: Path) -> None:
    class Done(dict[str, float]):
        def __iter__(self) -> Iterator[str]:
            raise AssertionError("a pass over all finished jobs for each that waits")

    jobs = [job(tmp_path, "b", needs=("a", "missing")), job(tmp_path, "c", needs=("a",))]
    assert _next_job(jobs, Done(a=1.0), []) is jobs[1]


def test_after_each_job_its_results_are_tidied_before_it_counts_as_done(tmp_path: Path) -> None:
    jobs, tidied = [job(tmp_path, "a"), job(tmp_path, "b", "fail", "the reason")], []

    def tidy(finished: Job) -> None:
        assert not is_done(finished)
        tidied.append(finished.name)

    run_jobs(jobs, ["cpu"], tidy, program=PROGRAM)
    assert tidied == ["a"]


def test_a_failed_job_stops_the_jobs_that_need_it_and_no_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        job(tmp_path, "bad", "fail", "the reason"),
        job(tmp_path, "worse", "crash", "an error"),
        job(tmp_path, "child", needs=("bad",)),
        job(tmp_path, "grandchild", needs=("child",)),
        job(tmp_path, "good"),
    ]
    outcomes = run(jobs)
    assert outcomes.done == ["good"] and outcomes.skipped == ["child", "grandchild"]
    assert outcomes.failed == {"bad": "the reason", "worse": "ValueError: an error"}
    assert "Traceback" in (jobs[1].folder / "log.txt").read_text()
    lines = [line for line in capfd.readouterr().err.splitlines() if "failed:" in line]
    assert len(lines) == 2 and f"log: {jobs[0].folder / 'log.txt'}" in lines[0] and "the reason" in lines[0]
    assert not is_done(jobs[0])
    assert job_outcomes(jobs) == outcomes  # read again from the folders
    corrected = [job(tmp_path, "bad"), *jobs[2:]]
    assert run(corrected).done == ["bad", "child", "grandchild", "good"]
    assert calls(tmp_path)[-3:] == ["write", "write", "write"]  # "good" is not run again
    assert list(job_outcomes(jobs).failed) == ["worse"]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_missing_gpu_is_an_error_and_not_replaced_by_the_cpu(tmp_path: Path) -> None:
    assert run([job(tmp_path, "a")], ("7",)).failed == {"a": "there is no GPU 7 on this machine; see devices"}
    assert not (tmp_path / "calls.txt").exists()


def test_a_killed_process_costs_its_job_alone(tmp_path: Path) -> None:
    jobs = [job(tmp_path, "victim", "die"), job(tmp_path, "next"), job(tmp_path, "child", needs=("victim",))]
    outcomes = run(jobs)
    assert outcomes.done == ["next"] and outcomes.skipped == ["child"]
    assert outcomes.failed == {"victim": "its process ended with exit code -9"}


def test_jobs_on_the_same_questions_wait_for_one_another(tmp_path: Path) -> None:
    times = tmp_path / "times.txt"
    jobs = [job(tmp_path, str(n), "wait", "0.3", str(times), exclusive="questions") for n in range(2)]
    jobs += [job(tmp_path, f"other{n}", "wait", "0.01", str(tmp_path / "other.txt")) for n in range(2)]
    assert len(run(jobs, ("cpu", "cpu")).done) == 4
    assert [line.split()[0] for line in times.read_text().splitlines()] == ["begin", "end"] * 2


@pytest.mark.slow
def test_independent_jobs_run_side_by_side(tmp_path: Path) -> None:
    times = [tmp_path / f"{n}.txt" for n in range(2)]
    jobs = [job(tmp_path, path.stem, "wait", "3", str(path)) for path in times]
    run(jobs, ("cpu", "cpu"))
    (begin, end), (other_begin, other_end) = (
        [float(line.split()[1]) for line in path.read_text().splitlines()] for path in times
    )
    assert max(begin, other_begin) < min(end, other_end)


def test_each_job_starts_with_its_device_and_with_nothing_of_the_job_before(tmp_path: Path) -> None:
    names = [str(tmp_path / name) for name in ("first", "second")]
    jobs = [job(tmp_path, Path(name).name, "inspect", name) for name in names]
    run(jobs)
    for name, started in zip(names, jobs, strict=True):
        assert json.loads(Path(name).read_text()) == {
            "CUDA_VISIBLE_DEVICES": "",
            "OMP_NUM_THREADS": str(available_cores()),
            "LEFT_BY_A_JOB": None,
            "folder": os.getcwd(),
            "command": ["rl-qg", started.command, *started.arguments],
        }


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_jobs_end_with_the_process_that_started_them_and_the_rest_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import signal, sys\n"
        "from pathlib import Path\n"
        "from tests.rl_qg.studies.test_job_pool import job, run\n"
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
    running = int((tmp_path / "calls.txt").read_text().splitlines()[1].split()[-1])
    process.send_signal(number)
    assert process.wait(60) != 0
    while _lives(running) and time.monotonic() < end:
        time.sleep(0.05)
    assert not _lives(running)
    assert [path.parent.name for path in tmp_path.glob("jobs/*/job.json")] == ["a"]
    subprocess.run([*begin, "0"], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120)
    assert [line.split()[0] for line in calls(tmp_path)] == ["write", "wait", "wait", "write"]


def _lives(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False


@pytest.mark.slow
def test_a_job_imports_code_of_others_only_where_that_is_allowed(tmp_path: Path) -> None:
    """However the path came into the settings: it is refused where it would be imported."""
    paths = ("tests.toy_metrics.WordCount", "rewards.loading.import_module")
    for number, allowed in enumerate((False, True)):
        jobs = [job(tmp_path, f"{name}-{number}", "import", path) for name, path in zip("ab", paths, strict=True)]
        with nullcontext() if allowed else own_code_only():
            run(jobs)
        logs = [(item.folder / "log.txt").read_text() for item in jobs]
        if allowed:
            assert logs[0].startswith("imported <tests.toy_metrics.WordCount")
        else:
            assert all(text.count("refused") == 2 and "add --allow-imports" in text for text in logs), logs
