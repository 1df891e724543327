"""Files that survive a kill: atomic JSON, JSON lines that can be cut back, and the run folder itself."""

import errno
import json
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import yaml

from rl_qg.runtime.errors import InputError

CONFIG = "config.yaml"
ACCEPT = "accept_changed_data"  # how to go on with a run, not what it is
TRAINED = "trained.json"  # written last: the stages are complete


def is_disk_full(error: BaseException) -> bool:
    """Whether a file could not be written because there is no room for it; libraries say so in ways of their own."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    texts = ("No space left", "Disk quota exceeded", "File too large", "PytorchStreamWriter failed", "unexpected pos")
    return any(text in str(error) for text in texts)


@contextmanager
def atomic_writer(path: Path) -> Iterator[TextIO]:
    """Open a text file that appears under `path` only when the block ends well; a kill leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")  # what a kill leaves, the next attempt takes over
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
    """Append one record as a single write, so that a kill tears at most the last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record); raise `InputError` naming the line that is no JSON object."""
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
    """Drop records whose `step` is above `last_step` and a torn last line: what a resumed run will write again."""
    if not path.exists():
        return
    kept = []
    for line in path.read_bytes().split(b"\n"):  # not at the other marks that texts hold
        try:
            record = json.loads(line.decode())
        except ValueError:
            break  # torn, perhaps within a character; everything before it is whole
        if record["step"] <= last_step:
            kept.append(line.decode())
    with atomic_writer(path) as stream:
        stream.writelines(line + "\n" for line in kept)


def check_run_folder(folder: Path, settings: Mapping[str, Any], unused: Collection[str] = ()) -> bool:
    """Raise `InputError` when `folder` holds something else than a run of these settings; return whether there is one
    to go on with. Writes nothing. Sections in `unused` may differ: nothing in the folder hangs on them yet.

    A run that ended before its first result (a wrong path, a hub out of reach) does not claim its folder.
    """
    try:
        names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be read ({error.strerror}); name another folder") from None
    found = {name for name in names if not (name.startswith(".") and name.endswith(".part"))}  # not what a kill left
    if found <= {CONFIG, "run.json"}:
        return False
    if CONFIG not in found:
        raise InputError(
            f"output_dir={folder}: not empty and no run folder; name another, or empty it if nothing in it is needed"
        )
    earlier = yaml.safe_load((folder / CONFIG).read_text(encoding="utf-8"))
    now = json.loads(json.dumps(dict(settings)))
    changed = [
        f"{key}: {old!r} -> {new!r}"
        for key, old, new in _differences(earlier, now)
        if key.partition(".")[0] not in unused
    ]
    if changed:
        raise InputError(
            f"output_dir={folder}: holds a run with other settings ({'; '.join(changed[:3])}); "
            "name another folder to start anew"
        )
    return True


def claim_run_folder(folder: Path, settings: Mapping[str, Any]) -> None:
    """Make `folder` the run folder of these settings by writing `config.yaml`; `check_run_folder` comes first.

    Raises:
        InputError: the folder cannot be written.
    """
    try:
        with atomic_writer(folder / CONFIG) as stream:
            stream.write(yaml.safe_dump(dict(settings), sort_keys=False, allow_unicode=True))
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be written ({error.strerror}); name another folder") from None


def _differences(earlier: Any, now: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(earlier, dict) and isinstance(now, dict):
        for name in [*earlier, *(name for name in now if name not in earlier)]:
            if not key and name == ACCEPT:
                continue
            yield from _differences(earlier.get(name), now.get(name), f"{key}.{name}" if key else str(name))
    elif earlier != now:
        yield key, earlier, now
