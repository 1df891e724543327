"""The report that stands beside an output: `augmented.json` has `augmented.report.json`, with its name and hash."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json


def report_path(output: Path) -> Path:
    """Where the report of `augmented.json` stands: `augmented.report.json` beside it."""
    return output.with_name(f"{output.stem}.report.json")


def reported(output: Path, *keys: str) -> Any:
    """What the report of an output says under these keys, one inside the other; None where it says nothing.

    Raises:
        InputError: the report is no JSON.
    """
    path = report_path(output)
    found = read_json(path) if path.exists() else None
    for key in keys:
        found = found.get(key) if isinstance(found, dict) else None
    return found


def check_report(output: Path) -> None:
    """Raise `InputError` where the report is that of another file, which has the same name but for its ending."""
    named = reported(output, "output", "path")
    other = output.with_name((Path(named).name if isinstance(named, str) else "") or output.name)
    if other != output and other.exists():
        raise InputError(
            f"output={output}: {report_path(output).name} beside it is the report of {other.name}; give a name that "
            "differs in more than its ending"
        )


def check_apart(written: Iterable[Path], read: Iterable[str | Path]) -> None:
    """Raise `InputError` where a file that is to be written is one that is read."""
    targets = list(written)
    for source in (Path(name).expanduser() for name in read):
        for target in targets:
            same = target.exists() and source.exists() and target.samefile(source)
            if same or target.absolute() == source.absolute():
                raise InputError(f"output={targets[0]}: {target} would be written over {source}; name another file")
