"""Sentences end where they should, in time that grows with the length of the text."""

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from rewards import words as module
from rewards.words import sentences
from tests.processes import ROOT

SLOW_END = re.compile(r"""[.!?…]+["'”’)\]»]*(?=\s)|[。！？।॥؟]+["'”’)\]」』»]*|\n\s*\n""")
"""The same rule without care for time: it tries every mark of a row."""


@given(st.text(alphabet="aB .!?…。؟\"')\n\r,", max_size=60))
@example("Wait...!? (Really.) 'No.'\n\n1. e.g. this。(x)")
def test_marks_that_are_looked_at_once_end_the_same_sentences(text: str) -> None:
    found = sentences(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_END", SLOW_END)
        assert found == sentences(text)


@pytest.mark.parametrize("path", sorted((ROOT / "tests" / "documents").iterdir()), ids=lambda path: path.name)
def test_real_documents_are_divided_as_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = path.read_text(encoding="utf-8")
    found = sentences(text)
    monkeypatch.setattr(module, "_END", SLOW_END)
    assert len(found) > 5 and found == sentences(text)


@pytest.mark.parametrize("unit", [".", "!?", "…", ".)", ". ", "\n", "\n ", "\u2029", "a.", "._", "。", "1.\t", ".'\""])
def test_long_rows_of_marks_take_linear_time(unit: str) -> None:
    """Of quadratic time, 200,000 characters would take minutes of the processor's time."""
    code = f"from rewards.words import sentences; sentences({unit!r} * (200_000 // {len(unit)}))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, preexec_fn=_twenty_seconds)


def _twenty_seconds() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
