"""One reader of the YAML files of studies, searches and transfers.

A dataclass over `JobFile` is the form of a file: OmegaConf checks keys and types against it, and its fields say what
their short forms and their limits are (`item`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import field, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rl_qg.runtime.errors import InputError
from rl_qg.settings.keys import MISSING
from rl_qg.settings.yaml_files import override, read_content, typed

WriteOut = Callable[[Any, str], Any]  # a short form, and its place in the file, to the whole form


def item(
    default: Any = MISSING,
    *,
    form: WriteOut | None = None,
    required: bool = False,
    least: float | None = None,
    choices: Sequence[str] = (),
    fault: Callable[[Any], str] | None = None,
) -> Any:
    """A key of a file; the limits of a list are those of each of its values, and null has none.

    `default` is its value, or the dataclass of its keys; `MISSING`: the file must give it. `form` writes out what may
    be given in short, `required` lists and mappings need a value, `least` is the smallest number, `choices` are the
    only texts, and `fault` says what is wrong with a value, or "".
    """
    limits = {"form": form, "required": required, "least": least, "choices": choices, "fault": fault}
    if isinstance(default, type):
        return field(default_factory=default, metadata=limits)
    if isinstance(default, list | dict):
        return field(default_factory=partial(copy, default), metadata=limits)
    return field(default=default, metadata=limits)


class JobFile:
    """What a kind of file has beside its keys, which are what has a type."""

    kind, page, shown_keys = "", "", ""  # its name, the document about it, and keys for a message
    renamed: ClassVar[Sequence[tuple[str, str]]] = ()  # fields, and what they are called in the file
    whole: ClassVar[Sequence[str]] = ()  # keys below which names may have dots
    file = ""  # where it was read from
    set_itself = ""  # of a key that no override may set

    def own_keys(self) -> Sequence[str]:
        """What no override may set."""
        return ()

    def overrides(self) -> Sequence[str]:
        return ()

    def complete(self) -> None:
        """Fill in what follows from other keys."""

    def conflicts(self) -> Iterator[str]:
        """What is wrong where keys depend on one another."""
        yield from ()


Spec = TypeVar("Spec", bound=JobFile)


def read_job_file(
    kind: type[Spec],
    file: Path | str,
    overrides: Sequence[str] = (),
    content: dict[str, Any] | None = None,
    *,
    allow_imports: bool = False,
) -> Spec:
    """Read a file; `overrides` (`key=value`, nested keys with dots, values in YAML) replace its values.

    `content`: its keys, where they have been read. Raises `InputError`, one line with everything that is wrong.
    """
    if content is None:
        content = file_content(kind, Path(file), allow_imports)
    for text in overrides:
        override(content, text, kind.kind, whole=kind.whole)
    spec = typed(written_out(kind, content, f"{file}: "), kind, str(file), kind.page, renamed=kind.renamed)
    spec.file = str(file)
    spec.complete()
    errors = [*_faults(spec), *spec.conflicts()]
    own = [key for key in dict.fromkeys(map(key_of, spec.overrides())) if key in spec.own_keys()]
    if errors := [*errors, *map(spec.set_itself.format, own)]:
        raise InputError(f"{file}: " + "; ".join(errors))
    return spec


def file_content(kind: type[JobFile], path: Path, allow_imports: bool) -> dict[str, Any]:
    return read_content(path, kind.kind, keys=kind.shown_keys, page=kind.page, allow_imports=allow_imports)


def written_out(form: type, content: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content with every short form in full; `where` is what its keys stand below."""
    full = dict(content)
    for entry in fields(form):
        if entry.name in full:
            value, write_out = full[entry.name], entry.metadata.get("form")
            if write_out:
                full[entry.name] = write_out(value, where + entry.name)
            elif isinstance(value, dict) and isinstance(entry.type, type) and is_dataclass(entry.type):
                full[entry.name] = written_out(entry.type, value, f"{where}{entry.name}.")
    return full


def by_name(write_out: WriteOut, what: str) -> WriteOut:
    """The form of names with `what` each of them has."""

    def write_all(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected names with their {what}")
        return {name: write_out(options, f"{where}.{name}") for name, options in value.items()}

    return write_all


def _faults(spec: Any, where: str = "") -> Iterator[str]:
    for entry in fields(spec):
        name, value, limits = where + entry.name, getattr(spec, entry.name), entry.metadata
        if limits.get("required") and not value:
            yield f"{name}: give at least one"
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            if limits.get("choices") and one not in limits["choices"]:
                yield f"{name}: {one!r} is not one of {', '.join(limits['choices'])}"
            if limits.get("least") is not None and one < limits["least"]:
                yield f"{name}: {one} is less than {limits['least']}"
            if limits.get("fault") and (fault := limits["fault"](one)):
                yield f"{name}: {fault}"
        if is_dataclass(value):
            yield from _faults(value, f"{name}.")
        for key, part in value.items() if isinstance(value, dict) else ():
            if is_dataclass(part):
                yield from _faults(part, f"{name}.{key}.")


def name_faults(*mappings: Mapping[str, Any]) -> Iterator[str]:
    for name in (name for mapping in mappings for name in mapping):
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            yield f"{name!r} becomes part of a file name: use letters, digits, _ and ."


def device_fault(name: str) -> str:
    return "" if name == "cpu" or name.isdecimal() else f"{name} is neither cpu nor the number of a GPU"


def key_of(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]
