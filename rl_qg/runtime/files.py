"""Files that survive a kill, their hashes and locks, and the report beside an output."""

import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, TextIO

import yaml

from rl_qg.runtime.errors import InputError

log = logging.getLogger(__name__)
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")  # in JSON


def regular(path: Path) -> Path:
    """The same path of a file or folder; `OSError` for a pipe or device, whose end might never come."""
    if not (path.is_file() or path.is_dir()) and path.exists():
        raise OSError(errno.ESPIPE, "it is a pipe or device; write what it gives into a file", str(path))
    return path


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with regular(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_unchanged(noted: Mapping[str, str], now: Mapping[str, str], output: Path, *, accept: bool) -> bool:
    """Compare the SHA-256 of each source when `output` was begun (`noted`; what is missing there passes) and `now`.
    Raise `InputError` for a changed one, or return whether there is one where the user accepts it.
    """
    changed = [name for name, value in now.items() if noted.get(name, value) != value]
    for name in changed:
        fault = f"{name}: has changed since {output} was begun"
        if not accept:
            raise InputError(
                f"{fault} (SHA-256 {str(noted[name])[:8]}, now {now[name][:8]}); put the old file back, name another "
                "output, or continue with the new one by accept_changed_data=true"
            )
        log.warning("%s (accept_changed_data=true)", fault)
    return bool(changed)


def is_disk_full(error: BaseException) -> bool:
    """Whether a file could not be written for lack of space. Libraries report this by errors of different types."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    texts = ("No space left", "Disk quota exceeded", "File too large", "PytorchStreamWriter failed", "unexpected pos")
    return any(text in str(error) for text in texts)


@contextmanager
def writing(output: Path, key: str = "output", other: str = "path") -> Iterator[None]:
    """Turn a failed write within the block into an `InputError` that names the output by its key."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{key}={output}: cannot be written ({error.strerror}); name another {other}") from None


@contextmanager
def atomic_writer(path: Path, *, private: bool = False) -> Iterator[TextIO]:
    """Open a text file that appears under `path` only when the block ends without an error; a kill leaves no partial
    file there. A `private` one is readable by its owner alone from the beginning. Half a surrogate pair, which is no
    character, becomes a question mark, as on pages.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    try:
        partial.unlink(missing_ok=True)  # left by a kill, and perhaps readable by all, or a link to another file
        mode = 0o600 if private else 0o666
        options: Any = {"encoding": "utf-8", "errors": "replace"}
        with open(partial, "x", **options, opener=lambda name, flags: os.open(name, flags, mode)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_text(path: Path, text: str) -> None:
    """Write `text`, atomically."""
    with atomic_writer(path) as stream:
        stream.write(text)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    with atomic_writer(path) as stream:
        json.dump(value, stream, ensure_ascii=False, indent=2)
        stream.write("\n")


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Write one record a line, atomically, and return their number."""
    with atomic_writer(path) as stream:
        return sum(stream.write(json.dumps(record, ensure_ascii=False) + "\n") > 0 for record in records)


def parse_object(text: bytes, where: str) -> dict[str, Any]:
    """Parse one JSON object; raise `InputError` with `where`, line and column if it is malformed or not an object."""
    value = parse_json(text, where)
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a JSON object, got {type(value).__name__}")
    return value


def parse_json(text: bytes, where: str) -> Any:
    """Parse a JSON value; raise `InputError` with `where`, line and column if it is malformed."""
    try:
        return json.loads(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except json.JSONDecodeError as error:
        position = f"line {error.lineno}, column {error.colno}" if b"\n" in text.strip() else f"column {error.colno}"
        hint = "; name it .jsonl if each line is a record" if error.msg == "Extra data" and error.lineno > 1 else ""
        raise InputError(f"{where}: malformed JSON at {position}: {error.msg}{hint}") from None
    except (RecursionError, ValueError) as error:  # nested too deeply, or a number of thousands of digits
        raise InputError(f"{where}: unusable JSON: {error}") from None


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file to be read within the block; what goes wrong is an `InputError`."""
    try:
        with regular(path).open("rb") as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


def read_json(path: Path) -> Any:
    """Read JSON; raise `InputError` with file, line and column when it is missing or malformed."""
    with _opened(path) as stream:
        return parse_json(stream.read(), f"{path}")


def read_record(path: Path) -> dict[str, Any]:
    """Read a JSON object that a command has written; raise `InputError` also where the file holds another value."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, got {type(value).__name__}; restore the file, or delete it")
    return value


@contextmanager
def as_written(path: Path) -> Iterator[None]:
    """`InputError` where what is read of a file (or of those of a folder) has not the form that a command gave it."""
    try:
        yield
    except InputError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{path}: is not as its command wrote it; delete it, and make it again") from error


