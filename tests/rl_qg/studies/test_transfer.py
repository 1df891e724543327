"""`rl-qg bench transfer`: the jobs of a file, and the table; `tests/transfer_work.py` stands in for `rl_qg`."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.runtime.errors import InputError
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.transfer import FILE, Transfer, TransferPlan, _cell, make_plan, run_transfer
from tests.transfer_work import PROGRAM

TRANSFER = """
output_dir: runs
preset: smoke
domains:
  news: bench/news
  reviews: {data: bench/reviews, settings: {ce.epochs: 2}}
  tests: {data: bench/tests, language: de}
sources: news
metrics: bleu4
seeds: [1, 3]
adapt: {scst.epochs: 3}
settings: [model=miniature, reward=qrelscore]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two domains with all splits, and one with test data alone; the last shares a passage with the first."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(("news", "reviews")):
        for seed, split in enumerate(("train", "validation", "test")):
            examples = synthetic_examples(3, seed=10 * number + seed, prefix=f"{name}-{split}")
            write_squad(tmp_path / "bench" / name / f"{split}.json", examples)
    target = tmp_path / "bench" / "tests" / "test.json"
    train = list(synthetic_examples(3, seed=0, prefix="news-train"))
    seen = [example for example in train if example.context == train[0].context]
    write_squad(target, [*synthetic_examples(2, seed=50, prefix="t"), *seen])
    (tmp_path / "transfer.yaml").write_text(TRANSFER)
    return tmp_path


def plan(*overrides: str) -> TransferPlan:
    return make_plan(read_job_file(Transfer, Path("transfer.yaml"), overrides))


def test_the_cells_of_a_file(folder: Path) -> None:
    cells = [(cell.cell, cell.source, cell.target) for cell in plan("seeds=[1]").cells if not cell.why]
    assert cells == [
        ("in_domain", "news", "news"),
        ("in_domain", "reviews", "reviews"),
        ("zero_shot", "news", "reviews"),
        ("fine_tuned", "news", "reviews"),
        ("adapted", "news", "reviews"),
        ("zero_shot", "news", "tests"),
    ]
    left_out = {(cell.cell, cell.target): cell.why for cell in plan("seeds=[1]").cells if cell.why}
    assert left_out == {
        ("in_domain", "tests"): "tests has no train file",
        ("fine_tuned", "tests"): "tests has no train file",
        ("adapted", "tests"): "tests has no passages to adapt to",
    }


def test_what_is_given_twice_is_one_cell(folder: Path) -> None:
    once = {"sources": "news", "targets": "tests", "cells": "zero_shot", "seeds": "1"}
    twice = [f"{key}=[{value},{value}]" for key, value in once.items()]
    assert plan(*twice).cells == plan(*(f"{key}={value}" for key, value in once.items())).cells


def test_the_jobs_of_the_cells(folder: Path) -> None:
    """Every generator for a source starts from one training. Adapting uses no question and no answer of the target."""
    made = plan("seeds=[1]")
    trained = [job for job in made.jobs if job.command == "train"]
    assert [job.name.split("-s1-")[0] for job in trained] == [
        "ce-news",
        "ce-reviews",
        "ce-news-reviews",
        "scst-news-reviews",
    ]
    news, reviews, tuned, adapted = ({*job.arguments} for job in trained)
    start = f"model.path={trained[0].results / 'ce'}"
    assert start in tuned and start in adapted and start not in news | reviews
    assert {"data.train=bench/reviews/train.json", "stages=ce", "ce.epochs=2"} <= tuned & reviews
    assert {"data.train=null", "stages=scst", "data.validation=bench/news/validation.json", "scst.epochs=3"} <= adapted
    (passages,) = (folder / "runs" / "data").iterdir()
    assert f"data.unlabelled=[{Path('runs/data') / passages.name}]" in adapted
    rows = [json.loads(line) for line in passages.read_text().splitlines()]
    assert len(rows) == 3 and all(row.keys() == {"id", "title", "context"} for row in rows)
    generate = [{*job.arguments} for job in made.jobs if job.command == "generate"]
    assert len(generate) == 6 and all("keep=1" in texts and "reward=qrelscore" not in texts for texts in generate)
    languages = [text for job in made.jobs for text in job.arguments if text.startswith("language=")]
    assert languages == ["language=en"] * 5 + ["language=de"]


def test_test_passages_in_the_training_data_are_counted(folder: Path) -> None:
    seen = {(cell.cell, cell.target): cell.seen for cell in plan("seeds=[1]").cells}
    assert seen["zero_shot", "tests"] == 1 and seen["zero_shot", "reviews"] == seen["in_domain", "news"] == 0


def test_a_changed_file_leads_to_new_jobs_for_what_reads_it(folder: Path) -> None:
    before = {job.name for job in plan("seeds=[1]").jobs}
    write_squad(folder / "bench" / "reviews" / "test.json", synthetic_examples(3, seed=70, prefix="other"))
    changed = [job for job in plan("seeds=[1]").jobs if job.name not in before]
    assert [job.command for job in changed] == ["generate", "evaluate"] * 4
    assert all(job.name.split("-s1-")[0].endswith("-reviews") for job in changed)


def run(*overrides: str) -> dict[str, Any]:
    run_transfer(Path("transfer.yaml"), overrides, compose, program=PROGRAM)
    record: dict[str, Any] = json.loads(Path("runs", FILE).read_text())
    return record


