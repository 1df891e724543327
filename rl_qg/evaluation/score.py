"""Scoring: questions with their passages -> the same rows with a score and its parts.

    rl-qg score reward=qrelscore input=questions.jsonl output=scored.jsonl

The input may have any form that `rl_qg.data.question_tables` reads. Every row is checked before the first is scored.
Then rows are read, scored and written in batches, so memory does not grow with the file (except for SQuAD JSON, which
is one document and is held in memory). Several processes share the batches. After a kill the same command continues
after the last whole batch. `<output stem>.summary.json` says which metric and input the scores are of and, when they
are complete, holds their summary (`rl_qg.evaluation.score_summary`).
"""

import json
import logging
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from accelerate import PartialState

from rewards.contract import COLUMN, check_row_by_row
from rl_qg.data.formats import is_unicode
from rl_qg.data.question_tables import QuestionTable, TableRow
from rl_qg.data.reading import REPORTED_IDS
from rl_qg.evaluation.reward_scorer import Reward, score_or_refuse, signature_of
from rl_qg.evaluation.score_summary import summarise_scores, summary_text
from rl_qg.runtime.bars import ProgressBar
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.out_of_memory import OutOfMemoryRetry
from rl_qg.runtime.processes import from_main
from rl_qg.runtime.resumable_lines import Position, ResumableLines, begins_with

log = logging.getLogger(__name__)


def score_file(
    reward: Reward,
    source: QuestionTable,
    output: Path,
    *,
    batch_size: int,
    state: PartialState,
    accept_changed_data: bool = False,
) -> dict[str, Any]:
    """Score every row of `source` and return the summary.

    A line of `output` holds the fields of the row, `score` (null where the metric gives none that is finite) and
    `parts`. A batch of `batch_size` rows is scored by one process, in one call if it fits into memory, and the caches
    of the metric are emptied before each batch: the file is the same to the last digit after a kill and with any
    number of processes, as far as the machine computes alike.

    Raises:
        MetricInputError: scores of the reward depend on the other rows of a call.
        InputError: no rows; a row without what the metric needs; the disk is full; `output` does not continue
            `source` or holds scores of another metric; `source` has changed since `output` was begun, unless
            `accept_changed_data`.
    """
    check_row_by_row(reward)
    summary = summary_path(output, source)
    lines = ResumableLines(output, summary, content="scores")
    begun = from_main(state, partial(_begin, lines, reward, source, batch_size, accept_changed_data))
    in_parts = OutOfMemoryRetry("score", "shorten the contexts, or score on the CPU (training.use_cpu=true)")
    score = partial(_lines_of, reward, source, columns=begun.columns)

    def lines_of(batch: Sequence[TableRow]) -> list[bytes]:
        if hasattr(reward, "reset_cache"):
            reward.reset_cache()  # a resumed run has a smaller cache, which would change the last digits
        return [line for part in in_parts(score, batch) for line in part]

    lines.write(
        islice(source, begun.position.rows, None),
        lines_of,
        position=begun.position,
        total=begun.total,
        batch_size=batch_size,
        state=state,
        title="score",
        unit="row",
    )
    return from_main(state, partial(_end, lines, begun.note))


@dataclass(frozen=True)
class _Begun:
    """A checked input and output: the number of rows, the columns that the metric gets, where the output is continued,
    and the note that its summary begins with.
    """

    total: int
    columns: list[str]
    position: Position
    note: dict[str, Any]


def _begin(
    lines: ResumableLines, reward: Reward, source: QuestionTable, batch_size: int, accept_changed_data: bool
) -> _Begun:
    """Check input and output, and write into the summary what the scores are of."""
    total, columns = _check(source, reward)
    faults = source.malformed  # of this reading, which was complete
    made_by = {"signature": signature_of(reward), "columns": source.columns}
    sources = source.hashes()
    lines.check(made_by, sources=sources, sources_key="input", accept=accept_changed_data)
    position = lines.position(
        source,
        lambda row, _, line: begins_with(line, _line_start(row).encode()),
        batch_size=batch_size,
        lines_per_row=1,
        row_name=f"row of {source}",
    )
    malformed = {"malformed": {"count": len(faults), "records": faults[:REPORTED_IDS]}} if faults else {}
    note = {**made_by, "input": sources, **malformed}
    lines.write_note({"complete": False, **note})
    return _Begun(total, columns, position, note)


