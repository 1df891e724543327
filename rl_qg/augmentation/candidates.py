"""The candidates of a `questions.jsonl`, read line by line as often as needed, and what became of each.

In memory stand one byte for each candidate and eight for each of its measures, eight more during the first reading;
never a record. A candidate is known by its place: its number among the lines that are not blank, from 0.
"""

from array import array
from collections.abc import Collection, Iterator
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from rl_qg.data.formats import complete_lines, is_unicode, open_binary, parse_object
from rl_qg.runtime.errors import InputError

FIELDS: dict[str, type] = {
    "id": str,
    "candidate": int,
    "title": str,
    "context": str,
    "answer": str,
    "answer_start": int,
    "question": str,
}
LARGEST = 2**63  # whole numbers are below it
MEASURES = "measures"
"""Under this name the filters find the measures of a candidate, by the name of the filter that asked for them."""


class Candidates:
    """The candidates of a file, gzipped or not. The first reading checks every line, and that none is there twice.

    `measures` maps names to one number for each place, NaN where there is none.

    Raises:
        InputError: no such file; while reading, a line that is not a whole candidate, two with the same id and
            candidate, or a file that has changed.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(f"{path}: no such file; give the questions.jsonl that rl-qg generate wrote")
        self.path = path
        self.measures: dict[str, array[float]] = {}
        self._dropped = bytearray()  # one byte a candidate; empty until the first reading
        self._known = False

    def __len__(self) -> int:
        return len(self._dropped)

    def drop(self, place: int) -> None:
        """Leave a candidate out of later readings."""
        self._dropped[place] = 1

    def keep_only(self, places: Collection[int]) -> None:
        """Leave out all but these."""
        self._dropped = bytearray(b"\1") * len(self)
        for place in places:
            self._dropped[place] = 0

    def marks(self) -> bytes:
        """One byte for each candidate: 1 for those that are left."""
        return bytes(self._dropped).translate(bytes([1, 0]) + bytes(254))

    def read(self, purpose: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield (place, where it stands, record) of each candidate that is left, with its measures.

        `purpose` is what the bar says.
        """
        place = -1
        keys = array("Q")
        size = None if self.path.suffix == ".gz" else self.path.stat().st_size
        with tqdm(total=size, desc=purpose, unit="B", unit_scale=True) as bar:
            for place, (number, line) in enumerate(numbered_lines(self.path)):
                bar.update(len(line))
                if not self._known:
                    self._dropped.append(0)
                elif place >= len(self):
                    raise self._changed()
                elif self._dropped[place]:
                    continue
                where = f"{self.path}: line {number}"
                record = candidate(line, where)
                if not self._known:
                    keys.append(_key(record))
                record[MEASURES] = {name: values[place] for name, values in self.measures.items()}
                yield place, where, record
        if place + 1 < len(self):
            raise self._changed()
        if not len(self):
            raise InputError(f"{self.path}: holds no candidate; run rl-qg generate again")
        self._check_keys(keys)
        self._known = True

    def _check_keys(self, keys: "array[int]") -> None:
        values = np.array(keys, dtype=np.uint64)
        order = np.argsort(values, kind="stable")
        again = order[1:][values[order[1:]] == values[order[:-1]]]
        if again.size:
            number, line = next(islice(numbered_lines(self.path), int(again.min()), None))
            record = candidate(line, f"{self.path}: line {number}")
            raise InputError(
                f"{self.path}: line {number}: candidate {record['candidate']} of id {record['id']} is there already; "
                "give each line its own id and candidate"
            )

    def _changed(self) -> InputError:
        return InputError(f"{self.path}: has changed while it was read; run the command again")


def marked(path: Path, marks: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (place, record) of the candidates whose mark is 1; see `Candidates.marks`."""
    for place, (number, line) in enumerate(numbered_lines(path)):
        if place < len(marks) and marks[place]:
            yield place, candidate(line, f"{path}: line {number}")


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) of each line that is not blank."""
    with open_binary(path) as stream:
        for number, line in enumerate(complete_lines(stream, path), 1):
            if line.strip():
                yield number, line


def _key(record: dict[str, Any]) -> int:
    """8 bytes of what names a candidate."""
    return int.from_bytes(sha256(f"{record['candidate']} {record['id']}".encode()).digest()[:8])


def candidate(line: bytes, where: str) -> dict[str, Any]:
    """Parse one line; raise `InputError` unless it is a whole candidate with its answer at its place."""
    record = parse_object(line, where)
    for name, kind in FIELDS.items():
        if name not in record:
            raise InputError(f"{where}: field {name!r} is missing; generate the file again or complete the line")
        if type(record[name]) is not kind:
            raise InputError(f"{where}: field {name!r} must be {kind.__name__}, got {type(record[name]).__name__}")
        if kind is str and not is_unicode(record[name]):
            raise InputError(f"{where}: field {name!r} holds half a character (an unpaired \\ud800 escape)")
        if kind is int and abs(record[name]) >= LARGEST:
            raise InputError(f"{where}: field {name!r} is a number of more than 64 bits; count from 0")
    answer, start = record["answer"], record["answer_start"]
    if not answer.strip():
        raise InputError(f"{where}: the answer is empty (id {record['id']})")
    if start < 0 or not record["context"].startswith(answer, start):
        raise InputError(
            f"{where}: the answer {answer!r} is not at answer_start={start} in the context (id {record['id']})"
        )
    return record
