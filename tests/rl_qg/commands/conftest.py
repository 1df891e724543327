"""Fixtures of the tests that run commands as a user does."""

import pytest

from tests.processes import user_environment


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment with an empty home and no hub."""
    return user_environment(tmp_path_factory.mktemp("home"))
