"""Documents -> question-answer pairs in a file of a chosen format, and a report beside it.

    rl-qg ask text.txt output=pairs.jsonl model.path=RUN/scst

A document is cut into passages that the model can read, and `number` pairs are made of each. Pairs are added as JSON
lines, which the same command continues after a kill; for other formats these lie in a hidden file beside the output
until it is written. Each process works on its own batches of passages; the file is the same as that of one process.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, Protocol

from accelerate import PartialState
from accelerate.utils import gather_object

from rl_qg.asking.documents import Document
from rl_qg.asking.exports import AUTO, Row, export, format_of, row_of
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.asking.pairs import AskRequest
from rl_qg.asking.passages import TextPassage
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.runtime.output_reports import check_own, check_report, report_path
from rl_qg.runtime.parallel_writer import cannot_write
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, begins_with, json_line
from rl_qg.settings import AskSettings
from rl_qg.settings.asking import FOR_SETS
from rl_qg.text.words import counted

PASSAGES = 8  # that are asked about together
# Settings that do not change a pair.
NOT_MADE_BY = ("input", "output", "format", "strategy", "granularity", "mode", "order", *FOR_SETS)


class ReadsTexts(Protocol):
    """A generator that cuts texts into passages which it can read."""

    def passages(self, text: str) -> list[TextPassage]:
        """The parts in which a text is read."""
        ...


@dataclass(frozen=True)
class DocumentPassage:
    """A part of a document, which begins at its character `start`; ids of its pairs begin with `id`."""

    id: str
    title: str
    text: str
    start: int


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

    Raises:
        InputError: no pair is found at all; `output` was not made by this command, or with other settings; a document
            has changed since it was begun, unless `accept_changed_data`; the disk is full.
    """
    form = format_of(output.name, settings.format)
    passages = passages_of(generator, documents)
    path = output if form == "jsonl" else output.with_name(f".{output.name}.jsonl")
    lines = ResumableLines(path, path.with_name(f"{path.name}.settings.json"), content="pairs")
    made_by = _made_by(generator, settings)
    names = unique_names(documents)
    sources = {name: _digest(document.text) for name, document in zip(names, documents, strict=True)}
    position = from_main(
        state, partial(_prepare, lines, output, form, passages, made_by, sources, accept_changed_data)
    )
    dropped: Counter[str] = Counter()
    lines.write(
        islice(passages, position.rows, None),
        partial(_lines_of, generator, settings, dropped),
        position=position,
        total=len(passages),
        batch_size=PASSAGES,
        state=state,
        title="ask",
        unit="passage",
    )
    total = sum(gather_object([dropped]) if state.num_processes > 1 else [dropped], Counter[str]())
    counts = {"documents": len(documents), "passages": len(passages), "dropped": dict(total)}
    report: dict[str, Any] = from_main(state, partial(_finish, lines, output, form, counts, made_by))
    return report


def passages_of(generator: ReadsTexts, documents: Sequence[Document]) -> list[DocumentPassage]:
    """The passages of documents."""
    passages = []
    for name, document in zip(unique_names(documents), documents, strict=True):
        for number, part in enumerate(generator.passages(document.text), 1):
            passages.append(DocumentPassage(f"{name}-{number}", document.name, part.text, part.start))
    return passages


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


def report_line(report: Mapping[str, Any]) -> str:
    """The numbers of the report, as one line for the log."""
    parts = [
        f"{counted(report['pairs'], 'pair')} of {counted(report['passages'], 'passage')} in "
        f"{counted(report['documents'], 'document')}",
        f"{counted(report['without_pairs'], 'passage')} without any",
    ]
    left_out = ", ".join(f"{reason} {count:,}" for reason, count in sorted(report["dropped"].items()))
    return "; ".join([*parts, *([f"left out: {left_out}"] if left_out else [])])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _made_by(generator: QuestionGenerator, settings: AskSettings) -> dict[str, Any]:
    """What the pairs depend on."""
    chosen = {name: value for name, value in asdict(settings).items() if name not in NOT_MADE_BY}
    paths = [generator_path(generator.name), reader_path(settings.reader), settings.extractor]
    chosen["rerank"] = generator.reward_signature
    return {**chosen, "model": generator.name, "weights": [weights_hash(path) if path else "" for path in paths]}


def _prepare(
    lines: ResumableLines,
    output: Path,
    form: str,
    passages: Sequence[DocumentPassage],
    made_by: Mapping[str, Any],
    sources: Mapping[str, str],
    accept_changed_data: bool,
) -> Position:
    """Check what the file was made with, write its note, and return where to continue."""
    check_report(output)
    if form != "jsonl":
        check_own(output)
    lines.check(made_by, sources=sources, accept=accept_changed_data)
    position = lines.position(passages, _is_about, batch_size=PASSAGES, row_name="passage")
    lines.write_note({**made_by, "sources": dict(sources)})
    return position


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
            for rank, pair in enumerate(pairs, 1)
        ]
    return [json_line(row) for row in rows]


def _finish(
    lines: ResumableLines, output: Path, form: str, counts: Mapping[str, Any], made_by: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the chosen format and the report."""
    rows: list[Row] = [json.loads(line.text) for line in lines.lines()]
    hidden = [path for path in (lines.path, lines.note) if path is not None and form != "jsonl"]
    if not rows:
        for path in hidden:
            path.unlink(missing_ok=True)
        why = ", ".join(f"{reason} {count}" for reason, count in counts["dropped"].items())
        raise InputError(
            f"no pair was found in {counted(counts['passages'], 'passage')} ({why or 'no answer to ask about'}); "
            "lower min_score, or give other documents or another model"
        )
    asked = len({row["id"].rpartition("-")[0] for row in rows})
    try:
        if form != "jsonl":
            with atomic_writer(output) as stream:
                stream.write(export(rows, form))
            for path in hidden:
                path.unlink(missing_ok=True)
        report = {
            **counts,
            "pairs": len(rows),
            "without_pairs": counts["passages"] - asked,
            "settings": dict(made_by),
            "output": {"path": str(output), "sha256": file_hash(output)},
        }
        write_json(report_path(output), report)
    except OSError as error:
        raise cannot_write(output, error) from None
    return report
