"""What a command loads before it works: no PyTorch where words are counted."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rewards import load

HEAVY = {"torch", "transformers", "datasets", "accelerate", "peft", "trl", "pandas", "scipy.stats"}
AND_SHOW = "import sys; from rl_qg.commands.cli import main; main(); print(*sys.modules, file=sys.stderr)"
ROWS = [
    {"question": asked, "references": ["Who built the old hall?"], "context": f"Ann built the hall in {year}."}
    for year, asked in enumerate(["Who built the hall?", "Who built it?", "When was the old hall built?"], 1901)
]


def loaded(tmp_path: Path, *arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    ran = subprocess.run(
        [sys.executable, "-c", AND_SHOW, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    return {*ran.stderr.splitlines()[-1].split()}


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "--cfg", "job"]])
def test_help_and_composing_load_no_model_library(tmp_path: Path, arguments: list[str]) -> None:
    assert not loaded(tmp_path, *arguments) & {*HEAVY, "numpy"}


@pytest.fixture
def rows(tmp_path: Path) -> str:
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS), encoding="utf-8")
    return "rows.jsonl"


@pytest.mark.parametrize("reward", ["bleu4", "rouge_l", "faithfulness"])
def test_scoring_by_words_loads_no_model_library(tmp_path: Path, rows: str, reward: str) -> None:
    assert not loaded(tmp_path, "score", f"reward={reward}", f"input={rows}", "output=scored.jsonl") & HEAVY
    scored = [json.loads(line) for line in (tmp_path / "scored.jsonl").read_text(encoding="utf-8").splitlines()]
    metric = load(reward)
    columns = {"references": [row["references"] for row in ROWS]} if "references" in metric.needs else {}
    by_python = metric.score([row["question"] for row in ROWS], [row["context"] for row in ROWS], **columns)
    assert [row["score"] for row in scored] == by_python.scores


def test_evaluating_by_words_loads_no_model_library(tmp_path: Path, rows: str) -> None:
    assert not loaded(tmp_path, "evaluate", f"predictions={rows}", "metrics=[bleu4,rouge_l]", "output=found") & HEAVY


def test_training_starts_without_plots(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", "import sys, rl_qg.training.stages; print(*sys.modules)"]
    ran = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "matplotlib" not in ran.stdout.split()


def test_garbage_is_collected_as_usual_once_the_modules_are_there(tmp_path: Path) -> None:
    code = """
import gc
usual = gc.get_threshold()
from rl_qg.commands.cli import main

class Node:
    freed = 0
    def __init__(self): self.itself = self
    def __del__(self): Node.freed += 1

for _ in range(2):
    main(["--help"])
Node(), Node()
kept = [[] for _ in range(600_000)]
assert gc.get_threshold() == usual and not gc.callbacks
assert Node.freed == 2, "what was garbage before is kept"
main(["--help"])
assert gc.get_threshold() == usual
for _ in range(3_000):
    Node()
assert Node.freed > 2, "cycles are not collected"
"""
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
