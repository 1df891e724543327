"""How a settings key is declared: once, with its type, its default and its comment."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from functools import partial
from math import inf, isfinite
from typing import Any, TypeVar

from rl_qg.runtime.errors import InputError

MISSING: Any = "???"  # the default of a key that a config group or the user must fill, as OmegaConf writes it
Default = TypeVar("Default")


@dataclass(frozen=True)
class Limits:
    """The smallest and the largest value of a number; `above`: larger than the smallest."""

    low: float
    high: float = inf
    above: bool = False

    def fault(self, name: str, value: float | None) -> str | None:
        """What is wrong with the value of a key, or None; null has no limits."""
        if value is None or (
            self.low <= value <= self.high and isfinite(value) and not (self.above and value == self.low)
        ):
            return None
        if isinstance(value, float) and not isfinite(value):
            return f"{name}={value} is not a finite number"
        if self.high < inf:
            return f"{name}={value} is not in {'(' if self.above else '['}{self.low}, {self.high}]"
        return f"{name}={value} must be {'above' if self.above else 'at least'} {self.low}"


COUNT = Limits(1)
POSITIVE = Limits(0, above=True)
NOT_NEGATIVE = Limits(0)
FINITE = Limits(-inf)
FRACTION = Limits(0, 1)
SHARE = Limits(0, 1, above=True)
SEED = Limits(0, 2**32 - 1)  # what NumPy takes


def fault_of_updates(number: int) -> str:
    """A fault for a number of updates that is neither positive nor -1."""
    return "" if number >= 1 or number == -1 else f"{number} must be at least 1, or -1 for as many as epochs say"


# By field; not in its metadata, which HfArgumentParser hands on to argparse as it is.
_LIMITS: dict[Any, Limits] = {}
_FAULTS: dict[Any, Callable[[Any], str]] = {}


def key(
    default: Default,
    comment: str,
    *,
    choices: Sequence[Any] = (),
    limits: Limits | None = None,
    fault: Callable[[Any], str] | None = None,
) -> Default:
    """Declare a field of a settings dataclass.

    Args:
        default: the value of the key; each object gets its own copy. A dataclass instance is a nested section.
        comment: one line for people; the YAML and `--help` show it, and so does `transformers.HfArgumentParser`,
            which reads the same metadata.
        choices: the valid values, where only some texts are valid.
        limits: of a number; null is valid where the type has it.
        fault: says what is wrong with a value, the value first; "" where nothing is.
    """
    metadata: dict[str, Any] = {"help": comment}
    if choices:
        metadata["choices"] = tuple(choices)
    if isinstance(default, str | int | float | bool | None):
        declared: Any = field(default=default, metadata=metadata)
    else:
        factory: Callable[[], Default] = partial(deepcopy, default)
        declared = field(default_factory=factory, metadata=metadata)
    if limits is not None:
        _LIMITS[declared] = limits
    if fault is not None:
        _FAULTS[declared] = fault
    return declared


@dataclass
class Section:
    """Base of all settings dataclasses."""

    def check(self) -> None:
        """Raise one `InputError` that names every wrong value, before any model is loaded."""
        if faults := list(self.faults()):
            raise InputError("settings: " + "; ".join(faults))

    def faults(self) -> Iterator[str]:
        """What is wrong with the values, one text for each fault, nested sections included."""
        for item in fields(self):
            value, choices = getattr(self, item.name), item.metadata.get("choices")
            if choices and value not in choices:
                known = ("null" if choice is None else choice for choice in choices)
                yield f"{item.name}={value} is not one of {', '.join(known)}"
            if (limits := _LIMITS.get(item)) and (fault := limits.fault(item.name, value)):
                yield fault
            if (of_value := _FAULTS.get(item)) and (fault := of_value(value)):
                yield f"{item.name}={fault}"
            if isinstance(value, Section):
                yield from (f"{item.name}.{fault}" for fault in value.faults())
        yield from self.conflicts()

    def conflicts(self) -> Iterator[str]:
        """What is wrong where keys depend on one another."""
        yield from ()
