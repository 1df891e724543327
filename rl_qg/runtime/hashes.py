"""SHA-256 of files, and whether what an output was begun with has changed."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path

from rl_qg.runtime.errors import InputError

log = logging.getLogger(__name__)


def file_hash(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_unchanged(noted: Mapping[str, str], now: Mapping[str, str], output: Path, *, accept: bool) -> bool:
    """Compare what `output` was begun with and what it is to go on with, SHA-256 by source; return whether a source
    has changed. Nothing is said of a source that was not noted.

    Raises:
        InputError: it has, and the user has not said that this is known.
    """
    changed = [name for name, value in now.items() if noted.get(name, value) != value]
    for name in changed:
        what = f"{name}: has changed since {output} was begun"
        if not accept:
            raise InputError(
                f"{what} (SHA-256 {noted[name][:8]}, now {now[name][:8]}); put the old file back, name another "
                "output, or go on all the same with accept_changed_data=true"
            )
        log.warning("%s (accept_changed_data=true)", what)
    return bool(changed)
