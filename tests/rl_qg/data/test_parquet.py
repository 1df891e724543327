"""Parquet outputs: any rows of JSON come back, and any number of parts gives the bytes of one run."""

import json
import tempfile
from collections.abc import Sequence
from errno import ENOSPC
from math import ceil
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
from accelerate import PartialState
from hypothesis import given, settings, strategies as st

from rl_qg.data import parquet
from rl_qg.data.formats import parquet_rows
from rl_qg.data.parquet import write_rows
from rl_qg.data.parts import DataPart, StageRows, read_parts
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.resumable_lines import ResumableLines, Work, begins_with, json_line, note_path

Rows = list[dict[str, Any]]
NUMBERS = st.integers(-(2**40), 2**40) | st.floats(-10, 10)
NESTED = st.dictionaries(st.sampled_from("zyx"), NUMBERS | st.none() | st.just({}), max_size=3)
COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "text": st.text(max_size=3),
    "number": NUMBERS,
    "row": st.integers(0, 3),
    "list": st.lists(NESTED, max_size=2),
    "parts": NESTED,
    "nothing": st.just({}),
}
ROWS = st.lists(st.fixed_dictionaries({}, optional={k: v | st.none() for k, v in COLUMNS.items()}), max_size=12)


def read(path: Path) -> Rows:
    return [row for _, _, row in parquet_rows(path)]


def run(folder: Path, rows: Rows, part: DataPart | None, ending: str, cut: int | None = None) -> tuple[Path, int]:
    """A stage that adds the place of each row; its output, and for how many rows it worked. Only `cut` bytes of lines
    are left of an earlier run.
    """
    output, worked = folder / f"out.{ending}", []

    def lines_of(given: Sequence[tuple[int, dict[str, Any]]]) -> list[list[bytes]]:
        worked.extend(given)
        return [[json_line({"place": k, **row})] for k, row in given]

    lines = ResumableLines(part.path(output) if part else output, note_path(part.path(output) if part else output))
    work = Work[Any](lines, 2, "test", "row", lambda row, _, line: begins_with(line, b'{"place": %d,' % row[0]), 1)
    of_run = StageRows[Any](part, "test", [*enumerate(rows)], lambda row: f"passage {row[0] % 5}", work)
    if cut is not None:
        lines.output.unlink()
        of_run.write(lines_of, of_run.position(False), PartialState(cpu=True))
        lines.path.write_bytes(lines.path.read_bytes()[:cut])
        worked.clear()
    position = of_run.position(False)
    lines.write_note({"seed": 1, **of_run.note})
    if position is not None:
        of_run.write(lines_of, position, PartialState(cpu=True))
        of_run.finish()
    return lines.output, len(worked)


def merged(folder: Path, rows: Rows, of: int, ending: str) -> tuple[bytes, bytes]:
    output = folder / "out.parquet"
    parts = read_parts([run(folder, rows, DataPart(k, of), ending)[0] for k in range(1, of + 1)], output)
    parts.write(ResumableLines(output, note_path(output)))
    return output.read_bytes(), note_path(output).read_bytes()


def plain(value: Any) -> Any:
    """What of a value Parquet can hold: of an object what is not null, and of one without anything nothing."""
    if isinstance(value, dict):
        return {k: kept for k, item in value.items() if (kept := plain(item)) is not None} or None
    return [plain(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=12, deadline=None)
@given(ROWS, st.sampled_from([1, 3, 4096]))
def test_parts_of_any_number_and_form_are_the_bytes_of_one_run(rows: Rows, group: int) -> None:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as name:
        patch.setattr(parquet, "ROWS_AT_ONCE", group)
        output, worked = run(folder := Path(name), rows, None, "parquet")
        whole = output.read_bytes(), note_path(output).read_bytes()
        assert [plain(row) for row in read(output)] == [plain({"place": k, **row}) for k, row in enumerate(rows)]
        assert pyarrow.parquet.ParquetFile(output).num_row_groups == ceil(len(rows) / group)
        assert (worked, run(folder, rows, None, "parquet")[1]) == (len(rows), 0)  # complete, without its lines
        assert {path.name for path in folder.iterdir()} == {"out.parquet", "out.parquet.settings.json"}
        for of, ending in ((1, "parquet"), (2, "jsonl"), (2, "parquet"), (7, "parquet")):
            assert merged(folder, rows, of, ending) == whole


@pytest.mark.parametrize("part", [None, DataPart(1, 1)])
def test_a_parquet_file_whose_run_is_killed_at_any_time_ends_in_the_same_bytes(
    tmp_path: Path, part: DataPart | None
) -> None:
    rows = [{"a": k, "b": {"c": "x" * k}} for k in range(9)]
    output, _ = run(tmp_path, rows, part, "parquet")
    whole, note = output.read_bytes(), note_path(output).read_bytes()
    lines = output.with_name(f"{output.name}.jsonl")
    assert not lines.exists()
    for cut in range(0, 400, 29):  # while it works, up to all lines
        _, worked = run(tmp_path, rows, part, "parquet", cut)
        assert (output.read_bytes(), note_path(output).read_bytes()) == (whole, note) and not lines.exists()
        assert worked == 9 if cut < 50 else worked < 9 or cut < 200
    note_path(output).write_bytes(json.dumps({k: v for k, v in json.loads(note).items() if k != "whole"}).encode())
    run(tmp_path, rows, part, "parquet")
    assert (output.read_bytes(), note_path(output).read_bytes()) == (whole, note)
    lines.write_bytes(b"{}")  # as after a kill before they are deleted
    assert run(tmp_path, rows, part, "parquet")[1] == 0 and not lines.exists()
    output.write_bytes(whole.replace(b"xxx", b"yyy"))
    with pytest.raises(InputError, match=r"out.*\.parquet: is not as it was made; delete it"):
        run(tmp_path, rows, part, "parquet")
    if part:
        with pytest.raises(InputError, match=r"out\.part-1-of-1\.parquet: part 1/1 is not as it was made"):
            read_parts([output], tmp_path / "out.parquet")
        with pytest.raises(InputError, match=r"is Parquet, and output=.*out\.jsonl is not; give a name that ends in"):
            read_parts([output], tmp_path / "out.jsonl")


def test_a_merge_that_ends_while_it_writes_a_parquet_file_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def disk_is_full(*_: Any) -> None:
        raise OSError(ENOSPC, "full")

    rows = [{"a": k} for k in range(9)]
    whole = run(tmp_path, rows, None, "parquet")[0].read_bytes()
    (tmp_path / "out.parquet").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(parquet.ParquetWriter, "write_table", disk_is_full)
        with pytest.raises(OSError, match="full"):
            merged(tmp_path, rows, 2, "jsonl")
    assert not (tmp_path / "out.parquet").exists() and not [*tmp_path.glob(".*.part")]
    assert merged(tmp_path, rows, 2, "jsonl")[0] == whole


@pytest.mark.parametrize("values", [(1, "a"), ([1], {"b": 1}), ({"b": 1}, {"b": [2]}), (2**70,), (2**60 + 1, 0.5)])
@pytest.mark.parametrize("group", [1, 9])
def test_a_column_that_has_no_one_type_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: tuple[Any, ...], group: int
) -> None:
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", group)
    with pytest.raises(
        InputError, match=r"output=.*o\.parquet: Parquet has one type for each column, and ('a'|one) has"
    ):
        write_rows(tmp_path / "o.parquet", lambda: [{"a": None}, *({"a": value} for value in values)])
    assert not [*tmp_path.iterdir()]
