"""Data files made from valid ones by one change: of their bytes, or of one value of what they hold."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

LONG = "long " * 20_000
VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "number": 7,
    "negative": -3,
    "fraction": 0.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "1e300": 1e300,
    "of 40 digits": 10**40,
    "empty text": "",
    "blank text": " \t ",
    "a word": "Ada",
    "surrogate": "Who \ud800?",
    "nul": "Who\0?",
    "control": "a\rb\x1b[31m\x85\u2028c",
    "long text": LONG,
    "list": ["Ada"],
    "empty list": [],
    "mapping": {"a": 1},
    "empty mapping": {},
}
"""What one value of a file is replaced by."""


def _twice(content: bytes) -> bytes:
    return content + content


BYTES: dict[str, Callable[[bytes, int], bytes]] = {
    "empty": lambda content, at: b"",
    "blank": lambda content, at: b" \n\n",
    "cut": lambda content, at: content[:at],
    "byte order mark": lambda content, at: b"\xef\xbb\xbf" + content,
    "carriage returns": lambda content, at: content.replace(b"\n", b"\r"),
    "crlf": lambda content, at: content.replace(b"\n", b"\r\n"),
    "zero byte": lambda content, at: content[:at] + b"\0" + content[at:],
    "not utf-8": lambda content, at: content[:at] + b"\xff" + content[at:],
    "utf-16": lambda content, at: content.decode(errors="replace").encode("utf-16"),
    "long line": lambda content, at: content[:at] + LONG.encode() + content[at:],
    "everything twice": lambda content, at: _twice(content),
    "first line twice": lambda content, at: content[: content.find(b"\n") + 1] + content,
    "other line ends": lambda content, at: content[:at] + "\u2028\x0b\x85".encode() + content[at:],
}
STRUCTURED = (".json", ".jsonl", ".yaml")
OF_VALUES = ("left out", "twice", *VALUES)


def kinds(name: str) -> list[str]:
    """The changes that a file of this name can have."""
    return [*BYTES, *(OF_VALUES if name.endswith(STRUCTURED) else ())]


def mutate(path: Path, kind: str, share: float) -> None:
    """Change a file in place, `share` (0 to 1) of the way through it."""
    content = path.read_bytes()
    if kind in BYTES:
        path.write_bytes(BYTES[kind](content, int(share * len(content))))
        return
    text = content.decode()
    if path.suffix == ".yaml":
        changed = yaml.safe_dump(_changed(yaml.safe_load(text), kind, share), allow_unicode=False)
    elif path.suffix == ".json":
        changed = json.dumps(_changed(json.loads(text), kind, share))
    else:
        rows = [json.loads(line) for line in text.splitlines()]
        changed = "".join(json.dumps(row) + "\n" for row in _changed(rows, kind, share))
    path.write_text(changed, encoding="utf-8")


def _changed(document: Any, kind: str, share: float) -> Any:
    """The document with one of its inner values changed."""
    places = [*_places(document)]
    owner, key = places[min(int(share * len(places)), len(places) - 1)]
    if kind == "left out":
        del owner[key]
    elif kind == "twice":
        if isinstance(owner, list):
            owner.insert(key, owner[key])
        else:
            owner[f"{key} "] = owner[key]
    else:
        owner[key] = VALUES[kind]
    return document


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each list or mapping within a value, with each of its indices or keys."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        yield value, key
        yield from _places(item)
