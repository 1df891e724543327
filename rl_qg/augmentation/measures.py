"""What models say of candidates, taken once and kept beside the questions file.

`questions.round_trip-1a2b3c4d.jsonl` has a line for each candidate that was measured; its name ends in a hash of the
questions and of the model and options that measure them. Later commands read it and add what is missing; other
questions or another model make another file. `….settings.json` beside it says what made it.
"""

import hashlib
import json
import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from os.path import expanduser, isdir, isfile  # false of a text that can be no path, where `Path` raises
from pathlib import Path
from typing import Any

from accelerate import PartialState
from tqdm import tqdm

from rl_qg.augmentation.candidates import marked
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.parallel_writer import cannot_write, write_lines
from rl_qg.runtime.processes import from_main

log = logging.getLogger(__name__)

Taker = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
"""Measures some candidates: for each a dict whose `value` is a number or None, and whatever else is to be kept."""


@dataclass(frozen=True)
class Measure:
    """A number for each candidate that a model gives it.

    Args:
        kind: the file's name has it.
        made_of: everything that decides the numbers besides the questions; JSON.
        load: loads the model; returns what measures candidates, and what there is to say of it (JSON). Called only
            when a candidate has no number yet.
        batch_size: candidates at a time.
    """

    kind: str
    made_of: Mapping[str, Any]
    load: Callable[[], tuple[Taker, Mapping[str, Any]]]
    batch_size: int


@dataclass(frozen=True)
class Taken:
    """The numbers by place, NaN where there is none; how many candidates were measured; and what made them."""

    values: "array[float]"
    measured: int
    file: Path
    note: Mapping[str, Any]


def take_measure(
    measure: Measure, questions: Path, questions_hash: str, marks: bytes, state: PartialState
) -> Taken | None:
    """Measure the candidates marked with 1, unless it is done already; for every process. The main one returns what
    was found, the others None.

    Raises:
        InputError: the file cannot be written or read, or the model cannot be loaded.
    """
    made_of = {"questions": questions_hash, **measure.made_of}
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    file = questions.with_name(f"{questions.stem}.{measure.kind}-{digest[:8]}.jsonl")
    note = file.with_name(f"{file.name}.settings.json")
    missing, keep = from_main(state, partial(_missing, file, note, made_of, marks))
    wanted = missing.count(1)
    if wanted:
        take, said = measure.load()
        from_main(state, partial(_write_note, note, {**made_of, "digest": digest, "measure": said}))
        with tqdm(
            total=marks.count(1),
            initial=marks.count(1) - wanted,
            desc=measure.kind.replace("_", " "),
            unit="question",
            disable=not state.is_main_process,
        ) as bar:
            write_lines(
                marked(questions, missing),
                partial(_lines, take),
                file,
                keep=keep,
                batch_size=measure.batch_size,
                state=state,
                advance=bar.update,
            )
    if not state.is_main_process:
        return None
    values = array("d", [nan]) * len(marks)
    measured = 0
    for place, value, _ in _found(file, len(marks)):
        values[place] = value
        measured += 1
    return Taken(values, measured, file, read_json(note) if note.exists() else made_of)


def model_identity(options: Any) -> Any:
    """The same options with a hash in place of every file and folder that there is.

    Weights and baselines decide the numbers, wherever they stand.
    """
    if isinstance(options, Mapping):
        return {str(key): model_identity(value) for key, value in options.items()}
    if isinstance(options, list | tuple):
        return [model_identity(value) for value in options]
    path = expanduser(options) if isinstance(options, str) else ""
    if isfile(path):
        return file_hash(Path(path))
    if isdir(path):
        folder = Path(path)
        files = sorted(path for pattern in ("*.safetensors", "*.json", "*.txt") for path in folder.glob(pattern))
        return hashlib.sha256("".join(f"{path.name} {file_hash(path)}\n" for path in files).encode()).hexdigest()
    return options


def _missing(file: Path, note: Path, made_of: Mapping[str, Any], marks: bytes) -> tuple[bytes, int]:
    """Marks of the candidates that are to be measured, and the bytes of the file that stand."""
    if file.exists() and file.stat().st_size and not note.exists():
        raise InputError(f"{file}: nothing beside it says what made it; delete it or move it away")
    if note.exists():
        earlier = read_json(note)
        if any(earlier.get(key) != value for key, value in made_of.items()):
            raise InputError(f"{file}: was made with other settings, by chance under the same name; move it away")
    missing, keep, done = bytearray(marks), 0, 0
    for place, _, size in _found(file, len(marks)):
        done += missing[place]
        missing[place], keep = 0, size
    if done:
        log.info("%d of %d candidates are in %s already", done, marks.count(1), file)
    return bytes(missing), keep


def _found(file: Path, total: int) -> Iterator[tuple[int, float, int]]:
    """Yield (place, value, bytes up to here) of each line, up to the first that a kill tore."""
    if not file.exists():
        return
    size = 0
    with file.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                return
            try:
                record = json.loads(line)
                place, value = record["place"], record["value"]
            except (ValueError, KeyError, TypeError):
                raise InputError(f"{file}: line {number}: no measure of ours; delete the file") from None
            if type(place) is not int or not 0 <= place < total:
                raise InputError(f"{file}: line {number}: there is no candidate {place}; delete the file")
            size += len(line)
            yield place, nan if value is None else float(value), size


def _write_note(note: Path, value: Mapping[str, Any]) -> None:
    try:
        write_json(note, value)
    except OSError as error:
        raise cannot_write(note, error) from None


def _lines(take: Taker, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> list[bytes]:
    lines = []
    for (place, record), found in zip(rows, take([record for _, record in rows]), strict=True):
        value = found["value"]
        found = {**found, "value": value if value is not None and isfinite(value) else None}
        line = {"place": place, "id": record["id"], "candidate": record["candidate"], **found}
        lines.append(f"{json.dumps(line, ensure_ascii=False)}\n".encode())
    return lines
