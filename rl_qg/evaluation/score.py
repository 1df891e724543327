"""Scoring: questions with their passages -> the same rows with a score and its parts.

    rl-qg score reward=qrelscore input=questions.jsonl output=scored.jsonl

The input may have any form that `rl_qg.data.question_tables` reads. Every row is checked before the first is scored; then rows
are read, scored and written in blocks, so memory does not grow with the file (SQuAD JSON is one document and is held
whole). Several processes share the blocks. The same command after a kill goes on behind the last whole block.
`<output stem>.summary.json` says which metric and input the scores are of and, when they are complete, what they come
to (`rl_qg.evaluation.score_summary`).
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
from tqdm import tqdm

from rewards.base import COLUMN
from rewards.errors import MetricInputError
from rl_qg.data.formats import is_unicode
from rl_qg.data.question_tables import QuestionTable, Row
from rl_qg.evaluation.reward_scorer import Reward, signature_of
from rl_qg.evaluation.score_summary import summarise_scores, summary_text
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.hashes import check_unchanged
from rl_qg.runtime.json_files import read_json, write_json
from rl_qg.runtime.out_of_memory import Halving
from rl_qg.runtime.parallel_writer import cannot_write, write_lines
from rl_qg.runtime.processes import from_main

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

    A line of `output` holds the row's fields as they were, `score` (null where the metric gives none that is finite)
    and `parts`. A block of `batch_size` rows is scored by one process, as a whole unless memory is too short for it,
    and metrics forget earlier blocks: the file is the same to the last digit after a kill and with any number of
    processes, as far as the machine computes alike.

    Raises:
        InputError: no rows, a row without what the metric needs, a full disk, or an `output` that does not continue
            `source` or holds the scores of another metric. A `source` that has changed since `output` was begun,
            unless `accept_changed_data`.
    """
    record = summary_path(output, source)
    begin = partial(_begin, reward, source, output, record, batch_size, accept_changed_data)
    begun = from_main(state, begin)
    halving = Halving("score", "shorten the contexts, or score on the CPU (training.use_cpu=true)")

    def lines_of(block: Sequence[Row]) -> list[bytes]:
        if hasattr(reward, "forget"):
            reward.forget()  # or a resumed run, which remembers less, would differ in the last digits
        score = partial(_lines, reward, source, columns=begun.columns)
        return [line for lines in halving(score, block) for line in lines]

    with tqdm(
        total=begun.total, initial=begun.done, desc="score", unit="row", disable=not state.is_main_process
    ) as bar:
        write_lines(
            islice(source, begun.done, None),
            lines_of,
            output,
            keep=begun.size,
            batch_size=batch_size,
            state=state,
            advance=bar.update,
        )
    return from_main(state, partial(_end, output, record, begun.note))


@dataclass(frozen=True)
class _Begun:
    """What is to do: `total` rows with these columns for the metric, of which `done` are in the first `size` bytes of
    the output; and the note that its summary begins with.
    """

    total: int
    columns: list[str]
    done: int
    size: int
    note: dict[str, Any]


def _begin(
    reward: Reward, source: QuestionTable, output: Path, record: Path, batch_size: int, accept_changed_data: bool
) -> _Begun:
    """Check input and output, and note in the summary what the scores are of."""
    total, columns = _check(source, reward)
    note = {"signature": signature_of(reward), "columns": source.columns, "input": source.hashes()}
    done, size = _scored_already(source, output, record, note, total, batch_size, accept_changed_data)
    if done:
        log.info("score: %d of %d rows are in %s already", done, total, output)
    try:
        write_json(record, {"complete": False, **note})
    except OSError as error:
        raise cannot_write(output, error) from None
    return _Begun(total, columns, done, size, note)


def _end(output: Path, record: Path, note: dict[str, Any]) -> dict[str, Any]:
    """Write the summary of a complete output."""
    summary = {"complete": True, **note, **summarise_scores(output)}
    try:
        write_json(record, summary)
    except OSError as error:
        raise cannot_write(record, error) from None
    log.info("%s\ndone: %s, summary in %s", summary_text(summary), output, record)
    return summary


def summary_path(output: Path, source: QuestionTable) -> Path:
    """Where the summary of `output` goes; raise `InputError` for an output that has no place or is the input."""
    if output.suffix != ".jsonl":
        raise InputError(f"output={output}: the output is JSON lines; give a name that ends in .jsonl")
    path = output.with_name(f"{output.stem}.summary.json")
    for written in (output, path):
        if written.resolve() in [read.resolve() for read in source.paths]:
            raise InputError(f"output={output}: would write over the input {written}; name another file")
    return path


