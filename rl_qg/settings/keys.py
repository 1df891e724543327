"""How a settings key is declared: once, with its type, its default and its comment."""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar

from rl_qg.runtime.errors import InputError

MISSING = "???"  # the default of a key that a config group or the user must fill, as OmegaConf writes it
Default = TypeVar("Default")


def key(default: Default, comment: str, *, choices: Sequence[Any] = ()) -> Default:
    """Declare a field of a settings dataclass.

    Args:
        default: the value of the key; each object gets its own copy. A dataclass instance is a nested section.
        comment: one line for people; the YAML and `--help` show it, and so does `transformers.HfArgumentParser`,
            which reads the same metadata.
        choices: the valid values, where only some texts are valid.
    """
    metadata: dict[str, Any] = {"help": comment}
    if choices:
        metadata["choices"] = tuple(choices)
    if isinstance(default, str | int | float | bool | None):
        return field(default=default, metadata=metadata)
    factory: Callable[[], Default] = partial(deepcopy, default)
    return field(default_factory=factory, metadata=metadata)


@dataclass
class Section:
    """Base of all settings dataclasses."""

    def check(self) -> None:
        """Raise one `InputError` that names every wrong value, before any model is loaded."""
        if faults := list(self.faults()):
            raise InputError("settings: " + "; ".join(faults))

    def faults(self) -> Iterator[str]:
        """What is wrong with the values, one text for each fault, nested sections included.

        This checks the choices; a section with other limits extends the method.
        """
        for item in fields(self):
            value, choices = getattr(self, item.name), item.metadata.get("choices")
            if choices and value not in choices:
                yield f"{item.name}={value} is not one of {', '.join(choices)}"
            if isinstance(value, Section):
                yield from (f"{item.name}.{fault}" for fault in value.faults())

    def below(self, minimum: int, *names: str) -> Iterator[str]:
        """A fault for each of these keys whose value is smaller than `minimum`."""
        for name in names:
            if (value := getattr(self, name)) < minimum:
                yield f"{name}={value} must be at least {minimum}"

    def outside(self, *names: str, zero: bool = True) -> Iterator[str]:
        """A fault for each of these keys whose value is not a fraction: in [0, 1], or in (0, 1] without `zero`."""
        for name in names:
            value = getattr(self, name)
            if not (0 <= value <= 1 if zero else 0 < value <= 1):
                yield f"{name}={value} is not in {'[' if zero else '('}0, 1]"
