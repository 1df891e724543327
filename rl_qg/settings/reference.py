"""The settings as YAML with comments, made from the dataclasses; for `--help` and the documentation."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from types import MappingProxyType
from typing import Any

import yaml

from rl_qg.settings.keys import Section
from rl_qg.settings.root import Settings

WIDTH = 119  # of a line
COLUMN = 28  # of a comment


def describe(*names: str) -> str:
    """The keys of `Settings` with their defaults and comments: of these sections and single keys (`model.path`), or
    all.

    Raises:
        KeyError: there is no such key.
    """
    settings, section = Settings(), ""
    lines: list[str] = []
    for name in names or [item.name for item in fields(Settings)]:
        owner, _, inner = name.partition(".")
        if not inner:
            lines += _key(settings, name, "")
        else:
            if owner != section:
                comment = Settings.__dataclass_fields__[owner].metadata["help"]
                lines.append(f"{f'{owner}:'.ljust(COLUMN - 2)}  # {comment}")
            lines += _key(getattr(settings, owner), inner, "  ")
        section = owner
    return "\n".join(lines)


@cache
def all_keys() -> Mapping[str, Any]:
    """The type of every key by its dotted name, sections left out."""
    return MappingProxyType(dict(_types(Settings(), "")))


def _types(owner: Section, prefix: str) -> Iterator[tuple[str, Any]]:
    for item in fields(owner):
        value, name = getattr(owner, item.name), prefix + item.name
        yield from _types(value, f"{name}.") if isinstance(value, Section) else [(name, item.type)]


def _key(owner: Section, name: str, indent: str) -> Iterator[str]:
    """The lines of one key of a section, and of the keys in it."""
    comment, value = owner.__dataclass_fields__[name].metadata["help"], getattr(owner, name)
    nested = isinstance(value, Section) or (isinstance(value, dict) and value)
    text = f"{indent}{name}:" if nested else f"{indent}{name}: {_scalar(value)}"
    line = f"{text.ljust(COLUMN - 2)}  # {comment}"
    if len(line) <= WIDTH:
        yield line
    else:
        marker = f"{indent}# "
        yield from textwrap.wrap(comment, WIDTH, initial_indent=marker, subsequent_indent=marker)
        yield text
    if isinstance(value, Section):
        for item in fields(value):
            yield from _key(value, item.name, f"{indent}  ")
    elif nested:
        yield from (f"{indent}  {inner}: {_scalar(text)}" for inner, text in value.items())


def _scalar(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, float):
        return re.sub(r"e([+-])0+", r"e\1", repr(value))
    text: str = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
    return json.dumps(value) if text.startswith("'") else text
