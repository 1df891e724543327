"""Jobs by submitit, with its executor for processes of this machine."""

from pathlib import Path

import pytest

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.studies.jobs import Job, cluster_executor, run_on_cluster
from tests.rl_qg.studies.test_job_pool import calls, job
from tests.study_work import PROGRAM

pytest.importorskip("submitit")


def note(finished: Job) -> None:
    write_json(finished.folder / "noted.json", {"name": finished.name})


@pytest.mark.slow
def test_the_jobs_of_a_run_are_one_job_of_the_cluster(tmp_path: Path) -> None:
    jobs = [
        job(tmp_path, "a1", "write", "1", exclusive="a"),
        job(tmp_path, "a2", "fail", "the reason", needs=("a1",), exclusive="a"),
        job(tmp_path, "a3", "write", "3", needs=("a2",), exclusive="a"),
        job(tmp_path, "b1", "write", "4", exclusive="b"),
    ]
    write_json(jobs[3].folder / "job.json", {"seconds": 1.0})  # of an earlier search
    folder = tmp_path / "cluster"
    outcomes = run_on_cluster(
        jobs, note, program=PROGRAM, kind="local", parameters={"timeout_min": 5}, folder=folder, device="cpu"
    )
    assert (outcomes.done, outcomes.failed, outcomes.skipped) == (["a1", "b1"], {"a2": "the reason"}, ["a3"])
    assert calls(tmp_path) == ["write 1", "fail the reason"]
    assert (jobs[0].folder / "noted.json").exists()
    assert [path.name for path in folder.glob("*.json")] == ["a.json"]  # what is done is not submitted


def test_a_wrong_parameter_is_one_line(tmp_path: Path) -> None:
    options = {"kind": "local", "folder": tmp_path, "device": "cpu"}
    with pytest.raises(InputError, match=r"^cluster: .*no_such_parameter"):
        run_on_cluster([], note, parameters={"no_such_parameter": 1}, **options)
    with pytest.raises(InputError, match=r"^of a job$"), cluster_executor("local", {}, tmp_path):
        raise InputError("of a job")
