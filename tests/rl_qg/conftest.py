"""Fixtures of several files here."""

from pathlib import Path

import pytest

from tests.toy_reader import save_distilbert


@pytest.fixture(scope="session")
def distilbert(tmp_path_factory) -> Path:
    return save_distilbert(tmp_path_factory.mktemp("distilbert"), dropout=0.1, size=16)