def _end(lines: ResumableLines, note: dict[str, Any]) -> dict[str, Any]:
    """Write the summary of a complete output."""
    summary = {"complete": True, **note, **summarise_scores(lines.path, note["columns"])}
    lines.write_note(summary)
    if summary["score"] is None:
        raise InputError(f"{lines.path}: no row has a finite score; {note['signature']} fails on all of them")
    log.info("%s\ndone: %s, summary in %s", summary_text(summary), lines.path, lines.note)
    return summary


def summary_path(output: Path, source: QuestionTable) -> Path:
    """Where the summary of `output` goes; raise `InputError` for one that is not JSON lines or is the input."""
    if output.suffix != ".jsonl":
        raise InputError(f"output={output}: the output is JSON lines; give a name that ends in .jsonl")
    path = output.with_name(f"{output.stem}.summary.json")
    for written in (output, path):
        if written.resolve() in [read.resolve() for read in source.paths]:
            raise InputError(f"output={output}: would write over the input {written}; name another file")
    return path


def _check(source: QuestionTable, reward: Reward) -> tuple[int, list[str]]:
    """Read every row; return the number of rows and the columns that the metric gets.

    A reward without `needs` gets the context, and answers and references if every row has them.
    """
    needs = getattr(reward, "needs", None)
    if needs is None:
        required, optional = ["question", "context"], ["answer", "references"]
    else:
        required, optional = ["question", *(column for need, column in COLUMN.items() if need in needs)], []
    total, asked, present = 0, False, Counter[str]()
    for row in ProgressBar(source, desc="check", unit="row", leave=False, delay=2):
        for column in required:
            if source.value(row, column) is None:
                raise _missing(source, row, column, reward)
        for name in ("score", "parts"):
            if name in row.fields:
                raise InputError(f"{row.where}: has a field {name!r} already, which the output adds; rename it")
        total += 1
        asked |= bool(str(source.value(row, "question")).strip())
        present.update(column for column in optional if source.value(row, column) is not None)
    if not total:
        raise InputError(f"{source}: holds no row to score; check the file")
    if not asked:
        raise InputError(f"{source}: all {total} questions are empty; check what wrote them")
    for column in optional:
        if 0 < present[column] < total:
            log.warning("%s: %d of %d rows have %s, so the reward gets none", source, present[column], total, column)
    return total, [*required, *(column for column in optional if present[column] == total)]


def _missing(source: QuestionTable, row: TableRow, column: str, reward: Reward) -> InputError:
    metric = "every metric" if column == "question" else getattr(reward, "name", type(reward).__name__)
    kind = {"answer": "text that is not blank", "references": "list of texts"}.get(column, "text")
    return InputError(
        f"{row.where}: field {source.columns[column]!r} is missing or no {kind}, and {metric} needs it; the row has "
        f"{', '.join(map(repr, row.fields))} (columns.{column}=… names another field)"
    )


def _lines_of(
    reward: Reward, source: QuestionTable, rows: Sequence[TableRow], *, columns: Sequence[str]
) -> list[bytes]:
    """Score rows; return one line for each."""
    given: dict[str, Any] = dict.fromkeys(COLUMN.values())
    given |= {column: [source.value(row, column) for row in rows] for column in columns}
    where = f"{rows[0].where} to {rows[-1].where}"
    result = score_or_refuse(
        reward, where, given["question"], given["context"], answers=given["answer"], references=given["references"]
    )
    scores, parts = _plain(result.scores), _plain(result.parts)
    lines = []
    for index, row in enumerate(rows):
        row_parts = {name: values[index] for name, values in parts.items()}
        lines.append(f'{_line_start(row)}{_json(scores[index])}, "parts": {_json(row_parts)}}}\n'.encode())
    return lines


def _line_start(row: TableRow) -> str:
    """A row's line up to its score."""
    return _json(row.fields)[:-1] + ', "score": '


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)  # Parquet files may hold dates
    return text if is_unicode(text) else json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    """The same as Python lists and numbers; None for a number that JSON cannot hold (nan, inf)."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
