"""Code that a study file asks to import: named before it runs, because the file may come from somebody else.

This finds what is written out. What is not, such as a path put together from other keys, is refused where it would be
imported: the jobs of a study run with `rewards.loading.OWN_CODE_ONLY` unless imports are allowed.
"""

import importlib.util
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rl_qg.runtime.errors import InputError

log = logging.getLogger(__name__)
OWN = ("rewards", "rl_qg")
# The keys whose value may be the path of a class, as a YAML key, in `key=value`, or within a list of options.
_PATH = re.compile(r"(?:^|[.\W])(?:_target_|metrics?|kind|rerank)\s*[=:]\s*[\"'\[]*([^\W\d]\w*(?:\.\w+)+)")


def foreign_imports(content: Any, where: str = "") -> Iterator[tuple[str, str]]:
    """The position in a study file and the dotted path of everything that is imported from other packages."""
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield from foreign_imports(value, f"{where}.{key}" if where else str(key))
    elif isinstance(content, list):
        for value in content:
            yield from foreign_imports(value, where)
    elif isinstance(content, str):
        for path in _PATH.findall(f"{where.rpartition('.')[2]}={content}"):
            if path.split(".")[0] not in OWN:
                yield where, path


def check_imports(content: Any, file: Path, *, allowed: bool) -> None:
    """Log what a study file imports, before anything is imported.

    Raises:
        InputError: something is imported, and that is not `allowed`.
    """
    found = [f"{path} ({_origin(path)}), named in {where}" for where, path in dict.fromkeys(foreign_imports(content))]
    if found and not allowed:
        raise InputError(
            f"{file}: would run code that is not of this package: {'; '.join(found)}; if you trust it, add "
            "--allow-imports"
        )
    for text in found:
        log.info("%s: imports %s", file, text)


def _origin(path: str) -> str:
    """The file of a package. Only the first name is looked up: finding those within it would import it."""
    try:
        spec = importlib.util.find_spec(path.split(".")[0])
    except (ImportError, ValueError):
        spec = None
    return (spec.origin or "a folder") if spec else "not found"
