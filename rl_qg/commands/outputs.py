"""What a command needs before the work begins: an output that is named and writable, and packages."""

from collections.abc import Iterable
from dataclasses import asdict
from errno import EISDIR
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from rl_qg.data.parts import DataPart
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json, writing
from rl_qg.settings import Settings

if TYPE_CHECKING:
    from rl_qg.data.question_tables import QuestionTable


def required(value: str, key: str, example: str, *endings: str) -> Path:
    """The path that a key holds; raise `InputError` where it has none, or none of these endings."""
    if not value:
        raise InputError(f"{key} has no value; give one, such as {key}={example}")
    if endings and Path(value).suffix not in endings:
        raise InputError(f"{key}={value}: give a name that ends in {' or '.join(endings)}")
    return Path(value)


def question_table(options: Any, settings: Settings) -> "QuestionTable":
    """The questions that a command's `input` names, with its `columns`."""
    from rl_qg.data.question_tables import QuestionTable

    if not options.input:
        raise InputError("input has no value; give one, such as input=questions.jsonl")
    return QuestionTable(options.input, asdict(options.columns), hotpotqa_context=settings.data.hotpotqa_context)


def part_of(settings: Settings) -> DataPart | None:
    return DataPart.parse(settings.part) if settings.part else None


def check_packages(command: str, packages: Iterable[str], extra: str) -> None:
    if missing := [name for name in packages if find_spec(name) is None]:
        raise InputError(f'{command}: {missing[0]} is not installed; install it: pip install "rl-qg[{extra}]"')


def flat_rows(value: str, example: str) -> Path:
    """The path of an output of rows; raise `InputError` for another ending, or where nothing can be written."""
    output = required(value, "output", example, ".jsonl", ".parquet")
    check_writable(output)
    return output


def check_writable(output: Path) -> None:
    """Raise `InputError` before the work begins where its result could not be written."""
    with writing(output):
        output.parent.mkdir(parents=True, exist_ok=True)
        if output.is_dir():
            raise IsADirectoryError(EISDIR, "it is a folder")
        with TemporaryFile(dir=output.parent):
            pass


def check_own_json(output: Path, keys: Iterable[str], beside: Path | None = None) -> None:
    """Raise `InputError` if there is a file in the place of a JSON output that has not its keys, so that it is not
    ours; or one in the place of the file `beside` it, but no such JSON.
    """
    if output.is_file():
        try:
            value = read_json(output)
        except InputError:
            value = None
        if isinstance(value, dict) and set(keys) <= value.keys():
            return
    elif beside is None or not beside.exists():
        return
    raise InputError(
        f"output={beside or output}: {output if output.is_file() else beside} is not of this command; name another"
    )


def check_own_page(output: Path, title: str) -> None:
    """Raise `InputError` if there is a file in the place of a page whose title does not end as ours do."""
    if output.is_file() and f"{title}</title>".encode() not in output.read_bytes():
        raise InputError(f"{output}: exists and is not a page of this command; name another file")
