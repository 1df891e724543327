"""One running command for each output: a second one that would write to the same place is refused."""

import errno
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from rl_qg.runtime.errors import InputError


@contextmanager
def locked(outputs: Iterable[tuple[str, Path]]) -> Iterator[None]:
    """Within the block, no other process can hold the same outputs.

    The lock of `runs/a` is the file `runs/.a.lock`, which names the process and is deleted at the end. It belongs to
    the process, not to its workers, so it ends with a kill. Where the file system has no locks, or the file cannot be
    written, there is none: the command finds out itself what it can write.

    Args:
        outputs: the key and the path of each output file or folder.

    Raises:
        InputError: another process holds one of them; the line names it.
    """
    with ExitStack() as held:
        for key, path in outputs:
            held.enter_context(_locked(key, path))
        yield


@contextmanager
def _locked(key: str, path: Path) -> Iterator[None]:
    whole = path.expanduser().resolve()
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
        stream = file.open("a+", encoding="utf-8")
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
