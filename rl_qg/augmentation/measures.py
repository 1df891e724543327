"""Numbers that models give candidates, computed once and kept beside the questions file.

`questions.round_trip-1a2b3c4d.jsonl` has a line for each candidate that was measured. Its name ends in a hash of the
questions and of the model and options that measure them: other questions or another model make another file. Later
commands read the file and add what is missing. `….settings.json` beside it is the note of what made it.
"""

import hashlib
import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite, nan
from os.path import expanduser, isdir, isfile  # these return False for text that cannot be a path; `Path` raises
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.augmentation.candidates import marked
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, json_line

MeasureFunction = Callable[[Sequence[Mapping[str, Any]]], list[dict[str, Any]]]
"""Measures candidates: for each a dict whose `value` is a number or None, with other fields that are to be kept."""


@dataclass(frozen=True)
class CandidateMeasure:
    """A number that a model gives each candidate.

    Args:
        kind: what is measured; part of the file's name.
        made_of: everything besides the questions that the numbers depend on; JSON.
        load: loads the model and returns the function that measures candidates, and a description of it (JSON). Called
            only when a candidate has no number yet.
        batch_size: candidates at a time.
    """

    kind: str
    made_of: Mapping[str, Any]
    load: Callable[[], tuple[MeasureFunction, Mapping[str, Any]]]
    batch_size: int


@dataclass(frozen=True)
class MeasuredValues:
    """The number of each candidate, by its index, NaN where there is none; how many candidates were measured; the file
    of the numbers and its note.
    """

    values: "array[float]"
    measured: int
    file: Path
    note: Mapping[str, Any]


def measure_candidates(
    measure: CandidateMeasure, questions: Path, questions_hash: str, marks: bytes, state: PartialState
) -> MeasuredValues | None:
    """Measure the candidates marked with 1 that have no number yet; every process calls this. The main process returns
    all numbers, the others None.

    Raises:
        InputError: the file cannot be written or read, or the model cannot be loaded.
    """
    made_of = {"questions": questions_hash, **measure.made_of}
    digest = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()
    file = questions.with_name(f"{questions.stem}.{measure.kind}-{digest[:8]}.jsonl")
    lines = ResumableLines(file, file.with_name(f"{file.name}.settings.json"), content="measures")
    missing, position = from_main(state, partial(_missing, lines, made_of, marks))
    if missing.count(1):
        function, description = measure.load()
        note = {**made_of, "digest": digest, "measure": description}
        from_main(state, partial(lines.write_note, note))
        lines.write(
            marked(questions, missing),
            partial(_lines_of, function),
            position=position,
            total=marks.count(1),
            batch_size=measure.batch_size,
            state=state,
            title=measure.kind.replace("_", " "),
            unit="question",
        )
    if not state.is_main_process:
        return None
    values = array("d", [nan]) * len(marks)
    measured = 0
    for index, value, _ in _stored_values(lines, len(marks)):
        values[index] = value
        measured += 1
    return MeasuredValues(values, measured, file, lines.read_note() or made_of)


def model_identity(options: Any) -> Any:
    """The same options with a hash in place of every path that exists.

    The numbers depend on the content of weights and baselines, not on their path.
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


def _missing(lines: ResumableLines, made_of: Mapping[str, Any], marks: bytes) -> tuple[bytes, Position]:
    """Marks of the candidates that have no number yet, and where the file is continued."""
    lines.check(made_of)
    missing, size, done = bytearray(marks), 0, 0
    for index, _, end in _stored_values(lines, len(marks)):
        done += missing[index]
        missing[index], size = 0, end
    return bytes(missing), Position(done, size)


def _stored_values(lines: ResumableLines, total: int) -> Iterator[tuple[int, float, int]]:
    """Yield (index, value, bytes up to the end of the line) of each whole line."""
    for line in lines.lines():
        if not line.text.endswith(b"\n"):
            return
        try:
            record = json.loads(line.text)
            index, value = record["place"], record["value"]
        except (ValueError, KeyError, TypeError):
            raise InputError(
                f"{lines.path}: line {line.number}: not a measure of a candidate; delete the file"
            ) from None
        if type(index) is not int or not 0 <= index < total:
            raise InputError(f"{lines.path}: line {line.number}: there is no candidate {index}; delete the file")
        yield index, nan if value is None else float(value), line.end


def _lines_of(function: MeasureFunction, rows: Sequence[tuple[int, Mapping[str, Any]]]) -> list[bytes]:
    lines = []
    for (index, record), result in zip(rows, function([record for _, record in rows]), strict=True):
        value = result["value"]
        value = value if value is not None and isfinite(value) else None
        head = {"place": index, "id": record["id"], "candidate": record["candidate"]}
        lines.append(json_line({**head, **result, "value": value}))
    return lines
