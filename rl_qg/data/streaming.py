"""QA examples that need not fit into memory: read from their files each time they are iterated."""

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rl_qg.data.examples import QAExample, Role, examples_hash, passage_hash, seeded_rank
from rl_qg.data.formats import RawRecord, existing_file, is_hub_name
from rl_qg.data.layouts import FACTS
from rl_qg.data.reading import RecordChecker, raw_records, source_names
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash


class Examples(Protocol):
    """A list of examples, or anything that can be iterated like one: the same ones in the same order each time."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[QAExample]: ...


class RecordSource(NamedTuple):
    """A name for messages, and a function that reads the records from the start; `path` of a source that is a file."""

    name: str
    records: Callable[[], Iterator[RawRecord]]
    path: Path | None = None


class ExampleStream:
    """The usable examples of some sources, or a selection of them, in order.

    Creating the stream reads everything once: it checks every record, counts what it drops and selects. What it keeps
    in memory is one byte for each record and the new ids of duplicates. Each `iter` reads the sources again, one
    record at a time; only a SQuAD JSON file, which is a single document, is held whole while it is read.

    `allow_unlabelled` and `impossible` are those of `read_examples`; `limit` selects a sample of at most this size
    (None: all), as `take` does with `seed`; `spans` selects the first example of each answer span, as `answer_spans`.

    `report` and `hashes` are those of `rl_qg.data.reading.QAData`. Errors are those of `read_examples`; while
    iterating, a source that has another number of records than before is one.
    """

    def __init__(
        self,
        sources: Sequence[RecordSource],
        *,
        role: Role,
        allow_unlabelled: bool = False,
        impossible: bool = False,
        limit: int | None = None,
        seed: int = 0,
        spans: bool = False,
    ) -> None:
        if not sources:
            raise InputError(f"no {role} data given: set data.{role}=FILE or to the name of a Hub data set")
        self._sources = sources
        self._allow_unlabelled = allow_unlabelled
        self._checker = partial(RecordChecker, impossible=impossible)
        checker = self._checker()
        self._selected = _selection(self._usable(checker, sources), limit, seed, spans)
        self._new_ids = checker.new_ids
        self._count = sum(self._selected)
        self.report = {"role": role, "sources": [source.name for source in sources], **checker.report()}

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 of each source: of the file, or of the examples when it is not a file."""
        return {
            one.name: file_hash(one.path) if one.path else examples_hash(self._usable(self._checker(), [one]))
            for one in self._sources
        }

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[QAExample]:
        examples = self._usable(self._checker(self._new_ids), self._sources)
        for example, selected in zip_longest(examples, self._selected):
            if example is None or selected is None:
                names = ", ".join(source.name for source in self._sources)
                raise InputError(f"{names}: has changed while it was read; run the command again")
            if selected:
                yield example

    def _usable(self, checker: RecordChecker, sources: Sequence[RecordSource]) -> Iterator[QAExample]:
        for source in sources:
            yield from checker.usable_examples(source.name, source.records(), self._allow_unlabelled)


def stream_examples(
    sources: str | Path | Sequence[str | Path],
    *,
    role: Role,
    allow_unlabelled: bool = False,
    hotpotqa_context: str = FACTS,
    **selection: Any,
) -> ExampleStream:
    """The examples that `read_examples` returns, or a selection of them (see `ExampleStream`), as a stream."""
    read = partial(raw_records, split=role, unlabelled=allow_unlabelled, hotpotqa_context=hotpotqa_context)
    named = [
        RecordSource(name, partial(read, name), None if is_hub_name(name) else existing_file(name))
        for name in source_names(sources, f"data.{role}")
    ]
    return ExampleStream(named, role=role, allow_unlabelled=allow_unlabelled, **selection)


def as_raw_record(example: QAExample) -> RawRecord:
    answers = tuple((answer.text, answer.start) for answer in example.answers)
    own = (example.id, example.title, example.context, example.question, answers)
    return RawRecord(*own, multi_hop=example.multi_hop, language=example.language)


def span_key(example: QAExample) -> bytes:
    """Return 16 bytes that are equal for the same answer at the same position of the same passage."""
    answer = example.answers[0]
    return hashlib.sha256(f"{passage_hash(example.context)} {answer.start} {answer.text}".encode()).digest()[:16]


def _selection(examples: Iterable[QAExample], limit: int | None, seed: int, spans: bool) -> bytearray:
    flags = bytearray()

    def ranked_examples() -> Iterator[tuple[bytes, int, bytes]]:
        for position, example in enumerate(examples):
            flags.append(0)
            rank = b"" if limit is None else seeded_rank(seed, example.id)
            yield rank, position, span_key(example) if spans else b""

    ranked: Iterable[tuple[bytes, int, bytes]] = ranked_examples()
    if limit is not None:
        ranked = sorted(heapq.nsmallest(limit, ranked), key=lambda item: item[1])
    seen: set[bytes] = set()
    for _, position, key in ranked:
        flags[position] = not spans or key not in seen
        if spans:
            seen.add(key)
    return flags
