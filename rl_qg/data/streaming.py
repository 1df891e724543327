"""QA examples in numbers that no memory need hold: read from their files when they are needed, as often as asked."""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from rl_qg.data.examples import QAExample, Role, Tally, examples_hash, passage_hash, seeded_rank
from rl_qg.data.formats import FoundRecord, found_records, is_hub_name
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash


class Examples(Protocol):
    """A list of examples, or what reads like one."""

    def __len__(self) -> int:
        """How many there are."""

    def __iter__(self) -> Iterator[QAExample]:
        """The examples, the same ones in the same order each time."""


@dataclass(frozen=True)
class Source:
    """A name for messages, and a function that reads the records anew; `path` where they stand in a file."""

    name: str
    records: Callable[[], Iterator[FoundRecord]]
    path: Path | None = None


class ExampleStream:
    """The usable examples of some sources, or a choice of them, in order.

    The first reading, at once, checks every record, counts what it drops and chooses. Of it remain one byte a record
    and the new ids of duplicates. Each `iter` reads the sources again, one record at a time; only SQuAD JSON, a
    single document, is held whole while it is read.

    Args:
        sources: where the records are.
        role: for the report.
        allow_unlabelled: keep records without a question.
        limit: choose a sample of at most so many (None: all), the same as `take` does with `seed`.
        spans: of examples with the same answer span choose the first alone, as `answer_spans` does.

    `report` and `hashes` are those of `rl_qg.data.examples.QAData`.

    Raises:
        InputError: as `read_examples`; while reading again, a source has another number of records than before.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        *,
        role: Role,
        allow_unlabelled: bool = False,
        limit: int | None = None,
        seed: int = 0,
        spans: bool = False,
    ) -> None:
        if not sources:
            raise InputError(f"no {role} data given: set data.{role}=FILE or to the name of a Hub data set")
        self._sources = sources
        self._allow_unlabelled = allow_unlabelled
        tally = Tally()
        self._chosen = _choose(self._usable(tally), limit, seed, spans)
        self._renamed = tally.renamed
        self._count = sum(self._chosen)
        self.report = {"role": role, "sources": [source.name for source in sources], **tally.report()}

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of each source: of its file, else of its examples."""
        return {source.name: self._hash(source) for source in self._sources}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QAExample]:
        places = iter(self._chosen)
        for example in self._usable(Tally(self._renamed)):
            chosen = next(places, None)
            if chosen is None:
                break
            if chosen:
                yield example
        else:
            if next(places, None) is None:
                return
        names = ", ".join(source.name for source in self._sources)
        raise InputError(f"{names}: has changed while it was read; run the command again")

    def _usable(self, tally: Tally) -> Iterator[QAExample]:
        for source in self._sources:
            yield from tally.usable(source.name, source.records(), self._allow_unlabelled)

    def _hash(self, source: Source) -> str:
        if source.path is not None:
            return file_hash(source.path)
        return examples_hash(Tally().usable(source.name, source.records(), self._allow_unlabelled))


def stream_examples(
    sources: str | Path | Sequence[str | Path],
    *,
    role: Role,
    allow_unlabelled: bool = False,
    limit: int | None = None,
    seed: int = 0,
    spans: bool = False,
) -> ExampleStream:
    """The examples that `read_examples` returns, or a choice of them (see `ExampleStream`), as a stream."""
    names = [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    found = [_source(name, role, allow_unlabelled) for name in names]
    return ExampleStream(found, role=role, allow_unlabelled=allow_unlabelled, limit=limit, seed=seed, spans=spans)


def _source(name: str, role: Role, unlabelled: bool) -> Source:
    path = None if is_hub_name(name) else Path(name).expanduser()
    return Source(name, partial(found_records, name, role, unlabelled=unlabelled), path)


def as_found(example: QAExample) -> FoundRecord:
    """The record that describes an example."""
    answers = tuple((answer.text, answer.start) for answer in example.answers)
    return FoundRecord(example.id, example.title, example.context, example.question, answers)


def span_key(example: QAExample) -> bytes:
    """Return 16 bytes that are equal for the same answer at the same place of the same passage."""
    answer = example.answers[0]
    return hashlib.sha256(f"{passage_hash(example.context)} {answer.start} {answer.text}".encode()).digest()[:16]


def _choose(examples: Iterable[QAExample], limit: int | None, seed: int, spans: bool) -> bytearray:
    """A mark for each example: 1 for the chosen ones."""
    if limit is not None and limit < 1:
        raise InputError(f"a limit of {limit} examples leaves none: give at least 1, or null for all")
    marks = bytearray()

    def found() -> Iterator[tuple[bytes, int, bytes]]:
        for place, example in enumerate(examples):
            marks.append(0)
            yield b"" if limit is None else seeded_rank(seed, example.id), place, span_key(example) if spans else b""

    ranked: Iterable[tuple[bytes, int, bytes]] = found()
    if limit is not None:
        ranked = sorted(heapq.nsmallest(limit, ranked), key=lambda item: item[1])
    seen: set[bytes] = set()
    for _, place, key in ranked:
        if not spans or key not in seen:
            marks[place] = 1
            if spans:
                seen.add(key)
    return marks