def calls() -> list[str]:
    return Path("calls").read_text().split()


@pytest.mark.slow
def test_a_failed_cell_is_named_and_the_same_command_goes_on(folder: Path) -> None:
    two = ["seeds=[3]", "cells=[zero_shot,fine_tuned]", "targets=[reviews]"]
    Path("fail").write_text("ce.epochs=2")  # the fine-tuning
    with pytest.raises(InputError, match=r"1 of 2 cells failed \(fine_tuned news -> reviews, seed 3\); see runs/tr"):
        run(*two)
    record = json.loads(Path("runs", FILE).read_text())
    zero_shot, tuned = record["cells"]
    assert (zero_shot["state"], tuned["state"]) == ("done", "failed")
    assert tuned["why"].endswith(": the disk is on fire") and tuned["why"].startswith("ce-news-reviews-s3-")
    assert sorted(calls()) == ["evaluate", "generate", "train", "train"]
    assert "| reviews | fine-tuned | news | 0 | – | failed |" in Path("runs/transfer.md").read_text()
    Path("fail").unlink()
    Path("calls").unlink()
    zero_shot, tuned = run(*two)["cells"]
    assert calls() == ["train", "generate", "evaluate"]  # of the failed cell alone
    # one training and seed 3: 0.1 + 0.03; two: 0.2 + 0.03; the corpus form, not the mean of questions
    assert zero_shot["measures"]["bleu4"] == {"value": 0.13, "low": 0.08, "high": 0.18, "n": 3, "form": "corpus"}
    assert tuned["measures"]["bleu4"]["value"] == 0.23
    assert "| reviews | zero-shot | news | 1 | 0.1300 [0.0800, 0.1800] |  |" in Path("runs/transfer.md").read_text()
    Path("calls").unlink()
    run(*two)
    assert not Path("calls").exists()  # everything is done


@pytest.mark.slow
def test_the_table_has_the_mean_over_seeds(folder: Path) -> None:
    record = run("cells=[zero_shot]", "targets=[reviews,tests]")
    assert record["signatures"] == {"reviews": {"bleu4": "bleu4|en"}, "tests": {"bleu4": "bleu4|de"}}
    record["cells"] = [row for row in record["cells"] if row["target"] == "tests"]
    assert [(row["seed"], row["measures"]["bleu4"]["value"]) for row in record["cells"]] == [(1, 0.11), (3, 0.13)]
    # the standard deviation of .11 and .13 is .02 / sqrt 2
    expected = "| tests | zero-shot, cross-lingual | news | 2 | 0.1200 ± 0.0141 |  |"
    assert expected in Path("runs/transfer.md").read_text()
    with Path("runs/transfer.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["target"] == "tests"]
    assert [row["bleu4"] for row in rows] == ["0.11", "0.13"] and rows[0]["test_passages_seen"] == "1"


def test_a_seed_without_a_value_lends_no_interval() -> None:
    seeds = [{"value": None, "low": None, "high": None}, {"value": 0.25, "low": 0.2, "high": 0.3}]
    assert _cell(seeds) == "0.2500 [0.2000, 0.3000]" and _cell(seeds[:1]) == "–"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cells=[best]", "cells: 'best' is not one of in_domain, zero_shot, fine_tuned, adapted"),
        ("sources=[tests]", r"sources: bench/tests/train\.json: no such file; rl-qg bench data writes it"),
        ("targets=[x]", "targets: there is no domain x"),
        ("settings=[seed=3]", "settings: seed is set by the cells themselves"),
        ("generate=[keep=3]", "settings: keep is set by the cells themselves"),
        ("evaluate=[metrics=chrf]", "settings: metrics is set by the cells themselves"),
        ("domains.reviews.languag=de", "there is no key 'languag'; the keys are data, unlabelled, language, settings"),
        ("devices=[gpu]", "devices: gpu is neither cpu nor the number of a GPU"),
        ("seeds=[]", "seeds: give at least one"),
        ("domains={a/b: bench/books}", "domains: 'a/b' becomes part of a file name"),
        ("domains={}", "domains: give at least one"),
    ],
)
def test_a_wrong_file_is_one_line(folder: Path, override: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_job_file(Transfer, Path("transfer.yaml"), [override])
    assert str(error.value).startswith("transfer.yaml: ") and "\n" not in str(error.value)


def test_a_wrong_setting_ends_the_command_before_a_job(folder: Path) -> None:
    with pytest.raises(InputError, match=r"no key or group 'ce\.epoch'"):
        run("settings=[ce.epoch=2]", "cells=[zero_shot]", "seeds=[1]")
    with pytest.raises(InputError, match=r"no cell can be made: adapted news -> tests, seed 1: tests has no passages"):
        run("cells=[adapted]", "targets=[tests]", "seeds=[1]")
    assert not Path("calls").exists()
    with pytest.raises(InputError, match=r"no\.txt: no such file"):
        plan("domains.reviews.unlabelled=no.txt")


@pytest.mark.parametrize("setting", ["settings", "adapt", "generate", "evaluate"])
def test_what_the_cells_set_cannot_be_set(folder: Path, setting: str) -> None:
    with pytest.raises(InputError, match=r"settings: model\.path is set by the cells themselves"):
        read_job_file(Transfer, Path("transfer.yaml"), [f"{setting}=[model.path=x]"])
