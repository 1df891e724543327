"""QA examples: one schema, and a reader for every form in which people keep them."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from rl_qg.data.formats import RawRecord, find_once, is_hub_name, is_unicode, raw_records
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import atomic_writer

Role = Literal["train", "validation"]

REPORTED_IDS = 1000
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """An answer span; `start` counts Unicode characters into the context."""

    text: str
    start: int


@dataclass(frozen=True)
class QAExample:
    """One question about one passage. `question` is empty for a passage whose question is unknown."""

    id: str
    title: str
    context: str
    question: str
    answers: tuple[Answer, ...]


def as_example(row: QAExample | Mapping[str, Any]) -> QAExample:
    """The example itself, or the one that a row of a `datasets.Dataset` with SQuAD's columns describes.

    Raises:
        InputError: a column is missing.
    """
    if isinstance(row, QAExample):
        return row
    try:
        spans = zip(row["answers"]["text"], row["answers"]["answer_start"], strict=True)
        answers = tuple(Answer(text, start) for text, start in spans)
        return QAExample(row["id"], row.get("title", ""), row["context"], row["question"], answers)
    except KeyError as error:
        raise InputError(
            f"a training row has no column {error}; expected id, context, question, answers{{text, answer_start}}"
        ) from None


@dataclass(frozen=True)
class QAData:
    """Examples that are safe to use: unique ids, a context, at least one answer, every answer at its offset.

    `report` says what reading did. `read` = `kept` + the counts under `dropped` (by reason). About kept records:
    `repaired` (an offset was corrected), `answers_dropped` (a misplaced answer was left out, others remain) and
    `duplicate_ids` (renamed to `<id>-2`, `<id>-3`, ...). Each holds `count` and the first 1,000 `ids`.
    `hashes` maps each source to the SHA-256 of its file, or of its examples when it came from the Hub.
    """

    examples: list[QAExample]
    report: dict[str, Any]
    hashes: dict[str, str]

    def summary(self) -> str:
        """One line for the log: how many records were read, kept, repaired and dropped, and why."""
        return report_line(self.report)


@dataclass(frozen=True)
class Leakage:
    """Passages that stand in both sets, compared by `passage_hash`."""

    train_passages: int
    validation_passages: int
    shared: int
    shared_hashes: tuple[str, ...]


def read_examples(sources: str | Path | Sequence[str | Path], *, role: Role, allow_unlabelled: bool = False) -> QAData:
    """Read QA examples from one source or several, in order.

    A source is a file (SQuAD v1.1 or v2 `.json`; flat or QG-Bench columns in `.jsonl` or `.parquet`; JSON also as
    `.gz`) or the name of a Hub data set, of which the split called `role` is read. An answer that is not at its
    offset is moved when its text occurs once in the context. What cannot be used is dropped and counted, which
    includes records without a question unless `allow_unlabelled`. Raises `InputError` for a missing or malformed
    file, a missing field, and a source that leaves nothing to use.
    """
    names = [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]
    if not names:
        raise InputError(f"no {role} data given: set data.{role}=FILE or to the name of a Hub data set")
    tally, examples, hashes = Tally(), list[QAExample](), dict[str, str]()
    for name in names:
        found = raw_records(name, role, unlabelled=allow_unlabelled)
        usable = list(tally.usable(name, found, allow_unlabelled))
        examples += usable
        hashes[name] = examples_hash(usable) if is_hub_name(name) else file_hash(Path(name).expanduser())
    return QAData(examples=examples, report={"role": role, "sources": names, **tally.report()}, hashes=hashes)


_CHANGES = ("repaired", "answers_dropped", "duplicate_ids")


def report_line(report: Mapping[str, Any]) -> str:
    """What reading did (see `QAData`), as one line for the log."""
    kept = f"{report['role']} data: {report['kept']:,} of {report['read']:,} records"
    changes = [f"{name.replace('_', ' ')} {report[name]['count']:,}" for name in _CHANGES if report[name]["count"]]
    drops = [f"dropped {part['count']:,} ({reason})" for reason, part in report["dropped"].items()]
    return "; ".join([kept, *changes, *drops])


class _Listed:
    """A count, and the first ids that it counts."""

    def __init__(self) -> None:
        self.count = 0
        self.ids: list[str] = []

    def add(self, key: str) -> None:
        self.count += 1
        if len(self.ids) < REPORTED_IDS:
            self.ids.append(key)


class Tally:
    """Decides about each record, and counts what was decided.

    Args:
        renamed: what an earlier tally of the same records has under this name. This one then repeats its new ids, by
            place among the kept records, and remembers no id itself.
    """

    def __init__(self, renamed: Mapping[int, str] | None = None) -> None:
        self.read = self.kept = 0
        self.changes = {name: _Listed() for name in _CHANGES}
        self.dropped: dict[str, _Listed] = {}
        self.renamed: dict[int, str] = {}
        self._known = renamed
        self._ids: set[str] = set()

    def usable(self, source: str, records: Iterable[RawRecord], allow_unlabelled: bool) -> Iterator[QAExample]:
        """Yield the examples among the records of a source; raise `InputError` at its end if there was none."""
        read, drops = 0, Counter[str]()
        for record in records:
            read += 1
            self.read += 1
            usable = self._decide(record, allow_unlabelled)
            if isinstance(usable, str):
                drops[usable] += 1
                self.dropped.setdefault(usable, _Listed()).add(record.id)
            else:
                self.kept += 1
                yield usable
        if read == drops.total():
            why = "; ".join([f"{read} read", *(f"{count} dropped ({reason})" for reason, count in drops.items())])
            raise InputError(f"{source}: no usable record: {why}; check the file, or give another")

    def _decide(self, record: RawRecord, allow_unlabelled: bool) -> QAExample | str:
        """Return the example, or the reason to drop the record."""
        if fault := _fault(record, allow_unlabelled):
            return fault
        placed = [_placed(text, start, record.context) for text, start in record.answers]
        answers = tuple(item for item in placed if isinstance(item, Answer))
        if not answers:
            return next(item for item in placed if isinstance(item, str))
        if any((answer.text, answer.start) not in record.answers for answer in answers):
            self.changes["repaired"].add(record.id)
        if len(answers) < len(placed):
            self.changes["answers_dropped"].add(record.id)
        return QAExample(self._unique(record.id), record.title, record.context, record.question, answers)

    def _unique(self, key: str) -> str:
        if self._known is not None:
            return self._known.get(self.kept, key)
        unique, number = key, 1
        while unique in self._ids:
            number += 1
            unique = f"{key}-{number}"
        if unique != key:
            self.changes["duplicate_ids"].add(key)
            self.renamed[self.kept] = unique
        self._ids.add(unique)
        return unique

    def report(self) -> dict[str, Any]:
        """The counts so far, as `QAData.report` has them."""

        def listed(part: _Listed) -> dict[str, Any]:
            return {"count": part.count, "ids": part.ids}

        changes = {name: listed(part) for name, part in self.changes.items()}
        dropped = {reason: listed(part) for reason, part in sorted(self.dropped.items())}
        return {"read": self.read, "kept": self.kept, **changes, "dropped": dropped}


def _fault(record: RawRecord, allow_unlabelled: bool) -> str:
    if record.impossible:
        return "impossible question"
    if not record.context.strip():
        return "no context"
    if not record.question.strip() and not allow_unlabelled:
        return "no question"
    if not any(text.strip() for text, _ in record.answers):
        return "no answer"
    texts = (record.id, record.title, record.context, record.question, *(text for text, _ in record.answers))
    return "" if all(map(is_unicode, texts)) else "broken characters"


def _placed(text: str, start: int, context: str) -> Answer | str:
    """Return the answer at its true offset, or the reason why it has none."""
    if not text.strip():
        return "no answer"
    if start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    only = find_once(text, context)
    if only >= 0:
        return Answer(text, only)
    return "answer not in context" if only == -1 else "answer misplaced and ambiguous"


def examples_hash(examples: Iterable[QAExample]) -> str:
    """SHA-256 of the examples' content and order, in hexadecimal; the same from whichever form they were read."""
    digest = hashlib.sha256()
    for example in examples:
        answers = [[answer.text, answer.start] for answer in example.answers]
        fields = [example.id, example.title, example.context, example.question, answers]
        digest.update(json.dumps(fields).encode() + b"\n")
    return digest.hexdigest()


