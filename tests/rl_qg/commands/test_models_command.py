"""`rl-qg models`: JSON lines in a pipe, a table on a terminal, and the format of a name."""

import json
import sys

import pytest

from rl_qg.commands.cli import run_command
from rl_qg.generation.published import FORMATS
from rl_qg.runtime.errors import InputError


def test_a_pipe_gets_a_line_for_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    run_command("models", [])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["model.format"] for row in rows] == list(FORMATS)
    assert all(row[key] for row in rows for key in ("models", "task", "input", "output", "size", "licence", "source"))
    (row,) = (row for row in rows if row["model.format"] == "mrm8488-ap")
    assert (row["input"], row["output"]) == ("answer: ANSWER  context: …", "question: QUESTION")


def test_a_name_has_its_format(capsys: pytest.CaptureFixture[str]) -> None:
    run_command("models", ["lmqg/t5-base-squad-qag"])
    row = json.loads(capsys.readouterr().out)
    assert (row["model.format"], row["output"]) == ("lmqg-qag", "question: QUESTION, answer: ANSWER | …")
    with pytest.raises(InputError, match="mine/t5: no known model has such a name"):
        run_command("models", ["lmqg/t5-base-squad-qg", "mine/t5"])


def test_a_terminal_gets_a_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run_command("models", [])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(FORMATS) + 2 and lines[0].split()[1] == "models"
