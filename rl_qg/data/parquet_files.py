"""Rows of Parquet files."""

import reprlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rl_qg.data.formats import first_line
from rl_qg.runtime.errors import InputError


def parquet_rows(path: Path) -> Iterator[tuple[str, int, Any]]:
    """Yield (position for messages, number, row) for every row of a Parquet file, one batch in memory at a time."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=4096):
            for row in _python_rows(batch, path):
                number += 1
                yield f"{path}: row {number}", number, row
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as Parquet ({first_line(error)}); write it again") from None


def _python_rows(batch: Any, path: Path) -> list[dict[str, Any]]:
    """The rows of a batch; raise `InputError` with the column that has a value which Python's types cannot hold."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
        return rows
    except (OverflowError, ValueError, LookupError):  # dates after the year 9999, texts that are not UTF-8, …
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.to_pylist()
            except (OverflowError, ValueError, LookupError) as error:
                raise InputError(
                    f"{path}: column {reprlib.repr(name)} has a value that cannot be read ({first_line(error)}); "
                    "leave the column out, or write it as text"
                ) from None
        raise
