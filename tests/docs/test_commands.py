"""Every command of the README and of the tutorial runs; those of the experiments have existing keys.

The pages below docs/ are in `test_how_to.py`. The words are those of the pages. What is replaced to make a run cheap,
or to do without the Hub, is in the tables below.
"""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from rl_qg.commands.catalogue import COMMANDS, named_command
from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.miniatures.cache import QUESTIONS, SHIPPED
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
RAW = ("bench", "report", "search", "study")  # commands without settings


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
    for word in words[2:]:
        assert word.startswith("-") or (ROOT / word).exists(), f"{word}: no such file"


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
    if name not in RAW:
        compose(name, arguments)


def test_the_workflow_and_ci_run_the_readme_s_test_command() -> None:
    named = [line for block in blocks(README) for line in commands(block.code) if line.startswith("make ")]
    assert named == ["make demo", "make test"]
    for path in (".ci/run", ".github/workflows/test.yml"):
        assert "make test" in (ROOT / path).read_text(encoding="utf-8"), path
