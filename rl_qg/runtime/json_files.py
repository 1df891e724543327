"""JSON files and JSON lines that survive a kill: written as a whole, or cut back to whole records."""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rl_qg.runtime.errors import InputError


def is_disk_full(error: BaseException) -> bool:
    """Whether a file could not be written for lack of space. Libraries report this by errors of different types."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    texts = ("No space left", "Disk quota exceeded", "File too large", "PytorchStreamWriter failed", "unexpected pos")
    return any(text in str(error) for text in texts)


@contextmanager
def atomic_writer(path: Path) -> Iterator[TextIO]:
    """Open a text file that appears under `path` only when the block ends without an error; a kill leaves no partial
    file there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")  # the next attempt overwrites what a kill left
    try:
        with partial.open("w", encoding="utf-8") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_writer(path) as stream:
        json.dump(value, stream, ensure_ascii=False, indent=2)
        stream.write("\n")


def read_json(path: Path) -> Any:
    """Read JSON; raise `InputError` with file, line and column when it is missing or malformed."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: malformed JSON at line {error.lineno}, column {error.colno}: {error.msg}") from None


def append_json_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as a single write, so that a kill can only leave the last line incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record); raise `InputError` naming the line that is not a JSON object."""
    try:
        stream = path.open(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    with stream:
        for number, line in _decoded(stream, path):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}: line {number}: malformed JSON: {error.msg}") from None
            if not isinstance(record, dict):
                raise InputError(f"{path}: line {number}: expected a JSON object, got {type(record).__name__}")
            yield number, record


def _decoded(stream: TextIO, path: Path) -> Iterator[tuple[int, str]]:
    try:
        yield from enumerate(stream, 1)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None


def cut_json_lines(path: Path, last_step: int) -> None:
    """Drop records whose `step` is above `last_step` and an incomplete last line; a resumed run writes them again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_bytes().split(b"\n"):  # not at other line separators, which texts may contain
        try:
            record = json.loads(line.decode())
        except ValueError:
            break  # incomplete, perhaps cut within a character; the lines before it are complete
        if record["step"] <= last_step:
            kept.append(line.decode())
    with atomic_writer(path) as stream:
        stream.writelines(line + "\n" for line in kept)
