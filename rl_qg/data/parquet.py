"""Rows of JSON as a Parquet file, one row group in memory at a time.

Parquet has one type for each column, so rows are read twice: for the types, and to be written. What is written depends
on the rows alone: columns stand in the order of their first value, fields within them by name. A missing value and an
empty object, which Parquet cannot hold, are null.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow.parquet import ParquetWriter

from rewards.errors import first_line
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import atomic_writer

ROWS_AT_ONCE = 4096  # of a row group
Row = Mapping[str, Any]


def write_rows(output: Path, rows: Callable[[], Iterable[Row]]) -> int:
    """Write the rows, which `rows` gives twice, atomically, and return their number."""
    schema = schema_of(rows(), output)
    with _one_type(output, "one"):  # where a whole number beside decimals is none of them
        return write_table(output, ({name: _stored(row[name]) for name in row} for row in rows()), schema)


def schema_of(rows: Iterable[Row], output: Path) -> Any:
    """The schema of rows; `InputError` for a column whose values have no common type."""
    types, with_value, rest = dict[str, Any](), dict[str, None](), iter(rows)
    while batch := list(islice(rest, ROWS_AT_ONCE)):
        with_value |= dict.fromkeys(name for row in batch for name in row if row[name] not in (None, {}))
        for name in dict.fromkeys(chain.from_iterable(batch)):
            with _one_type(output, repr(name)):
                found = pyarrow.array([_stored(row.get(name)) for row in batch]).type
                both = [pyarrow.schema([(name, one)]) for one in (types.get(name, found), found)]
                types[name] = pyarrow.unify_schemas(both, promote_options="permissive").field(name).type
    return pyarrow.schema([(name, _by_name(types[name])) for name in [*with_value, *sorted({*types} - {*with_value})]])


@contextmanager
def _one_type(output: Path, name: str) -> Iterator[None]:
    try:
        yield
    except (pyarrow.ArrowException, OverflowError) as error:
        raise InputError(
            f"output={output}: Parquet has one type for each column, and {name} has values of several "
            f"({first_line(error)}); give a name that ends in .jsonl"
        ) from None


def write_table(output: Path, rows: Iterator[dict[str, Any]], schema: Any) -> int:
    """Write rows under a schema of pyarrow, atomically, and return their number."""
    count = 0
    with atomic_writer(output) as stream, ParquetWriter(stream.buffer, schema) as writer:
        while batch := list(islice(rows, ROWS_AT_ONCE)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
            count += len(batch)
    return count


def _stored(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _stored(item) for name, item in value.items()} or None
    return [_stored(item) for item in value] if isinstance(value, list) else value


def _by_name(kind: Any) -> Any:
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct(sorted((field.name, _by_name(field.type)) for field in kind))
    return pyarrow.list_(_by_name(kind.value_type)) if pyarrow.types.is_list(kind) else kind
