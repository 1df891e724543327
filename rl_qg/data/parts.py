"""Parts of the rows of a stage, which may be made on different machines, and what makes one file of all of them.

    rl-qg generate part=3/7 output=questions.jsonl …       writes questions.part-3-of-7.jsonl
    rl-qg merge questions.part-*-of-7.jsonl output=questions.jsonl

The merged file does not depend on the number of parts:

- A passage belongs to one of `CELLS` cells by its hash, and a cell to one part. So all rows about a passage are in the
  same part.
- Rows that a model reads together are a block: rows of one cell, in their order. What a block holds, and with it what
  is computed to the last digit, follows from the data alone. Full blocks come first, so cells with few rows cost time.
- A line of a part begins with the number of its row among the rows of all parts, `{"row": 12, `, which the merge sorts
  by and takes off. A part in Parquet has the column `ROW` instead, and its rows in this order.

The note beside a part names command, part, settings and data; once the part is complete also, under `whole`, its
rows, lines and SHA-256 (also of the note). The merge reads no part without these.
"""

import json
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from heapq import merge
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from rl_qg.data.examples import passage_hash
from rl_qg.data.formats import ROW, parquet_rows
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, check_distinct_files, file_hash, writing
from rl_qg.runtime.ranks import Ranks
from rl_qg.runtime.resumable_lines import Position, ResumableLines, Work, note_path, shown
from rl_qg.settings.keys import CELLS

Row = TypeVar("Row")
Block = list[tuple[int, Row]]  # rows of one cell with their numbers
LinesOf = Callable[[Sequence[Any]], list[list[bytes]]]  # the lines of each of some rows
WINDOW = 64  # rows of a cell that are sorted by length together, if a block has fewer
OWN = ("command", "part", "whole")  # keys of a note about the part; all others are alike in all parts
_HEAD = b'{"row": '
log = logging.getLogger(__name__)


