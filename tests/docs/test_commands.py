"""Every command of the README and of the tutorial runs; those of the experiments have existing keys.

The pages below docs/ are in `test_how_to.py`. The words are those of the pages. What is replaced to make a run cheap,
or to do without the Hub, is in the tables below.
"""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS, named_command
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.commands.studies import shipped_searches
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.miniatures.cache import QUESTIONS, SHIPPED
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.search_space import SearchFile, read_search
from rl_qg.studies.study import Study
from rl_qg.studies.transfer import Transfer
from tests.docs.markdown import PAGES, ROOT, Block, blocks, commands, indented_commands
from tests.docs.serving_commands import serve_study_until_ready, serve_until_ready

README, TUTORIAL = ROOT / "README.md", ROOT / "docs" / "tutorial.md"

# What a page says, and what the test says in its place, to be quick and to do without the Hub.
REPLACED = {
    "preset=quickstart": "preset=smoke",
    # No other filters keep what an untrained model asks.
    "filters=strict filters.round_trip.reader=runs/first/qa/gold": "filters=none",
    "rl_qg/train.py": str(ROOT / "rl_qg" / "train.py"),
    "bert-base-cased": str(SHIPPED / "bert"),
    "gpt2": str(SHIPPED / "gpt2"),
    # The generator of the smoke run is hardly trained and asks nothing that could be kept.
    'from_pretrained("runs/first/scst")': f'from_pretrained("{QUESTIONS}")',
    "ask text.txt": f"ask text.txt model.path={QUESTIONS}",
    "ask text.pdf": "ask text.txt",
    "model.path=lmqg/t5-base-squad-qag": f"model.path={QUESTIONS}",
    "rl-qg serve": f"rl-qg serve model.path={QUESTIONS}",
}
ADDED = "preset=smoke"  # to a command that names no preset
RAW = ("bench", "estimate", "merge", "report", "search", "study")  # commands without settings


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the data files that the pages name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))  # for PYTHONPATH=. in front of a command
    write_squad("train.json", synthetic_examples(6, seed=1))
    write_squad("dev.json", synthetic_examples(3, seed=2))
    Path("text.txt").write_text(next(iter(synthetic_examples(1, seed=3))).context)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", [README, TUTORIAL], ids=lambda page: page.stem)
def test_every_command_runs(page: Path, folder: Path) -> None:
    ran = [run(block) for block in blocks(page)]
    assert sum(ran) >= 6, "the page has lost its commands"


def run(block: Block) -> int:
    """Run a block as a reader would, in the working folder. Returns how many commands it had."""
    code = replaced(block.code)
    if block.title:
        Path(block.title).write_text(code)
        return 0
    if block.language == "python":
        exec(compile(code, "block", "exec"), {})
        return 1
    assert not block.language, f"a block of {block.language}: say here how to run it"
    lines = commands(code)
    for line in lines:
        run_line(line)
    return len(lines)


def run_line(line: str) -> None:
    words = [word for word in shlex.split(line) if word != "PYTHONPATH=."]
    outputs = [word.partition("=")[2] for word in words if re.match(r"output(_dir)?=", word)]
    if words[:2] == ["rl-qg", "serve"]:
        serve_until_ready(words[1:])
    elif words[:3] == ["rl-qg", "rate", "demo"]:
        serve_study_until_ready(words[1:])
    elif words[0] == "rl-qg":
        name, *arguments = words[1:]
        run_command(name, arguments if name in RAW or ADDED in arguments else [*arguments, ADDED])
    elif words[:2] == ["accelerate", "launch"]:
        launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_processes", "1", *words[2:]]
        subprocess.run([*launch, ADDED], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=600)
        outputs = ["runs/smoke"]
    else:
        check_installation(words)
    for output in outputs:
        assert Path(output).exists(), f"{line}: nothing at {output}"


def replaced(code: str) -> str:
    for word, stand_in in REPLACED.items():
        code = code.replace(word, stand_in)
    return code


