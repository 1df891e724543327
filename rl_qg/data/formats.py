"""The formats of files: JSON, JSON lines, CSV, TSV and Parquet, plain or gzipped, as rows; and the fields of a row.

`rl_qg.data.layouts` makes records of the rows, as they are, and `rl_qg.data.reading` decides which are usable. In the
place of a record with a wrong field comes a malformed one that says what is wrong and where, so that it does not cost
the rest of its file; a file that cannot be parsed at all raises.
"""

import csv
import gzip
import os
import re
import reprlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from rewards.errors import first_line
from rewards.words import is_unspaced
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import parse_object, regular

KINDS = ".json, .jsonl, .csv, .tsv (all also .gz) or .parquet"
FILE_NAME = re.compile(r"(?P<stem>.+?)\.((?P<kind>json|jsonl|csv|tsv)(\.gz)?|(?P<table>parquet))", re.IGNORECASE)
HUB_NAME = re.compile(r"(?P<name>\w[\w.-]*(/[\w.-]+)?)(:(?P<configuration>[\w.-]+))?")

Rows = Iterable[tuple[str, int, Any]]
"""Rows of a source: the position for messages, the number from 1, and the row, or the `InputError` that it gives."""

IMPOSSIBLE = "impossible question"
ROW = "row of all parts"  # a column of a part in Parquet, which is none of its rows
MALFORMED_RECORD = "malformed record"
_OFFSET = re.compile(r"([+-]?\d{1,15})(\.0*)?")

LARGEST_DOCUMENT = 1 << 28
"""Bytes to which a gzipped file that is one JSON document may unpack. Such a file is held whole, as objects that take
several times its bytes, and gzip can hide a thousand bytes in one. A file that is not gzipped has no limit."""

_NUMBER = re.compile(  # 1,500.25, 1.500,25 and 3.5 are one; of 12.03.1945, 10:30, 10.30 each row of digits
    r"(?<![\d.,])(?:\d{1,3}(?:[.,]\d{3})+(?:[.,]\d+)?|\d+[.,]\d)(?![.,]?\d)|\d+"
)
LONGEST_WORDS = 200  # characters; the search for whole words takes the product of both lengths
LONGEST_LINE = 1 << 26
"""Bytes of a line, and characters of a paragraph, in files that are read line by line."""


@dataclass(frozen=True)
class RawRecord:
    """A record as it is in its file."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[tuple[str, int], ...]  # (text, offset); an unknown offset is -1
    unusable: str = ""  # why it cannot become an example although a table of questions may hold it
    fault: str = ""  # of a malformed record, what is wrong: file, position, field
    multi_hop: bool = False  # the answer needs all sentences of the context
    language: str = ""  # of the question, as the record names it
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False)  # further fields for tables of questions


def stem_and_kind(path: Path) -> tuple[str, str]:
    """The name of a file without its ending, and that: json, jsonl, csv, tsv or parquet, "" if it is none of them."""
    match = FILE_NAME.fullmatch(path.name)
    return (match["stem"], (match["kind"] or match["table"]).lower()) if match else (path.name, "")


def is_hub_name(source: str) -> bool:
    """Whether the source can only be the name of a Hub data set: there is no such path, and no file extension."""
    # Path.exists raises an error for a name that is too long for a file
    return bool(HUB_NAME.fullmatch(source)) and not FILE_NAME.fullmatch(source) and not os.path.exists(source)


def existing_file(source: str | Path) -> Path:
    """Return the path of a file, with `~` as the home folder; raise `InputError` if there is no such file."""
    try:
        path = Path(source).expanduser()
        if path.is_file():
            return path
        problem = "is a folder: name the files in it" if path.is_dir() else "no such file: check the path"
        if path.exists() and not path.is_dir():
            problem = "is a pipe or device: write what it gives into a file"
        elif path.is_symlink() and not path.exists():
            problem = "is a link to no file: check where it leads"
    except RuntimeError:
        problem = "there is no such home folder: write the whole path"
    except OSError as error:
        problem = f"cannot be read ({error.strerror}): check the path"
    raise InputError(f"{source}: {problem}")


def word_places(part: str, whole: str) -> Iterator[int]:
    """Where `part` stands in `whole` as whole words; nowhere if it has more than `LONGEST_WORDS` characters."""
    found = re.finditer(rf"(?<!\w)(?={re.escape(part)}(?!\w))", whole) if len(part) <= LONGEST_WORDS else iter(())
    return (match.start() for match in found if not _divides_number(match.start(), len(part), whole))


def find_once(part: str, whole: str) -> int:
    """The position of `part` in `whole` if it occurs once, or of several times once as whole words; -1 if it does not
    occur, or only within a longer number; -2 if several times.
    """
    first = whole.find(part)
    if first >= 0 and whole.find(part, first + 1) >= 0:
        # Without spaces it is chance what stands beside a word.
        places = [] if any(map(is_unspaced, part)) else list(islice(word_places(part, whole), 2))
        return places[0] if len(places) == 1 else -2
    return -1 if _divides_number(first, len(part), whole) else first


def _divides_number(start: int, length: int, whole: str) -> bool:
    ends = (start, start + length)  # a few characters around each suffice: the whole would be read for every place
    return any(n.start() < end < n.end() for end in ends for n in _NUMBER.finditer(whole, max(0, end - 30), end + 30))


def is_unicode(text: str) -> bool:
    r"""Whether the text can be encoded as UTF-8; an unpaired surrogate (the JSON escape `\ud800` alone) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def malformed_record(key: str, error: InputError) -> RawRecord:
    return RawRecord(key, "", "", "", (), unusable=MALFORMED_RECORD, fault=str(error))