class DataPart(NamedTuple):
    """One of `of` parts, counted from 1."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> "DataPart":
        number, _, of = text.partition("/")
        return cls(int(number), int(of))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def path(self, output: Path, command: str = "") -> Path:
        """The file of this part of an output: `questions.part-3-of-7.jsonl`, or `.parquet` as the output; of `augment`
        JSON lines, from which the merge makes any form.
        """
        ending = ".parquet" if output.suffix == ".parquet" and command != "augment" else ".jsonl"
        return output.with_name(f"{output.stem}.part-{self.number}-of-{self.of}{ending}")

    def has(self, cell: int) -> bool:
        return cell % self.of == self.number - 1


def cell_of(passage: str) -> int:
    """The cell of a passage; passages that differ only in white space have the same."""
    return int(passage_hash(passage)[:16], 16) % CELLS


class StageRows(Generic[Row]):
    """The rows of a stage, all or of a part, and what is done with them. Of a part these are its blocks, as often as
    they are iterated; `count` of the `total` rows are in it.

    Args:
        part: which one; None: all rows.
        command: that makes it.
        rows: all rows; each iteration gives the same ones. They are read once here for a part.
        passage: the text by which a row belongs to a cell.
        work: that of all rows; a block has at most `batch_size`.

    Of each cell as many rows wait in memory as make a block, or `WINDOW` if that is more.
    """

    def __init__(
        self, part: DataPart | None, command: str, rows: Any, passage: Callable[[Any], str], work: Work[Any]
    ) -> None:
        self.part, self._rows, self._passage = part, rows, passage
        self.work, self.lines, self._size = work, work.lines, work.batch_size
        self.note: dict[str, Any] = {}  # for the note of the output
        if part:
            self.work = Work[Block[Row]](work.lines, 1, f"{command} {part}", "block", _is_about)
            self.note = {"command": command, "part": str(part)}
            cells = Counter(cell_of(passage(row)) for row in rows)
            self.total, own = cells.total(), [count for cell, count in cells.items() if part.has(cell)]
            self.count, self._blocks = sum(own), sum(-(-count // self._size) for count in own)
            log.info("part %s: %s of %s rows", part, f"{self.count:,}", f"{self.total:,}")

    def __len__(self) -> int:
        return self._blocks if self.part else len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return self._blocks_of(self.part) if self.part else iter(self._rows)

    def _blocks_of(self, part: DataPart) -> Iterator[Block[Row]]:
        window = max(self._size, WINDOW // self._size * self._size)
        waiting: dict[int, Block[Row]] = defaultdict(list)
        for number, row in enumerate(self._rows):
            if part.has(cell := cell_of(self._passage(row))):
                waiting[cell].append((number, row))
                if len(waiting[cell]) == window:
                    yield from self._cut(waiting.pop(cell))
        for cell in sorted(waiting):
            yield from self._cut(waiting[cell])

    def _cut(self, rows: Block[Row]) -> Iterator[Block[Row]]:
        rows.sort(key=lambda item: len(self._passage(item[1])), reverse=True)
        for first in range(0, len(rows), self._size):
            yield rows[first : first + self._size]

    def position(self, changed: bool) -> Position | None:
        """Where the output is continued; None if it is complete, and its sources have not `changed`."""
        if not changed and is_complete(self.lines):
            self.note["whole"] = self.lines.read_note()["whole"]
            if self.lines.is_table:
                self.lines.path.unlink(missing_ok=True)  # left by a kill
            return None
        return self.work.position(self)

    def write(self, lines_of: LinesOf, position: Position | None, state: Ranks, total: int | None = None) -> None:
        """Add the lines of all rows after `position` (see `Work.write`). `total` counts rows that have no length."""
        if position is not None:
            rest, total = islice(self, position.rows, None), len(self) if total is None else total
            self.work.write(rest, self.writer(lines_of), position=position, total=total, state=state)

    def writer(self, lines_of: LinesOf) -> Callable[[Sequence[Any]], list[bytes]]:
        """The lines of a batch; of blocks each with the number of its row."""
        if not self.part:
            return lambda rows: [*chain.from_iterable(lines_of(rows))]
        return lambda blocks: [
            numbered_line(number, line)
            for block in blocks
            for (number, _), lines in zip(block, lines_of([row for _, row in block]), strict=True)
            for line in lines
        ]

    def finish(self, **more: Any) -> None:
        """After the last line: make the Parquet file; of a part say in the note that it is complete, and `more`."""
        if self.part:
            finish(self.lines, partial(_rows_with_numbers, self.lines.path), rows=self.count, of=self.total, **more)
        elif self.lines.is_table:
            finish(self.lines, lambda: (json.loads(line.text) for line in self.lines.lines()))


def is_complete(lines: ResumableLines) -> bool:
    """Whether an output is as its note says; `InputError` where it has been changed, but not cut off."""
    whole = lines.read_note().get("whole") if lines.output.exists() else None
    if not whole or lines.output.stat().st_size < whole["bytes"]:
        return False
    if file_hash(lines.output) != whole["sha256"]:
        raise InputError(f"output={lines.output}: is not as it was made; delete it")
    return True


def finish(lines: ResumableLines, rows: Callable[[], Iterable[Mapping[str, Any]]], /, **more: Any) -> None:
    """Say in the note that an output is complete, and `more` about it; a Parquet file is made of the `rows` first."""
    with writing(lines.output):
        lines.path.touch()
    count = sum(1 for _ in lines.lines())
    if lines.is_table:
        from rl_qg.data.parquet import write_rows

        count = write_rows(lines.output, rows)
    whole = {"lines": count, "bytes": lines.output.stat().st_size, "sha256": file_hash(lines.output), **more}
    lines.write_note({**lines.read_note(), "whole": whole})
    if lines.is_table:
        lines.path.unlink()


def numbered_line(number: int, line: bytes) -> bytes:
    return _HEAD + b"%d, " % number + line[1:]


def _is_about(block: Block[Any], _: int, line: bytes) -> bool:
    """Whether a line is about a row of a block, which one that was cut off does not tell."""
    row, comma, _rest = line.removeprefix(_HEAD).partition(b",")
    if line.startswith(_HEAD) and comma and row.isdigit():
        return any(int(row) == number for number, _ in block)
    return not line.endswith(b"\n")


@dataclass(frozen=True)
class Parts:
    """All parts of one output, checked: their files by part, their notes, and what these have in common."""

    paths: Sequence[Path]
    notes: Sequence[Mapping[str, Any]]

    @property
    def command(self) -> str:
        return str(self.notes[0]["command"])

    @property
    def note(self) -> dict[str, Any]:
        return _common(self.notes[0])

    @cached_property
    def wholes(self) -> list[dict[str, Any]]:
        return [note["whole"] for note in self.notes]

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Number of the row and line without it, in the order of the rows. In memory are 16 bytes a row."""
        return merge(*map(_in_order, self.paths), key=itemgetter(0))

    def rows(self) -> Iterator[dict[str, Any]]:
        """The same as rows, also of parts in Parquet. Of each of those a row group is in memory."""
        for row in merge(*map(_rows_with_numbers, self.paths), key=itemgetter(ROW)):
            del row[ROW]
            yield row

    def write(self, lines: ResumableLines) -> None:
        """Write note and lines, all or none, as one run does."""
        lines.write_note(self.note)
        if lines.is_table:
            return finish(lines, self.rows)
        with writing(lines.output), atomic_writer(lines.output) as stream:
            stream.buffer.writelines(line for _, line in self.lines())


