"""Rows as tables that other programs read."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with every column that any of them has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()
