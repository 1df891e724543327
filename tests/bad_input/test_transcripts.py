"""Bad input to every command ends in one line that says what is wrong, and with exit code 2."""

import re
import shlex
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS, named_command
from tests.bad_input.transcripts import Case, all_cases
from tests.bad_input.workspace import build
from tests.processes import rl_qg, user_environment

CASES = all_cases()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What users may have, in a folder that commands do not write to."""
    root = tmp_path_factory.mktemp("files")
    build(root)
    return root


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return user_environment(tmp_path_factory.mktemp("home"))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.where)
def test_bad_input_ends_in_its_line(case: Case, files: Path, environment: dict[str, str], tmp_path: Path) -> None:
    for part in files.iterdir():
        (tmp_path / part.name).symlink_to(part)
    before = {path: path.read_bytes() for path in files.rglob("*") if path.is_file() and "pycache" not in str(path)}
    words = shlex.split(case.command)
    paths = f"{tmp_path}:{environment['PYTHONPATH']}"  # a user's own modules lie in the working folder
    done = rl_qg({**environment, "PYTHONPATH": paths}, *words[1:], cwd=tmp_path)
    lines = [line for line in re.split(r"[\r\n]+", done.stderr) if line.strip()]
    assert lines and case.matches(lines[-1]), f"{case.where}: {case.command}\n" + "\n".join(lines[-5:])
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    after = {path: path.read_bytes() for path in before if path.exists()}
    assert after == before, "a file of the user has changed"


def test_every_command_is_in_the_transcripts() -> None:
    tried = {named_command(shlex.split(case.command)[1:])[0] for case in CASES}
    assert set(COMMANDS) <= tried
    assert len(CASES) >= 299
