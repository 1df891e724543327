"""Rated questions from a table, or from JSON with fields of other names, as the records of
`rl_qg.evaluation.meta.judgements`.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_qg.data.formats import json_line_rows
from rl_qg.data.question_tables import FILE_NAME, QuestionTable
from rl_qg.runtime.errors import InputError

NUMBERS = ("human", "ratings", "metrics")
"""Columns of numbers: `human` and `metrics` name one for each criterion or metric, `ratings` one for each rater."""


def judgement_records(path: Path, columns: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the position of each row and its record.

    Args:
        path: `.tsv`, `.csv` or `.parquet` with a header; anything else is JSON lines. All also as `.gz`.
        columns: the name of the column of each field; of `NUMBERS` a mapping, or None where the row has the field
            itself. A table has its numbers as text, and its texts may be blank, which is no value.

    Raises:
        InputError: the file cannot be read, a column that was named is not there, a cell is no number.
    """
    match = FILE_NAME.fullmatch(path.name)
    is_table = match is not None and (match["table"] or match["kind"].lower() in ("tsv", "csv"))
    rows: Iterator[tuple[str, Mapping[str, Any]]] = (
        ((row.where, row.fields) for row in QuestionTable(path))
        if is_table
        else ((where, record) for where, _, record in json_line_rows(path))
    )
    texts = {field: column for field, column in columns.items() if field not in NUMBERS}
    numbers = {field: _checked(field, columns[field]) for field in NUMBERS if columns.get(field)}
    for number, (where, fields) in enumerate(rows):
        if is_table and not number:
            _check_there(where, fields, texts, numbers)
        record = {**fields, **{field: fields.get(column) for field, column in texts.items()}}
        if is_table:
            record = {field: _cell(field, value) for field, value in record.items()}
        for field, named in numbers.items():
            record[field] = {name: _numbers(where, fields, column) for name, column in named.items()}
        yield where, record


def _checked(field: str, named: Any) -> Mapping[str, Any]:
    several = "[COLUMN, COLUMN]" if field == "ratings" else "COLUMN"
    if not isinstance(named, Mapping) or not all(
        isinstance(column, list) if field == "ratings" else isinstance(column, str) for column in named.values()
    ):
        raise InputError(f"columns.{field}={named!r}: name columns, such as columns.{field}={{fluency: {several}}}")
    return named


def _check_there(
    where: str, fields: Mapping[str, Any], texts: Mapping[str, str], numbers: Mapping[str, Mapping[str, Any]]
) -> None:
    """Raise for a column that somebody named and the first row lacks."""
    named = {f"columns.{field}": column for field, column in texts.items() if column != field}
    for field, of_names in numbers.items():
        for name, column in of_names.items():
            one_by_one: Sequence[Any] = column if isinstance(column, list) else [column]
            named |= {f"columns.{field}.{name}": str(one) for one in one_by_one if one not in fields}
    for key, column in named.items():
        if column not in fields:
            raise InputError(f"{where}: {key}={column}: there is no such column; there are {', '.join(fields)}")


def _numbers(where: str, fields: Mapping[str, Any], column: Any) -> Any:
    if isinstance(column, list):
        return [_number(where, one, fields.get(one)) for one in column]
    return _number(where, column, fields.get(column))


def _number(where: str, column: str, cell: Any) -> Any:
    """The number in a cell; what is neither text nor blank is left to the check of records."""
    if not isinstance(cell, str):
        return cell
    if not cell.strip():
        return None
    try:
        return float(cell)
    except ValueError:
        raise InputError(
            f"{where}: column {column!r} is {cell!r:.40}, no number; correct it, or leave it blank"
        ) from None


def _cell(field: str, value: Any) -> Any:
    """The value of a field from the text in a cell; a blank one is none."""
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    if field == "control":
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    return [value] if field == "references" else value
