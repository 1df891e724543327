"""Signatures: one line that says exactly which number a metric prints.

Like sacreBLEU's: ``name|key:value|...|version:...``. Two runs with the same signature computed the same metric
with the same models. What cannot change a score (batch size, device) is left out.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

VERSION = "0.1.0"
"""Raised whenever a change can move a score."""

_HASHED = ("config.json", "tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "merges.txt")


def format_signature(name: str, choices: Mapping[str, object]) -> str:
    """Return ``name|key:value|...|version:...`` with the choices in the order given."""
    fields = [f"{key}:{str(value).replace('|', '_')}" for key, value in choices.items()]
    return "|".join([name, *fields, f"version:{VERSION}"])


def folder_hash(folder: Path) -> str:
    """Return eight hex digits of the contents of a model folder: weights, configuration and tokenizer."""
    digest = hashlib.sha256()
    weights = sorted(path.name for path in folder.glob("*.safetensors"))
    for name in [*_HASHED, *weights]:
        path = folder / name
        if path.is_file():
            with path.open("rb") as file:
                digest.update(name.encode() + hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:8]