def passage_hash(context: str) -> str:
    """SHA-256 of the passage with every run of white space made one space, in hexadecimal."""
    return hashlib.sha256(" ".join(context.split()).encode()).hexdigest()


def seeded_rank(seed: int, key: str) -> bytes:
    """A place in a random order that depends on the seed and the key alone, not on the order of the data."""
    return hashlib.sha256(f"{seed}\0{key}".encode()).digest()


def leakage(train: Iterable[QAExample], validation: Iterable[QAExample]) -> Leakage:
    """Find the passages that stand in both sets."""
    ours, theirs = ({passage_hash(context) for context in {e.context for e in part}} for part in (train, validation))
    shared = tuple(sorted(ours & theirs))
    return Leakage(train_passages=len(ours), validation_passages=len(theirs), shared=len(shared), shared_hashes=shared)


def sample_labelled(
    examples: Sequence[QAExample], fraction: float, seed: int
) -> tuple[list[QAExample], list[QAExample]]:
    """Split by passage into labelled and unlabelled examples, in their order; the latter lose their question.

    `fraction` of the passages (rounded, at least one) stays labelled. For one seed the labelled passages of a smaller
    fraction are among those of a larger one. Raises `InputError` when `fraction` is not in (0, 1].
    """
    if not 0 < fraction <= 1:
        raise InputError(f"data.labelled_fraction={fraction} is not in (0, 1]")
    hashes = [passage_hash(example.context) for example in examples]
    passages = sorted(set(hashes), key=lambda key: seeded_rank(seed, key))
    chosen = set(passages[: max(1, round(fraction * len(passages)))])
    pairs = list(zip(examples, hashes, strict=True))
    labelled = [example for example, key in pairs if key in chosen]
    return labelled, [replace(example, question="") for example, key in pairs if key not in chosen]


