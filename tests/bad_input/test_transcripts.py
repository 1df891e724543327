"""Bad input to every command ends in one line that says what is wrong, and with exit code 2."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS, named_command
from tests.bad_input.transcripts import Case, all_cases
from tests.bad_input.workspace import build
from tests.processes import rl_qg, user_environment

CASES = all_cases()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What users may have, in a folder that commands do not write to."""
    root = tmp_path_factory.mktemp("files")
    build(root)
    before = {path: path.read_bytes() for path in user_files(root)}
    yield root
    assert {path: path.read_bytes() for path in user_files(root)} == before, "a file of the user has changed"


def user_files(root: Path) -> Iterator[Path]:
    """All files but what Python compiles."""
    return (path for path in root.rglob("*") if path.is_file() and "pycache" not in str(path))


def states(root: Path) -> dict[str, tuple[int, int, int]]:
    """Size, time of the last change and inode of each of the user's files: a look that costs little."""
    return {str(path): (s.st_size, s.st_mtime_ns, s.st_ino) for path in user_files(root) for s in [path.stat()]}


@pytest.fixture(scope="module")
def untouched(files: Path) -> dict[str, tuple[int, int, int]]:
    return states(files)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return user_environment(tmp_path_factory.mktemp("home"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.where)
def test_bad_input_ends_in_its_line(
    case: Case,
    files: Path,
    untouched: dict[str, tuple[int, int, int]],
    environment: dict[str, str],
    tmp_path: Path,
) -> None:
    for part in files.iterdir():
        (tmp_path / part.name).symlink_to(part)
    words = shlex.split(case.command)
    paths = f"{tmp_path}:{environment['PYTHONPATH']}"  # a user's own modules lie in the working folder
    done = rl_qg({**environment, "PYTHONPATH": paths}, *words[1:], cwd=tmp_path)
    lines = [line for line in re.split(r"[\r\n]+", done.stderr) if line.strip()]
    assert lines and case.matches(lines[-1]), f"{case.where}: {case.command}\n" + "\n".join(lines[-5:])
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert states(files) == untouched, "a file of the user has changed"


def test_every_command_is_in_the_transcripts() -> None:
    tried = {named_command(shlex.split(case.command)[1:])[0] for case in CASES}
    assert set(COMMANDS) <= tried
    assert len(CASES) >= 299
