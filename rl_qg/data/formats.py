"""The forms in which people keep QA data. Readers yield records as found; `rl_qg.data.examples` decides what is usable."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rl_qg.runtime.errors import InputError

FILE_NAME = re.compile(r"(?P<stem>.+?)\.((?P<kind>json|jsonl)(\.gz)?|(?P<table>parquet))", re.IGNORECASE)
HUB_NAME = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


@dataclass(frozen=True)
class FoundRecord:
    """A record as its file gives it: `answers` are (text, offset) pairs, an unknown offset is -1."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[tuple[str, int], ...]
    impossible: bool = False


def is_hub_name(source: str) -> bool:
    """Say whether the source can only be the name of a Hub data set: no such path, and no file's ending."""
    return bool(HUB_NAME.fullmatch(source)) and not FILE_NAME.fullmatch(source) and not Path(source).exists()


def found_records(source: str, split: str, *, unlabelled: bool = False) -> Iterator[FoundRecord]:
    """Yield the records of a file, or of one split of a Hub data set; a missing id becomes `<file stem>-<row>`.

    With `unlabelled`, records may lack the fields `question` and `answers`, and SQuAD's paragraphs `qas`. Raises
    `InputError` with file, place and field.
    """
    if is_hub_name(source):
        return _from_rows(_hub_rows(source, split), f"{source.rsplit('/')[-1]}-{split}", unlabelled)
    path = Path(source).expanduser()
    if not path.is_file():
        fault = "is a folder: name the files in it" if path.is_dir() else "no such file: check the path"
        raise InputError(f"{source}: {fault}")
    match = FILE_NAME.fullmatch(path.name)
    if match is None:
        raise InputError(f"{source}: unknown kind of file; use .json, .jsonl (both also .gz) or .parquet")
    if match["table"]:
        return _from_rows(parquet_rows(path), match["stem"], unlabelled)
    if match["kind"].lower() == "jsonl":
        return _from_rows(line_rows(path), match["stem"], unlabelled)
    return _from_squad(path, match["stem"], unlabelled)


def find_once(part: str, whole: str) -> int:
    """Return the only place of `part` in `whole`; -1 when there is none, -2 when there are several."""
    first = whole.find(part)
    return -2 if first >= 0 and whole.find(part, first + 1) >= 0 else first


