"""A file of JSON lines is the same after a kill at any byte, and lines that were made otherwise are refused."""

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState
from hypothesis import given, settings, strategies as st

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work, begins_with, json_line
from tests.full_disk import room_for

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)


class Job:
    """Writes `counts[i]` lines for row i; records which rows it computes."""

    def __init__(self, path: Path, counts: Sequence[int], batch_size: int, fixed: bool, text: str = "ß") -> None:
        self.lines = ResumableLines(path, path.with_name("note.json"), content="numbers")
        self.counts, self.batch_size, self.text = counts, batch_size, text
        self.lines_per_row = counts[0] if fixed and counts else None
        self.computed: list[int] = []

    def record(self, row: int, rank: int) -> dict[str, Any]:
        return {"row": row, "rank": rank, "text": self.text}

    def is_about(self, row: int, rank: int, line: bytes) -> bool:
        if self.lines_per_row is not None:
            return begins_with(line, json_line(self.record(row, rank)))
        return not line.endswith(b"\n") or json.loads(line)["row"] == row

    def lines_of(self, rows: Sequence[int]) -> list[bytes]:
        self.computed += rows
        return [json_line(self.record(row, rank)) for row in rows for rank in range(self.counts[row])]

    def run(self) -> Position:
        rows = range(len(self.counts))
        work = Work[int](self.lines, self.batch_size, "count", "row", self.is_about, self.lines_per_row)
        position = work.begin(rows, {"text": self.text})
        state = PartialState(cpu=True)
        work.write(rows[position.rows :], self.lines_of, position=position, total=len(rows), state=state)
        return position


