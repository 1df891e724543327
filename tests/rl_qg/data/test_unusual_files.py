"""Files that once ended in a traceback or took the machine's memory; experiments/fuzz-readers found most of them."""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from rl_qg.data import formats
from rl_qg.data.passages import Passages
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.reading import read_examples
from rl_qg.data.streaming import stream_examples
from rl_qg.runtime.errors import InputError

ROW = {"id": "a", "context": "Ada x", "question": "Who?", "answers": {"text": ["Ada"], "answer_start": [0]}}
SQUAD = {"data": [{"title": "t", "paragraphs": [{"context": "Ada x", "qas": []}]}]}
Reader = Callable[[Path], Any]
READERS: dict[str, Reader] = {
    "QA data": lambda path: read_examples(path, role="train"),
    "passages": lambda path: list(Passages([str(path)])),
    "question table": lambda path: list(QuestionTable(path)),
}
every_reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


def refused(read: Reader, path: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


# --- Parquet


@every_reader
@pytest.mark.parametrize(
    ("kind", "number"),
    [
        (pyarrow.timestamp("us"), 2**62),
        (pyarrow.timestamp("ms"), -(2**52)),
        (pyarrow.date64(), 2**52),
        (pyarrow.date32(), 2**31 - 1),
        (pyarrow.duration("ms"), 2**62),
    ],
)
def test_a_date_that_python_cannot_hold(tmp_path: Path, read: Reader, kind: Any, number: int) -> None:
    plain = pyarrow.array([number], pyarrow.int32() if kind == pyarrow.date32() else pyarrow.int64())
    table = pyarrow.Table.from_pylist([ROW]).append_column("day", plain.view(kind))
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    refused(read, tmp_path / "x.parquet", r"column 'day' has a value that cannot be read \(.*leave the column out")


@every_reader
@pytest.mark.parametrize("kind", [pyarrow.string(), pyarrow.large_string()])
def test_text_in_parquet_that_is_not_utf8(tmp_path: Path, read: Reader, kind: Any) -> None:
    words = pyarrow.array([b"\xff Ada"], pyarrow.binary() if kind == pyarrow.string() else pyarrow.large_binary())
    table = pyarrow.Table.from_pylist([ROW]).append_column("note", words.view(kind))
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    refused(read, tmp_path / "x.parquet", "column 'note' has a value that cannot be read")


@every_reader
def test_the_name_of_a_parquet_column_is_not_utf8(tmp_path: Path, read: Reader) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([ROW]), tmp_path / "x.parquet", store_schema=False)
    content = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(content.replace(b"question", b"\x80uestion"))
    refused(read, tmp_path / "x.parquet", r"cannot be read as Parquet \(.*\); write it again")


# --- JSON


