"""The examples in docstrings give what they say."""

import doctest
from importlib import import_module

import pytest

from tests.docs.markdown import ROOT

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("rl_qg", "rewards")
    for path in (ROOT / room).rglob("*.py")
    if ">>> " in path.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_give_what_they_say(module: str) -> None:
    found = doctest.testmod(import_module(module))
    assert found.attempted and not found.failed