def test_a_table_that_cannot_be_written_is_named_as_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = tmp_path / "file" / "rows.parquet"
    with pytest.raises(InputError, match=rf"^output={output}: cannot be written"):
        ResumableLines(output, tmp_path / "file" / "note.json").write_note({})


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_file_cut_at_any_byte_is_completed_from_its_last_whole_batch(data: st.DataObject) -> None:
    fixed = data.draw(st.booleans())
    length = data.draw(st.integers(0, 9))
    counts = [data.draw(st.integers(1, 3))] * length if fixed else data.draw(st.lists(st.integers(0, 3), max_size=9))
    batch_size, text = data.draw(st.integers(1, 4)), data.draw(TEXTS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.jsonl"
        Job(path, counts, batch_size, fixed, text).run()
        whole = path.read_bytes()
        assert whole == b"".join(
            json_line({"row": row, "rank": rank, "text": text}) for row, n in enumerate(counts) for rank in range(n)
        )
        kept = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:kept])
        again = Job(path, counts, batch_size, fixed, text)
        position = again.run()
        assert path.read_bytes() == whole
    assert again.computed == list(range(position.rows, len(counts)))
    # The rows whose lines are all there, and of which this is known: without a fixed number, only by a later line.
    line_rows = [row for row, n in enumerate(counts) for _ in range(n)][: whole[:kept].count(b"\n")]
    rows = (len(line_rows) // counts[0] if fixed else line_rows[-1]) if line_rows else 0
    batches = rows if fixed and rows == len(counts) else rows // batch_size * batch_size
    assert position.rows == batches


def test_a_kill_during_the_work_loses_one_batch(tmp_path: Path) -> None:
    class Killed(Job):
        def lines_of(self, rows: Sequence[int]) -> list[bytes]:
            if len(self.computed) >= 4:
                raise KeyboardInterrupt
            return super().lines_of(rows)

    path = tmp_path / "lines.jsonl"
    with pytest.raises(KeyboardInterrupt):
        Killed(path, [1] * 7, 2, fixed=True).run()
    again = Job(path, [1] * 7, 2, fixed=True)
    again.run()
    assert again.computed == [4, 5, 6]
    assert [json.loads(line)["row"] for line in path.read_bytes().splitlines()] == list(range(7))


def test_a_position_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "lines.jsonl"
    Job(path, [1] * 3, 2, fixed=True).run()
    with caplog.at_level(logging.INFO):
        Job(path, [1] * 5, 2, fixed=True).run()
    assert f"count: 2 of 5 rows are in {path} already" in caplog.text


def test_lines_about_other_rows_are_refused_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    Job(path, [2] * 4, 2, fixed=True).run()
    whole = path.read_bytes()
    with pytest.raises(InputError, match=r"lines\.jsonl: line 7 is not about the row in its place; name another"):
        Job(path, [2] * 3, 2, fixed=True).run()
    path.write_bytes(whole[:-5] + b"other")
    with pytest.raises(InputError, match="line 8 is not about the row"):
        Job(path, [2] * 4, 2, fixed=True).run()
    assert path.read_bytes() == whole[:-5] + b"other"
    path.write_bytes(whole)
    with pytest.raises(InputError, match="line 5 is not about the row"):
        Job(path, [2, 2], 2, fixed=False).run()
    assert path.read_bytes() == whole


def test_other_settings_and_a_file_without_a_note_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    Job(path, [1], 1, fixed=True, text="a").run()
    lines = ResumableLines(path, tmp_path / "note.json", content="numbers")
    assert not lines.check({"text": "a"})
    with pytest.raises(InputError, match=r"holds numbers made with other settings \(text: a -> b; more: None -> 1\)"):
        lines.check({"text": "b", "more": 1})
    with pytest.raises(InputError, match=r"\(text: a -> 01234567\)"):
        lines.check({"text": "0123456789abcdef" * 4})
    (tmp_path / "note.json").unlink()
    with pytest.raises(InputError, match=r"not made by this command \(there is no note\.json beside it\)"):
        lines.check({"text": "a"})
    path.write_bytes(b"")
    assert not lines.check({"text": "anything"})  # an empty file can be used


def test_changed_sources_are_refused_unless_accepted(tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    lines = ResumableLines(path, tmp_path / "note.json")
    before, now = {"a.json": "0123456789", "b.json": "1"}, {"a.json": "abcdefghij", "b.json": "1", "new.json": "2"}
    lines.write_note({"input": before})
    assert not lines.check({}, sources=now, sources_key="input")  # nothing was written yet
    lines.append({})
    assert not lines.check({}, sources=before, sources_key="input")
    with pytest.raises(InputError, match=r"a\.json: has changed since .*01234567, now abcdefgh.*accept_changed_data"):
        lines.check({}, sources=now, sources_key="input")
    assert lines.check({}, sources=now, sources_key="input", accept=True)
    assert not lines.check({}, sources=now)  # the note has no such key: nothing is known of them


@pytest.mark.parametrize("size", [3_050, 5_000, 9_050, 14_900])
def test_a_full_disk_leaves_whole_lines_and_the_same_command_continues(tmp_path: Path, size: int) -> None:
    path = tmp_path / "lines.jsonl"
    with room_for(size), pytest.raises(InputError, match=r"lines\.jsonl: cannot be written further") as error:
        Job(path, [1] * 5, 1, fixed=True, text="x" * 3_000).run()
    assert "\n" not in str(error.value)
    line = len(json_line({"row": 0, "rank": 0, "text": "x" * 3_000}))
    assert path.stat().st_size == size // line * line
    again = Job(path, [1] * 5, 1, fixed=True, text="x" * 3_000)
    assert again.run().rows == size // line
    assert path.stat().st_size == 5 * line


def test_a_note_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    lines = ResumableLines(tmp_path / "lines.jsonl", tmp_path / "note.json")
    with room_for(10), pytest.raises(InputError, match=r"lines\.jsonl: cannot be written \(File too large\)"):
        lines.write_note({"text": "x" * 100})
    assert list(tmp_path.iterdir()) == []
    with room_for(10), pytest.raises(InputError, match=r"lines\.jsonl: cannot be written further"):
        ResumableLines(tmp_path / "lines.jsonl").write_note({"text": "x" * 100})
    assert (tmp_path / "lines.jsonl").read_bytes() == b""


def test_a_note_in_the_first_line_is_not_a_line_about_a_row(tmp_path: Path) -> None:
    path = tmp_path / "new" / "lines.jsonl"
    lines = ResumableLines(path)
    assert lines.read_note() == {} and list(lines.lines()) == []
    lines.write_note({"text": "a"})
    for number in range(3):
        lines.append({"n": number})
    assert lines.read_note() == {"text": "a"}
    assert [(line.number, json.loads(line.text)) for line in lines.lines()] == [
        (2, {"n": 0}),
        (3, {"n": 1}),
        (4, {"n": 2}),
    ]
    whole = path.read_bytes()
    last = list(lines.lines())[-1]
    assert whole[last.start : last.end] == last.text
    lines.cut(last.start)
    assert path.read_bytes() == whole[: last.start]
    lines.write_note({"text": "b"})
    assert path.read_bytes() == b'{"text": "b"}\n'
    for damaged in (b'{"text": "b"}', b"no JSON\n", b"[1]\n"):
        path.write_bytes(damaged)
        assert lines.read_note() == {}
        with pytest.raises(InputError, match=r"not made by this command \(there is no note in its first line\)"):
            lines.check({})


def test_half_a_surrogate_is_written_as_other_files_write_it() -> None:
    assert json_line({"note": "é\ud800"}) == '{"note": "é?"}\n'.encode()


def test_a_line_that_was_cut_off_begins_with_what_it_holds() -> None:
    assert begins_with(b"abc\n", b"ab") and begins_with(b"a", b"ab") and begins_with(b"abc", b"ab")
    assert not begins_with(b"a\n", b"ab") and not begins_with(b"x", b"ab")
