"""The report beside an output: that of `augmented.json` is `augmented.report.json`, with its name and hash."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json


def report_path(output: Path) -> Path:
    """The path of an output's report: `augmented.report.json` for `augmented.json`."""
    return output.with_name(f"{output.stem}.report.json")


def report_value(output: Path, *keys: str) -> Any:
    """The value in the report of an output under nested keys; None if there is none.

    Raises:
        InputError: the report is not JSON.
    """
    path = report_path(output)
    value = read_json(path) if path.exists() else None
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def check_report(output: Path) -> None:
    """Raise `InputError` if the report belongs to another file, whose name differs only in its ending."""
    name = report_value(output, "output", "path")
    other = output.with_name((Path(name).name if isinstance(name, str) else "") or output.name)
    if other != output and other.exists():
        raise InputError(
            f"output={output}: {report_path(output).name} beside it is the report of {other.name}; give a name that "
            "differs in more than its ending"
        )


def check_own(output: Path) -> None:
    """Raise `InputError` if there is a file in the place of an output that has no report, so that it is not ours."""
    if output.exists() and not report_path(output).exists():
        raise InputError(
            f"output={output}: exists, and there is no {report_path(output).name} beside it that says how it was "
            "made; name another file, or delete this one"
        )


def check_distinct_files(written: Iterable[Path], read: Iterable[str | Path]) -> None:
    """Raise `InputError` if a file to be written is also one to be read."""
    targets = list(written)
    for source in (Path(name).expanduser() for name in read):
        for target in targets:
            same = target.exists() and source.exists() and target.samefile(source)
            if same or target.absolute() == source.absolute():
                raise InputError(f"output={targets[0]}: {target} would be written over {source}; name another file")
