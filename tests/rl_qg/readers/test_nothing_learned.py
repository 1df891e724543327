"""A training that has learned nothing ends with an error and saves no model, however brief it is."""

from pathlib import Path

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.runtime.errors import NothingLearned
from tests.bad_input.workspace import build

FILES = ["data.train=data/train.json", "data.validation=data/dev.json", "preset=smoke"]
COMMANDS = {
    "train-answers": [*FILES, "train_answers.model.path=models/bert"],
    "train-kpqa": [*FILES, "train_kpqa.model.path=models/bert"],
    "train-sentences": [*FILES, "train_sentences.model.path=models/bert"],
    "qa": [*FILES, "qa.model.path=models/reader", "seeds=[0]", "warmup_fraction=0"],
    "retrieve": ["questions=data/train.json", "data=data/dev.json", "preset=smoke", "retrieve.model.path=models/bert"],
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("files")
    build(root)
    return root


@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_model_is_saved(
    command: str, updates: int, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    length = [f"max_steps={updates}"] if command != "train-sentences" else [f"epochs={updates}"]
    output = tmp_path / "model"
    with pytest.raises(NothingLearned, match="no model is saved: lower the learning rate"):
        run_command(command, [*COMMANDS[command], "learning_rate=1e9", *length, f"output_dir={output}"])
    assert not [path for path in output.rglob("*.safetensors") if "checkpoint" not in str(path)]


def test_a_single_update_learns(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm-up, whose first update has a rate of 0, is for more than one."""
    monkeypatch.chdir(files)
    found = []
    for number, rate in enumerate(("1e-3", "1e-3", "2e-3")):
        output = tmp_path / str(number)
        arguments = [*COMMANDS["train-answers"], f"learning_rate={rate}", "max_steps=1", "warmup_fraction=0.1"]
        run_command("train-answers", [*arguments, f"output_dir={output}"])
        found.append((output / "model.safetensors").read_bytes())
    assert found[0] == found[1] != found[2]
