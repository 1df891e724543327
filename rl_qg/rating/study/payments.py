"""Who is to be paid: the one file that holds identities of raters, apart from every export."""

import csv
import json
from pathlib import Path

from rl_qg.rating.study.store import Store
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import atomic_writer

COLUMNS = ("rater", "panel", "identity", "state", "submitted", "surplus", "codes", "extra")


def write_payments(store: Store, path: Path, export: Path) -> int:
    """Write a table of the raters whose identity is known, readable by its owner alone.

    Args:
        store: of the study.
        path: of the table (CSV).
        export: the folder of the export, which must not hold it.

    Returns:
        how many raters there are.

    Raises:
        InputError: the table would be in the folder of the export.
    """
    if export.resolve() in path.resolve().parents or path.is_dir():
        raise InputError(f"payments={path}: identities must not be among the ratings; name a file elsewhere")
    rows = store.identities()
    with atomic_writer(path) as stream:
        Path(stream.name).chmod(0o600)
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(COLUMNS)
        for one in rows:
            extra = json.dumps(dict(one.extra), ensure_ascii=False)
            row = (one.rater.id, one.rater.panel, one.identity, one.rater.state, one.submitted, one.surplus)
            writer.writerow([_no_formula(str(value)) for value in (*row, " ".join(one.codes), extra)])
    return len(rows)


def _no_formula(text: str) -> str:
    """A text that no spreadsheet runs: whoever came chose the identity."""
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text
