"""Tables as text: `.csv` (RFC 4180 quoting) and `.tsv` (no quoting: a cell is the text between two tabs), also
gzipped, with a header line.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

from rl_qg.data.formats import text_lines
from rl_qg.runtime.errors import InputError

LONGEST_CELL = 1 << 24


def table_rows(path: Path, kind: str) -> Iterator[tuple[str, int, dict[str, str] | InputError]]:
    """Yield position, number from 1 and fields of each row; for a row with too many or too few cells, what is wrong.

    Blank lines are skipped.

    Args:
        path: of an existing file.
        kind: `csv` or `tsv`.

    Raises:
        InputError: the file cannot be read as such a table, or two columns have one name.
    """
    header: list[str] = []
    number = 0
    for line, cells in _tsv_cells(path) if kind.lower() == "tsv" else _csv_cells(path):
        where = f"{path}: line {line}"
        if not cells:
            continue
        if not header:
            header = cells
            if len(set(header)) < len(header):
                raise InputError(f"{where}: two columns have the same name; rename one")
            continue
        number += 1
        if len(cells) != len(header):
            fault = f"{where}: {len(cells)} cells under a header of {len(header)}; correct the line"
            yield where, number, InputError(fault)
        else:
            yield where, number, dict(zip(header, cells, strict=True))


def _tsv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text_lines(path), 1):
        text = line.rstrip("\r\n")
        yield number, text.split("\t") if text else []


def _csv_cells(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of a row's first line, and its cells."""
    csv.field_size_limit(LONGEST_CELL)  # the default limit of the module, 131,072, is shorter than some documents
    reader = csv.reader(text_lines(path), strict=True)
    start = 1
    try:
        for row in reader:
            yield start, row
            start = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}: line {start}: malformed CSV: {error}") from None
