"""The transfer file: which generators are tested on which data, read from YAML and checked whole.

The dataclasses are the form of the file (`rl_qg.studies.yaml_file`). `docs/reference/bench.md` explains the keys.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.settings.keys import MISSING
from rl_qg.studies.yaml_file import as_overrides, listed_values, override, read_content, typed

PAGE = "docs/reference/bench.md"
SETTINGS = ("settings", "generate", "evaluate", "adapt")
LISTS = ("sources", "targets", "cells", "seeds", "devices", "metrics")
CELLS = ("in_domain", "zero_shot", "fine_tuned", "adapted")
"""How a generator for a target came to be: trained on the target's questions; on the source's alone; on the source's,
then on the target's; on the source's, then by reward on the target's passages, without their questions."""
SET_BY_THE_CELLS = ("data.train", "data.validation", "data.unlabelled", "model.path", "output_dir", "seed", "stages")


@dataclass
class Domain:
    """Data of one kind of text, or of one language.

    Args:
        data: a folder with `train.json`, `validation.json` and `test.json`, as `rl-qg bench data` writes it; a domain
            without a training file can only be a target, one without a test file only a source.
        unlabelled: file(s) of passages to adapt to, in the forms of `data.unlabelled`; the default is the passages of
            the training file, without its answers and questions.
        language: a code such as `de`, for the table and the evaluation.
        settings: overrides of every training on this domain.
        generate: overrides of every generation for this domain.
    """

    data: str = MISSING
    unlabelled: list[str] = field(default_factory=list)
    language: str = "en"
    settings: list[str] = field(default_factory=list)
    generate: list[str] = field(default_factory=list)


@dataclass
class Transfer:
    """A transfer file. Overrides are written as on the command line, `key=value`."""

    output_dir: Path = MISSING
    domains: dict[str, Domain] = MISSING
    sources: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    cells: list[str] = field(default_factory=lambda: list(CELLS))
    seeds: list[int] = field(default_factory=lambda: [13])
    metrics: list[str] = field(default_factory=lambda: ["bleu4", "rouge_l"])
    preset: str = "paper"
    settings: list[str] = field(default_factory=list)
    adapt: list[str] = field(default_factory=list)
    generate: list[str] = field(default_factory=list)
    evaluate: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=lambda: ["cpu"])

    file = ""  # where it was read from; without a type, and so not a key


def read_transfer(path: Path, overrides: Sequence[str] = (), *, allow_imports: bool = False) -> Transfer:
    """Read a transfer file; `overrides` (`key=value`, nested keys with dots, values in YAML) replace its values.

    Raises:
        InputError: in one line, with the file and the key; also where the file names code of other packages and
            `allow_imports` is false.
    """
    content = read_content(path, "transfer", keys="domains, cells", page=PAGE, allow_imports=allow_imports)
    for text in overrides:
        override(content, text, "transfer")
    transfer = typed(_written_out(content, str(path)), Transfer, str(path), PAGE)
    transfer.file = str(path)
    transfer.seeds = list(dict.fromkeys(transfer.seeds))
    transfer.sources = transfer.sources or [name for name in transfer.domains if has_file(transfer, name, "train")]
    transfer.targets = transfer.targets or [name for name in transfer.domains if has_file(transfer, name, "test")]
    if errors := list(_faults(transfer)):
        raise InputError(f"{path}: " + "; ".join(errors))
    return transfer


def split_file(transfer: Transfer, domain: str, split: str) -> Path:
    """The file of a split of a domain."""
    return Path(transfer.domains[domain].data) / f"{split}.json"


def has_file(transfer: Transfer, domain: str, split: str) -> bool:
    """Whether a domain has a split."""
    return split_file(transfer, domain, split).is_file()


def _written_out(content: dict[str, Any], file: str) -> dict[str, Any]:
    """The content with every short form in full: a folder for a domain, one value for a list, overrides as a
    mapping.
    """
    full = dict(content)
    for key in full.keys() & set(LISTS):
        full[key] = listed_values(full[key], f"{file}: {key}")
    for key in full.keys() & set(SETTINGS):
        full[key] = as_overrides(full[key], f"{file}: {key}")
    if "domains" in full:
        if not isinstance(full["domains"], dict):
            raise InputError(f"{file}: domains: expected names with their folders; see {PAGE}")
        full["domains"] = {name: _domain(value, f"{file}: domains.{name}") for name, value in full["domains"].items()}
    return full


def _domain(value: Any, where: str) -> dict[str, Any]:
    options = dict(value) if isinstance(value, dict) else {"data": value}
    for key in options.keys() & {"settings", "generate"}:
        options[key] = as_overrides(options[key], f"{where}.{key}")
    if "unlabelled" in options:
        options["unlabelled"] = listed_values(options["unlabelled"], f"{where}.unlabelled")
    return options


def _faults(transfer: Transfer) -> Iterator[str]:
    for key in ("domains", "cells", "seeds", "metrics", "devices", "sources", "targets"):
        if not getattr(transfer, key):
            yield f"{key}: give at least one"
    for name in transfer.domains:
        if not name or not all(letter.isalnum() or letter in "_." for letter in name):
            yield f"domains: {name!r} becomes part of a file name: use letters, digits, _ and ."
    for key, split in (("sources", "train"), ("sources", "validation"), ("targets", "test")):
        for name in getattr(transfer, key):
            if name not in transfer.domains:
                yield f"{key}: there is no domain {name}"
            elif not has_file(transfer, name, split):
                yield f"{key}: {split_file(transfer, name, split)}: no such file; rl-qg bench data writes it"
    yield from (f"cells: {name} is not one of {', '.join(CELLS)}" for name in transfer.cells if name not in CELLS)
    yield from (f"seeds: {seed} is less than 0" for seed in transfer.seeds if seed < 0)
    for device in transfer.devices:
        if device != "cpu" and not device.isdecimal():
            yield f"devices: {device} is neither cpu nor the number of a GPU"
    of_domains = (text for domain in transfer.domains.values() for text in (*domain.settings, *domain.generate))
    for text in (*transfer.settings, *transfer.adapt, *transfer.generate, *transfer.evaluate, *of_domains):
        if (key := text.lstrip("+~").partition("=")[0]) in SET_BY_THE_CELLS:
            yield f"settings: {key} is set by the cells themselves (domains, seeds, output_dir)"