def json_line_rows(path: Path) -> Iterator[tuple[str, int, Any]]:
    with open_binary(path) as stream:
        for number, line in enumerate(complete_lines(stream, path), 1):
            if line.strip():
                where = f"{path}: line {number}"
                yield where, number, parse_object(line, where)


def open_binary(path: Path) -> BinaryIO | gzip.GzipFile:
    try:
        return gzip.open(regular(path)) if path.suffix.lower() == ".gz" else regular(path).open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def complete_lines(stream: BinaryIO | gzip.GzipFile, path: Path) -> Iterator[bytes]:
    """Yield every line; raise `InputError` where the file is truncated or damaged, or a line has no end."""
    lines = iter(partial(stream.readline, LONGEST_LINE + 1), b"")
    for number, line in enumerate(_undamaged(lines, path), 1):
        if number == 1 and not line.endswith(b"\n") and b"\r" in line.rstrip(b"\r"):  # the whole file is one line
            raise InputError(f"{path}: its lines end in CR alone; save it with LF")
        if len(line) > LONGEST_LINE:
            raise InputError(
                f"{path}: line {number} is longer than {LONGEST_LINE:,} bytes, more than any record; check what the "
                "file is, or break the line"
            )
        yield line


def text_lines(path: Path) -> Iterator[str]:
    """Yield the lines, with their ends; only a line feed ends a line."""
    with open_binary(path) as stream:
        for number, line in enumerate(complete_lines(stream, path), 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{path}: line {number}: not UTF-8 text (byte {error.start}); save it as UTF-8"
                ) from None


def whole_file(path: Path) -> bytes:
    """The bytes of a file, unpacked; `InputError` if it is damaged or unpacks to more than `LARGEST_DOCUMENT`."""
    parts, size = list[bytes](), 0
    with open_binary(path) as stream:
        for part in _undamaged(iter(partial(stream.read, 1 << 20), b""), path):
            size += len(part)
            if isinstance(stream, gzip.GzipFile) and size > LARGEST_DOCUMENT:
                raise InputError(
                    f"{path}: unpacks to more than {LARGEST_DOCUMENT:,} bytes, which are held in memory as one JSON "
                    "document; if that is meant, unpack the file first (gunzip), or write JSON lines"
                )
            parts.append(part)
    return b"".join(parts)


def _undamaged(parts: Iterator[bytes], path: Path) -> Iterator[bytes]:
    try:
        yield from parts
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read to its end ({error}); download or write it again") from None


def field_of(record: Any, name: str, where: str) -> Any:
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected an object, got {type(record).__name__}")
    if name not in record:
        names = [reprlib.repr(key) for key in islice(record, 20)] + ["…"] * (len(record) > 20)
        raise InputError(f"{where}: field {name!r} is missing; there is {', '.join(names) or 'nothing'}")
    return record[name]


