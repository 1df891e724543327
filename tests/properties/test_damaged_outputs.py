"""A command that runs again beside a changed file of its own ends in one line, or makes it anew."""

import json
import random
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.runtime.errors import InputError
from tests.properties.draws import VALID
from tests.properties.files import build
from tests.properties.mutations import OF_VALUES, STRUCTURED, mutate

DRAWS = 4  # of each command


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build(folder := tmp_path_factory.mktemp("files"))
    return folder


def kept_scores(content: bytes) -> list[Any]:
    return [json.loads(line)["scores"] for line in content.splitlines()[1:]]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["answers", "correlate", "evaluate", "qa", "robustness", "train-sentences"])
def test_a_command_meets_a_changed_file_of_its_own(
    name: str, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copytree(root, work := tmp_path / "work")
    monkeypatch.chdir(work)
    before = {*work.rglob("*")}
    run_command(name, VALID[name].split())
    made = {path: path.read_bytes() for path in {*work.rglob("*")} - before if path.is_file()}
    changeable = sorted(path for path in made if path.suffix in STRUCTURED and path.name != "tokenizer.json")
    chance = random.Random(name)
    for _ in range(DRAWS):
        path, kind, share = chance.choice(changeable), chance.choice(OF_VALUES), chance.random()
        for kept, content in made.items():
            kept.write_bytes(content)
        mutate(path, kind, share)
        try:
            run_command(name, VALID[name].split())
            if path.parent.parent.name == "scores" or path.parent.name == "scores":
                assert kept_scores(path.read_bytes()) == kept_scores(made[path])
        except InputError as error:
            assert "\n" not in str(error)
        except Exception as error:
            raise AssertionError(f"{path.name}: {kind} at {share}") from error
    rmtree(work)
