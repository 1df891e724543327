"""Which database a study is in: transactions that fail, other plans, databases of others."""

import os
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from rl_qg.rating.study import database
from rl_qg.rating.study.database import deadline, open_database
from rl_qg.rating.study.records import StoreFailed
from rl_qg.rating.study.store import Store, open_store
from rl_qg.runtime.errors import InputError
from tests.rl_qg.rating.studies import Clock, locked, small_plan


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(study_url: str, clock: Clock) -> Store:
    return open_store(study_url, small_plan(), clock)


def test_a_transaction_that_fails_keeps_nothing(study_url: str) -> None:
    database = open_database(study_url, create=True)
    with database.write() as sql:
        sql.run("CREATE TABLE thing (name TEXT PRIMARY KEY)")
    for error in (ZeroDivisionError, KeyboardInterrupt):
        with pytest.raises(error), database.write() as sql:
            sql.run("INSERT INTO thing (name) VALUES (?)", "half")
            raise error
    with database.read() as sql:
        assert sql.rows("SELECT name FROM thing") == []
    database.close()


def test_whoever_waits_for_another_writer_is_told_at_the_deadline(
    study_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a deadline they would wait for an hour."""
    monkeypatch.setattr(database, "WAIT_S", 3600.0)

    def told_at_the_deadline() -> None:
        with deadline(0.1), pytest.raises(StoreFailed, match="others hold the database for too long"):
            store.pause()

    with ThreadPoolExecutor(1) as threads:
        for writer in (open_store(study_url), store):  # of another process, and of its own
            with writer._database.write():
                threads.submit(told_at_the_deadline).result(60)
    assert not store.is_paused()


def test_whoever_reads_what_is_locked_is_told_at_the_deadline(
    study_url: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_S", 3600.0)

    def told_at_the_deadline() -> None:
        for read in (store.progress, store.raters, store.check):
            with deadline(0.1), pytest.raises(StoreFailed, match="others hold the database for too long"):
                read()

    with ThreadPoolExecutor(1) as threads, locked(store, study_url):
        threads.submit(told_at_the_deadline).result(60)
    assert store.progress()["tasks"] == 3


@pytest.mark.slow
@pytest.mark.parametrize("study_url", ["postgresql"], indirect=True)
def test_whoever_waits_for_a_server_that_hangs_is_told_at_the_deadline(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server then keeps no limit of its own. Others are answered by new connections."""
    monkeypatch.setattr(database, "ANSWER_S", 0.1)
    with store._database.read() as sql:
        (server,) = sql.row("SELECT pg_backend_pid()") or ()

    def told_at_the_deadline() -> None:
        with deadline(0.1), pytest.raises(StoreFailed, match="the server does not answer"):
            store.pause()

    os.kill(server, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as threads:
        try:
            threads.submit(told_at_the_deadline).result(60)
            assert store.progress()["tasks"] == 3
        finally:
            os.kill(server, signal.SIGCONT)
    assert not store.is_paused()


def test_another_plan_in_the_same_database_is_refused(study_url: str, store: Store) -> None:
    changed = small_plan()
    protocol = replace(changed.protocol, consent={"en": "Agree!"})
    changed = replace(changed, protocol=protocol, settings={**changed.settings, "protocol": protocol.to_dict()})
    for plan in (small_plan(tasks=4), small_plan(name="other"), changed):
        with pytest.raises(InputError, match="belongs to another plan"):
            open_store(study_url, plan)
    assert open_store(study_url, small_plan()).plan == open_store(study_url).plan == small_plan()


def test_a_database_without_a_study_is_refused(study_url: str, tmp_path: Path) -> None:
    if "://" not in study_url:
        Path(study_url).touch()
    with pytest.raises(InputError, match="holds no study") as error:
        open_store(study_url)
    assert "\n" not in str(error.value)


def test_what_is_no_database_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("not a database, but long enough to look like one" * 50)
    for url, words in (
        (str(tmp_path / "none.db"), "no such file"),
        (str(tmp_path), "is a folder"),
        (str(tmp_path / "text.db"), "not a database"),
        ("", "is empty"),
        ("mysql://host/name", "unknown kind"),
        ("postgresql://ann:s3cret@127.0.0.1:1/none", "cannot be opened"),
        ("postgresql://ann:s3cret@[::1/none", "is no address"),
    ):
        with pytest.raises(InputError, match=words) as error:
            open_store(url)
        assert "\n" not in str(error.value)
        assert "s3cret" not in str(error.value)
    assert not (tmp_path / "none.db").exists()
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE study (id INTEGER)")
    for name, words in (("text.db/new.db", "cannot be made"), ("other.db", "another program")):
        with pytest.raises(InputError, match=words):
            open_store(str(tmp_path / name), small_plan())
    with pytest.raises(InputError, match="holds no study"):
        open_store(str(tmp_path / "other.db"))
