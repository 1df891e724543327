"""How a settings key is declared: once, with its type, its default and its comment."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from functools import partial
from math import inf, isfinite
from typing import Any, TypeVar

from rl_qg.runtime.errors import InputError

MISSING: Any = "???"  # the default of a key that a config group or the user must fill, as OmegaConf writes it
LARGEST = 2**31 - 1  # of whole numbers: arrays and iterators take no more
Default = TypeVar("Default")
Check = Callable[[Any], str]  # says what is wrong with a value, the value first; "" where nothing is


@dataclass(frozen=True)
class Limits:
    """A check of a number, null passing: the smallest and the largest value; `above`: larger than the smallest."""

    low: float
    high: float = inf
    above: bool = False

    def __call__(self, value: float | None) -> str:
        if value is None:
            return ""
        if not isinstance(value, int) and not (isinstance(value, float) and isfinite(value)):  # also a mapping in one
            return f"{value} is not a finite number"
        if self.high == inf and isinstance(value, int) and value > LARGEST:
            return f"{value} must be at most {LARGEST}"
        if self.low <= value <= self.high and not (self.above and value == self.low):
            return ""
        if self.high < inf:
            return f"{value} is not in {'(' if self.above else '['}{self.low}, {self.high}]"
        return f"{value} must be {'above' if self.above else 'at least'} {self.low}"


COUNT = Limits(1)
RESAMPLES = Limits(39)  # of fewer draws 2.5 % are less than one, and 95 % intervals would be too narrow
POSITIVE = Limits(0, above=True)
NOT_NEGATIVE = Limits(0)
FINITE = Limits(-inf)
FRACTION = Limits(0, 1)
SHARE = Limits(0, 1, above=True)
PASSES = Limits(0, LARGEST)  # over the data
ABOVE_NO_PASS = Limits(0, LARGEST, above=True)
RATE = Limits(1e-12)  # of learning: smaller steps move no weight
SEED = Limits(0, 2**32 - 1)  # what NumPy takes


def fault_of_updates(number: int) -> str:
    fault = number != -1 and COUNT(number)
    return f"{fault}, or -1 for as many as epochs say" if fault else ""


CELLS = 512  # into which passages are divided for parts: the most parts that there can be


def part_fault(value: str | None) -> str:
    number, _, of = (value or "1/1").partition("/")
    if number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of) <= CELLS:
        return ""
    return f"{value} is no part: give i/n, from 1/n to n/n, such as 3/7; n is at most {CELLS}"


_CHECKS: dict[Any, Check] = {}  # by field; not in its metadata, which HfArgumentParser hands on to argparse as it is


def key(default: Default, comment: str, check: Check | None = None, choices: Sequence[Any] = ()) -> Default:
    """Declare a field of a settings dataclass.

    Args:
        default: the value of the key; each object gets its own copy. A dataclass instance is a nested section.
        comment: one line for people; the YAML and `--help` show it, and so does `transformers.HfArgumentParser`,
            which reads the same metadata.
        check: of the value, such as `Limits`.
        choices: the valid values, where only some texts are valid.
    """
    metadata = {"help": comment, **({"choices": tuple(choices)} if choices else {})}
    if isinstance(default, str | int | float | bool | None):
        declared: Any = field(default=default, metadata=metadata)
    else:
        factory: Callable[[], Default] = partial(deepcopy, default)
        declared = field(default_factory=factory, metadata=metadata)
    if check is not None:
        _CHECKS[declared] = check
    return declared


def choice(names: str | Sequence[str], comment: str, default: str = "") -> Any:
    """Declare a field that is one of several texts, `default` or the first; the word null stands for None."""
    values = [None if name == "null" else name for name in (names.split() if isinstance(names, str) else names)]
    return key(default or values[0], comment, choices=values)


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
            if (check := _CHECKS.get(item)) and (fault := check(value)):
                yield f"{item.name}={fault}"
            if isinstance(value, Section):
                yield from (f"{item.name}.{fault}" for fault in value.faults())
        yield from self.conflicts()

    def changed(self, *names: str) -> list[str]:
        """`name=value` of each of these keys that has another value than its default."""
        return [f"{name}={getattr(self, name)}" for name in names if getattr(self, name) != getattr(type(self), name)]

    def conflicts(self) -> Iterator[str]:
        """What is wrong where keys depend on one another."""
        yield from ()
