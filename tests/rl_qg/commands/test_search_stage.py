"""One real search, with trainings in this process."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
import yaml

from rl_qg.commands.cli import run_command
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.generation.generator import CandidateGenerator
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.studies.jobs import Job, JobOutcomes, is_done, job_outcomes

SEARCH = {
    "output_dir": "found",
    "preset": "smoke",
    "settings": {
        "model.path": str(SHIPPED / "bart"),
        "reward": "rouge_l",  # not read, and needs no model
        "training.rate_schedule": "constant",
        "training.report_to": "none",
        "training.eval_steps": 100,
        "ce.warmup_fraction": 0,
    },
    "data": {"train": "train.json", "validation": "dev.json"},
    "space": {"ce.label_smoothing": [0.0, 0.15]},
    "rungs": [[1, 1]],
    "go_on_to": 2,
    "measure": "rouge_l",
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_squad("train.json", synthetic_examples(2, seed=1))
    write_squad("dev.json", synthetic_examples(2, seed=2))
    Path("search.yaml").write_text(yaml.safe_dump(SEARCH))


def in_this_process(jobs: Sequence[Job], on_done: Callable[[Job], None], **rest: object) -> JobOutcomes:
    for job in jobs:
        if not is_done(job):
            run_command(job.command, job.arguments)
            on_done(job)
            write_json(job.folder / "job.json", {"seconds": 0.0})
    return job_outcomes(jobs)


@pytest.mark.slow
def test_a_search_finds_a_generator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.studies.search.run_jobs", in_this_process)
    run_command("search", ["search.yaml"])
    record = read_json(Path("found/search.json"))
    first, second = record["configurations"]
    runs = [run for row in (first, second) for run in row["runs"] if run["epochs"] == 1]
    assert runs[0]["weights"] != runs[1]["weights"]  # label smoothing has an effect in the first rung
    assert all(run["value"] == run["measures"]["rouge_l"] and "bleu4" in run["measures"] for run in runs)
    assert first["trained"] == 2 and second["trained"] == 1
    examples = list(synthetic_examples(1, seed=3))
    for model in ("found/best", record["winner"]["model"]):
        assert CandidateGenerator(Path(model), device=torch.device("cpu")).greedy(examples, max_new_tokens=8)
    assert record["winner"]["value"] == first["value"] >= second["value"]


def test_what_is_no_search_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"give a search file first, or one of qg-bench, .*"):
        run_command("search", ["data.train=train.json"])
    with pytest.raises(InputError, match=r"qg-banch: no such file, and no search of this name; those are qg-bench, "):
        run_command("search", ["qg-banch"])
    with pytest.raises(InputError, match=r"qg-bench: data.train has no value; see docs/how-to/search.md"):
        run_command("search", ["qg-bench"])
    run_command("search", ["search.yaml", "--dry-run"])
    assert "training.stop_after=1 output_dir=found/runs/1-s1-" in capsys.readouterr().out
    assert not Path("found/search.json").exists()
