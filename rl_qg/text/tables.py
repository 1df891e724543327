"""Rows as tables: CSV for other programs, Markdown for people."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

Rows = Sequence[Mapping[str, Any]]
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a formula begins
_SIGNED_NUMBER = re.compile(r"[-+][\d.,]+(e[-+]?\d+)?( \[[-+\d., ]*\])?[ *%]*")
_NUMBERS = re.compile(r"(?:of|[\d.,;]|[-+−±–<>≥%×*\[\]()]|\s)*")  # "0.31 [0.30, 0.32] *", "19 of 20", "–"


def columns_of(rows: Rows) -> list[str]:
    """Every column that any row has, in the order of their first appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def column_kinds(rows: Rows) -> dict[str, str]:
    """Every column, and what is in it: `num` where all cells are numbers, intervals or counts, else `words`."""
    return {
        column: "num" if all(_NUMBERS.fullmatch(str(row.get(column, ""))) for row in rows) else "words"
        for column in columns_of(rows)
    }


def as_csv(rows: Rows) -> str:
    """Rows as CSV, with every column that any of them has.

    A text that a spreadsheet would compute as a formula, such as `=1+1` in somebody's file name, begins with an
    apostrophe; numbers stay as they are.
    """
    columns, stream = columns_of(rows), io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(map(_no_formula, columns))
    writer.writerows([_no_formula(row.get(column, "")) for column in columns] for row in rows)
    return stream.getvalue()


def _no_formula(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    begins = value.startswith(_FORMULA) and not _SIGNED_NUMBER.fullmatch(value)
    # The csv module does not quote a carriage return, which then ends the row.
    return ("'" if begins else "") + value.replace("\r\n", "\n").replace("\r", "\n")


def as_markdown(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Rows of cells as a Markdown table, without a newline at its end."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
