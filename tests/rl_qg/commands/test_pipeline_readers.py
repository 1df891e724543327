"""Readers of the pipeline are compared fairly: as many questions of each generator, as many updates of each reader."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.commands.pipeline import (
    Arm,
    answers_asked,
    augment_equally,
    generators_of,
    train_readers,
    use_reader,
)
from rl_qg.commands.runs import OpenRun
from rl_qg.data.splits import Splits
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.settings import Settings
from tests.toy_reader import save_distilbert, toy_examples, toy_settings

FILTERS = {"length": {"min_words": 3, "max_words": 9}}


def open_toy_run(folder: Path, *, num_samples: int = 100, filters: Any = FILTERS, qa: Any = None) -> OpenRun:
    settings = Settings(output_dir=str(folder))
    settings = replace(settings, augment=replace(settings.augment, num_samples=num_samples, filters=filters))
    settings = replace(settings, training=replace(settings.training, use_cpu=True), qa=qa or settings.qa)
    splits = Splits(gold=toy_examples(24, 1), unlabelled=[], validation=toy_examples(12, 2))
    return OpenRun(settings, splits, PartialState(cpu=True))


def write_questions(path: Path, good: int, short: int) -> Path:
    """Candidates that the filter keeps, then some that it drops."""
    lines = []
    for number, example in enumerate(toy_examples(good + short, 3)):
        question = f"which of them is number {number}?" if number < good else "what?"
        record = {"id": f"p{number}", "candidate": 0, "title": "toy", "context": example.context}
        record |= {"answer": example.answers[0].text, "answer_start": example.answers[0].start}
        lines.append(json.dumps({**record, "question": question, "logprob": -1.0}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines))
    return path


def arms(folder: Path, ce: int, scst: int) -> list[Arm]:
    first = write_questions(folder / "questions.ce.jsonl", ce, 2)
    second = write_questions(folder / "questions.jsonl", scst, 1)
    return [
        Arm("ce", folder / "ce", first, folder / "augmented.ce.json"),
        Arm("scst", folder / "scst", second, folder / "augmented.json"),
    ]


def added(arm: Arm) -> int:
    records = [
        qa["id"]
        for article in read_json(arm.augmented)["data"]
        for passage in article["paragraphs"]
        for qa in passage["qas"]
    ]
    return sum(identity.startswith("synthetic-") for identity in records)


@pytest.mark.parametrize(
    ("ce", "scst", "num_samples", "expected"), [(8, 5, 100, 5), (5, 8, 100, 5), (8, 5, 3, 3), (4, 4, 9, 4)]
)
def test_each_generator_adds_as_many_questions(
    tmp_path: Path, ce: int, scst: int, num_samples: int, expected: int
) -> None:
    run, both = open_toy_run(tmp_path, num_samples=num_samples), arms(tmp_path, ce, scst)
    augment_equally(run, both)
    assert [added(arm) for arm in both] == [expected, expected]
    kept = [read_json(tmp_path / name)["kept"] for name in ("augmented.ce.report.json", "augmented.report.json")]
    assert kept == [ce, scst]
    before = {arm.name: arm.augmented.stat().st_mtime_ns for arm in both}
    augment_equally(run, both)
    assert {arm.name: arm.augmented.stat().st_mtime_ns for arm in both} == before  # nothing was written again


def test_deleted_data_are_made_again_with_other_filters(tmp_path: Path) -> None:
    """What the CE generator's data were filtered by must not differ from the final generator's."""
    both = arms(tmp_path, 8, 6)
    augment_equally(open_toy_run(tmp_path), both)
    both[1].augmented.unlink()
    changed = open_toy_run(tmp_path, filters={"length": {"min_words": 1, "max_words": 9}})
    augment_equally(changed, both)
    assert [added(arm) for arm in both] == [7, 7]  # one short question of the final generator is now kept


def test_changed_questions_are_refused(tmp_path: Path) -> None:
    run, both = open_toy_run(tmp_path), arms(tmp_path, 4, 4)
    augment_equally(run, both)
    write_questions(both[0].questions, 5, 0)
    with pytest.raises(InputError, match=r"questions\.ce\.jsonl: has changed"):
        augment_equally(run, both)


def test_the_generators_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = open_toy_run(tmp_path)
    caplog.set_level("INFO")
    assert [arm.name for arm in generators_of(run, tmp_path / "scst")] == ["scst"]
    assert "no generator in" in caplog.text
    (tmp_path / "ce").mkdir()
    (tmp_path / "ce" / "config.json").write_text("{}")
    first, last = generators_of(run, tmp_path / "scst")
    assert (first.name, first.questions.name, first.augmented.name) == (
        "ce",
        "questions.ce.jsonl",
        "augmented.ce.json",
    )
    assert (last.name, last.questions.name, last.augmented.name) == ("scst", "questions.jsonl", "augmented.json")
    (alone,) = generators_of(run, tmp_path / "ce")
    assert (alone.name, alone.questions.name) == ("ce", "questions.jsonl")
    assert "stages=ce" in caplog.text


def test_both_generators_are_asked_about_the_same_sample_of_answers(tmp_path: Path) -> None:
    run = open_toy_run(tmp_path)
    spans = answers_asked(run)
    keys = [(item.context, item.answers[0]) for item in spans]
    assert len(set(keys)) == len(keys) > 5  # every span once
    run.settings.generate.max_answers = 5
    sample = answers_asked(run)
    assert len(sample) == 5 and sample == answers_asked(run)
    assert [item for item in spans if item in sample] == sample  # in their order
    run.settings.generate.max_answers = 0
    with pytest.raises(InputError, match=r"generate\.max_answers=0 must be at least 1"):
        run.settings.check()


@pytest.fixture(scope="module")
def reader_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_distilbert(tmp_path_factory.mktemp("reader") / "model", size=16)


def updates(run: OpenRun, names: tuple[str, ...] = ("gold", "ce", "scst")) -> list[int]:
    return [read_json(run.folder / "qa" / name / "qa_metrics.json")["updates"] for name in names]


@pytest.mark.slow
def test_all_readers_make_as_many_updates_as_the_one_on_most_data(tmp_path: Path, reader_model: Path) -> None:
    """24 gold and 16 generated questions in batches of 16: 2 epochs are 6 updates; 24 gold ones alone would make 4."""
    run = open_toy_run(tmp_path, qa=toy_settings(reader_model))
    both = arms(tmp_path, 16, 16)
    augment_equally(run, both)
    folders = train_readers(run, both, candidates=18)
    assert list(folders) == ["gold", "ce", "scst"]
    assert updates(run) == [6, 6, 6]
    comparison = read_json(tmp_path / "qa" / "comparison.json")
    assert list(comparison["differences"]) == ["ce - gold", "scst - gold", "scst - ce"]
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    train_readers(run, both, candidates=18)
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.slow
def test_by_epochs_a_reader_on_more_data_makes_more_updates(tmp_path: Path, reader_model: Path) -> None:
    run = open_toy_run(tmp_path, qa=toy_settings(reader_model, equal_updates=False))
    both = arms(tmp_path, 16, 16)
    augment_equally(run, both)
    train_readers(run, both[1:], candidates=18)  # stages=scst: no CE generator in the run
    assert updates(run, ("gold", "scst")) == [4, 6]
    assert list(read_json(tmp_path / "qa" / "comparison.json")["differences"]) == ["scst - gold"]


@pytest.mark.slow
def test_a_filter_may_use_the_reader_on_gold(tmp_path: Path, reader_model: Path) -> None:
    """It is trained before the filters, with the updates of 24 and 26 examples, the most that could be added."""
    options = {"reader": str(tmp_path / "qa" / "gold"), "min_f1": 0.0, "max_length": 32, "doc_stride": 8}
    filters = {**FILTERS, "round_trip": options}
    run = open_toy_run(tmp_path, filters=filters, qa=toy_settings(reader_model))
    assert use_reader(filters, tmp_path) and not use_reader(FILTERS, tmp_path)
    both = arms(tmp_path, 16, 16)
    train_readers(run, [], candidates=26)
    first = (tmp_path / "qa" / "gold" / "model.safetensors").stat().st_mtime_ns
    augment_equally(run, both)
    train_readers(run, both, candidates=26)
    assert updates(run) == [8, 8, 8]
    assert (tmp_path / "qa" / "gold" / "model.safetensors").stat().st_mtime_ns == first