def read_parts(paths: Sequence[str | Path], output: Path) -> Parts:
    """Check the files of all parts of one output. Raises `InputError` for one that is no part, not complete or not as
    it was made, of other settings or data than the first, given twice, or missing.
    """
    if not paths:
        raise InputError("input has no value; give the files of all parts, such as questions.part-*-of-7.jsonl")
    if tables := [path for path in paths if Path(path).suffix == ".parquet" and output.suffix != ".parquet"]:
        raise InputError(f"{tables[0]}: is Parquet, and output={output} is not; give a name that ends in .parquet")
    found: dict[int, tuple[Path, Mapping[str, Any]]] = {}
    first: tuple[Path, Mapping[str, Any]] | None = None
    check_distinct_files([output, note_path(output)], paths)
    for path in map(Path, paths):
        note = _checked_note(path)
        first = first or (path, note)
        if difference := _difference(_shared(first[1]), _shared(note)):
            raise InputError(f"{path}: was made otherwise than {first[0]} ({difference}); give parts of one output")
        part = DataPart.parse(note["part"])
        if part.number in found:
            raise InputError(f"{path}: is part {part}, and so is {found[part.number][0]}; give each part once")
        found[part.number] = path, note
    if missing := [str(DataPart(number, part.of)) for number in range(1, part.of + 1) if number not in found]:
        raise InputError(f"input: there is no part {', '.join(missing)}; make it with part={missing[0]}, and give it")
    in_order = [found[number] for number in sorted(found)]
    return Parts([path for path, _ in in_order], [note for _, note in in_order])


def _checked_note(path: Path) -> dict[str, Any]:
    if not note_path(path).is_file():
        lacking = note_path(path).name if path.is_file() else "such file"
        raise InputError(f"{path}: is no part (there is no {lacking}); give what commands with part=i/n have written")
    note = ResumableLines(path, note_path(path)).read_note()
    if not isinstance(note.get("part"), str):
        raise InputError(f"{path}: was not made with part=i/n; give the files of the parts")
    whole = note.get("whole")
    if not whole or not path.is_file():  # Parquet appears with its last row
        raise InputError(f"{path}: part {note['part']} is not complete; run its command again, which continues it")
    if file_hash(path) != whole["sha256"]:
        fault = "is not as it was made; delete and make it again"
        if path.stat().st_size < whole["bytes"]:
            fault = "was cut off; run its command again, which continues it"
        raise InputError(f"{path}: part {note['part']} {fault}")
    return note


def _shared(note: Mapping[str, Any]) -> dict[str, Any]:
    of = {"parts": DataPart.parse(note["part"]).of, "rows": note["whole"]["of"]}
    return {"command": note["command"], **of, **_common(note)}


def _difference(first: Any, second: Any, key: str = "") -> str:
    """The first difference of two notes, such as `seed: 1 -> 2`."""
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return "" if first == second else f"{key}: {shown(first)} -> {shown(second)}"
    names = {name: f"{key}.{name}" if key else name for name in [*first, *second]}
    found = (_difference(first.get(name), second.get(name), full) for name, full in names.items())
    return next(filter(None, found), "")


def _common(note: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in note.items() if key not in OWN}


def _in_order(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number of the row and line without it, by number; those of one row are together in the file, in their order."""
    numbers, starts, place = array("Q"), array("Q"), 0
    with path.open("rb") as stream:
        for line in stream:
            number = _split(line)[0]
            if not numbers or numbers[-1] != number:
                numbers.append(number)
                starts.append(place)
            place += len(line)
        for run in np.argsort(np.array(numbers, dtype=np.uint64), kind="stable").tolist():
            stream.seek(starts[run])
            for line in stream:
                number, text = _split(line)
                if number != numbers[run]:
                    break
                yield number, text


def _rows_with_numbers(path: Path) -> Iterable[dict[str, Any]]:
    if path.suffix == ".parquet":
        return (row for _, _, row in parquet_rows(path))
    return ({ROW: number, **json.loads(line)} for number, line in _in_order(path))


def _split(line: bytes) -> tuple[int, bytes]:
    row, _, rest = line.removeprefix(_HEAD).partition(b", ")
    return int(row), b"{" + rest
