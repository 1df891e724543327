"""A file of JSON lines that the same command continues after a kill, with a note of what made the lines."""

import hashlib
import json
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import check_unchanged, read_record, write_json, writing
from rl_qg.runtime.ranks import Ranks, from_main

Row = TypeVar("Row")
NO_SOURCES: Mapping[str, str] = MappingProxyType({})
log = logging.getLogger(__name__)


def cut_file(output: Path, keep: int) -> None:
    """Keep the first `keep` bytes of a file, which is created with its folder if it is missing."""
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        with output.open("ab") as stream:
            stream.truncate(keep)


def append_lines(output: Path, lines: Sequence[bytes]) -> None:
    """Add lines in one write and bring them to the disk; where the disk is full, none of them stays."""
    before = output.stat().st_size if output.exists() else 0
    try:
        with output.open("ab") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        with suppress(OSError):
            os.truncate(output, before)
        raise InputError(
            f"output={output}: cannot be written further ({error.strerror}); its lines are whole: make room, and the "
            "same command continues after them"
        ) from None


class StoredLine(NamedTuple):
    """One line of a file: its number from 1, its bytes, and where it starts and ends in the file."""

    number: int
    text: bytes
    start: int
    end: int


class Position(NamedTuple):
    """Where a file is continued: it keeps the lines of the first `rows` rows, in its first `size` bytes."""

    rows: int = 0
    size: int = 0


