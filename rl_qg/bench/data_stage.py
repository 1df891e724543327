"""Data of a benchmark: read, cleaned, divided by paragraph, written in two forms, with statistics.

    rl-qg bench data data=squad.json output_dir=bench/squad

The folder gets `train.json`, `validation.json` and `test.json` (SQuAD's form, with all answers), of each a `.jsonl` in
QG-Bench's schema (`rl_qg.data.unified_rows`), `statistics.json` and `statistics.md`.
"""

import json
import logging
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rl_qg.bench.cleaning import clean_example
from rl_qg.bench.data_statistics import split_statistics, statistics_table
from rl_qg.bench.division import divide, shared_sizes, squadshifts_sizes
from rl_qg.data.examples import QAExample, Role, passage_hash, write_squad
from rl_qg.data.reading import read_examples, source_names
from rl_qg.data.unified_rows import unified_row
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer, read_json, write_json
from rl_qg.settings import BenchSettings

ROLES: tuple[Role, ...] = ("train", "validation", "test")
STATISTICS = "statistics.json"
OWN = "bench_data"  # a key that no other program's file of that name has
log = logging.getLogger(__name__)


def write_bench_data(settings: BenchSettings, folder: Path) -> dict[str, Any]:
    """Write all files to a folder and return what `statistics.json` holds.

    Raises:
        InputError: no source, one that cannot be read or holds nothing usable, a source too small to be divided, or a
            folder with files of somebody else.
    """
    sources = _sources(settings)
    _check_folder(folder, sources)
    parts, record = bench_splits(settings)
    try:
        write_json(folder / STATISTICS, {OWN: False})  # from now on the files are ours, also after a kill
        for name in ROLES:
            _write_split(folder, name, parts.get(name, []))
        record["splits"] = {name: split_statistics(part) for name, part in parts.items()}
        table = statistics_table(record["splits"])
        with atomic_writer(folder / "statistics.md") as stream:
            stream.write(f"{table}\n")
        write_json(folder / STATISTICS, {OWN: True, **record})
    except OSError as error:
        raise InputError(f"output_dir={folder}: cannot be written ({error.strerror}); name another folder") from None
    log.info("%s\ndone: see %s", table, folder)
    return record


def bench_splits(settings: BenchSettings) -> tuple[dict[str, list[QAExample]], dict[str, Any]]:
    """The examples of each split that the settings ask for, without empty ones, and the record of how they came to be:
    what reading and cleaning counted, and the sizes that were wanted.
    """
    parts: dict[str, list[QAExample]] = {}
    record: dict[str, Any] = {"settings": asdict(settings), "reading": {}, "cleaning": {}, "sha256": {}}
    for role, source in _sources(settings).items():
        data = read_examples(source, role=role)
        log.info(data.summary())
        parts[role], dropped = _clean(data.examples, settings.clean)
        record["reading"][role], record["cleaning"][role] = data.report, dict(dropped)
        record["sha256"] |= data.hashes
        for reason, count in dropped.items():
            log.info("%s: %d records dropped (%s)", role, count, reason)
        if not parts[role]:
            raise InputError(f"{', '.join(source_names(source))}: no record is left after cleaning; see clean=none")
    record["shared_paragraphs_dropped"] = _drop_shared(parts)
    record["wanted"] = wanted = _wanted_sizes(settings, {name: len(part) for name, part in parts.items()})
    if wanted:
        parts |= divide(parts["train"], wanted, settings.seed)
        for name in ("train", *(name for name, size in wanted.items() if size)):
            if not parts[name]:
                raise InputError(
                    f"{', '.join(source_names(settings.data))}: too few paragraphs to divide: nothing is left for "
                    f"{name}; give more data, or {'other shares' if name == 'train' else f'{name}=FILE'}"
                )
    return {name: parts[name] for name in ROLES if parts.get(name)}, record


def _sources(settings: BenchSettings) -> dict[Role, Any]:
    """The source of each split that has one."""
    named: dict[Role, Any] = {"train": settings.data, "validation": settings.validation, "test": settings.test}
    given = {role: source for role, source in named.items() if source_names(source)}
    if not given:
        raise InputError("data has no value; give file(s) or a Hub data set, such as data=squad.json")
    if settings.split == "squadshifts" and given.keys() != {"train"}:
        raise InputError("split=squadshifts divides data alone; leave out validation and test, or split")
    return given


def _wanted_sizes(settings: BenchSettings, sizes: dict[str, int]) -> dict[str, int]:
    """How many questions are to be taken of the training data for the splits that have no source."""
    if "train" not in sizes:
        return {}
    if settings.split == "squadshifts":
        return squadshifts_sizes(sizes["train"])
    if len(sizes) == 1:
        return shared_sizes(sizes["train"], settings.validation_share, settings.test_share)
    missing = [name for name in ("test", "validation") if name not in sizes]
    return {missing[0]: sizes["validation" if missing[0] == "test" else "test"]} if missing else {}


def _clean(examples: Iterable[QAExample], how: str) -> tuple[list[QAExample], Counter[str]]:
    """The examples as they are written, and how many were dropped for what reason."""
    if how == "none":
        return list(examples), Counter()
    results = [clean_example(example) for example in examples]
    dropped = Counter(result for result in results if isinstance(result, str))
    return [result for result in results if not isinstance(result, str)], dropped


def _drop_shared(parts: dict[str, list[QAExample]]) -> dict[str, int]:
    """Leave out of each split what is about a paragraph of a later one (the test data keep all); return how many."""
    later: set[str] = set()
    dropped: dict[str, int] = {}
    for name in reversed(ROLES):
        part = parts.get(name, [])
        keys = [passage_hash(example.context) for example in part]
        kept = [example for example, key in zip(part, keys, strict=True) if key not in later]
        later |= set(keys)
        if len(kept) < len(part):
            dropped[name] = len(part) - len(kept)
            log.info("%s: %d records dropped (paragraph of a later split)", name, dropped[name])
            if not kept:
                raise InputError(f"{name}: every paragraph is also in a later split; name different files")
            parts[name] = kept
    return dropped


def _write_split(folder: Path, name: str, examples: list[QAExample]) -> None:
    """Write a split; delete what an earlier call wrote where there is none."""
    if not examples:
        for ending in ("json", "jsonl"):
            (folder / f"{name}.{ending}").unlink(missing_ok=True)
        return
    write_squad(folder / f"{name}.json", examples)
    with atomic_writer(folder / f"{name}.jsonl") as stream:
        for example in ProgressBar(examples, desc=name, unit="row", leave=False, delay=2):
            stream.write(json.dumps(unified_row(example), ensure_ascii=False) + "\n")


def _check_folder(folder: Path, sources: dict[Role, Any]) -> None:
    """Raise `InputError` where files of somebody else, or the input, would be written over."""
    names = [STATISTICS, "statistics.md", *(f"{role}.{ending}" for role in ROLES for ending in ("json", "jsonl"))]
    outputs = {(folder / name).resolve() for name in names}
    for source in (name for group in sources.values() for name in source_names(group)):
        if Path(source).expanduser().resolve() in outputs:
            raise InputError(f"output_dir={folder}: would write over the input {source}; name another folder")
    present = [path.name for path in outputs if path.exists()]
    if present and not ((folder / STATISTICS).exists() and OWN in read_json(folder / STATISTICS)):
        raise InputError(
            f"output_dir={folder}: {sorted(present)[0]} in it is not of this command; name another folder"
        )
