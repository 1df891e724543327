"""A whole study by its command, with the smallest models and every kind of job once."""

import shlex
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from rl_qg.commands.compose import compose
from rl_qg.runtime.files import read_json
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.run_study import updates_of_readers
from rl_qg.studies.study import Study
from tests.processes import command_line, rl_qg, start, user_environment

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study")
    (path / "study.yaml").write_text(FILE)
    return path


def jobs(folder: Path) -> dict[str, Path]:
    return {path.parent.name.split("-s1-")[0]: path.parent for path in sorted(folder.glob("study/jobs/*/job.json"))}


@pytest.fixture(scope="module")
def finished(folder: Path) -> dict[str, Path]:
    """Kill the study while the second generator is being trained, then run it to its end."""
    process = start(command_line, "study", "study.yaml", environment=user_environment(folder), folder=folder)
    end = time.monotonic() + 600
    while not list(folder.glob("study/jobs/scst-*/out/config.yaml")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = {name: path.stat().st_mtime_ns for name, job in jobs(folder).items() for path in [job / "job.json"]}
    assert "ce-half-ce" in before and "scst-half-qrelscore" not in before
    done = rl_qg(user_environment(folder), "study", "study.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr[-3000:]
    after = jobs(folder)
    assert {name: (after[name] / "job.json").stat().st_mtime_ns for name in before} == before  # nothing was run again
    return after


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # 10 questions and 5 more by amount 0.5: 15 in batches of 4 are 4 updates, three times; 2 (and 1) are 1
        (["qa.epochs=3", "qa.batch_size=4", "qa.max_steps=-1"], {"half": 12, "small": 3}),
        (["qa.epochs=3", "qa.batch_size=4", "qa.max_steps=-1", "qa.equal_updates=false"], {}),
        (["qa.max_steps=50"], {}),
    ],
)
def test_readers_of_a_study_make_as_many_updates_as_the_one_on_most_questions(
    tmp_path: Path, options: list[str], expected: dict[str, int]
) -> None:
    (tmp_path / "study.yaml").write_text(FILE.replace("{half: 0.5}", "{half: 0.5, small: 0.1}"))
    study = read_job_file(Study, tmp_path / "study.yaml", [])
    gold = {"half": [None] * 10, "small": [None] * 2}
    examples = SimpleNamespace(resources={name: SimpleNamespace(gold=rows) for name, rows in gold.items()})
    settings = dict.fromkeys(gold, compose("train", ["preset=smoke", *options, "output_dir=unused"]))
    assert updates_of_readers(study, examples, settings) == expected  # type: ignore[arg-type]


@pytest.mark.slow
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


@pytest.mark.slow
def test_study_json_has_the_scores_of_the_readers(finished: dict[str, Path], folder: Path) -> None:
    record = read_json(folder / "study" / "study.json")
    assert record["jobs"]["done"] == record["jobs"]["total"] == 9
    for row in record["cells"]:
        name = f"reader-half-{row['generator']}" + (f"-paper-x{row['amount']:g}" if row["amount"] else "-x0")
        metrics = read_json(finished[name] / "out" / "qa_metrics.json")
        assert row["scores"]["all"]["f1"]["mean"] == pytest.approx(metrics["f1"])
    assert record["rewards"]["ce"] is None and record["rewards"]["qrelscore"].startswith("qrelscore|")
    assert "rl-qg study" in (folder / "study" / "study.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "results"),
    [
        ("scst-half-qrelscore", ["scst/model.safetensors"]),
        ("reader-half-qrelscore-paper-x0.5", ["predictions.json", "question_scores.json"]),
    ],
)
def test_the_command_of_a_job_reproduces_its_files(
    finished: dict[str, Path], folder: Path, name: str, results: list[str]
) -> None:
    """With as many threads as the job had, which is read when the libraries are imported."""
    job = finished[name]
    kept = job.with_name(f"kept-{name}")
    if not kept.exists():
        shutil.move(job / "out", kept)
    line = (job / "command.txt").read_text().strip()
    environment = user_environment(folder) | {"OMP_NUM_THREADS": str(read_json(job / "job.json")["threads"])}
    done = rl_qg(environment, *shlex.split(line)[1:], cwd=folder, fresh=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for result in results:
        assert (job / "out" / result).read_bytes() == (kept / result).read_bytes()


@pytest.mark.slow
def test_dry_run_shows_what_is_done_and_refuses_wrong_settings(finished: dict[str, Path], folder: Path) -> None:
    study = "study", "study.yaml"
    environment = user_environment(folder)
    shown = rl_qg(environment, *study, "--dry-run", "seeds=[1, 2]", "devices=[cpu, cpu]", cwd=folder)
    assert shown.returncode == 0, shown.stderr[-3000:]
    assert shown.stdout.count("done  ") == 9 and shown.stdout.count("to do  ") == 9
    assert "6 readers in the grid; 18 jobs (2 ce, 2 scst, 4 generate, 4 augment, 6 reader), 9 done" in shown.stdout
    refused = rl_qg(environment, *study, "filters.paper=[qa.nothing=1]", cwd=folder)
    assert refused.returncode == 2 and "there is no key or group 'qa.nothing'" in refused.stderr
    assert "Traceback" not in refused.stderr