class ResumableLines:
    """JSON lines about rows, in the order of the rows, and a note of the settings and data they were made with.

    A command first calls `check`, which refuses a file that was made otherwise; then `write_note`; then it adds lines,
    by `append` or, where several processes take part, by `Work`.

    Args:
        output: the file of lines, `path`; of a Parquet file `path` is `<name>.jsonl` until all lines are there.
        note: the JSON file of the note; None where the first line of `path` is the note.
        content: what the lines are, for error messages, such as "questions".
    """

    def __init__(self, output: Path, note: Path | None = None, *, content: str = "lines") -> None:
        self.output, self.is_table = output, output.suffix == ".parquet"
        self.path = output.with_name(f"{output.name}.jsonl") if self.is_table else output
        self.note = note
        self.content = content

    @property
    def begun(self) -> bool:
        return any(path.exists() and path.stat().st_size > 0 for path in (self.path, self.output))

    def check(
        self,
        settings: Mapping[str, Any],
        *,
        sources: Mapping[str, str] = NO_SOURCES,
        sources_key: str = "sources",
        accept: bool = False,
    ) -> bool:
        """Compare the settings (JSON values; the note may hold more) and SHA-256 of sources that made the lines with
        those of this command. Raise `InputError` where they differ or there is no note; return whether a source has
        changed where the user accepts that.
        """
        if not self.begun:
            return False
        earlier = self.read_note()
        if not earlier:
            note = f"no {self.note.name} beside it" if self.note else "no note in its first line"
            raise InputError(
                f"output={self.output}: the file was not made by this command (there is {note}); name another file or "
                "delete it"
            )
        differing = [key for key, value in settings.items() if earlier.get(key) != value]
        changed = [f"{key}: {shown(earlier.get(key))} -> {shown(settings[key])}" for key in differing]
        if changed:
            raise InputError(
                f"output={self.output}: holds {self.content} made with other settings ({'; '.join(changed)}); name "
                "another file or delete it"
            )
        noted = earlier.get(sources_key, {})
        return check_unchanged(noted if isinstance(noted, dict) else {}, sources, self.output, accept=accept)

    def read_note(self) -> dict[str, Any]:
        """The note; empty where there is none. `InputError` where that of a complete output has been changed."""
        if self.note is not None:
            note = read_record(self.note) if self.note.exists() else {}
            if "whole" in note and not _is_as_made(note):
                raise InputError(
                    f"{self.note}: is not as it was made; delete it and {self.output.name}, and make it again"
                )
            return note
        first = next(self._stored(), None)
        try:
            note = json.loads(first.text) if first and first.text.endswith(b"\n") else {}
        except ValueError:
            return {}
        return note if isinstance(note, dict) else {}

    def write_note(self, note: Mapping[str, Any]) -> None:
        """Replace the note. Where it is the first line of the file, this removes all other lines.

        The key `whole`, a mapping, says that the output is complete; it gets `note`, the SHA-256 of all the rest.
        """
        if self.note is None:
            cut_file(self.path, 0)
            append_lines(self.path, [json_line(note)])
            return
        with writing(self.output):
            write_json(self.note, _with_hash(note) if "whole" in note else note)

    def lines(self) -> Iterator[StoredLine]:
        """The lines after the note. A kill may have cut off the last one, which then has no line feed."""
        return islice(self._stored(), 1 if self.note is None else 0, None)

    def _stored(self) -> Iterator[StoredLine]:
        start = 0
        if self.path.exists() and self.path.stat().st_size > 0:
            with self.path.open("rb") as stream:
                for number, text in enumerate(stream, 1):
                    yield StoredLine(number, text, start, start + len(text))
                    start += len(text)

    def cut(self, size: int) -> None:
        """Keep the first `size` bytes. For a single process, as `append` is."""
        cut_file(self.path, size)

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line and bring it to the disk."""
        append_lines(self.path, [json_line(record)])


@dataclass(frozen=True)
class Work(Generic[Row]):
    """Rows of which each becomes lines of a file, batch by batch, and what the same command needs to go on after a
    kill: which line belongs to which row.

    `title` and `unit` (what a row is) are for the bar, `row_name` for error messages; "" as in the bar. `is_about`
    says whether line number k (from 0) of a row can be this text; a text without a line feed was cut off anywhere.
    None where the command finds the position itself. `lines_per_row` is None where the number varies and may be 0:
    then a batch is known to be whole once a line about a later row follows.
    """

    lines: ResumableLines
    batch_size: int
    title: str
    unit: str
    is_about: Callable[[Row, int, bytes], bool] | None = None
    lines_per_row: int | None = None
    row_name: str = ""

    def begin(
        self,
        rows: Iterable[Row],
        made_by: Mapping[str, Any],
        *,
        sources: Mapping[str, str] | None = None,
        accept: bool = False,
    ) -> Position:
        """Check what the file was made with (see `ResumableLines.check`), write its note, and return the position."""
        self.lines.check(made_by, sources=sources or NO_SOURCES, accept=accept)
        position = self.position(rows)
        self.lines.write_note(made_by if sources is None else {**made_by, "sources": sources})
        return position

    def position(self, rows: Iterable[Row]) -> Position:
        """Find the end of the last whole batch, and check that every line is about the row it must be about."""
        assert self.is_about is not None
        remaining = iter(rows)
        row, index, rank = next(remaining, None), 0, 0
        position = Position()
        for line in self.lines.lines():
            while row is not None and not self.is_about(row, rank, line.text):
                row, index, rank = next(remaining, None) if self.lines_per_row is None else None, index + 1, 0
                if index % self.batch_size == 0:
                    position = Position(index, line.start)
            if row is None:
                raise InputError(
                    f"output={self.lines.path}: line {line.number} is not about the {self.row_name or self.unit} in "
                    "its place; name another file or delete it"
                )
            if not line.text.endswith(b"\n"):
                break
            rank += 1
            if rank == self.lines_per_row:
                row, index, rank = next(remaining, None), index + 1, 0
                if index % self.batch_size == 0 or row is None:
                    position = Position(index, line.end)
        return position

    def write(
        self,
        rows: Iterable[Row],
        lines_of: Callable[[Sequence[Row]], list[bytes]],
        *,
        position: Position,
        total: int,
        state: Ranks,
    ) -> None:
        """Cut the file at `position` and add the lines of `rows`, those after it, batch by batch, with a progress bar
        of the `total`, which counts the rows before it too.

        Every process calls this, reads the same rows and works on one batch in each round; the main process writes.
        The batches, and with them the lines, are therefore those of a single process. The lines of a round are on disk
        before the next. `lines_of` gives the lines of one batch, each with its line feed. Where it raises `InputError`
        in one process, or the disk is full, it is raised in every process.
        """
        path, title, unit = self.lines.path, self.title, self.unit
        if position.rows:
            log.info("%s: %d of %d %ss are in %s already", title, position.rows, total, unit, path)
        main = state.is_main_process
        from_main(state, partial(cut_file, path, position.size))
        rows = iter(rows)
        with ProgressBar(total=total, initial=position.rows, desc=title, unit=unit, disable=not main) as bar:
            while done := self._write_round(rows, lines_of, state):
                bar.update(done)

    def _write_round(self, rows: Iterator[Row], lines_of: Callable[[Sequence[Row]], list[bytes]], state: Ranks) -> int:
        """Take the next batch for each process and append their lines; return the number of rows."""
        batches = list(islice(rows, self.batch_size * state.num_processes))
        if not batches:
            return 0
        first = self.batch_size * state.process_index
        batch = batches[first : first + self.batch_size]  # none in the last round, if it has fewer than processes
        lines, fault = list[bytes](), ""
        try:
            lines = lines_of(batch) if batch else []
        except InputError as error:
            if state.num_processes == 1:
                raise
            fault = str(error)
        gathered = [(lines, fault)]
        if state.num_processes > 1:
            from accelerate.utils import gather_object

            gathered = gather_object(gathered)
        if fault := next((fault for _, fault in gathered if fault), ""):
            raise InputError(fault)
        from_main(state, partial(append_lines, self.lines.path, [line for lines, _ in gathered for line in lines]))
        return len(batches)


def _with_hash(note: Mapping[str, Any]) -> dict[str, Any]:
    """A note with the key `whole`, and under it `note`, the SHA-256 of all the rest."""
    whole = {key: value for key, value in note["whole"].items() if key != "note"}
    rest = json.loads(json.dumps({**note, "whole": whole}))  # as it will be read
    text = json.dumps(rest, sort_keys=True, ensure_ascii=False)
    whole["note"] = hashlib.sha256(text.encode(errors="replace")).hexdigest()
    return {**note, "whole": whole}


def _is_as_made(note: dict[str, Any]) -> bool:
    """Notes of earlier versions have no hash."""
    whole = note["whole"]
    known = isinstance(whole, dict) and {"lines", "bytes", "sha256"} <= whole.keys()
    return known and ("note" not in whole or note == _with_hash(note))


def note_path(output: Path) -> Path:
    """The note beside a file of lines: `questions.jsonl.settings.json` for `questions.jsonl`."""
    return output.with_name(f"{output.name}.settings.json")


def json_line(record: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(record, ensure_ascii=False)}\n".encode(errors="replace")


def begins_with(line: bytes, beginning: bytes) -> bool:
    """Whether a line begins so; a line that was cut off, with as much of the beginning as it holds."""
    return line.startswith(beginning) or (not line.endswith(b"\n") and beginning.startswith(line))


def shown(value: Any) -> str:
    """A setting in an error message; of a hash the first digits."""
    text = str(value)
    return text[:8] if re.fullmatch(r"[0-9a-f]{64}", text) else text
