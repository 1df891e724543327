"""Rows as tables: CSV for other programs, Markdown for people."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]


def columns_of(rows: Rows) -> list[str]:
    """Every column that any row has, in the order of their first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def as_csv(rows: Rows) -> str:
    """Rows as CSV, with every column that any of them has."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns_of(rows), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows of cells as a Markdown table, without a newline at its end."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
