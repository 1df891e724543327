"""The wheel holds everything that the package needs: its copy alone, away from the repository, runs the pipeline."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import rewards
import rl_qg

ROOT = Path(__file__).parent.parent
PACKAGES = ("rl_qg", "rewards")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"))


def build(source: Path, folder: Path) -> Path:
    """Build the wheel of a source tree with the tools of this environment, without network."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(source)], check=True)
    (path,) = folder.glob("rl_qg-*.whl")
    return path


def contents(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def test_every_file_of_the_packages_and_the_settings_is_in_it(wheel: Path) -> None:
    names = {
        path.relative_to(ROOT).as_posix()
        for folder in (*PACKAGES, "configs")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(names) > 150
    packaged = contents(wheel)
    assert not {re.sub("^configs/", "rl_qg/configs/", name) for name in names} - packaged
    assert {name.split("/")[0] for name in packaged} == {*PACKAGES, f"rl_qg-{rewards.__version__}.dist-info"}


def test_every_file_names_the_same_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["version"]
    assert project == str(citation) == rl_qg.__version__ == rewards.__version__


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path], check=True, cwd=ROOT)
    (archive,) = tmp_path.glob("rl_qg-*.tar.gz")
    with tarfile.open(archive) as source:
        source.extractall(tmp_path / "source", filter="data")
    (folder,) = (tmp_path / "source").iterdir()
    assert contents(build(folder, tmp_path)) == contents(wheel)


def test_its_copy_alone_runs_the_pipeline(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True)
    program = (
        "import rl_qg, rewards, sys\n"
        "from pathlib import Path\n"
        "assert all(Path(package.__file__).is_relative_to(sys.argv[1]) for package in (rl_qg, rewards))\n"
        "sys.argv = ['rl-qg', *sys.argv[2:]]\n"
        "from rl_qg.commands.cli import main\n"
        "main()\n"
    )
    # PYTHONPATH comes before the .pth file of the editable installation; -P keeps the working folder out.
    environment = os.environ | {"PYTHONPATH": str(target), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-P", "-c", program, str(target), "pipeline", "preset=smoke", "output_dir=run"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert (tmp_path / "run" / "report.html").exists()
