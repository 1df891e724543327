"""Progress bars on a terminal, and lines in a log."""

import io
import sys

import pytest

from rl_qg.runtime import bars
from rl_qg.runtime.bars import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, seconds: float) -> str:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(bars, "SECONDS_BETWEEN_LINES", seconds)
    with ProgressBar(total=4, desc="score", unit="row", file=stream, mininterval=0) as bar:
        for _ in range(4):
            bar.update()
            bar.set_postfix(loss=1.5, refresh=False)
    return stream.getvalue()


def test_a_log_gets_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(io.StringIO(), monkeypatch, 0)
    lines = text.splitlines()
    assert "\r" not in text and "\x1b" not in text and "█" not in text
    assert any(line.startswith("score: 1 of 4 (row), 25 %, ") for line in lines)
    assert lines[-1].startswith("score: 4 of 4 (row), 100 %, ") and lines[-1].endswith("loss=1.5")


def test_short_work_leaves_nothing_in_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(io.StringIO(), monkeypatch, 30) == ""


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = run(Terminal(), monkeypatch, 30)
    assert "\r" in text and "100%|" in text
