"""Databases for the tests of a study: each test has one of its own, in SQLite and in PostgreSQL."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.rl_qg.rating.postgresql_server import postgresql_server, why_none

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The address of a PostgreSQL server."""
    if reason := why_none():
        pytest.skip(reason)
    with postgresql_server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def study_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a database without a study."""
    if request.param == "sqlite":
        return str(tmp_path / "study.db")
    import psycopg

    url, schema = request.getfixturevalue("postgresql"), f"test{next(_NUMBERS)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{url}&options=-csearch_path%3D{schema}"