def check_installation(words: list[str]) -> None:
    """A target of make exists, and so does what pip is to install; neither is run."""
    if words[0] == "make":
        subprocess.run(["make", "--dry-run", *words[1:]], check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        return
    assert words[:2] == ["pip", "install"], f"say here how to run {words}"
    optional = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words[2:]:
        path, _, extras = word.rstrip("]").partition("[")
        assert word.startswith("-") or (ROOT / path).exists(), f"{word}: no such file"
        assert not extras or set(extras.split(",")) <= set(optional), f"{word}: pyproject.toml lacks such an extra"


DOCUMENTED = [
    (page.relative_to(ROOT).as_posix(), line)
    for page in PAGES
    for line in dict.fromkeys(
        [*(line for block in blocks(page) for line in commands(block.code)), *indented_commands(page)]
    )
    if re.match(r"(rl-qg|accelerate launch \S+ \S+ rl_qg/)", line)
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "line"), DOCUMENTED)
def test_documented_commands_and_keys_exist(page: str, line: str) -> None:
    """What a page leaves open is filled in: `…` stands for more keys, and values in capitals for the reader's own."""
    words = [word for word in shlex.split(line) if not word.startswith(("…", "--"))]
    start = next(number for number, word in enumerate(words) if word == "rl-qg" or word.startswith("rl_qg/"))
    launched = [] if words[start] == "rl-qg" else [Path(words[start]).stem]
    name, arguments = named_command([*launched, *words[start + 1 :]])
    assert name in COMMANDS
    if name == "bench":
        name, arguments = f"bench {arguments[0]}", arguments[1:]
    if name in JOB_FILES:
        check_job_file(name, arguments)
    elif name == "estimate":
        compose(arguments[0], arguments[1:])
    elif name in ("merge", "report", "bench report"):
        assert all(word.partition("=")[0] == "output" for word in arguments if "=" in word)
        assert name == "report" or any("=" in word for word in arguments)
    else:
        compose(name.removesuffix(" data"), arguments)


# Commands that run the jobs of a file, whose keys are those of a class.
JOB_FILES: dict[str, tuple[type, Callable[[Path, list[str]], object]]] = {
    "study": (Study, partial(read_job_file, Study)),
    "search": (SearchFile, lambda path, given: read_search(str(path), given, shipped_searches())),
    "bench transfer": (Transfer, partial(read_job_file, Transfer)),
}


def check_job_file(name: str, arguments: list[str]) -> None:
    """A file of the repository is read with the keys; of the reader's own file the keys exist."""
    (file, *given), (kind, read) = arguments, JOB_FILES[name]
    path = shipped_searches().get(file, ROOT / file)
    is_own = "/" not in file and file.endswith(".yaml")  # written by the reader
    assert path.exists() or is_own, f"{file}: no such file, and no search of the package"
    if path.exists():
        read(path, given)
    assert {word.partition("=")[0].split(".")[0] for word in given} <= {field.name for field in fields(kind)}
    assert all("=" in word for word in given)


SCRIPT = re.compile(r"(?:\w+=\S+ )*python (?:-m (?P<module>tests\S+)|(?P<file>\S+\.py))(?P<rest>.*)")
SCRIPTS = {
    (page.relative_to(ROOT).as_posix(), line): found
    for page in PAGES
    for line in [*(line for block in blocks(page) for line in commands(block.code)), *indented_commands(page)]
    if (found := SCRIPT.match(line))
}


@pytest.mark.parametrize(("page", "line"), SCRIPTS)
def test_documented_scripts_and_their_options_exist(page: str, line: str) -> None:
    found = SCRIPTS[page, line]
    place = ROOT / (found["file"] or found["module"].replace(".", "/"))
    files = [path for path in (place, place.with_suffix(".py"), place / "__main__.py") if path.is_file()]
    assert files, f"{place}: no such script"
    text = files[0].read_text(encoding="utf-8")
    beside = [path for path in files[0].parent.glob("*.py") if re.search(rf"^(from|import) {path.stem}\b", text, re.M)]
    text += "".join(path.read_text(encoding="utf-8") for path in beside)
    for option in re.findall(r"(?<= )--[\w-]+", found["rest"]):
        written = (f'"{option}"', f'"{option[2:]}"') if 'f"--{name}"' in text else (f'"{option}"',)
        assert any(form in text for form in written), f"{files[0]}: has no {option}"


def test_options_of_scripts_are_found_on_pages() -> None:
    assert len(SCRIPTS) > 40 and sum("--" in found["rest"] for found in SCRIPTS.values()) > 30


def test_the_workflow_and_ci_run_the_readme_s_test_command() -> None:
    named = [line for block in blocks(README) for line in commands(block.code) if line.startswith("make ")]
    assert named == ["make demo", "make test"]
    for path in (".ci/run", ".github/workflows/test.yml"):
        assert "make test" in (ROOT / path).read_text(encoding="utf-8"), path
