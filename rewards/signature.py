"""Signatures: one line that identifies exactly how a number was computed.

Like sacreBLEU's: ``name|key:value|...|version:...``. Two runs with the same signature computed the same metric
with the same models. Options that cannot change a score (batch size, device) are left out.
"""

import hashlib
import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

VERSION = "0.1.0"  # raised whenever a change can move a score

SECRET_KEY = re.compile(r"(^|[._-])(token|secret|password|passwd|credentials?|(api|access)[_-]?key)$", re.IGNORECASE)
_HASHED = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")


def format_signature(name: str, choices: Mapping[str, object]) -> str:
    """Return ``name|key:value|...|version:...`` with the choices in the order given."""
    fields = [f"{key}:{str(value).replace('|', '_')}" for key, value in choices.items()]
    return "|".join([name, *fields, f"version:{VERSION}"])


def own_signature(name: str, options: Mapping[str, object], *code: Any) -> str:
    """``name|option:value|...|code:...`` of a reward of other code, with the files of these classes and functions:
    scores by other options or files are not kept. Keys and passwords are left out.
    """
    known = sorted((key, value) for key, value in options.items() if not SECRET_KEY.search(key))
    fields = [f"{key}:{str(value).replace('|', '_')}" for key, value in known]
    files = dict[str, None]()
    for one in code:
        with suppress(OSError, TypeError):  # made at a prompt, or part of Python
            files[inspect.getfile(inspect.unwrap(one))] = None
    return "|".join([name, *fields, *(f"code:{file_hash(Path(file))}" for file in files)])


def model_identity(name: str, config: object) -> str:
    """Return ``name@hash`` of a model in transformers form: a hash of the folder's contents, or the Hub revision."""
    folder = Path(name)
    revision = folder_hash(folder) if folder.is_dir() else getattr(config, "_commit_hash", None)
    return f"{folder.resolve().name if folder.is_dir() else name}@{(revision or 'unknown')[:8]}"


def file_hash(path: Path) -> str:
    """Return eight hex digits of the contents of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:8]


def folder_hash(folder: Path) -> str:
    """Return eight hex digits of a model folder: weights (any format), configuration and tokenizer."""
    digest = hashlib.sha256()
    weights = sorted(folder.glob("*.safetensors")) or [*sorted(folder.glob("*.bin")), *sorted(folder.glob("*.model"))]
    for path in [*(folder / name for name in _HASHED), *weights]:
        if path.is_file():
            with path.open("rb") as file:
                digest.update(path.name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:8]