def is_unicode(text: str) -> bool:
    r"""Say whether the text can be written as UTF-8; half a pair (the JSON escape `\ud800` alone) cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Parse one JSON object; raise `InputError` with `where`, line and column when it is malformed or another type."""
    try:
        value = json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}" if b"\n" in text.strip() else f"column {error.colno}"
        raise InputError(f"{where}: malformed JSON at {place}: {error.msg}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        raise InputError(f"{where}: unusable JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


# --- The shapes of records ---


def _from_squad(path: Path, stem: str, unlabelled: bool) -> Iterator[FoundRecord]:
    number = 0
    with opened(path) as stream:
        root = parse_object(b"".join(to_the_end(stream, path)), f"{path}")
    for a, article in enumerate(_list(root, "data", f"{path}")):
        article_at = f"{path}: data[{a}]"
        title = _text(article, "title", article_at, optional=True)
        for p, paragraph in enumerate(_list(article, "paragraphs", article_at)):
            paragraph_at = f"{article_at}.paragraphs[{p}]"
            context = _text(paragraph, "context", paragraph_at)
            bare = unlabelled and "qas" not in paragraph
            for q, qa in enumerate([] if bare else _list(paragraph, "qas", paragraph_at)):
                number += 1
                where = f"{paragraph_at}.qas[{q}]"
                impossible = isinstance(qa, dict) and qa.get("is_impossible") is True
                yield FoundRecord(
                    id=_id(qa, where) or f"{stem}-{number}",
                    title=title,
                    context=context,
                    question=_text(qa, "question", where, optional=unlabelled),
                    answers=() if impossible or _lacks(qa, "answers", unlabelled) else _answers(qa, where),
                    impossible=impossible,
                )


def _from_rows(rows: Iterable[tuple[str, int, Any]], stem: str, unlabelled: bool) -> Iterator[FoundRecord]:
    """Flat rows, or QG-Bench rows where they have a `paragraph`."""
    for where, number, row in rows:
        qg_bench = "paragraph" in row
        context = _text(row, "paragraph" if qg_bench else "context", where)
        bare = _lacks(row, "answer" if qg_bench else "answers", unlabelled)
        yield FoundRecord(
            id=_id(row, where) or f"{stem}-{number}",
            title=_text(row, "title", where, optional=True),
            context=context,
            question=_text(row, "question", where, optional=unlabelled),
            answers=() if bare else _located(row, where) if qg_bench else _answers(row, where),
        )


def _lacks(record: Any, name: str, unlabelled: bool) -> bool:
    """Whether a record may lack a field, and does."""
    return unlabelled and isinstance(record, dict) and name not in record


def _located(row: dict[str, Any], where: str) -> tuple[tuple[str, int], ...]:
    """Place a QG-Bench answer: where it stands alone in the paragraph, else first in the sentence, else unknown."""
    answer, sentence, paragraph = (_text(row, name, where) for name in ("answer", "sentence", "paragraph"))
    start = find_once(answer, paragraph)
    if start < 0:
        outside, inside = find_once(sentence, paragraph), sentence.find(answer)
        start = outside + inside if outside >= 0 and inside >= 0 else -1
    return ((answer, start),)


# --- Where rows come from: each yields (place for messages, number, row) ---


def _hub_rows(name: str, split: str) -> Iterator[tuple[str, int, Any]]:
    import datasets  # slow to import, and needed for this source alone

    try:
        data = datasets.load_dataset(name, split=split)
    except (OSError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{name}: no file of that name, and the Hub data set's split {split!r} cannot be read ({reason}); "
            f"to work offline give data.{split}=FILE (SQuAD .json, .jsonl or .parquet) or use preset=quickstart"
        ) from None
    yield from ((f"{name}: {split} row {number}", number, row) for number, row in enumerate(data, 1))


def parquet_rows(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield place, number and value of every row of a Parquet file, a batch in memory at a time."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=4096):
            for row in batch.to_pylist():
                number += 1
                yield f"{path}: row {number}", number, row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({str(error).splitlines()[0]})") from None


def line_rows(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield place, number and value of every line of a JSON lines file that is not blank."""
    with opened(path) as stream:
        for number, line in enumerate(to_the_end(stream, path), 1):
            if line.strip():
                where = f"{path}: line {number}"
                yield where, number, parse_object(line, where)


def opened(path: Path) -> BinaryIO | gzip.GzipFile:
    """Open a file, gzip or not, for its bytes; raise `InputError` if it cannot be."""
    try:
        return gzip.open(path) if path.suffix.lower() == ".gz" else path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def to_the_end(stream: Iterable[bytes], path: Path) -> Iterator[bytes]:
    """Yield every line; raise `InputError` where the file breaks off or is damaged."""
    try:
        yield from stream
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read to its end ({error}); download or write it again") from None


# --- Fields ---


def _field(record: Any, name: str, where: str) -> Any:
    if not isinstance(record, dict):
        raise InputError(f"{where}: expected an object, got {type(record).__name__}")
    if name not in record:
        raise InputError(f"{where}: field {name!r} is missing; there is {', '.join(map(repr, record)) or 'nothing'}")
    return record[name]


def _list(record: Any, name: str, where: str) -> list[Any]:
    value = _field(record, name, where)
    if not isinstance(value, list):
        raise InputError(f"{where}: field {name!r} must be a list, got {type(value).__name__}")
    return value


def _text(record: Any, name: str, where: str, *, optional: bool = False) -> str:
    """Read a text; null counts as empty, and so does a missing field that is optional."""
    value = record.get(name) if optional and isinstance(record, dict) else _field(record, name, where)
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where}: field {name!r} must be text, got {type(value).__name__}")
    return value or ""


def _id(record: Any, where: str) -> str:
    value = record.get("id") if isinstance(record, dict) else None
    return str(value) if type(value) is int else _text(record, "id", where, optional=True)


def _answers(record: Any, where: str) -> tuple[tuple[str, int], ...]:
    """Read `answers`, a list of objects or an object of lists."""
    value, where = _field(record, "answers", where), f"{where}: answers"
    if isinstance(value, dict):
        texts, starts = _list(value, "text", where), _list(value, "answer_start", where)
        if len(texts) != len(starts):
            raise InputError(f"{where}: {len(texts)} texts but {len(starts)} offsets; give one offset for each text")
        value = [{"text": text, "answer_start": start} for text, start in zip(texts, starts, strict=True)]
    if value is not None and not isinstance(value, list):
        raise InputError(f"{where}: must be a list of objects or an object of lists, got {type(value).__name__}")
    return tuple((_text(item, "text", where), _offset(item, where)) for item in value or ())


def _offset(answer: Any, where: str) -> int:
    """Read `answer_start`; null is unknown; a whole float (how pandas writes a column with gaps) will do."""
    value = _field(answer, "answer_start", where)
    if value is None:
        return -1
    if type(value) is int or (isinstance(value, float) and value.is_integer()):
        return int(value)
    raise InputError(f"{where}: field 'answer_start' must be a whole number, got {value!r}")
