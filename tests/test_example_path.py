"""The files that one training example passes on its way from the data file to the reader: those that the architecture
page lists, found by running the pipeline. On its way through one update each of them is entered once.

A file counts when one of its functions is called with the example: its id, its passage, its question, or a matrix of
token ids. Rooms that hand data on without reading it do not count.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

from rl_qg.commands.cli import run_command
from rl_qg.commands.compose import compose
from rl_qg.data.splits import load_splits
from tests.rl_qg.training.word_task import data, trainer

ROOT = Path(__file__).parent.parent
PACKAGES = ("rl_qg", "rewards")
HANDING_ON = ("rl_qg/runtime/", "rl_qg/commands/")
PAGE = ROOT / "docs" / "architecture.md"
MOST_FILES = 36
DEEPEST = 3  # of containers in containers
LONG_TEXT = 80  # characters; a longer text may contain a passage
CO_VARARGS = 0x0C  # flags of *args and **kwargs


class Trace:
    """A profile function of Python that collects the files whose functions are called with an example."""

    def __init__(self, texts: set[str], passages: set[str]) -> None:
        self.texts, self.passages = texts, passages
        self.files: set[str] = set()
        self.names: dict[CodeType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self.names:
            self.names[code] = counted_file(code)
        name = self.names[code]
        if name and name not in self.files and any(self.holds(value) for value in arguments(frame)):
            self.files.add(name)

    def holds(self, value: Any, depth: int = 0) -> bool:
        """Whether a value is an example's text or token ids, or contains them."""
        if isinstance(value, str):
            return value in self.texts or (len(value) > LONG_TEXT and any(text in value for text in self.passages))
        if isinstance(value, torch.Tensor):
            return value.dtype == torch.int64 and value.dim() == 2
        return depth < DEEPEST and any(self.holds(part, depth + 1) for part in parts(value))


def counted_file(code: CodeType) -> str:
    """The path in the repository of the file that a function is defined in; empty where it does not count."""
    path = Path(code.co_filename)
    if code.co_name == "<module>" or not any(path.is_relative_to(ROOT / package) for package in PACKAGES):
        return ""
    name = path.relative_to(ROOT).as_posix()
    return "" if name.startswith(HANDING_ON) else name


def arguments(frame: FrameType) -> Iterator[Any]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + (code.co_flags & CO_VARARGS).bit_count()
    yield from (frame.f_locals.get(name) for name in code.co_varnames[:count] if name != "self")


def parts(value: Any) -> list[Any]:
    """The first entries of a container: enough, since all examples of a list go the same way."""
    if isinstance(value, dict):
        return [*value, *value.values()][:80]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)[:4]
    return list(vars(value).values()) if is_dataclass(value) and not isinstance(value, type) else []


@pytest.mark.slow
def test_a_training_example_passes_the_listed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gold = load_splits(compose("pipeline", ["preset=smoke"]).data).gold
    passages = {example.context for example in gold}
    trace = Trace({text for example in gold for text in (example.id, example.question)} | passages, passages)
    sys.setprofile(trace)
    try:
        run_command("pipeline", ["preset=smoke", "output_dir=run"])
    finally:
        sys.setprofile(None)
    assert sorted(trace.files - listed()) == [], "add these to the page, or keep the example out of them"
    assert sorted(listed() - trace.files) == [], "take these off the page"
    assert len(trace.files) <= MOST_FILES


def listed() -> set[str]:
    section = PAGE.read_text(encoding="utf-8").split("## One example")[1].split("\n## ")[0]
    return set(re.findall(r"^\| `((?:rl_qg|rewards)/[\w/]+\.py)`", section, re.MULTILINE))


TRAINER = "rl_qg/training/trainer.py"
STAYS = [  # files that the trainer calls with the inputs of an update, in this order
    "rl_qg/generation/decoding.py",
    "rl_qg/generation/prompts.py",
    "rl_qg/scoring/reward_scorer.py",
    "rl_qg/generation/logprobs.py",
    "rl_qg/generation/sharing.py",
    "rl_qg/generation/logprobs.py",  # decoder inputs before the forward pass, log-probabilities after it
    "rl_qg/training/objectives.py",
    "rl_qg/training/step_metrics.py",
    "rl_qg/training/run_files.py",
]


def test_an_update_enters_each_file_once(tmp_path: Path) -> None:
    """Who reads `compute_loss` opens each file that it calls with the inputs once, but for one."""
    subject = trainer(tmp_path, ce_epochs=0, max_steps=4, train_dataset=data(8), normalise_advantage="running")
    subject.state.max_steps = 4
    passages = {example.context for example in data(8)}
    trace = Calls({text for example in data(8) for text in (example.id, example.question)} | passages, passages)
    inputs = subject.encoder(data(8))
    sys.setprofile(trace)
    try:
        subject.compute_loss(subject.model, dict(inputs), num_items_in_batch=32)
    finally:
        sys.setprofile(None)
    assert [name for name, _ in groupby(trace.entered)] == STAYS
    assert len(STAYS) - len(set(STAYS)) == 1


class Calls(Trace):
    """Collects the files, in order, that the trainer calls with an example."""

    def __init__(self, texts: set[str], passages: set[str]) -> None:
        super().__init__(texts, passages)
        self.entered: list[str] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or (name := counted_file(frame.f_code)) in ("", TRAINER):
            return
        caller = frame.f_back
        while caller is not None and not counted_file(caller.f_code):
            caller = caller.f_back  # out of libraries, such as the context managers of Python
        if caller is not None and counted_file(caller.f_code) == TRAINER and any(map(self.holds, arguments(frame))):
            self.entered.append(name)
