"""SHA-256 of files, and whether the data of an unfinished output have changed."""

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
    """Compare the SHA-256 of each source when `output` was begun (`noted`) and `now`.

    Args:
        noted: SHA-256 by source; a source that is missing here is not compared.
        now: SHA-256 by source.
        output: for the error message.
        accept: whether the user accepts changed sources.

    Returns:
        Whether a source has changed, which the user accepts.

    Raises:
        InputError: a source has changed.
    """
    changed = [name for name, value in now.items() if noted.get(name, value) != value]
    for name in changed:
        fault = f"{name}: has changed since {output} was begun"
        if not accept:
            raise InputError(
                f"{fault} (SHA-256 {noted[name][:8]}, now {now[name][:8]}); put the old file back, name another "
                "output, or continue with the new one by accept_changed_data=true"
            )
        log.warning("%s (accept_changed_data=true)", fault)
    return bool(changed)
