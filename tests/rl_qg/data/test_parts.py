"""Parts together are all rows, each once, in blocks that do not depend on their number; the merge refuses others."""

import json
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState
from hypothesis import given, settings, strategies as st

from rl_qg.data.parts import DataPart, Parts, StageRows, cell_of, read_parts
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, write_json
from rl_qg.runtime.resumable_lines import ResumableLines, Work, json_line, note_path
from rl_qg.settings.keys import CELLS, part_fault
from tests.full_disk import room_for

PASSAGES = [f"passage {k}" + " and more" * (k % 4) for k in range(6)]
ONE_CELL = [text for text in map(str, range(20_000)) if cell_of(text) == 5]  # about 40 passages


class Job:
    """Writes `rows[k] % 3` lines for row k; each tells with which rows the row was computed."""

    def __init__(self, folder: Path, rows: Sequence[int], contexts: Sequence[str], size: int = 2) -> None:
        self.folder, self.rows, self.contexts, self.size = folder, [*enumerate(rows)], contexts, size
        self.settings: dict[str, Any] = {"seed": 1, "sources": {"in.jsonl": "a" * 64}}
        self.computed = 0

    def context(self, row: tuple[int, int]) -> str:
        return self.contexts[row[1] % len(self.contexts)]

    def lines_of(self, rows: Sequence[tuple[int, int]]) -> list[list[bytes]]:
        self.computed += len(rows)
        company = [number for number, _ in rows]
        return [[json_line({"k": k, "rank": rank, "with": company}) for rank in range(n % 3)] for k, n in rows]

    def run(self, number: int, of: int) -> Path:
        part = DataPart(number, of)
        path = part.path(self.folder / "out.jsonl")
        lines = ResumableLines(path, note_path(path))
        rows = StageRows[Any](part, "count", self.rows, self.context, Work(lines, self.size, "count", "row"))
        lines.check(self.settings)
        position = rows.position(False)
        lines.write_note({**self.settings, **rows.note})
        if position is not None:
            rows.write(self.lines_of, position, PartialState(cpu=True))
            rows.finish()
        return path

    def merged(self, of: int) -> bytes:
        output = self.folder / "out.jsonl"
        parts = read_parts([self.run(number, of) for number in range(1, of + 1)], output)
        parts.write(ResumableLines(output, note_path(output)))
        return output.read_bytes()


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(0, 40), max_size=30), st.sampled_from([PASSAGES, ONE_CELL]), st.integers(1, 5), st.data())
def test_the_merged_file_does_not_depend_on_the_number_of_parts(
    rows: list[int], contexts: list[str], size: int, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = Job(Path(folder), rows, contexts, size)
        whole = job.merged(1)
        lines = [json.loads(line) for line in whole.splitlines()]
        assert [(line["k"], line["rank"]) for line in lines] == [(k, r) for k, n in job.rows for r in range(n % 3)]
        assert all(len(line["with"]) <= size for line in lines)
        for of in (2, 7, data.draw(st.sampled_from([3, 64]))):
            assert job.merged(of) == whole


def test_rows_of_a_passage_are_in_one_part_and_full_blocks_are_of_one_length(tmp_path: Path) -> None:
    work = Work[Any](ResumableLines(tmp_path / "a.jsonl"), 2, "c", "row")
    rows = [("a b", 1), ("a  b", 2), ("a\nb", 3)]  # white space does not count
    parts = [StageRows[Any](DataPart(number, 7), "c", rows, lambda row: row[0], work) for number in range(1, 8)]
    assert sorted(part.count for part in parts) == [0] * 6 + [3]
    texts = [text + " " * k for k in range(8) for text in ONE_CELL[:16]]
    assert len({cell_of(text) for text in texts}) == 1
    blocks = [*StageRows[Any](DataPart(1, 1), "c", texts, str, replace(work, batch_size=4))]
    assert len(blocks) == 32
    assert all(len(text) - len(text.strip()) in range(8) for block in blocks for _, text in block)
    lengths = [[len(text) for _, text in block] for block in blocks]
    assert max(max(block) - min(block) for block in lengths) <= 1  # 64 rows are sorted together


def test_passages_are_spread_evenly() -> None:
    sizes = Counter(cell_of(f"text {k}") % 8 for k in range(8_000))
    assert max(abs(count - 1_000) for count in sizes.values()) < 120  # four standard deviations


@pytest.mark.parametrize("text", ["0/3", "4/3", "3", "3/", "/3", "1/0", "-1/3", "a/b", "1.0/3", f"1/{CELLS + 1}", ""])
def test_what_is_no_part_is_said(text: str) -> None:
    if text:
        assert part_fault(text) == f"{text} is no part: give i/n, from 1/n to n/n, such as 3/7; n is at most 512"
    assert part_fault(None) == part_fault("1/1") == part_fault("512/512") == ""


def test_a_part_cut_at_any_byte_is_completed(tmp_path: Path) -> None:
    job = Job(tmp_path, [5, 4, 3, 2, 1, 8, 7], PASSAGES[:2])
    path = job.run(1, 1)
    whole, note = path.read_bytes(), note_path(path).read_bytes()
    for cut in range(0, len(whole), 17):
        for unfinished in (True, False):
            path.write_bytes(whole[:cut])
            if unfinished:
                write_json(note_path(path), {k: v for k, v in json.loads(note).items() if k != "whole"})
            job.run(1, 1)
            assert path.read_bytes() == whole and note_path(path).read_bytes() == note
    job.computed = 0
    job.run(1, 1)
    assert job.computed == 0  # what is complete is not computed again


def test_a_changed_part_is_neither_continued_nor_merged(tmp_path: Path) -> None:
    job = Job(tmp_path, [5] * 4, PASSAGES)
    path = job.run(1, 1)
    path.write_bytes(path.read_bytes().replace(b'"rank": 0', b'"rank": 9'))
    with pytest.raises(InputError, match=r"output=.*out\.part-1-of-1\.jsonl: is not as it was made; delete it"):
        job.run(1, 1)
    with pytest.raises(InputError, match=r"out\.part-1-of-1\.jsonl: part 1/1 is not as it was made; delete and make"):
        read_parts([path], tmp_path / "out.jsonl")


def refused(paths: Sequence[Path], output: Path) -> str:
    with pytest.raises(InputError) as error:
        read_parts(paths, output)
    assert "\n" not in str(error.value) and not output.exists()
    return str(error.value).replace(f"{output.parent}/", "")


def test_every_fault_of_a_part_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    job, output = Job(tmp_path, [*range(2, 62, 3)], [f"text {k}" for k in range(62)]), tmp_path / "out.jsonl"
    one, two, three = (job.run(number, 3) for number in (1, 2, 3))
    note = read_json(note_path(two))
    assert isinstance(read_parts([three, one, two], output), Parts)  # in any order
    assert refused([one, three], output) == "input: there is no part 2/3; make it with part=2/3, and give it"
    assert refused([one, two, one, three], output) == (
        "out.part-1-of-3.jsonl: is part 1/3, and so is out.part-1-of-3.jsonl; give each part once"
    )
    write_json(note_path(two), {k: v for k, v in note.items() if k != "whole"})
    assert refused([one, two, three], output) == (
        "out.part-2-of-3.jsonl: part 2/3 is not complete; run its command again, which continues it"
    )
    for key, value, shown in [
        ("seed", 2, "seed: 1 -> 2"),
        ("sources", {"in.jsonl": "b" * 64}, "sources.in.jsonl: aaaaaaaa -> bbbbbbbb"),
        ("more", 1, "more: None -> 1"),
        ("command", "score", "command: count -> score"),
        ("part", "2/4", "parts: 3 -> 4"),
    ]:
        ResumableLines(two, note_path(two)).write_note({**note, key: value})
        assert refused([one, two, three], output) == (
            f"out.part-2-of-3.jsonl: was made otherwise than out.part-1-of-3.jsonl ({shown}); give parts of one output"
        )
    write_json(note_path(two), note)
    whole = two.read_bytes()
    two.write_bytes(whole[:-9])
    assert refused([one, two, three], output) == (
        "out.part-2-of-3.jsonl: part 2/3 was cut off; run its command again, which continues it"
    )
    two.unlink()  # as one in Parquet under work, whose rows are in another file
    assert "part 2/3 is not complete; run its command again" in refused([one, two, three], output)
    two.write_bytes(whole)
    note_path(two).unlink()
    assert "is no part (there is no out.part-2-of-3.jsonl.settings.json)" in refused([one, two, three], output)
    write_json(note_path(two), {"seed": 1})
    assert "was not made with part=i/n" in refused([one, two, three], output)
    assert "is no part (there is no such file)" in refused([tmp_path / "gone.jsonl"], output)
    assert "input has no value" in refused([], output)
    with pytest.raises(InputError, match="would be written over"):
        read_parts([one], one)


def test_a_merge_that_ends_early_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, output = Job(tmp_path, [5] * 400, PASSAGES), tmp_path / "out.jsonl"
    parts = read_parts([job.run(number, 2) for number in (1, 2)], output)
    lines, files = ResumableLines(output, note_path(output)), {*tmp_path.iterdir()}
    with room_for(5_000), pytest.raises(InputError, match=r"output=.*out\.jsonl: cannot be written"):
        parts.write(lines)
    assert {*tmp_path.iterdir()} - {note_path(output)} == files
    parts.write(lines)
    first = output.read_bytes()
    parts.write(lines)
    assert output.read_bytes() == first and len(first) > 5_000
