"""Values of a study file: read as what they should be, or refused in one line that names file and key."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from rl_qg.runtime.errors import InputError


def as_overrides(value: Any, where: str) -> tuple[str, ...]:
    """Overrides from a list of `key=value`, or from a mapping, whose nested keys are joined by dots."""
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, dict):
        return tuple(_flat(value))
    raise InputError(f"{where}: expected overrides, as a list of key=value or as a mapping")


def _flat(mapping: Mapping[str, Any], prefix: str = "") -> list[str]:
    texts = []
    for key, value in mapping.items():
        if isinstance(value, dict) and value:
            texts += _flat(value, f"{prefix}{key}.")
        else:
            texts.append(f"{prefix}{key}={_text(value)}")
    return texts


def _text(value: Any) -> str:
    """A value as it is written on the command line."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return "{}" if value == {} else str(value)


def known(value: Any, kind: type, where: str, without: Sequence[str] = ()) -> dict[str, Any]:
    """The values of a mapping with the defaults of a dataclass; keys it does not have are refused."""
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected keys and values, got {type(value).__name__}")
    places = {item.name: item for item in fields(kind) if item.name not in without}
    if unknown := [str(key) for key in value if key not in places]:
        raise InputError(f"{where}: there is no key {unknown[0]!r}; the keys are {', '.join(places)}")
    if missing := [key for key, item in places.items() if item.default is MISSING and key not in value]:
        raise InputError(f"{where}: {missing[0]} has no value; see docs/how-to/study.md")
    return {key: value.get(key, item.default) for key, item in places.items()}


def named(value: Any, where: str) -> list[tuple[str, Any]]:
    """Names with their options. Raises `InputError` for no name, and for two that are written alike (25 and "25")."""
    if not isinstance(value, dict) or not value:
        raise InputError(f"{where}: expected at least one name with its options; see docs/how-to/study.md")
    names = [str(name) for name in value]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise InputError(f"{where}: {doubled[0]} stands there twice, with quotes and without; keep one")
    return list(zip(names, value.values(), strict=True))


def numbers(value: Any, where: str) -> list[float]:
    """Finite numbers, from a list or a single one."""
    found = listed(value)
    for item in found:
        if isinstance(item, bool) or not isinstance(item, int | float) or not math.isfinite(item):
            raise InputError(f"{where}: {item!r} is no number")
    return [float(item) for item in found]


def whole(value: Any, where: str, least: int = 0) -> int:
    """A whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InputError(f"{where}: {value!r} is no whole number of at least {least}")
    return value


def limit(value: Any, where: str) -> int | None:
    """A whole number of at least 1; None where there is no limit."""
    return None if value is None else whole(value, where, 1)


def source(value: Any, where: str) -> str | list[str]:
    """A path, a list of paths, or the name of a data set."""
    if isinstance(value, str) or (isinstance(value, list) and value and all(isinstance(one, str) for one in value)):
        return value
    raise InputError(f"{where}: expected a file, a list of files, or the name of a data set, got {value!r}")


def optional_text(value: Any, where: str) -> str | None:
    """Text, or None."""
    if value is None or isinstance(value, str):
        return value
    raise InputError(f"{where}: expected text, got {value!r}; put it in quotes")


def listed(value: Any) -> list[Any]:
    """A list as it is; a single value as a list of one, null as one of none."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]
