"""Documents -> a set of questions for each passage, as JSON lines, JSON or CSV, and a report beside it.

    rl-qg ask passages.txt strategy=sentence_one2many number=auto output=sets.jsonl model.path=RUN/scst

A document is cut into passages as for pairs (`rl_qg.asking.stage`). One line a passage: `id`, `title`, `context`,
`start` (of the passage in its document), `strategy`, `questions` (each with `question`, `start` and `end` of its unit
in the passage, `type`, `score`, `scores`, `rank`, `reason`), `pool`, `reason`, `dropped`. The same command continues
the file after a kill; for other formats the lines lie in a hidden file beside the output until it is written.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.asking.documents import Document
from rl_qg.asking.exports import ENDINGS, Row, export, format_of, sets_as_csv
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.asking.question_sets import SetGenerator
from rl_qg.asking.stage import DocumentPassage, passages_of, unique_names
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.runtime.output_reports import check_own, check_report, report_path
from rl_qg.runtime.parallel_writer import cannot_write
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, begins_with, json_line
from rl_qg.settings import AskSettings
from rl_qg.settings.asking import FOR_PAIRS, WITHOUT_ANSWERS
from rl_qg.text.words import counted

PASSAGES = 8  # that are asked about together
NOT_MADE_BY = ("input", "output", "format", "granularity", "mode", "order", *FOR_PAIRS)


def ask_sets(
    generator: SetGenerator,
    documents: Sequence[Document],
    output: Path,
    *,
    settings: AskSettings,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Write the sets of `documents` and their report, `<output stem>.report.json`, and return the report: numbers of
    documents, passages, questions, passages without any, questions that were generated, and what was left out by
    reason.

    Raises:
        InputError: the model was trained for another strategy; a selection lacks what it needs; no question is found
            at all; `output` was not made by this command, or with other settings; a document has changed since it was
            begun, unless `accept_changed_data`; the disk is full.
    """
    if settings.strategy != generator.strategy:
        raise InputError(
            f"strategy={settings.strategy}: {generator.name} was trained for {generator.strategy}; give that, or "
            "another model"
        )
    generator.check(settings.number, settings.select)
    form = set_format(output.name, settings.format)
    passages = passages_of(generator, documents)
    path = output if form == "jsonl" else output.with_name(f".{output.name}.jsonl")
    lines = ResumableLines(path, path.with_name(f"{path.name}.settings.json"), content="sets")
    made_by = _made_by(generator, settings)
    names = unique_names(documents)
    texts = (document.text for document in documents)
    sources = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in zip(names, texts, strict=True)}
    position = from_main(
        state, partial(_prepare, lines, output, form, passages, made_by, sources, accept_changed_data)
    )
    lines.write(
        islice(passages, position.rows, None),
        partial(_lines_of, generator, settings),
        position=position,
        total=len(passages),
        batch_size=PASSAGES,
        state=state,
        title="ask",
        unit="passage",
    )
    report: dict[str, Any] = from_main(state, partial(_finish, lines, output, form, len(documents), made_by))
    return report


def set_format(name: str, chosen: str) -> str:
    """The format of an output of sets.

    Raises:
        InputError: the ending is that of no format, or of one that needs answers.
    """
    form = format_of(name, chosen)
    if form not in WITHOUT_ANSWERS:
        endings = ", ".join(ending for ending, kind in ENDINGS.items() if kind in WITHOUT_ANSWERS)
        raise InputError(
            f"output={name}: {form} needs answers, and sets have none; name a file that ends in {endings}"
        )
    return form


def set_report_line(report: Mapping[str, Any]) -> str:
    """The numbers of the report, as one line for the log."""
    left_out = ", ".join(f"{reason} {count:,}" for reason, count in sorted(report["dropped"].items()))
    parts = [
        f"{counted(report['questions'], 'question')} of {report['pool']:,} that were generated for "
        f"{counted(report['passages'], 'passage')} in {counted(report['documents'], 'document')}",
        f"{counted(report['without_questions'], 'passage')} without any",
        *([f"left out: {left_out}"] if left_out else []),
    ]
    return "; ".join(parts)


def _made_by(generator: SetGenerator, settings: AskSettings) -> dict[str, Any]:
    """What the sets depend on."""
    chosen = {name: value for name, value in asdict(settings).items() if name not in NOT_MADE_BY}
    folders = (settings.worthiness, settings.types, settings.similarity)
    paths = [generator_path(generator.name), reader_path(settings.reader), *folders]
    hashes = [weights_hash(path) if path else "" for path in paths]
    selector = file_hash(Path(settings.selector)) if settings.selector else ""
    return {**chosen, "model": generator.name, "weights": [*hashes, selector]}


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
    position = lines.position(passages, _is_about, batch_size=PASSAGES, lines_per_row=1, row_name="passage")
    lines.write_note({**made_by, "sources": dict(sources)})
    return position


def _is_about(passage: DocumentPassage, rank: int, line: bytes) -> bool:
    return begins_with(line, json_line({"id": passage.id, "title": passage.title, "context": passage.text})[:-2])


def _lines_of(generator: SetGenerator, settings: AskSettings, passages: Sequence[DocumentPassage]) -> list[bytes]:
    sets = generator.sets(
        [passage.text for passage in passages], number=settings.number, select=settings.select, seed=settings.seed
    )
    rows = []
    for passage, found in zip(passages, sets, strict=True):
        place = {"start": passage.start, "strategy": generator.strategy}
        rows.append({"id": passage.id, "title": passage.title, "context": passage.text, **place, **found.to_dict()})
    return [json_line(row) for row in rows]


def _finish(
    lines: ResumableLines, output: Path, form: str, documents: int, made_by: Mapping[str, Any]
) -> dict[str, Any]:
    """Write the chosen format and the report."""
    rows: list[Row] = [json.loads(line.text) for line in lines.lines()]
    hidden = [path for path in (lines.path, lines.note) if path is not None and form != "jsonl"]
    dropped = sum((Counter(row["dropped"]) for row in rows), Counter[str]())
    if not any(row["questions"] for row in rows):
        for path in hidden:
            path.unlink(missing_ok=True)
        why = "; ".join(dict.fromkeys(row["reason"] for row in rows)) or "there is no passage"
        raise InputError(f"no question was found in {counted(len(rows), 'passage')} ({why}); give another model")
    try:
        if form != "jsonl":
            with atomic_writer(output) as stream:
                stream.write(sets_as_csv(rows) if form == "csv" else export(rows, form))
            for path in hidden:
                path.unlink(missing_ok=True)
        report = {
            "documents": documents,
            "passages": len(rows),
            "questions": sum(len(row["questions"]) for row in rows),
            "without_questions": sum(not row["questions"] for row in rows),
            "pool": sum(row["pool"] for row in rows),
            "dropped": dict(dropped),
            "settings": dict(made_by),
            "output": {"path": str(output), "sha256": file_hash(output)},
        }
        write_json(report_path(output), report)
    except OSError as error:
        raise cannot_write(output, error) from None
    return report
