"""The output of a command: named, and writable before the work begins."""

from collections.abc import Iterator
from contextlib import contextmanager
from errno import EISDIR
from pathlib import Path
from tempfile import TemporaryFile

from rl_qg.runtime.errors import InputError


def required(value: str, key: str, example: str) -> Path:
    """The path that a key holds; raise `InputError` where it has none."""
    if not value:
        raise InputError(f"{key} has no value; give one, such as {key}={example}")
    return Path(value)


def check_writable(output: Path) -> None:
    """Raise `InputError` before the work begins where its result could not be written."""
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        with TemporaryFile(dir=output.parent):
            pass


@contextmanager
def writing(output: Path) -> Iterator[None]:
    """Turn a failed write into an `InputError` that names the output."""
    try:
        yield
    except OSError as error:
        raise InputError(f"output={output}: cannot be written ({error.strerror}); name another path") from None
