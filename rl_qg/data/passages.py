"""Passages without questions, from text files or from any format of QA data, one at a time.

Passages with the same `passage_hash` are the same; only the first of them is read.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_qg.data import formats
from rl_qg.data.examples import passage_hash
from rl_qg.data.layouts import document_rows, is_flat, is_squad, records, rows, squad_paragraphs
from rl_qg.data.reading import malformed_line
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash, parse_json

log = logging.getLogger(__name__)
TEXT = re.compile(r"(?P<stem>.+?)\.(txt|text|md)(\.gz)?", re.IGNORECASE)
CONTEXT_FIELDS = ("context", "paragraph", "text")  # fields of a row that may hold the passage, in this order


@dataclass(frozen=True)
class Passage:
    """One passage; `answered`: its file has an answer for it; `fault`: what is wrong with one without a context."""

    id: str
    title: str
    context: str
    answered: bool = False
    fault: str = ""


@dataclass
class PassageCounts:
    """Counts of one reading: `read` = `kept` + `empty` + `broken` + `malformed` + `repeated` + `excluded`."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    broken: int = 0  # not valid Unicode
    malformed: int = 0  # a field is missing, or is no text
    repeated: int = 0
    excluded: int = 0


@dataclass
class Passages:
    """The distinct passages of some files, in order. Each `iter` reads the files again; only hashes are in memory.

    `sources` are text files (`.txt`, `.text`, `.md`, also `.gz`); QA data in any layout; `.jsonl` or `.parquet` with
    `context` (or `paragraph`, or `text`) and optionally `id` and `title`. A missing id becomes
    `<file stem>-<number>`; so does the id of QA data, where ids are those of questions.
    """

    sources: Sequence[str]
    form: str = "line"  # of text files: `line` (a passage a line) or `paragraph` (blank lines between passages)
    excluded: Collection[bytes] = ()  # keys (`passage_key`) that are left out, such as those of validation data
    counts: PassageCounts = field(default_factory=PassageCounts)  # of the last reading

    def __post_init__(self) -> None:
        if not self.sources:
            raise InputError("input has no value; give passages, such as input=contexts.txt")
        for source in self.sources:
            _checked_path(source)

    @property
    def hashes(self) -> dict[str, str]:
        return {name: file_hash(Path(name).expanduser()) for name in self.sources}

    def __iter__(self) -> Iterator[Passage]:
        self.counts = counts = PassageCounts()
        seen: set[bytes] = set()
        faults: list[str] = []
        for source in self.sources:
            for passage in file_passages(source, self.form):
                counts.read += 1
                if passage.fault:
                    counts.malformed += 1
                    faults.append(passage.fault)
                elif not passage.context.strip():
                    counts.empty += 1
                elif not all(map(formats.is_unicode, (passage.id, passage.title, passage.context))):
                    counts.broken += 1
                elif (key := passage_key(passage.context)) in self.excluded:
                    counts.excluded += 1
                elif key in seen:
                    counts.repeated += 1
                else:
                    counts.kept += 1
                    seen.add(key)
                    yield passage
        if counts.read == counts.malformed and faults:
            raise InputError(faults[0])
        if faults:
            log.warning("%s", malformed_line(", ".join(self.sources), faults))


def passage_key(context: str) -> bytes:
    """Return 16 bytes that are equal for passages that differ only in white space."""
    return bytes.fromhex(passage_hash(context))[:16]


def passage_keys(sources: Sequence[str], form: str = "line") -> set[bytes]:
    """The keys of all passages of some files."""
    return {passage_key(passage.context) for passage in Passages(sources, form)} if sources else set()


def has_answers(source: str) -> bool:
    """Whether a file is QA data: some passage in it has an answer that `rl_qg.data.formats` can read."""
    return any(passage.answered for passage in file_passages(source, "line"))


def file_passages(source: str, form: str) -> Iterator[Passage]:
    """All passages of a file, repeated ones included: rows of QA data give one passage for each question. In a text
    file each line is one, or each block between blank lines, its line ends replaced by spaces.
    """
    path = _checked_path(source)
    if match := TEXT.fullmatch(path.name):
        lines = (line.strip() for line in formats.text_lines(path))
        texts = filter(None, lines if form == "line" else _paragraphs(lines, path))
        return (Passage(f"{match['stem']}-{number}", "", text) for number, text in enumerate(texts, 1))
    stem, kind = formats.stem_and_kind(path)
    return _from_document(path, stem) if kind == "json" else _from_rows(path, stem)


def _checked_path(source: str) -> Path:
    path = formats.existing_file(source)
    if not TEXT.fullmatch(path.name) and not formats.stem_and_kind(path)[1]:
        raise InputError(f"{source}: unknown kind of file; use .txt (passages), {formats.KINDS}")
    return path


def _paragraphs(lines: Iterable[str], path: Path) -> Iterator[str]:
    part: list[str] = []
    length = 0
    for line in lines:
        if line:
            part.append(line)
            length += len(line) + 1
            if length > formats.LONGEST_LINE:
                raise InputError(
                    f"{path}: a paragraph is longer than {formats.LONGEST_LINE:,} characters; put blank lines between "
                    "passages, or write one passage a line and set answers.passages=line"
                )
        elif part:
            yield " ".join(part)
            part, length = [], 0
    if part:
        yield " ".join(part)


def _from_rows(path: Path, stem: str) -> Iterator[Passage]:
    for where, number, row in rows(path):
        key = f"{stem}-{number}"
        if not is_flat(row):
            found = records([(where, number, row)], stem)
            yield from (Passage(key, one.title, one.context, bool(one.answers), one.fault) for one in found)
            continue
        try:
            if isinstance(row, InputError):
                raise row
            name = next((name for name in CONTEXT_FIELDS if isinstance(row, dict) and name in row), None)
            if name is None:
                raise InputError(f"{where}: no passage; expected one of the fields {', '.join(CONTEXT_FIELDS)}")
            own = "" if row.get("question") else formats.id_field(row, where)  # else the id is that of the question
            context = formats.text_field(row, name, where)
            title = formats.text_field(row, "title", where, optional=True)
            yield Passage(own or key, title, context, name != "text" and _has_answer(row))
        except InputError as error:
            yield Passage(key, "", "", fault=str(error))


def _has_answer(row: dict[str, Any]) -> bool:
    answers = row["answers"] if "answers" in row else row.get("answer")
    return bool(answers.get("text") if isinstance(answers, dict) else answers)


def _from_document(path: Path, stem: str) -> Iterator[Passage]:
    root = parse_json(formats.whole_file(path), f"{path}")
    if not is_squad(root):
        for number, record in enumerate(records(document_rows(root, path), stem), 1):
            yield Passage(f"{stem}-{number}", record.title, record.context, bool(record.answers), record.fault)
        return
    for number, part in enumerate(squad_paragraphs(root, path), 1):
        key = f"{stem}-{number}"
        try:
            if isinstance(part, InputError):
                raise part
            title = formats.text_field(part.article, "title", part.article_at, optional=True)
            has_questions = isinstance(part.paragraph, dict) and "qas" in part.paragraph
            questions = formats.list_field(part.paragraph, "qas", part.paragraph_at) if has_questions else []
            context = formats.text_field(part.paragraph, "context", part.paragraph_at, optional=True)
            if part.paragraph.get("context") is None:
                raise InputError(f"{part.paragraph_at}: field 'context' must be text, got NoneType")
            yield Passage(key, title, context, any(isinstance(qa, dict) and _has_answer(qa) for qa in questions))
        except InputError as error:
            yield Passage(key, "", "", fault=str(error))
