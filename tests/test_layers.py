"""Who may import whom, read from the import statements."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STAGES = {"train", "causal", "answers", "train_answers", "generate", "augment", "qa", "score", "report", "evaluation"}
STAGES |= {"evaluate_questions", "correlate", "robustness", "train_kpqa"}
DOOR = {"cli", "commands", "pipeline", "preparation", "study", "filter_models", "metric_list"}
HEAVY = {"hydra", "accelerate", "trl", "deepspeed", "rl_qg"}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def modules(package: str) -> list[Path]:
    paths = sorted((ROOT / package).rglob("*.py"))
    assert paths
    return paths


@pytest.mark.parametrize("path", modules("rewards"), ids=lambda path: path.stem)
def test_rewards_know_nothing_of_training(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & HEAVY


@pytest.mark.parametrize("path", modules("rl_qg"), ids=lambda path: path.stem)
def test_stages_meet_through_files(path: Path) -> None:
    own = {name.removeprefix("rl_qg.").split(".")[0] for name in imports(path) if name.startswith("rl_qg.")}
    name = path.stem if path.parent == ROOT / "rl_qg" else f"{path.parent.name}.{path.stem}"  # rooms hold parts alone
    if name in STAGES:
        script_door = {"cli"}  # behind `if __name__ == "__main__"`
        assert not own & (STAGES - {name}), f"{name} imports another stage"
        assert not own & (DOOR - script_door), f"{name} imports the door"
    if name not in STAGES | DOOR:
        assert not own & (STAGES | DOOR), f"the part {name} imports a stage or the door"


@pytest.mark.parametrize("path", modules("rl_qg"), ids=lambda path: path.stem)
def test_only_the_door_sees_hydra(path: Path) -> None:
    if path.stem != "cli":
        assert not {name.split(".")[0] for name in imports(path)} & {"hydra", "omegaconf"}


def test_no_module_shadows_a_library_when_run_as_a_script() -> None:
    """`accelerate launch rl_qg/train.py` puts `rl_qg/` first on the import path."""
    import importlib.machinery
    import sys

    elsewhere = [entry for entry in sys.path if entry and Path(entry).resolve() not in (ROOT, ROOT / "rl_qg")]
    names = {path.relative_to(ROOT / "rl_qg").with_suffix("").parts[0] for path in modules("rl_qg")}
    for name in names - {"__init__"}:
        assert name not in sys.stdlib_module_names
        assert importlib.machinery.PathFinder.find_spec(name, elsewhere) is None, name


def test_no_dumping_grounds_and_no_file_outgrows_its_room() -> None:
    for path in [*modules("rl_qg"), *modules("rewards")]:
        assert path.stem not in {"utils", "util", "helpers", "common", "misc"}
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 450, path


def test_nothing_unsafe_is_called() -> None:
    for path in [*modules("rl_qg"), *modules("rewards")]:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        calls = {
            node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"eval", "exec"}, path
        assert "trust_remote_code=True" not in text, path
        assert "pickle" not in {name.split(".")[0] for name in imports(path)}, path
