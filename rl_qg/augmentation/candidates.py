"""Candidate questions: read from a `questions.jsonl` as often as needed, hashed, and ranked.

A candidate is identified by its index: its number among the lines that are not blank, from 0. No record stays in
memory: one byte for each candidate, eight for each of its measures, and eight more during the first reading.
"""

import json
from array import array
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_qg.data.examples import passage_hash, seeded_rank
from rl_qg.data.formats import complete_lines, is_unicode, open_binary, parquet_rows, stem_and_kind
from rl_qg.data.parts import DataPart, cell_of
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import parse_object
from rl_qg.text.words import normalised_words

Record = Mapping[str, Any]  # one line of `questions.jsonl`, with the measures of the candidate under `MEASURES`
FIELDS = {
    "id": str,
    "candidate": int,
    "title": str,
    "context": str,
    "answer": str,
    "answer_start": int,
    "question": str,
}
LARGEST = 2**63  # whole numbers are below it
MEASURES = "measures"  # the key of a candidate's measures, by the name of the filter that defines each
RANDOM = "random"  # ranking by the seed alone


class Candidates:
    """The candidates of a file, gzipped or not, or Parquet. The first reading checks every line, and that none is
    repeated.

    `measures` maps names to one number for each index, NaN where there is none. With a `part` the `others` that are
    not in it are dropped by the first reading.
    """

    def __init__(self, path: Path, part: DataPart | None = None) -> None:
        if not path.is_file():
            raise InputError(f"{path}: no such file; give the questions.jsonl that rl-qg generate wrote")
        self.path, self.part, self.others = path, part, 0
        self.measures: dict[str, array[float]] = {}
        self._dropped = bytearray()  # one byte a candidate; empty until the first reading
        self._is_checked = False

    def __len__(self) -> int:
        return len(self._dropped)

    def drop(self, index: int) -> None:
        self._dropped[index] = 1

    def keep_only(self, indices: NDArray[np.integer]) -> None:
        self._dropped = bytearray(b"\1") * len(self)
        np.frombuffer(self._dropped, dtype=np.uint8)[indices] = 0

    def marks(self) -> bytes:
        """One byte for each candidate: 1 if it is not dropped, else 0."""
        return bytes(self._dropped).translate(bytes([1, 0]) + bytes(254))

    def read(self, purpose: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
        """Yield (index, position for messages, record with its measures) of each candidate that is not dropped.

        `purpose` labels the progress bar.
        """
        index = -1
        keys = array("Q")
        size = None if self.path.suffix in (".gz", ".parquet") else self.path.stat().st_size
        with ProgressBar(total=size, desc=purpose, unit="B", unit_scale=True) as bar:
            for index, (number, line) in enumerate(numbered_lines(self.path)):
                bar.update(len(line))
                if not self._is_checked:
                    self._dropped.append(0)
                elif index >= len(self):
                    raise self._changed()
                elif self._dropped[index]:
                    continue
                where = f"{self.path}: line {number}"
                record = parse_candidate(line, where)
                if not self._is_checked:  # a hash of the two fields that identify a candidate
                    name = f"{record['candidate']} {record['id']}".encode()
                    keys.append(int.from_bytes(sha256(name).digest()[:8]))
                    if self.part and not self.part.has(cell_of(record["context"])):
                        self.drop(index)
                        self.others += 1
                        continue
                record[MEASURES] = {name: values[index] for name, values in self.measures.items()}
                yield index, where, record
        if index + 1 < len(self):
            raise self._changed()
        if not len(self):
            raise InputError(f"{self.path}: holds no candidate; run rl-qg generate again")
        self._check_keys(keys)
        self._is_checked = True

    def _check_keys(self, keys: "array[int]") -> None:
        values = np.asarray(keys)
        in_order = np.sort(values)
        if (in_order[1:] == in_order[:-1]).any():
            order = np.argsort(values, kind="stable")
            repeated = order[1:][values[order[1:]] == values[order[:-1]]]
            number, line = next(islice(numbered_lines(self.path), int(repeated.min()), None))
            record = parse_candidate(line, f"{self.path}: line {number}")
            raise InputError(
                f"{self.path}: line {number}: candidate {record['candidate']} of id {record['id']} is there already; "
                "give each line its own id and candidate"
            )

    def _changed(self) -> InputError:
        return InputError(f"{self.path}: has changed while it was read; run the command again")


class Marked:
    """Index and record of each candidate whose mark is 1, as often as they are iterated; see `Candidates.marks`."""

    def __init__(self, path: Path, marks: bytes) -> None:
        self._path, self._marks = path, marks

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        for index, (number, line) in enumerate(numbered_lines(self._path)):
            if index < len(self._marks) and self._marks[index]:
                yield index, parse_candidate(line, f"{self._path}: line {number}")


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (line number, line) of each line that is not blank; of Parquet those of its rows."""
    if stem_and_kind(path)[1] == "parquet":
        yield from ((number, json.dumps(row, default=str).encode()) for _, number, row in parquet_rows(path))
        return
    with open_binary(path) as stream:
        for number, line in enumerate(complete_lines(stream, path), 1):
            if line.strip():
                yield number, line


def parse_candidate(line: bytes, where: str) -> dict[str, Any]:
    """Parse one line; raise `InputError` unless it is a complete candidate with its answer at its offset."""
    record = parse_object(line, where)
    also = {"language": str} if record.get("language") is not None else {}
    for name, kind in (FIELDS | also).items():
        if name not in record:
            raise InputError(f"{where}: field {name!r} is missing; generate the file again or complete the line")
        if type(record[name]) is not kind:
            raise InputError(f"{where}: field {name!r} must be {kind.__name__}, got {type(record[name]).__name__}")
        if kind is str and not is_unicode(record[name]):
            raise InputError(f"{where}: field {name!r} holds half a character (an unpaired \\ud800 escape)")
        if kind is int and abs(record[name]) >= LARGEST:
            raise InputError(f"{where}: field {name!r} is a number of more than 64 bits; count from 0")
    if record["candidate"] < 0:  # `synthetic-a--2` would be the id of `a` and -2, and of `a-` and 2
        raise InputError(f"{where}: candidate={record['candidate']} is below 0; count from 0")
    answer, start = record["answer"], record["answer_start"]
    if not answer.strip():
        raise InputError(f"{where}: the answer is empty (id {record['id']})")
    if start < 0 or not record["context"].startswith(answer, start):
        raise InputError(
            f"{where}: the answer {answer!r} is not at answer_start={start} in the context (id {record['id']})"
        )
    return record


class Ranking:
    """Collects candidates, 20 bytes each, and sorts them: the higher `by`, the better. `by` is a measure (the name of
    its filter), else a field of the questions file that holds a number, such as logprob; or `random`.

    The order depends on the content of the candidates and the seed, which decides between equal ones, not on their
    order in the file.
    """

    def __init__(self, by: str, seed: int) -> None:
        self.by, self.seed = by, seed
        self.indices, self.ties, self.values = array("I"), array("Q"), array("d")

    def add(self, index: int, record: Record) -> None:
        """Add one candidate, of a higher index than the last; raise `InputError` when it lacks the number."""
        self.indices.append(index)
        self.values.append(0.0 if self.by == RANDOM else number(record, self.by))
        name = f"{record['id']}\0{record['candidate']}\0{record['question']}"
        self.ties.append(int.from_bytes(seeded_rank(self.seed, name)[:8]))

    def best_first(self) -> NDArray[np.int64]:
        """Rows of `indices`, in the order of `add`, from best to worst; candidates without a number come last."""
        descending = -np.asarray(self.values)
        descending[np.isnan(descending)] = np.inf
        return np.lexsort((np.asarray(self.ties), descending))  # equal ones stay in the order of the file


def number(record: Record, by: str) -> float:
    """A measure or a field of a candidate; NaN for null. Raises `InputError` when it has none of that name."""
    measures = record.get(MEASURES, {})
    value = measures[by] if by in measures else record.get(by, "")
    if value is None:
        return float("nan")
    if isinstance(value, bool) or not isinstance(value, int | float):
        known = [name for name, held in {**record, **measures}.items() if type(held) in (int, float)]
        raise InputError(f"no number under {by!r}; there is {', '.join(known) or 'none'}, and {RANDOM}")
    try:
        return float(value)
    except OverflowError:
        raise InputError(f"the number under {by!r} is too large: it has {len(str(abs(value)))} digits") from None


class KeySet:
    """A set of hashes, whole numbers of 64 bits above 0: 12 to 24 bytes each, where Python's set needs a hundred.

    Open addressing with linear probing (Knuth, "The Art of Computer Programming", volume 3, section 6.4).
    """

    def __init__(self) -> None:
        self._slots, self._count = array("Q", [0]) * 1024, 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: int) -> bool:
        """Add a hash; return whether it is new."""
        slots, last = self._slots, len(self._slots) - 1
        place = key & last
        while slots[place]:
            if slots[place] == key:
                return False
            place = (place + 1) & last
        slots[place] = key
        self._count += 1
        if 3 * self._count > 2 * len(slots):
            self._slots, self._count = array("Q", [0]) * (2 * len(slots)), 0
            for held in filter(None, slots):
                self.add(held)
        return True


def grouped(keys: "array[int] | NDArray[np.uint64]", smallest: int = 1) -> Iterator[NDArray[np.int64]]:
    """For each key that occurs `smallest` times or more, the positions at which it does, in order."""
    values = np.asarray(keys)
    order = np.argsort(values, kind="stable")
    values = values[order]
    starts = np.flatnonzero(np.concatenate([[True] * bool(len(values)), values[1:] != values[:-1]]))
    ends = np.append(starts[1:], len(values))
    large = ends - starts >= smallest
    for start, end in zip(starts[large], ends[large], strict=True):
        yield order[start:end]


def passage_hash64(record: Record) -> int:
    """8 bytes that are equal for the same passage."""
    return int(passage_hash(record["context"])[:16], 16)


def answer_hash64(record: Record) -> int:
    """8 bytes that are equal for the same answer at the same position of the same passage."""
    text = f"{passage_hash(record['context'])} {record['answer_start']} {record['answer']}"
    return int.from_bytes(sha256(text.encode()).digest()[:8])


def question_key(context: str, question: str) -> bytes:
    """Return 16 bytes that are equal for the same question words about the same passage."""
    return sha256(f"{passage_hash(context)} {' '.join(normalised_words(question))}".encode()).digest()[:16]
