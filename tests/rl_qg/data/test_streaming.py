"""A stream of examples yields the same examples as the list, without holding them in memory."""

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow
import pyarrow.parquet
import pytest

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample, write_squad
from rl_qg.data.formats import RawRecord
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import answer_spans, load_training, take, training_stream
from rl_qg.data.streaming import ExampleStream, RecordSource, as_raw_record, stream_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import DataSettings, WorldSettings


def flat(example: QAExample, **changes: Any) -> dict[str, Any]:
    answers = {"text": [a.text for a in example.answers], "answer_start": [a.start for a in example.answers]}
    row = {"id": example.id, "title": example.title, "context": example.context, "question": example.question}
    return {**row, "answers": answers, **changes}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The same answer spans under repeated ids, in every file format; some records cannot be used."""
    folder = tmp_path_factory.mktemp("data")
    examples = list(synthetic_examples(12, seed=0))
    rows = [flat(example, id=f"q{number % 20}") for number, example in enumerate(examples)]
    rows[3]["answers"] = {"text": ["nowhere to be found"], "answer_start": [0]}
    rows[5]["question"] = ""
    rows[7]["answers"]["answer_start"] = [len(rows[7]["context"])]  # moved where the answer occurs once
    with gzip.open(folder / "a.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows[:30]), folder / "b.parquet")
    write_squad(folder / "c.json", examples[10:50])
    return [str(folder / name) for name in ("a.jsonl.gz", "b.parquet", "c.json")]


@pytest.mark.parametrize("unlabelled", [False, True])
def test_a_stream_yields_what_read_examples_returns(files: list[str], unlabelled: bool) -> None:
    listed = read_examples(files, role="train", allow_unlabelled=unlabelled)
    stream = stream_examples(files, role="train", allow_unlabelled=unlabelled)
    assert len(stream) == len(listed.examples) > 60
    assert list(stream) == list(stream) == listed.examples
    assert len({example.id for example in stream}) == len(stream)
    assert stream.report == listed.report and listed.report["duplicate_ids"]["count"] > 30
    assert sum(part["count"] for part in listed.report["dropped"].values()) >= 2
    assert stream.hashes == listed.hashes


@pytest.mark.parametrize("limit", [None, 1, 17, 1000])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_stream_samples_the_same_examples_as_the_list(files: list[str], limit: int | None, seed: int) -> None:
    settings = DataSettings(train=files, max_train=limit, seed=seed)
    assert list(training_stream(settings, spans=True)) == answer_spans(load_training(settings))
    assert list(training_stream(settings)) == load_training(settings)
    listed = take(read_examples(files, role="train").examples, limit, seed)
    assert list(stream_examples(files, role="train", limit=limit, seed=seed)) == listed
    if seed == 0:  # the default
        assert list(stream_examples(files, role="train", limit=limit)) == listed
    assert len(answer_spans(load_training(DataSettings(train=files)))) < len(
        list(stream_examples(files, role="train"))
    )


def test_the_embedded_corpus_is_streamed_with_the_same_log(caplog: pytest.LogCaptureFixture) -> None:
    settings = DataSettings(train="world", world=WorldSettings(15, 3), max_train=40)
    with caplog.at_level(logging.INFO):
        listed = load_training(settings)
        logged = caplog.messages[:]
        stream = training_stream(settings, spans=True)
    assert list(stream) == answer_spans(listed)
    assert caplog.messages[len(logged) :] == logged
    other = training_stream(DataSettings(train="world", world=WorldSettings(15, 3, seed=1)), spans=True)
    assert stream.hashes != other.hashes and list(stream.hashes) == list(other.hashes) == ["world (train)"]


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    lines = [json.dumps(flat(example)) + "\n" for example in synthetic_examples(3, seed=0)]
    path.write_text("".join(lines[:-1]))
    stream = stream_examples(path, role="train")
    for changed in (lines, lines[:-2]):
        path.write_text("".join(changed))
        with pytest.raises(InputError, match=r"train\.jsonl: has changed while it was read"):
            list(stream)


def test_a_stream_raises_the_errors_of_the_list(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    path.write_text(json.dumps({"id": "a", "context": "c", "question": "?", "answers": []}) + "\n")
    for read in (read_examples, stream_examples):
        with pytest.raises(InputError, match=r"no usable record: 1 read; 1 dropped \(no answer\)"):
            read(path, role="train")
        with pytest.raises(InputError, match="no train data given"):
            read([], role="train")


def test_no_more_than_one_record_is_held_in_memory() -> None:
    alive: WeakSet[RawRecord] = WeakSet()

    class Tracked(RawRecord):
        __hash__ = object.__hash__

    def records() -> Iterator[RawRecord]:
        for example in synthetic_examples(20, seed=0):
            record = Tracked(**vars(as_raw_record(example)))
            alive.add(record)
            assert len(alive) <= 2  # a record is released when the next one is read
            yield record
            del record

    stream = ExampleStream([RecordSource("tracked", records)], role="train", limit=30, spans=True)
    assert sum(1 for _ in stream) == len(stream) == 30
