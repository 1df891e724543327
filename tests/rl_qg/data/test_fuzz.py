"""Documents of any shape are read or refused with one line; 10,000 files a run are in experiments/fuzz-readers."""

import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
from hypothesis import given, settings, strategies as st

from rl_qg.data.passages import Passages
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError

CONTEXT = "Ada wrote to Max in 1843."
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=4)  # unpaired surrogates too
    | st.sampled_from(["Ada", "Max", CONTEXT]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=3), inside, max_size=3),
    max_leaves=4,
)


def rarely_odd(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly the usual value, so that a document with several fields is often right in most of them."""
    return st.integers(0, 9).flatmap(lambda number: usual if number else ANYTHING)


def record(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """An object with most of its fields."""
    return rarely_odd(st.fixed_dictionaries({}, optional={name: rarely_odd(one) for name, one in fields.items()}))


TEXT = st.sampled_from(["Ada", "Max", "Who?", CONTEXT])
ANSWERS = st.lists(record(text=TEXT, answer_start=st.integers(-2, 30)), max_size=2) | record(
    text=st.lists(TEXT, max_size=2), answer_start=st.lists(st.integers(-2, 30), max_size=2)
)
FLAT = record(id=TEXT, title=TEXT, context=st.just(CONTEXT), question=TEXT, answers=ANSWERS)
QG_BENCH = record(paragraph=st.just(CONTEXT), sentence=st.just(CONTEXT), question=TEXT, answer=TEXT)
PARAGRAPHS = st.lists(
    record(context=st.just(CONTEXT), qas=st.lists(record(id=TEXT, question=TEXT, answers=ANSWERS), max_size=2)),
    max_size=2,
)
SQUAD = record(data=st.lists(record(title=TEXT, paragraphs=PARAGRAPHS), max_size=2))


def read(path: Path) -> None:
    """Give the file to every reader of its kind, and check what they promise."""
    readers: list[Callable[[], None]] = [
        lambda: check_examples(path, False),
        lambda: check_examples(path, True),
        lambda: check_passages(path),
        lambda: check_table(path),
    ]
    for reader in readers:
        try:
            reader()
        except InputError as error:
            message = str(error)
            assert message.startswith(str(path)) and "\n" not in message and len(message) < 1000
            message.encode()


def check_examples(path: Path, unlabelled: bool) -> None:
    examples = read_examples(path, role="train", allow_unlabelled=unlabelled).examples
    assert len({example.id for example in examples}) == len(examples) > 0
    for example in examples:
        assert unlabelled or example.question.strip()
        assert example.answers
        assert all(example.context[one.start :].startswith(one.text) for one in example.answers)
        "".join((example.id, example.title, example.context, example.question)).encode()


def check_passages(path: Path) -> None:
    for passage in Passages([str(path)]):
        assert passage.context.strip()
        "".join((passage.id, passage.title, passage.context)).encode()


def check_table(path: Path) -> None:
    table = QuestionTable(path)
    for row in table:
        for column in ("question", "context", "answer"):
            (table.value(row, column) or "").encode()
        "".join(table.value(row, "references") or []).encode()


@settings(max_examples=200)
@given(st.lists(FLAT | QG_BENCH, min_size=1, max_size=3), SQUAD, st.booleans())
def test_json_of_any_shape(rows: list[Any], document: Any, zipped: bool) -> None:
    contents = {"rows.jsonl": "\n".join(map(json.dumps, rows)), "document.json": json.dumps(document)}
    with tempfile.TemporaryDirectory() as folder:
        for name, content in contents.items():
            path = Path(folder, name + (".gz" if zipped else ""))
            path.write_bytes(gzip.compress(content.encode()) if zipped else content.encode())
            read(path)


@settings(max_examples=100)
@given(st.sampled_from(["x.json", "x.jsonl", "x.parquet"]), st.binary(max_size=8), st.integers(0, 100))
def test_a_file_that_is_cut_or_damaged(name: str, noise: bytes, percent: int) -> None:
    row = {"id": "1", "context": CONTEXT, "question": "Who?", "answers": {"text": ["Ada"], "answer_start": [0]}}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        if path.suffix == ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist([row]), path)
        else:
            squad = {"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": [row]}]}]}
            path.write_text(json.dumps(squad if path.suffix == ".json" else row))
        content = path.read_bytes()
        at = len(content) * percent // 100
        for damaged in (content[:at] + noise, content[:at] + noise + content[at + len(noise) :]):
            path.write_bytes(damaged)
            read(path)
