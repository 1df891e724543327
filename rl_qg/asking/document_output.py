"""The file that is made of documents: JSON lines that a killed command continues, another format of them, a report.

For another format than JSON lines these lie in a hidden file beside the output until it is written.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.asking.documents import Document
from rl_qg.asking.exports import Row
from rl_qg.asking.models import model_note
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.runtime.output_reports import check_own, check_report, report_path
from rl_qg.runtime.parallel_writer import cannot_write
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines

PASSAGES = 8  # that are asked about together


@dataclass(frozen=True)
class DocumentPassage:
    """A part of a document, which begins at its character `start`; ids of what is made of it begin with `id`."""

    id: str
    title: str
    text: str
    start: int


class DocumentOutput:
    """An output of documents.

    Args:
        path: as the user named it.
        form: its format, of `rl_qg.asking.exports`.
        content: what its rows are, for messages.
        made_by: what the rows depend on, with `model`, its name; the same on all processes.
    """

    def __init__(self, path: Path, form: str, content: str, made_by: Mapping[str, Any]) -> None:
        self.path, self.form, self.made_by = path, form, made_by
        lines = path if form == "jsonl" else path.with_name(f".{path.name}.jsonl")
        self.lines = ResumableLines(lines, lines.with_name(f"{lines.name}.settings.json"), content=content)

    def write(
        self,
        documents: Sequence[Document],
        passages: Sequence[DocumentPassage],
        lines_of: Callable[[Sequence[DocumentPassage]], list[bytes]],
        is_about: Callable[[DocumentPassage, int, bytes], bool],
        *,
        state: PartialState,
        accept_changed_data: bool,
        lines_per_row: int | None = None,
    ) -> None:
        """Add the lines of the passages that the file does not have yet.

        Args:
            documents: of which the passages are.
            passages: all of them.
            lines_of: makes the lines of some.
            is_about: as in `ResumableLines.position`.
            state: each process makes the lines of its own batches.
            accept_changed_data: continue although a document has changed.
            lines_per_row: of every passage; None where it varies.

        Raises:
            InputError: the file was not made by this command, or with other settings; a document has changed since it
                was begun, unless `accept_changed_data`.
        """
        names = unique_names(documents)
        texts = (document.text for document in documents)
        sources = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in zip(names, texts, strict=True)}

        def prepare() -> Position:
            check_report(self.path)
            if self.form != "jsonl":
                check_own(self.path)
            self.lines.check(self.made_by, sources=sources, accept=accept_changed_data)
            position = self.lines.position(
                passages, is_about, batch_size=PASSAGES, lines_per_row=lines_per_row, row_name="passage"
            )
            self.lines.write_note({**self.made_by, "sources": sources})
            return position

        position = from_main(state, prepare)
        self.lines.write(
            islice(passages, position.rows, None),
            lines_of,
            position=position,
            total=len(passages),
            batch_size=PASSAGES,
            state=state,
            title="ask",
            unit="passage",
        )

    def finish(
        self,
        state: PartialState,
        counts: Callable[[Sequence[Row]], Mapping[str, Any]],
        export: Callable[[list[Row]], str],
    ) -> dict[str, Any]:
        """Write the chosen format and the report, and return the report.

        Args:
            state: the main process writes.
            counts: the numbers of the report; raises `InputError` where there is nothing to write.
            export: the text of the chosen format, if it is not JSON lines.
        """
        report: dict[str, Any] = from_main(state, partial(self._finish, counts, export))
        return report

    def _finish(
        self, counts: Callable[[Sequence[Row]], Mapping[str, Any]], export: Callable[[list[Row]], str]
    ) -> dict[str, Any]:
        rows: list[Row] = [json.loads(line.text) for line in self.lines.lines()]
        try:
            report = dict(counts(rows))
        except InputError:
            self._remove_hidden()
            raise
        try:
            if self.form != "jsonl":
                with atomic_writer(self.path) as stream:
                    stream.write(export(rows))
                self._remove_hidden()
            report |= {**model_note(self.made_by["model"]), "settings": dict(self.made_by)}
            report |= {"output": {"path": str(self.path), "sha256": file_hash(self.path)}}
            write_json(report_path(self.path), report)
        except OSError as error:
            raise cannot_write(self.path, error) from None
        return report

    def _remove_hidden(self) -> None:
        if self.form != "jsonl":
            for path in (self.lines.path, self.lines.note):
                if path is not None:
                    path.unlink(missing_ok=True)


def unique_names(documents: Sequence[Document]) -> list[str]:
    """A name for each document: its own, and of several with one name the later ones with the first free number."""
    names = dict.fromkeys(document.name for document in documents)
    taken, found = set(names), []
    for document in documents:
        free = (f"{document.name}~{number}" for number in count(2))
        name = document.name if document.name in names else next(one for one in free if one not in taken)
        names.pop(document.name, None)
        taken.add(name)
        found.append(name)
    return found


def left_out_part(report: Mapping[str, Any]) -> list[str]:
    """What was left out, by reason, as a part of the line for the log; nothing if nothing was."""
    counts = ", ".join(f"{reason} {number:,}" for reason, number in sorted(report["dropped"].items()))
    return [f"left out: {counts}"] if counts else []