@pytest.mark.parametrize("paragraph", ["Ada x", 3, 1.5, True, None, [SQUAD]])
def test_passages_of_a_paragraph_that_is_no_object(tmp_path: Path, paragraph: Any) -> None:
    (tmp_path / "x.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    kind = type(paragraph).__name__
    message = rf"data\[0\]\.paragraphs\[0\]: expected an object, got {kind}$"
    refused(READERS["passages"], tmp_path / "x.json", message)


def test_a_message_stays_short_whatever_is_in_a_field(tmp_path: Path) -> None:
    nested: Any = "Ada"
    for _ in range(400):
        nested = {"answer_start": nested}
    answer = {"text": "Ada", "answer_start": nested}
    (tmp_path / "x.jsonl").write_text(json.dumps({**ROW, "answers": [answer]}))
    refused(READERS["QA data"], tmp_path / "x.jsonl", "must be a whole number, got {'answer_start': {'answer_start'")
    (tmp_path / "x.jsonl").write_text(json.dumps({f"field {number}": 1 for number in range(5000)}))
    refused(READERS["QA data"], tmp_path / "x.jsonl", "field 'context' is missing; there is 'field 0', .*, …$")


def test_an_answer_may_be_nested_as_deeply_as_it_likes(tmp_path: Path) -> None:
    """Python 3.12 parses JSON more deeply than functions may call each other."""
    (tmp_path / "x.jsonl").write_text(json.dumps(ROW))
    table = QuestionTable(tmp_path / "x.jsonl")
    (row,) = table
    for wrap in (lambda value: [value], lambda value: {"text": value}):
        value: Any = "Ada"
        for _ in range(5000):
            value = wrap(value)
        row.fields["answers"] = value
        assert table.value(row, "answer") == "Ada"


# --- names


@every_reader
@pytest.mark.parametrize(
    ("name", "message"),
    [("a" * 5000 + ".json", "cannot be read .*: check the path"), ("~nobody-here/x.json", "no such home folder")],
)
def test_a_name_that_no_file_can_have(read: Reader, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(name)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        stream_examples(name, role="train")


def test_no_column_at_all() -> None:
    with pytest.raises(InputError, match=r"input={}: give one file, or text files by column"):
        QuestionTable({})


# --- files that are much larger than they look


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "LARGEST_DOCUMENT", 1 << 20)
    monkeypatch.setattr(formats, "LONGEST_LINE", 1 << 20)


def bomb(path: Path, part: bytes, megabytes: int = 24) -> Path:
    with gzip.open(path, "wb") as stream:
        for _ in range(megabytes):
            stream.write(part * ((1 << 20) // len(part)))
    assert path.stat().st_size < 1 << 20
    return path


@pytest.fixture
def memory() -> Iterator[None]:
    """Python may not hold more than a third of what a bomb unpacks to."""
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


@every_reader
def test_a_gzipped_document_that_unpacks_to_too_much(
    tmp_path: Path, small_limits: None, memory: None, read: Reader
) -> None:
    path = bomb(tmp_path / "x.json.gz", b'{"data": [] }   ')
    refused(
        read, path, r"unpacks to more than 1,048,576 bytes, .*unpack the file first \(gunzip\), or write JSON lines"
    )


@every_reader
@pytest.mark.parametrize("part", [b"\0", b"[" * 1024])
def test_a_line_without_an_end(tmp_path: Path, small_limits: None, memory: None, read: Reader, part: bytes) -> None:
    refused(read, bomb(tmp_path / "x.jsonl.gz", part), "line 1 is longer than 1,048,576 bytes")


@pytest.mark.parametrize("name", ["x.csv.gz", "x.tsv.gz", "x.txt.gz"])
def test_a_text_line_without_an_end(tmp_path: Path, small_limits: None, memory: None, name: str) -> None:
    path = bomb(tmp_path / name, b"a")
    read = READERS["passages" if ".txt" in name else "question table"]
    refused(read, path, "line 1 is longer than 1,048,576 bytes")


def test_a_paragraph_without_an_end(tmp_path: Path, small_limits: None, memory: None) -> None:
    path = bomb(tmp_path / "x.txt.gz", b"a" * 1023 + b"\n")
    refused(lambda path: list(Passages([str(path)], "paragraph")), path, "paragraph is longer than 1,048,576 char")
    assert sum(1 for _ in Passages([str(path)], "line")) == 1


def test_json_lines_of_any_number_are_read_one_at_a_time(tmp_path: Path, small_limits: None, memory: None) -> None:
    row = json.dumps({"context": "Ada x", "note": "a" * 2000}).encode() + b"\n"
    path = bomb(tmp_path / "x.jsonl.gz", row)
    found = Passages([str(path)])
    assert len(list(found)) == 1
    assert found.counts.read == 24 * ((1 << 20) // len(row))


def test_what_is_within_the_limits_is_read(tmp_path: Path, small_limits: None) -> None:
    words = "w " * 2000
    document = {"data": [{"title": "t", "paragraphs": [{"context": f"{n} {words}", "qas": []} for n in range(500)]}]}
    content = json.dumps(document).encode()
    assert len(content) > 1 << 20
    (tmp_path / "x.json").write_bytes(content)  # a file that is as large as it looks has no limit
    assert len(list(Passages([str(tmp_path / "x.json")]))) == 500
    document["data"][0]["paragraphs"] = document["data"][0]["paragraphs"][:250]  # type: ignore[index]
    (tmp_path / "y.json.gz").write_bytes(gzip.compress(json.dumps(document).encode()))
    assert len(list(Passages([str(tmp_path / "y.json.gz")]))) == 250