def _check(source: QuestionTable, reward: Reward) -> tuple[int, list[str]]:
    """Read every row; return how many there are, and the columns that the metric gets.

    A reward that does not say what it needs gets the context, and answers and references where every row has them.
    """
    needs = getattr(reward, "needs", None)
    if needs is None:
        required, optional = ["question", "context"], ["answer", "references"]
    else:
        required, optional = ["question", *(column for need, column in COLUMN.items() if need in needs)], []
    total, having = 0, Counter[str]()
    for row in tqdm(source, desc="check", unit="row", leave=False, delay=2):
        for column in required:
            if source.value(row, column) is None:
                raise _missing(source, row, column, reward)
        for name in ("score", "parts"):
            if name in row.fields:
                raise InputError(f"{row.where}: has a field {name!r} already, which the output adds; rename it")
        total += 1
        having.update(column for column in optional if source.value(row, column) is not None)
    if not total:
        raise InputError(f"{source}: holds no row to score; check the file")
    for column in optional:
        if 0 < having[column] < total:
            log.warning("%s: %d of %d rows have %s, so the reward gets none", source, having[column], total, column)
    return total, [*required, *(column for column in optional if having[column] == total)]


def _missing(source: QuestionTable, row: Row, column: str, reward: Reward) -> InputError:
    who = "every metric" if column == "question" else getattr(reward, "name", type(reward).__name__)
    kind = {"answer": "text that says something", "references": "list of texts"}.get(column, "text")
    return InputError(
        f"{row.where}: field {source.columns[column]!r} is missing or no {kind}, and {who} needs it; the row has "
        f"{', '.join(map(repr, row.fields))} (columns.{column}=… names another field)"
    )


def _scored_already(
    source: QuestionTable,
    output: Path,
    record: Path,
    note: dict[str, Any],
    total: int,
    batch_size: int,
    accept_changed_data: bool,
) -> tuple[int, int]:
    """Return how many rows `output` holds in whole blocks, and the bytes they take, after checking that they are the
    first ones of `source`, scored by the same metric.
    """
    if not output.exists() or not output.stat().st_size:
        return 0, 0
    earlier = read_json(record) if record.exists() else {}
    if "signature" not in earlier:
        raise InputError(
            f"output={output}: exists, and no {record.name} beside it says what wrote it; name another file"
        )
    for key in ("signature", "columns"):
        if earlier.get(key) != note[key]:
            raise InputError(
                f"output={output}: holds scores with {key} {earlier.get(key)}, and this is {note[key]}; "
                "name another file, or delete it to start anew"
            )
    check_unchanged(earlier.get("input", {}), note["input"], output, accept=accept_changed_data)
    number = size = done = kept = 0
    rows = iter(source)
    with output.open("rb") as stream:
        for line in stream:
            row = next(rows, None)
            head = b"" if row is None else _head(row).encode()
            torn = not line.endswith(b"\n")  # only the last line can be
            if row is None or not (line.startswith(head) or (torn and head.startswith(line))):
                raise InputError(
                    f"output={output}: line {number + 1} is not row {number + 1} of {source}; name another file"
                )
            if torn:
                break
            number, size = number + 1, size + len(line)
            if number % batch_size == 0 or number == total:
                done, kept = number, size
    return done, kept


def _lines(reward: Reward, source: QuestionTable, rows: Sequence[Row], *, columns: Sequence[str]) -> list[bytes]:
    """Score some rows; return one line for each."""
    given: dict[str, Any] = dict.fromkeys(COLUMN.values())
    given |= {column: [source.value(row, column) for row in rows] for column in columns}
    try:
        result = reward.score(
            given["question"], given["context"], answers=given["answer"], references=given["references"]
        )
    except MetricInputError as error:
        raise InputError(f"{rows[0].where} to {rows[-1].where}: {error}") from None
    scores, parts = _plain(result.scores), _plain(getattr(result, "parts", {}))
    if {len(scores), *map(len, parts.values())} != {len(rows)}:
        raise InputError(
            f"reward {signature_of(reward)}: returned {len(scores)} scores, or parts of another length, for "
            f"{len(rows)} questions"
        )
    lines = []
    for at, row in enumerate(rows):
        own = {name: values[at] for name, values in parts.items()}
        lines.append(f'{_head(row)}{_json(scores[at])}, "parts": {_json(own)}}}\n'.encode())
    return lines


def _head(row: Row) -> str:
    """The beginning of a row's line, up to its score."""
    return _json(row.fields)[:-1] + ', "score": '


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)  # str: dates and the like, from Parquet
    return text if is_unicode(text) else json.dumps(value, default=str)


def _plain(value: Any) -> Any:
    """The same as lists and numbers of Python's own; None for a number that JSON has no word for (nan, inf)."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
