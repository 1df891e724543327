"""The errors that bad input to a metric raises."""

import math
import tomllib
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral, Real
from pathlib import Path
from typing import Any


class MetricInputError(ValueError):
    """Bad input to a metric: one line that says what was wrong, where, and what to do."""


class UnreachableModel(MetricInputError):
    """A model that is no local folder, and that the Hub does not have, or the Hub cannot be reached."""


def first_line(error: BaseException) -> str:
    """What a library's error says, in one line; of an error without a message its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


# Checks of the numeric options of metrics.


def is_finite(value: Real) -> bool:
    """Whether a float holds the number: none that is infinite, NaN, or a whole number of too many digits."""
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def number(
    metric: str, option: str, value: object, *, low: float = -math.inf, high: float = math.inf, whole: bool = False
) -> float:
    """Return a finite number from ``low`` to ``high``; with ``whole`` one without a fraction."""
    if (
        isinstance(value, Integral if whole else Real)
        and isinstance(value, Real)
        and not isinstance(value, bool)
        and is_finite(value)
        and low <= (result := float(value)) <= high
    ):
        return result
    limits = "".join([f" from {low:g}" * math.isfinite(low), f" to {high:g}" * math.isfinite(high)])
    kind = "a whole number" if whole else "a number"
    raise MetricInputError(f"{metric}: {option} {value!r:.40} is out of range; give {kind}{limits}")


def one_of(metric: str, option: str, value: Any, known: Sequence[str]) -> Any:
    if value not in known:
        names = f"{', '.join(known[:-1])} or {known[-1]}"
        raise MetricInputError(f"{metric}: {option} {value!r} does not exist; use {names}")
    return value


def language_of(metric: str, language: object) -> str:
    if not isinstance(language, str) or not language.isalpha() or not language.islower():
        raise MetricInputError(f"{metric}: language {language!r} is no code of a language, such as en or de")
    return language


def flag(metric: str, option: str, value: object) -> bool:
    """Return true or false; a text such as "no" would count as true."""
    if not isinstance(value, bool):
        raise MetricInputError(f"{metric}: {option} {value!r:.40} is neither true nor false")
    return value


def path_of(metric: str, option: str, value: object) -> Path:
    if not isinstance(value, str | Path) or not str(value):
        raise MetricInputError(f"{metric}: {option} {value!r:.40} is no path of a file")
    path = Path(value).expanduser()
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise MetricInputError(f"{metric}: {option}={value} is a pipe or device; write what it gives into a file")
    return path


def batch_of(metric: str, size: object) -> int:
    return int(number(metric, "batch_size", size, low=1, whole=True))


def packaged(name: str) -> dict[str, Any]:
    """The tables of a file of this package."""
    return tomllib.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))


# Libraries that only some metrics need: imported on first use.


def library(name: str, needed_by: str, install: str) -> Any:
    """Import a module by its dotted name; ``install`` is what the message gives to ``pip install``."""
    try:
        return import_module(name)
    except ImportError as error:
        raise MetricInputError(
            f"{needed_by} needs the package {name.split('.')[0]}: pip install {install} ({error})"
        ) from None


def installed_version(distribution: str) -> str:
    """Return the installed version of a distribution by its pip name; not every module says its own version."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "unknown"
