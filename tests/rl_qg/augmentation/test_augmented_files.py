"""Outputs in every format contain the same questions, and `data.train` reads them back."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_qg.augmentation.augment import AugmentedRow, augment, write_augmented
from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.formats import parquet_rows
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AugmentSettings
from tests.full_disk import room_for
from tests.questions import PASSAGE, record, write_questions

GOLD = [
    QAExample("g1", "Ada", PASSAGE, "Who met Charles?", (Answer("Ada Lovelace", 0), Answer("Ada", 0))),
    QAExample("g2", "", "東京 é 😀", "Où?", (Answer("é", 3),)),
]
SETTINGS = AugmentSettings(filters={"mark": {"kind": "reward", "field": "score"}})
LINES = [
    record("Where was it?", candidate=0, score=0.5),
    record("In which city?", candidate=1, score=2),
    record("Né où, à “London”?", candidate=2, score=0.25, logprob=None),
]


def run(folder: Path, name: str, **changes: Any) -> dict[str, Any]:
    path = write_questions(folder / "q.jsonl", LINES)
    return augment(path, changes.pop("gold", GOLD), folder / name, settings=replace(SETTINGS, **changes))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet"])
def test_every_format_is_read_back_as_the_same_examples(tmp_path: Path, name: str) -> None:
    report = run(tmp_path, name)
    assert report["written"] == 5
    data = read_examples(tmp_path / name, role="train")
    assert data.examples[:2] == GOLD
    assert [one.id for one in data.examples[2:]] == ["synthetic-q-0", "synthetic-q-1", "synthetic-q-2"]
    assert data.examples[4].question == LINES[2]["question"]
    assert {path.name for path in tmp_path.iterdir()} == {"q.jsonl", name, "a.report.json", "a.card.md"}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet"])
def test_every_format_keeps_the_language_of_questions(tmp_path: Path, name: str) -> None:
    path = write_questions(tmp_path / "q.jsonl", [record("Wo war es?", language="de")])
    augment(path, [replace(GOLD[1], language="fr"), GOLD[0]], tmp_path / name, settings=AugmentSettings())
    examples = read_examples(tmp_path / name, role="train").examples
    assert [(one.id, one.language) for one in examples] == [("g2", "fr"), ("g1", ""), ("synthetic-q-0", "de")]


def test_flat_rows_have_source_rank_and_logprob(tmp_path: Path) -> None:
    run(tmp_path, "b.parquet")
    rows = [row for _, _, row in parquet_rows(tmp_path / "b.parquet")]
    assert [row["source"] for row in rows] == ["gold", "gold", "synthetic", "synthetic", "synthetic"]
    assert [row["candidate"] for row in rows] == [None, None, 0, 1, 2]
    assert [row["logprob"] for row in rows] == [None, None, 0.0, -1.0, None]
    run(tmp_path, "a.jsonl")
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()] == rows


def test_measures_are_columns(tmp_path: Path) -> None:
    rows = [AugmentedRow(GOLD[0]), AugmentedRow(GOLD[1], 3, -1.0, {"a": 0.5, "b": float("nan")})]
    for name in ("m.parquet", "m.jsonl"):
        assert write_augmented(tmp_path / name, iter(rows), ["a", "b"]) == 2
    read = [row for _, _, row in parquet_rows(tmp_path / "m.parquet")]
    assert [(row["a"], row["b"]) for row in read] == [(None, None), (0.5, None)]
    assert [json.loads(line) for line in (tmp_path / "m.jsonl").read_text(encoding="utf-8").splitlines()] == read


def test_gold_may_be_empty(tmp_path: Path) -> None:
    for name in ("a.json", "b.parquet"):
        report = run(tmp_path, name, gold=[], num_samples=2)
        assert (report["gold"], report["written"]) == (0, 2)
        assert all(one.id.startswith("synthetic-") for one in read_examples(tmp_path / name, role="train").examples)


def test_numbers_that_json_or_parquet_cannot_store(tmp_path: Path) -> None:
    wide = [("-Infinity", None), ("1" + "0" * 400, None), ("NaN", None), ("-2", -2.0)]
    for number, (text, _) in enumerate(wide):
        line = json.dumps(record(f"Where was number {number}?", candidate=3_000_000_000 + number, logprob="@"))
        with (tmp_path / "q.jsonl").open("a") as stream:
            stream.write(line.replace('"@"', text) + "\n")
    settings = AugmentSettings()
    for name in ("a.jsonl", "b.parquet"):
        augment(tmp_path / "q.jsonl", [], tmp_path / name, settings=settings)
    strict = json.JSONDecoder(parse_constant=pytest.fail)
    lines = [strict.decode(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    rows = [row for _, _, row in parquet_rows(tmp_path / "b.parquet")]
    for read in (lines, rows):
        assert [row["logprob"] for row in read] == [value for _, value in wide]
        assert [row["candidate"] for row in read] == [3_000_000_000 + number for number in range(4)]
    with pytest.raises(InputError, match=r"line 2: the number under 'logprob' is too large: it has 401 digits"):
        augment(tmp_path / "q.jsonl", [], tmp_path / "a.jsonl", settings=replace(settings, sampling="reward"))
    write_questions(tmp_path / "q.jsonl", [record("Where?", candidate=2**63)])
    with pytest.raises(InputError, match=r"line 1: field 'candidate' is a number of more than 64 bits"):
        augment(tmp_path / "q.jsonl", [], tmp_path / "b.parquet", settings=settings)


def test_a_measure_with_the_name_of_a_column_is_refused(tmp_path: Path) -> None:
    filters = {"title": {"kind": "reward", "metric": {"_target_": "x"}}}
    with pytest.raises(InputError, match=r"augment\.filters\.title: is the name of a column"):
        run(tmp_path, "a.parquet", filters=filters)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_full_disk_leaves_no_partial_file(tmp_path: Path, name: str) -> None:
    write_questions(tmp_path / "q.jsonl", LINES)
    with room_for(900), pytest.raises(InputError, match=r"cannot be written \(.*File too large\)"):
        augment(tmp_path / "q.jsonl", GOLD, tmp_path / name, settings=SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["q.jsonl"]
