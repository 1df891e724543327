"""Documents -> a set of questions for each passage, as JSON lines, JSON or CSV, and a report beside it.

    rl-qg ask passages.txt strategy=sentence_one2many number=auto output=sets.jsonl model.path=RUN/scst

A document is cut into passages as for pairs (`rl_qg.asking.stage`). One line a passage: `id`, `title`, `context`,
`start` (of the passage in its document), `strategy`, `questions` (each with `question`, `start` and `end` of its unit
in the passage, `type`, `score`, `scores`, `rank`, `reason`), `pool`, `reason`, `dropped`. The same command continues
the file after a kill; for other formats the lines lie in a hidden file beside the output until it is written.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rl_qg.asking.document_output import DocumentOutput, DocumentPassage, left_out_part
from rl_qg.asking.documents import Document
from rl_qg.asking.exports import ENDINGS, Row, export, format_of, sets_as_csv
from rl_qg.asking.models import generator_path, reader_path
from rl_qg.asking.question_sets import SetGenerator
from rl_qg.asking.stage import passages_of
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import file_hash
from rl_qg.runtime.resumable_lines import begins_with, json_line
from rl_qg.settings import AskSettings
from rl_qg.settings.asking import FOR_PAIRS, WITHOUT_ANSWERS
from rl_qg.text.words import counted

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
    made = DocumentOutput(output, form, "sets", _made_by(generator, settings))
    made.write(
        documents,
        passages_of(generator, documents),
        partial(_lines_of, generator, settings),
        _is_about,
        state=state,
        accept_changed_data=accept_changed_data,
        lines_per_row=1,
    )
    return made.finish(
        state, partial(_counts, len(documents)), sets_as_csv if form == "csv" else partial(export, form=form)
    )


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
    parts = [
        f"{counted(report['questions'], 'question')} of {report['pool']:,} that were generated for "
        f"{counted(report['passages'], 'passage')} in {counted(report['documents'], 'document')}",
        f"{counted(report['without_questions'], 'passage')} without any",
        *left_out_part(report),
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


def _counts(documents: int, rows: Sequence[Row]) -> dict[str, Any]:
    """The numbers of the report."""
    if not any(row["questions"] for row in rows):
        why = "; ".join(dict.fromkeys(row["reason"] for row in rows)) or "there is no passage"
        raise InputError(f"no question was found in {counted(len(rows), 'passage')} ({why}); give another model")
    return {
        "documents": documents,
        "passages": len(rows),
        "questions": sum(len(row["questions"]) for row in rows),
        "without_questions": sum(not row["questions"] for row in rows),
        "pool": sum(row["pool"] for row in rows),
        "dropped": dict(sum((Counter(row["dropped"]) for row in rows), Counter[str]())),
    }
