"""The augmented set as a file: SQuAD v1.1 JSON, or flat rows in Parquet or JSON lines; `data.train=` reads all."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from rl_qg.augmentation.candidates import MEASURES
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer

SYNTHETIC = "synthetic-"
ENDINGS = (".json", ".jsonl", ".parquet")
ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class AugmentedRow:
    """One question; of a generated question also its rank among the candidates, log-probability and measures."""

    example: QAExample
    candidate: int | None = None
    logprob: float | None = None
    measures: Mapping[str, float] = field(default_factory=dict)


def synthetic_row(record: Mapping[str, Any]) -> AugmentedRow:
    """The row of a candidate; its id is `synthetic-<id>-<candidate>`."""
    logprob = record.get("logprob")
    return AugmentedRow(
        QAExample(
            id=f"{SYNTHETIC}{record['id']}-{record['candidate']}",
            title=record["title"],
            context=record["context"],
            question=record["question"],
            answers=(Answer(record["answer"], record["answer_start"]),),
            language=record.get("language") or "",
        ),
        record["candidate"],
        _finite(logprob),
        record[MEASURES],
    )


def _finite(value: Any) -> float | None:
    """A finite number as a float; None for everything else."""
    try:
        return float(value) if type(value) in (int, float) and isfinite(value) else None
    except OverflowError:  # a whole number of hundreds of digits
        return None


def check_output(output: Path, measures: Iterable[str]) -> None:
    """Raise `InputError` for a file of unknown kind, or a measure with the name of a column."""
    if output.suffix not in ENDINGS:
        raise InputError(
            f"{output}: the output is SQuAD JSON or flat rows; give a name that ends in {', '.join(ENDINGS)}"
        )
    if clashes := sorted(set(measures) & set(_flat(AugmentedRow(QAExample("", "", "", "", ())), ()))):
        raise InputError(
            f"augment.filters.{clashes[0]}: is the name of a column of the output; give the filter another name"
        )


def write_augmented(output: Path, rows: Iterable[AugmentedRow], measures: Sequence[str]) -> int:
    """Write the rows atomically and return their number. In flat formats `measures` are columns, null for human
    questions.
    """
    if output.suffix == ".json":
        return write_squad(output, (row.example for row in rows))
    flat = (_flat(row, measures) for row in rows)
    return _write_lines(output, flat) if output.suffix == ".jsonl" else _write_parquet(output, flat, measures)


def _flat(row: AugmentedRow, measures: Sequence[str]) -> dict[str, Any]:
    example = row.example
    answers = {
        "text": [answer.text for answer in example.answers],
        "answer_start": [answer.start for answer in example.answers],
    }
    values = {name: row.measures.get(name) for name in measures}
    return {
        "id": example.id,
        "title": example.title,
        "context": example.context,
        "question": example.question,
        "answers": answers,
        "source": "gold" if row.candidate is None else "synthetic",
        "candidate": row.candidate,
        "logprob": row.logprob,
        **{name: None if value is None or value != value else value for name, value in values.items()},
    }


def _write_lines(output: Path, rows: Iterable[dict[str, Any]]) -> int:
    count = 0
    with atomic_writer(output) as stream:
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _write_parquet(output: Path, rows: Iterator[dict[str, Any]], measures: Sequence[str]) -> int:
    import pyarrow
    import pyarrow.parquet

    text, number = pyarrow.string(), pyarrow.float64()
    answers = pyarrow.struct({"text": pyarrow.list_(text), "answer_start": pyarrow.list_(pyarrow.int32())})
    schema = pyarrow.schema(
        {
            **dict.fromkeys(("id", "title", "context", "question"), text),
            "answers": answers,
            "source": text,
            "candidate": pyarrow.int64(),
            "logprob": number,
            **dict.fromkeys(measures, number),
        }
    )
    count = 0
    output.parent.mkdir(parents=True, exist_ok=True)
    partial = output.with_name(f".{output.name}.part")
    try:
        with pyarrow.parquet.ParquetWriter(partial, schema) as writer:
            while batch := list(islice(rows, ROWS_AT_ONCE)):
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
                count += len(batch)
        partial.replace(output)
    finally:
        partial.unlink(missing_ok=True)
    return count
