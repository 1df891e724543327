"""Libraries that only some metrics need: imported on first use, with one clear line where one is missing."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from rewards.errors import MetricInputError


def library(name: str, needed_by: str, install: str) -> Any:
    """Import a module that only some metrics need.

    Args:
        name: dotted name of the module.
        needed_by: what needs it, for the message.
        install: what to give to ``pip install``.

    Raises:
        MetricInputError: it is missing; the line says how to install it.
    """
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