def list_field(record: Any, name: str, where: str) -> list[Any]:
    value = field_of(record, name, where)
    if not isinstance(value, list):
        raise InputError(f"{where}: field {name!r} must be a list, got {type(value).__name__}")
    return value


def text_field(record: Any, name: str, where: str, *, optional: bool = False) -> str:
    """Read a text field; null is the empty text, and so is a missing optional field."""
    value = record.get(name) if optional and isinstance(record, dict) else field_of(record, name, where)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where}: field {name!r} must be text, got {type(value).__name__}")
    return value or ""


def id_field(record: Any, where: str, name: str = "id") -> str:
    """Read an id, a text or a whole number; "" if there is none."""
    value = record.get(name) if isinstance(record, dict) else None
    return str(value) if type(value) is int else text_field(record, name, where, optional=True)


def texts_field(record: Any, name: str, where: str) -> list[str]:
    """A list of texts, without blank ones; the text `[]`, as MS MARCO 2.1 has it, is an empty one."""
    value = field_of(record, name, where)
    texts = [] if value in (None, "[]", "") else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"{where}: field {name!r} must be a list of texts, as in MS MARCO")
    return [text for text in texts if text.strip()]


def offset_field(answer: Any, where: str) -> int:
    """Read `answer_start`: a whole number, also as text (TQuAD) or as a float (pandas writes a column with gaps so);
    null and blank text are an unknown offset.
    """
    value = field_of(answer, "answer_start", where)
    if value is None or (isinstance(value, str) and not value.strip()):
        return -1
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return int(value)
    if isinstance(value, str) and (match := _OFFSET.fullmatch(value.strip())):
        return int(match[1])
    raise InputError(f"{where}: field 'answer_start' must be a whole number, got {reprlib.repr(value)}")


LONGEST_CELL = 1 << 24


def table_rows(path: Path, kind: str) -> Rows:
    """The rows of a table with a header line: `csv` (RFC 4180 quoting) or `tsv` (no quoting: what is between
    two tabs is a cell). For a row with too many or too few cells, what is wrong; blank lines are skipped.
    """
    if kind == "tsv":
        texts = (text.rstrip("\r\n") for text in text_lines(path))
        lines: Iterable[tuple[int, list[str]]] = enumerate((text.split("\t") if text else [] for text in texts), 1)
    else:
        lines = _csv_cells(path)
    filled = ((f"{path}: line {line}", cells) for line, cells in lines if cells)
    where, header = next(filled, ("", []))
    if len(set(header)) < len(header):
        raise InputError(f"{where}: two columns have the same name; rename one")
    for number, (where, cells) in enumerate(filled, 1):
        if len(cells) != len(header):
            fault = f"{where}: {len(cells)} cells under a header of {len(header)}; correct the line"
            yield where, number, InputError(fault)
        else:
            yield where, number, dict(zip(header, cells, strict=True))


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    csv.field_size_limit(LONGEST_CELL)  # the default limit of the module, 131,072, is shorter than some documents
    reader = csv.reader(text_lines(path), strict=True)
    start = 1
    try:
        for row in reader:
            yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        fault = "lines end in CR alone; save it with LF" if "new-line" in str(error) else error
        raise InputError(f"{path}: line {start}: malformed CSV: {fault}") from None


def parquet_rows(path: Path) -> Rows:
    """The rows of a Parquet file, one batch in memory at a time."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=4096):
            for row in _python_rows(batch, path):
                number += 1
                yield f"{path}: row {number}", number, row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({first_line(error)}); write it again") from None


def _python_rows(batch: Any, path: Path) -> list[dict[str, Any]]:
    try:
        return batch.to_pylist()
    except (OverflowError, ValueError, LookupError):  # dates after the year 9999, texts that are not UTF-8, …
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.to_pylist()
            except (OverflowError, ValueError, LookupError) as error:
                raise InputError(
                    f"{path}: column {reprlib.repr(name)} has a value that cannot be read ({first_line(error)}); "
                    "leave the column out, or write it as text"
                ) from None
        raise


READERS: dict[str, Callable[[Path], Rows]] = {
    "jsonl": json_line_rows,
    "csv": partial(table_rows, kind="csv"),
    "tsv": partial(table_rows, kind="tsv"),
    "parquet": parquet_rows,
}