def parse_yaml(text: str, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The value of a YAML text; `YAMLError` also for a date that there is not, a list that contains itself, a NUL,
    and half a surrogate pair, which no path and no library takes.
    """
    try:
        value = yaml.load(text, loader)
        written = json.dumps(value, default=str, ensure_ascii=False)
        written.encode()
    except UnicodeEncodeError:
        raise yaml.YAMLError("a value has half of a surrogate pair, which is no character; take it out") from None
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None
    if _NUL.search(written):
        raise yaml.YAMLError("a value has the character NUL; take it out")
    return value


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys of a YAML file; `InputError` where it is not readable or holds none."""
    try:
        content = parse_yaml(regular(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not readable as YAML: {str(error).splitlines()[0]}; write it again") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected keys, got {type(content).__name__}; write it again")
    return content


def packaged_yaml(module: str, name: str) -> Any:
    text = Path(module).with_name(name).read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def append_json_line(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as a single write, so that a kill can only leave the last line incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8", errors="replace") as stream:
        stream.write(json.dumps(record, ensure_ascii=False) + "\n")


def read_json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, record); raise `InputError` naming the line that is not a JSON object."""
    with _opened(path) as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                yield number, parse_object(line, f"{path}: line {number}")


def cut_json_lines(path: Path, last_step: int) -> None:
    """Drop records whose `step` is above `last_step` and an incomplete last line; a resumed run writes them again."""
    if not path.exists():
        return
    kept = []
    lines = path.read_bytes().split(b"\n")  # not at other line separators, which texts may contain
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line.decode())
        except ValueError:
            break  # incomplete, perhaps cut within a character; the lines before it are complete
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise InputError(f"{path}: line {number}: is no object with a step; delete the line")
        if record["step"] <= last_step:
            kept.append(line.decode())
    write_text(path, "".join(line + "\n" for line in kept))


@contextmanager
def locked(outputs: Iterable[tuple[str, Path]]) -> Iterator[None]:
    """Within the block, no other process can hold the same outputs, each a key and the path of a file or folder.

    The lock of `runs/a` is the file `runs/.a.lock`, which names the process and is deleted at the end. It belongs to
    the process, not to its workers, so it ends with a kill. Where the file system has no locks, or the file cannot be
    written, there is none: the command finds out itself what it can write.
    """
    with ExitStack() as held:
        for key, path in outputs:
            held.enter_context(_locked(key, path))
        yield


@contextmanager
def _locked(key: str, path: Path) -> Iterator[None]:
    whole = Path(os.path.realpath(os.path.expanduser(path)))  # pathlib raises for a loop of links
    file = whole.with_name(f".{whole.name}.lock")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        stream = _lock(file)
    except BlockingIOError as error:
        raise InputError(f"{key}={path}: {error} writes there; wait for it, or stop it") from None
    except OSError:
        yield
        return
    with stream:
        stream.truncate(0)
        stream.write(f"process {os.getpid()} (rl-qg {' '.join(sys.argv[1:])[:120]})")
        stream.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                file.unlink()


def _lock(file: Path) -> IO[str]:
    """The lock file, held by this process; raise `BlockingIOError` with the holder's name if another one holds it."""
    while True:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW  # a link would be another file, which is emptied
        stream = os.fdopen(os.open(file, flags, 0o666), "a+", encoding="utf-8")
        try:
            fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if file.stat().st_ino == os.fstat(stream.fileno()).st_ino:
                return stream
        except FileNotFoundError:
            pass  # its holder has deleted it since it was opened
        except OSError as error:
            stream.seek(0)
            name = stream.read().strip() or "another rl-qg"
            stream.close()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise BlockingIOError(name) from None
            raise
        stream.close()  # of a deleted file; another one may have that name by now


def report_path(output: Path) -> Path:
    """The path of an output's report: `augmented.report.json` for `augmented.json`."""
    return output.with_name(f"{output.stem}.report.json")


def report_value(output: Path, *keys: str) -> Any:
    """The value in the report of an output under nested keys; None if there is none."""
    path = report_path(output)
    value = read_json(path) if path.exists() else None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def read_report(output: Path, shown: Callable[[dict[str, Any]], str]) -> dict[str, Any]:
    """The report of an output, which can be `shown`; else `InputError`."""
    report = read_record(report_path(output))
    with as_written(report_path(output)):
        shown(report)
    return report


def check_report(output: Path) -> None:
    """Raise `InputError` if the report belongs to another file, whose name differs only in its ending."""
    name = report_value(output, "output", "path")
    other = output.with_name((Path(name).name if isinstance(name, str) else "") or output.name)
    if other != output and other.exists():
        raise InputError(
            f"output={output}: {report_path(output).name} beside it is the report of {other.name}; give a name that "
            "differs in more than its ending"
        )


def check_own(output: Path) -> None:
    """Raise `InputError` if there is a file in the place of an output that has no report, so that it is not ours."""
    if output.exists() and not report_path(output).exists():
        raise InputError(
            f"output={output}: exists, and there is no {report_path(output).name} beside it that says how it was "
            "made; name another file, or delete this one"
        )


def check_distinct_files(written: Iterable[Path], read: Iterable[str | Path]) -> None:
    """Raise `InputError` if a file to be written is also one to be read."""
    targets = list(written)
    for source in (Path(name).expanduser() for name in read):
        for target in targets:
            same = target.exists() and source.exists() and target.samefile(source)
            if same or target.absolute() == source.absolute():
                raise InputError(f"output={targets[0]}: {target} would be written over {source}; name another file")