def take(examples: Sequence[QAExample], limit: int | None, seed: int) -> list[QAExample]:
    """Return a seeded sample of at most `limit` examples (None: all), in their order.

    For one seed a smaller sample is part of a larger one. Raises `InputError` when `limit` is below 1.
    """
    if limit is not None and limit < 1:
        raise InputError(f"a limit of {limit} examples leaves none: give at least 1, or null for all")
    ranked = sorted(range(len(examples)), key=lambda i: seeded_rank(seed, examples[i].id))
    return [examples[i] for i in sorted(ranked[:limit])]


def write_squad(path: str | Path, examples: Iterable[QAExample]) -> int:
    """Write SQuAD v1.1 JSON atomically, one article at a time, and return the number of questions.

    Neighbours with the same title share an article, neighbours with the same context a paragraph: the order is kept.
    """
    count = 0
    with atomic_writer(Path(path)) as stream:
        stream.write('{"version": "1.1", "data": [')
        for number, (title, article) in enumerate(groupby(examples, key=lambda example: example.title)):
            paragraphs = []
            for context, group in groupby(article, key=lambda example: example.context):
                qas = [_squad_form(example) for example in group]
                paragraphs.append({"context": context, "qas": qas})
                count += len(qas)
            stream.write(",\n" if number else "\n")
            stream.write(json.dumps({"title": title, "paragraphs": paragraphs}, ensure_ascii=False))
        stream.write("\n]}\n")
    return count


def _squad_form(example: QAExample) -> dict[str, Any]:
    answers = [{"text": answer.text, "answer_start": answer.start} for answer in example.answers]
    return {"id": example.id, "question": example.question, "answers": answers}
