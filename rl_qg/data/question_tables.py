"""Tables of questions to score, read row by row, as many times as needed.

Formats: rows of `.jsonl`, `.csv`, `.tsv`, `.parquet`; `.json` in a layout of QA data (one row a question, with its
first answer); plain text files with one item a line, one for each column, or those that `rl_qg.data.layouts` knows.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from rl_qg.data import formats
from rl_qg.data.layouts import FACTS, parallel_files, rows
from rl_qg.data.reading import malformed_line, raw_records, without_malformed
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import file_hash

log = logging.getLogger(__name__)
ALTERNATIVES = {"context": "paragraph", "answer": "answers", "references": "reference"}
"""Second name of a column that is blank or missing, if its name was not set: as in QG-Bench, SQuAD, QGEval."""


@dataclass(frozen=True)
class TableRow:
    """One row as it is in its file, and its position, for messages."""

    where: str
    fields: dict[str, Any]

    @property
    def says_impossible(self) -> bool:
        """Whether the passage does not answer the question, as SQuAD 2.0 says it in a file or on the Hub."""
        answers = self.fields.get("answers")
        without = answers.get("text") == [] if isinstance(answers, Mapping) else answers == []
        said = str(self.fields.get("is_impossible")).lower() == "true"  # a text in a table
        return said or (without and not self.fields.get("answer"))


class QuestionTable:
    """The rows of a file, or of text files by column (`{"question": "q.txt", …}`, one item a line). Each `iter` reads
    them from the start. `columns`: for any of question, context, answer, references and sentence, the name of its
    field; `hotpotqa_context`: what the passage of a HotpotQA question is (`rl_qg.data.layouts.CONTEXTS`).

    Malformed records of QA data are left out; `malformed` has their faults (file, position, field), as the last
    reading found them. A row of another kind of file that cannot be read is an error.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any],
        columns: Mapping[str, str] | None = None,
        *,
        hotpotqa_context: str = FACTS,
    ) -> None:
        self._hotpotqa_context = hotpotqa_context
        self.columns = {column: column for column in _READ} | dict(columns or {})
        self.malformed: list[str] = []
        self._told = False  # of malformed records, in the log
        self._texts: dict[str, Path] = {}
        if isinstance(source, Mapping) and source:
            self._texts = {str(name): formats.existing_file(str(path)) for name, path in source.items()}
            self.paths = [*self._texts.values()]
        elif isinstance(source, str | Path):
            self.paths = [formats.existing_file(source)]
        else:
            raise InputError(f"input={source!r}: give one file, or text files by column: {{question: q.txt, …}}")
        self._parallel = not self._texts and parallel_files(self.paths[0]) is not None
        if not self._texts and not self._parallel and not formats.stem_and_kind(self.paths[0])[1]:
            texts = "one file for each column: 'input={question: q.txt, context: c.txt}'"
            raise InputError(f"{self.paths[0]}: unknown kind of file; use {formats.KINDS}, or for plain text {texts}")

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[TableRow]:
        if self._texts:
            return _parallel_rows(self._texts)
        path, self.malformed = self.paths[0], []
        if self._parallel or formats.stem_and_kind(path)[1] == "json":
            return self._records(path)
        return self._file_rows(path)

    def _file_rows(self, path: Path) -> Iterator[TableRow]:
        for where, _, row in rows(path):
            if isinstance(row, InputError):
                raise row
            row.pop(formats.ROW, None)
            yield TableRow(where, row)

    def _records(self, path: Path) -> Iterator[TableRow]:
        """One row a record of QA data; records that could be no example (a yes or no as the answer) are rows too."""
        records = raw_records(str(path), "train", hotpotqa_context=self._hotpotqa_context)
        for record in without_malformed(path, records, self.malformed):
            fields: dict[str, Any] = {"id": record.id, "title": record.title, "context": record.context}
            fields |= {"question": record.question, **record.extra}
            fields |= {"is_impossible": True} if record.unusable == formats.IMPOSSIBLE else {}
            if record.answers:
                fields["answer"], start = record.answers[0]
                fields |= {"answer_start": start} if start >= 0 else {}
            yield TableRow(f"{path}: question {record.id!r}", fields)
        if self.malformed and not self._told:
            log.warning("%s", malformed_line(self, self.malformed))
            self._told = True

    def hashes(self) -> dict[str, str]:
        return {str(path): file_hash(path) for path in self.paths}

    def value(self, row: TableRow, column: str) -> Any:
        """The value of a column: a text, or for references a list of those that are not blank; None: there is none."""
        read, name = _READ[column], self.columns[column]
        value, other = read(row.fields.get(name)), ALTERNATIVES.get(column) if name == column else None
        return value or (other and read(row.fields.get(other))) or value

    def answer_start(self, row: TableRow) -> int | None:
        """Where the answer begins in the context, as the row says; None if it does not say."""
        values = (row.fields.get(name) for name in ("answer_start", self.columns["answer"], "answers"))
        own, *starts = (_first(value, "answer_start") for value in values)
        starts.insert(0, formats.offset_field({"answer_start": own}, row.where))  # the others may be texts of answers
        return next((start for start in starts if type(start) is int and start >= 0), None)

    def text(self, row: TableRow, column: str) -> str:
        text: str | None = self.value(row, column)
        if text is None:
            has = f"the row has {', '.join(map(repr, row.fields))} (columns.{column}=… names another field)"
            raise InputError(f"{row.where}: field {self.columns[column]!r} is missing or no text; {has}")
        return text


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and formats.is_unicode(value) else None


def _first(value: Any, name: str) -> Any:
    """The value, the first one of a list, or that of SQuAD's `{name: […]}` or `[{name: …}]`."""
    while isinstance(value, Mapping | list):  # no recursion: values can be nested more deeply than functions
        value = value.get(name) if isinstance(value, Mapping) else value[0] if value else None
    return value


def _answer(value: Any) -> str | None:
    text = _text(_first(value, "text"))
    return text if text and text.strip() else None


def _references(value: Any) -> list[str] | None:
    texts = value if isinstance(value, list) else [value]
    known = all(_text(text) is not None for text in texts)
    return [text for text in texts if known and text.strip()] or None  # against a blank one every question scores 0


_NAMES = ("question", "context", "answer", "references", "sentence", "title")
_READ = dict[str, Callable[[Any], Any]].fromkeys(_NAMES, _text) | {"answer": _answer, "references": _references}


def _parallel_rows(texts: Mapping[str, Path]) -> Iterator[TableRow]:
    names = ", ".join(map(str, texts.values()))
    for number, items in enumerate(zip_longest(*map(formats.text_lines, texts.values())), 1):
        if None in items:
            counts = {name: sum(1 for _ in formats.text_lines(path)) for name, path in texts.items()}
            lengths = ", ".join(f"{texts[name]} has {count:,} lines" for name, count in counts.items())
            raise InputError(f"{lengths}: give every column one item a line")
        fields = {name: line.rstrip("\r\n") for name, line in zip(texts, items, strict=True)}
        yield TableRow(f"line {number} of {names}", fields)
