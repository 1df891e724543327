"""Documents -> question-answer pairs in a file of a chosen format, and a report beside it.

    rl-qg ask text.txt output=pairs.jsonl model.path=RUN/scst

A document is cut into passages that the model can read, and `number` pairs are made of each. Pairs are added as JSON
lines, which the same command continues after a kill (`rl_qg.asking.document_output`). Each process works on its own
batches of passages; the file is the same as that of one process.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from accelerate import PartialState
from accelerate.utils import gather_object

from rl_qg.asking.document_output import DocumentOutput, DocumentPassage, left_out_part, unique_names
from rl_qg.asking.documents import Document
from rl_qg.asking.exports import AUTO, Row, export, format_of, row_of
from rl_qg.asking.models import generator_path, model_note, reader_path
from rl_qg.asking.pairs import AskRequest
from rl_qg.asking.passages import TextPassage
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.generation.loading import weights_hash
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.resumable_lines import begins_with, json_line
from rl_qg.settings import AskSettings
from rl_qg.settings.asking import FOR_SETS
from rl_qg.text.words import counted

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

    Raises:
        InputError: no pair is found at all; `output` was not made by this command, or with other settings; a document
            has changed since it was begun, unless `accept_changed_data`; the disk is full.
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
    """The passages of documents."""
    passages = []
    for name, document in zip(unique_names(documents), documents, strict=True):
        for number, part in enumerate(generator.passages(document.text), 1):
            passages.append(DocumentPassage(f"{name}-{number}", document.name, part.text, part.start))
    return passages


def report_line(report: Mapping[str, Any]) -> str:
    """The numbers of the report, as one line for the log."""
    parts = [
        f"{counted(report['pairs'], 'pair')} of {counted(report['passages'], 'passage')} in "
        f"{counted(report['documents'], 'document')}",
        f"{counted(report['without_pairs'], 'passage')} without any",
    ]
    return "; ".join([*parts, *left_out_part(report)])


def _made_by(generator: QuestionGenerator, settings: AskSettings) -> dict[str, Any]:
    """What the pairs depend on."""
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
    """The numbers of the report."""
    if not rows:
        why = ", ".join(f"{reason} {count}" for reason, count in known["dropped"].items())
        raise InputError(
            f"no pair was found in {counted(known['passages'], 'passage')} ({why or 'no answer to ask about'}); "
            "lower min_score, or give other documents or another model"
        )
    asked = len({row["id"].rpartition("-")[0] for row in rows})
    return {**known, "pairs": len(rows), "without_pairs": known["passages"] - asked}
