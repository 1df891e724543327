"""Documents -> question-answer pairs in a file of a chosen format, and a report beside it.

    rl-qg ask text.txt output=pairs.jsonl model.path=RUN/scst

A document is cut into passages that the model can read, and `number` pairs are made of each. Pairs are added as JSON
lines, which the same command continues after a kill (`rl_qg.asking.ask_documents`). Each process works on its own
batches of passages; the file is the same as that of one process.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from accelerate import PartialState
from accelerate.utils import gather_object

from rl_qg.asking.documents import AUTO, Document, Row, TextPassage, export, format_of, row_of
from rl_qg.asking.models import generator_path, model_note, reader_path
from rl_qg.asking.pairs import AskRequest
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer, check_own, check_report, file_hash, report_path, write_json
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import (
    Position,
    ResumableLines,
    Work,
    begins_with,
    cannot_write,
    json_line,
    note_path,
)
from rl_qg.settings import AskSettings
from rl_qg.settings.generation import FOR_SETS
from rl_qg.text.words import counted

# The file that is made of documents: JSON lines that a killed command continues, another format of them, a report.
#
# For another format than JSON lines these lie in a hidden file beside the output until it is written.


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
        form: its format, of `rl_qg.asking.documents`.
        content: what its rows are, for messages.
        made_by: what the rows depend on, with `model`, its name; the same on all processes.
    """

    def __init__(self, path: Path, form: str, content: str, made_by: Mapping[str, Any]) -> None:
        self.path, self.form, self.made_by = path, form, made_by
        lines = path if form == "jsonl" else path.with_name(f".{path.name}.jsonl")
        self.lines = ResumableLines(lines, note_path(lines), content=content, section="ask")

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
            is_about: as in `Work`.
            state: each process makes the lines of its own batches.
            accept_changed_data: continue although a document has changed.
            lines_per_row: of every passage; None where it varies.
        """
        names = unique_names(documents)
        texts = (document.text for document in documents)
        sources = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in zip(names, texts, strict=True)}

        work = Work(self.lines, PASSAGES, "ask", "passage", is_about, lines_per_row)

        def begin() -> Position:
            check_report(self.path)
            if self.form != "jsonl":
                check_own(self.path)
            return work.begin(passages, self.made_by, sources=sources, accept=accept_changed_data)

        position = from_main(state, begin)
        work.write(passages[position.rows :], lines_of, position=position, total=len(passages), state=state)

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
        return from_main(state, partial(self._finish, counts, export))

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


NOT_MADE_BY = ("input", "output", "format", "strategy", "granularity", "mode", "order", *FOR_SETS)


class ReadsTexts(Protocol):
    """A generator that cuts texts into passages which it can read."""

    def passages(self, text: str) -> list[TextPassage]:
        """The parts in which a text is read."""
        ...


def ask_documents(
    generator: QuestionGenerator,
    documents: Sequence[Document],
    output: Path,
    *,
    settings: AskSettings,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Write the pairs of `documents` and their report, `<output stem>.report.json`, and return the report: numbers of
    documents, passages, pairs, passages without any, and what was left out by reason. After a kill the last covers
    only the passages after it.
    """
    passages = passages_of(generator, documents)
    made = DocumentOutput(output, format_of(output.name, settings.format), "pairs", _made_by(generator, settings))
    dropped: Counter[str] = Counter()
    lines_of = partial(_lines_of, generator, settings, dropped)
    made.write(documents, passages, lines_of, _is_about, state=state, accept_changed_data=accept_changed_data)
    total = sum(gather_object([dropped]) if state.num_processes > 1 else [dropped], Counter[str]())
    counts = {"documents": len(documents), "passages": len(passages), "dropped": dict(total)}
    return made.finish(state, partial(_counts, counts), partial(export, form=made.form))


def passages_of(generator: ReadsTexts, documents: Sequence[Document]) -> list[DocumentPassage]:
    passages = []
    for name, document in zip(unique_names(documents), documents, strict=True):
        for number, part in enumerate(generator.passages(document.text), 1):
            passages.append(DocumentPassage(f"{name}-{number}", document.name, part.text, part.start))
    return passages


def report_line(report: Mapping[str, Any]) -> str:
    parts = [
        f"{counted(report['pairs'], 'pair')} of {counted(report['passages'], 'passage')} in "
        f"{counted(report['documents'], 'document')}",
        f"{counted(report['without_pairs'], 'passage')} without any",
    ]
    return "; ".join([*parts, *left_out_part(report)])


def _made_by(generator: QuestionGenerator, settings: AskSettings) -> dict[str, Any]:
    chosen = {name: value for name, value in asdict(settings).items() if name not in NOT_MADE_BY}
    paths = [generator_path(generator.name), reader_path(settings.reader), settings.extractor]
    chosen["rerank"] = generator.reward_signature
    return {**chosen, "model": generator.name, "weights": [weights_hash(path) if path else "" for path in paths]}


def _is_about(passage: DocumentPassage, rank: int, line: bytes) -> bool:
    return begins_with(line, json_line({"id": f"{passage.id}-{rank + 1}", "title": passage.title})[:-2])


def _lines_of(
    generator: QuestionGenerator, settings: AskSettings, dropped: Counter[str], passages: Sequence[DocumentPassage]
) -> list[bytes]:
    way = None if settings.way == AUTO else settings.way
    requests = [
        AskRequest(
            passage.text,
            number=settings.number,
            language=settings.language,
            seed=settings.seed,
            way=way,
            min_score=settings.min_score,
        )
        for passage in passages
    ]
    note = model_note(generator.name)
    rows: list[Row] = []
    for passage, pairs in zip(passages, generator.ask_many(requests), strict=True):
        dropped.update(pairs.dropped)
        rows += [
            row_of(
                pair,
                identity=f"{passage.id}-{rank}",
                title=passage.title,
                context=passage.text,
                passage_start=passage.start,
            )
            | note
            for rank, pair in enumerate(pairs, 1)
        ]
    return [json_line(row) for row in rows]


def _counts(known: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, Any]:
    if not rows:
        why = ", ".join(f"{reason} {count}" for reason, count in known["dropped"].items())
        raise InputError(
            f"no pair was found in {counted(known['passages'], 'passage')} ({why or 'no answer to ask about'}); "
            "lower min_score, or give other documents or another model"
        )
    asked = len({row["id"].rpartition("-")[0] for row in rows})
    return {**known, "pairs": len(rows), "without_pairs": known["passages"] - asked}
