"""SQLite and PostgreSQL behind one small interface: the same SQL text for both, writers one after another.

All writing transactions of a study wait for each other (SQLite: `BEGIN IMMEDIATE`; PostgreSQL: one advisory lock), so
that what one of them reads stays true until it has ended: this is what makes double serving impossible. A study of the
paper's size needs less than one write a second. Reading transactions see one state of the data and wait for nobody.
"""

import errno
import logging
import os
import socket
import sqlite3
import stat
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rl_qg.rating.study.records import StoreFailed
from rl_qg.runtime.errors import InputError

log = logging.getLogger(__name__)
CONNECTIONS = 8  # of one process
WAIT_S = 20.0  # for another writer, and for a connection
ANSWER_S = 2.0  # beyond a deadline, for a server to say that it is over
ADVISORY_LOCK = 4_807_526_976  # any number that every process of a study agrees on
OLDEST_SQLITE = (3, 35)  # RETURNING

Row = tuple[Any, ...]
_UNTIL = ContextVar[float]("until", default=float("inf"))
_OTHERS = """SELECT virtualtransaction FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE locktype = 'virtualxid' AND granted AND datname = current_database() AND pid <> pg_backend_pid()"""
"""Transactions under way: each holds a lock of its own number, which every user may see."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """All transactions that begin within the block wait for others for at most so long together."""
    before = _UNTIL.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _UNTIL.reset(before)


def _end_of_wait() -> float:
    return min(_UNTIL.get(), time.monotonic() + WAIT_S)


def _seconds_to(until: float) -> float:
    return max(0.0, until - time.monotonic())


class Transaction:
    """SQL within one transaction; `?` stands for a value. Rows are tuples."""

    def __init__(self, connection: Any, has_table: str) -> None:
        """`has_table`: the statement that finds a row where there is a table of a name."""
        self._connection, self._has_table = connection, has_table

    def _execute(self, text: str, values: Sequence[Any]) -> Any:  # a cursor
        return self._connection.execute(text, values)

    def stream(self, text: str, *values: Any) -> Iterator[Row]:
        """Rows one after another, however many there are."""
        yield from self._execute(text, values)

    def has_table(self, name: str) -> bool:
        return self.row(self._has_table, name) is not None

    def run(self, text: str, *values: Any) -> int:
        """Run a statement; return how many rows it changed."""
        return int(self._execute(text, values).rowcount)

    def rows(self, text: str, *values: Any) -> list[Row]:
        return list(self._execute(text, values).fetchall())

    def row(self, text: str, *values: Any) -> Row | None:
        return self._execute(text, values).fetchone()


class Database(ABC):
    """A pool of connections. Safe under threads; transactions must not be nested."""

    NUMBERED: str  # type of a column that numbers its rows
    place: str  # for messages: never holds a password

    def __init__(self) -> None:
        self._idle: list[Any] = []
        self._places = threading.BoundedSemaphore(CONNECTIONS)
        self._place_apart = threading.BoundedSemaphore(1)
        self._writer = threading.BoundedSemaphore(1)  # fairer than the database's waiting, and without a connection

    @abstractmethod
    def _connect(self, until: float) -> Any: ...

    @abstractmethod
    def _begin(self, connection: Any, writing: bool, until: float) -> Transaction: ...

    def _limited(self, connection: Any, until: float) -> AbstractContextManager[None]:
        """Ends what waits for a server that does not answer."""
        return nullcontext()

    @abstractmethod
    def _failure(self, error: Exception) -> StoreFailed | None:
        """What the application is told of an error of the database; None: a mistake of ours, raised as it is."""

    @abstractmethod
    def scrub(self, tables: Sequence[str]) -> None:
        """Remove what deleted rows of these tables have left in files, as far as the database can. Raises `InputError`
        where somebody who reads the database keeps it from doing so.
        """

    def _kept(self, where: str) -> InputError:
        return InputError(
            f"study={self.place}: was deleted, but {where} still holds it, since another process reads the database; "
            "end what reads it (an export), then run the same command again"
        )

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that may write: all of it is kept when the block ends, nothing if it raises, as `StoreFailed`
        where the database could not keep it. It waits for others for at most `WAIT_S`, and not beyond a `deadline`.
        """
        until = _end_of_wait()
        with self._held(self._writer, until), self._transaction(True, until) as transaction:
            yield transaction

    @contextmanager
    def read(self, *, apart: bool = False) -> Iterator[Transaction]:
        """A transaction that sees the data of now. It waits as `write` does; `apart`: for no shared connection."""
        with self._transaction(False, _end_of_wait(), self._place_apart if apart else None) as transaction:
            yield transaction

    @contextmanager
    def _held(self, places: threading.Semaphore, until: float) -> Iterator[None]:
        if not places.acquire(timeout=_seconds_to(until)):
            raise self._busy()
        try:
            yield
        finally:
            places.release()

    def _busy(self) -> StoreFailed:
        return StoreFailed(errno.EBUSY, "others hold the database for too long; nothing was saved", self.place)

    @contextmanager
    def _transaction(
        self, writing: bool, until: float, places: threading.Semaphore | None = None
    ) -> Iterator[Transaction]:
        with self._connection(until, places) as connection, self._limited(connection, until):
            transaction = self._begin(connection, writing, until)
            try:
                yield transaction
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    @contextmanager
    def _connection(self, until: float, places: threading.Semaphore | None = None) -> Iterator[Any]:
        with self._held(places or self._places, until):
            connection = None
            try:
                with suppress(IndexError):
                    connection = self._idle.pop()
                connection = connection or self._connect(until)
                yield connection
            except Exception as error:
                if (failure := self._failure(error)) is None:
                    raise
                if connection is not None:
                    with suppress(Exception):
                        connection.close()
                    connection = None
                raise failure from error
            finally:
                if connection is not None:
                    self._idle.append(connection)  # also after a mistake of the caller: it was rolled back

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def _write_ahead(connection: sqlite3.Connection, until: float) -> None:
    """Set the write-ahead log. Where several processes do so with a new file at once, SQLite tells all but one that it
    is locked and does not wait, since that could be a deadlock; they try again.
    """
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
        time.sleep(0.01)


class SQLiteDatabase(Database):
    """A file on a local disk; write-ahead log, every commit on the disk before it returns."""

    NUMBERED = "INTEGER PRIMARY KEY AUTOINCREMENT"

    def __init__(self, path: Path, create: bool) -> None:
        super().__init__()
        self._path = path
        self.place = str(path)
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise InputError(f"study={path}: SQLite {sqlite3.sqlite_version} is too old; 3.35 or newer is needed")
        if create:  # an empty file that its owner alone can read, since it gets identities of raters
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    os.close(os.open(path, os.O_CREAT, 0o600))
            except OSError as error:
                why = f"cannot be made ({error.strerror}); name a file in another folder"
                raise InputError(f"study={path}: {why}") from None
        elif not path.is_file():
            what = "is a folder" if path.is_dir() else "there is no such file"
            raise InputError(f"study={path}: {what}; name the database of `rl-qg rate serve`")
        _close_to_others(path)
        try:
            self._idle.append(self._connect(_end_of_wait()))
        except sqlite3.Error as error:
            raise InputError(f"study={path}: cannot be opened ({error}); name the database of a study") from None

    def _connect(self, until: float) -> sqlite3.Connection:
        wait = _seconds_to(until)
        connection = sqlite3.connect(self._path, timeout=wait, isolation_level=None, check_same_thread=False)
        _write_ahead(connection, until)
        for pragma in ("synchronous=FULL", "foreign_keys=ON", "secure_delete=ON", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def _begin(self, connection: sqlite3.Connection, writing: bool, until: float) -> Transaction:
        connection.execute(f"PRAGMA busy_timeout={1000 * _seconds_to(until):.0f}")
        connection.execute("BEGIN IMMEDIATE" if writing else "BEGIN")
        return Transaction(connection, "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?")

    def _failure(self, error: Exception) -> StoreFailed | None:
        if not isinstance(error, sqlite3.DatabaseError) or isinstance(error, sqlite3.IntegrityError):
            return None
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return StoreFailed(errno.ENOSPC, "the disk is full or cannot be written; nothing was saved", self.place)
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._busy()
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return StoreFailed(errno.EIO, str(error), self.place)
        return None

    def scrub(self, tables: Sequence[str]) -> None:
        """Write the file anew, since pages that were divided keep parts of rows (secure_delete does not reach them),
        and empty the write-ahead log, which holds old pages.
        """
        until = _end_of_wait()
        with self._held(self._writer, until), self._connection(until) as connection:
            connection.execute(f"PRAGMA busy_timeout={1000 * _seconds_to(until):.0f}")
            connection.execute("VACUUM")
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:  # somebody has read for longer than the connection waits
            raise self._kept(f"{self.place}-wal")


class _PostgreSQLTransaction(Transaction):
    def _execute(self, text: str, values: Sequence[Any]) -> Any:
        return self._connection.execute(text.replace("?", "%s").encode(), values)

    def stream(self, text: str, *values: Any) -> Iterator[Row]:
        with closing(self._connection.cursor("stream")) as cursor:
            yield from cursor.execute(text.replace("?", "%s").encode(), values)


class PostgreSQLDatabase(Database):
    """A server, for several hosts; package psycopg 3."""

    NUMBERED = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        try:
            parts = urlsplit(url)
        except ValueError:
            raise InputError("study=postgresql://…: is no address; write postgresql://USER@HOST/NAME") from None
        self.place = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
        if find_spec("psycopg") is None:
            raise InputError(f'study={self.place}: psycopg is not installed; pip install "rl-qg[postgresql]"')
        import psycopg

        self._errors = psycopg
        try:
            self._idle.append(self._connect(_end_of_wait()))
        except psycopg.Error as error:
            reason = str(error).strip().splitlines()[-1].strip() if str(error).strip() else type(error).__name__
            raise InputError(f"study={self.place}: cannot be opened ({reason}); check the address") from None

    def _connect(self, until: float) -> Any:
        seconds = int(min(10, max(2, _seconds_to(until))))  # the client library waits for 2 at least
        return self._errors.connect(self._url, autocommit=True, connect_timeout=seconds)

    @contextmanager
    def _limited(self, connection: Any, until: float) -> Iterator[None]:
        """Shuts the connection down after the deadline of a request, where there is one: a server that hangs, or that
        no network reaches any more, does not even keep its own limits.
        """
        if _UNTIL.get() == float("inf"):
            yield
            return

        def shut_down() -> None:
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            timer = threading.Timer(_seconds_to(until) + ANSWER_S, shut_down)
            timer.daemon = True
            timer.start()
            try:
                yield
            finally:
                timer.cancel()

    def _begin(self, connection: Any, writing: bool, until: float) -> Transaction:
        connection.execute("BEGIN" if writing else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        wait = max(1, round(1000 * _seconds_to(until)))  # 0 would be for ever
        limit = wait if _UNTIL.get() < float("inf") else 0  # an export may take its time
        connection.execute(f"SET LOCAL lock_timeout = {wait}; SET LOCAL statement_timeout = {limit}")
        if writing:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (ADVISORY_LOCK,))
        return _PostgreSQLTransaction(connection, "SELECT 1 WHERE to_regclass(?) IS NOT NULL")

    def _failure(self, error: Exception) -> StoreFailed | None:
        errors = self._errors.errors
        if isinstance(error, errors.DiskFull):
            return StoreFailed(errno.ENOSPC, "the server's disk is full; nothing was saved", self.place)
        if isinstance(error, (errors.LockNotAvailable, errors.QueryCanceled)):
            return self._busy()
        if isinstance(error, (self._errors.OperationalError, self._errors.InterfaceError)):
            return StoreFailed(errno.EIO, f"the server does not answer ({str(error).strip()[:100]})", self.place)
        return None

    def scrub(self, tables: Sequence[str]) -> None:
        """Write the tables anew, since a plain vacuum leaves in their pages what rows held, once no transaction can
        see it any more. What the server keeps besides (its write-ahead log, backups) is not in reach.
        """
        until = _end_of_wait()
        with self._connection(until) as connection:
            readers = connection.execute(_OTHERS).fetchall()
            while readers and _seconds_to(until):
                time.sleep(0.05)
                still = connection.execute(_OTHERS).fetchall()
                readers = [one for one in readers if one in still]
            if readers:
                raise self._kept("the database")
            try:
                connection.execute(f"SET lock_timeout = {max(1, round(1000 * _seconds_to(until)))}")
                for table in tables:
                    connection.execute(f"VACUUM FULL {table}")
            except self._errors.errors.LockNotAvailable:
                raise self._kept("the database") from None


def _close_to_others(path: Path) -> None:
    """Let nobody but its owner read a file that was there already, and what SQLite has put beside it."""
    for part in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        try:
            if part.exists() and stat.S_IMODE(part.stat().st_mode) & 0o077:
                part.chmod(0o600)
                log.warning("study=%s: others could read it (it holds who raters are); now its owner alone can", part)
        except OSError as error:
            raise InputError(
                f"study={part}: others can read it, and that cannot be changed ({error.strerror}); as its owner run "
                f"chmod 600 {part}"
            ) from None


def open_database(url: str, create: bool) -> Database:
    """The database of an address: a file (SQLite), or `postgresql://…`."""
    if not url:
        raise InputError("study: is empty; name the database of the study, as study=study.db")
    if url.startswith(("postgresql://", "postgres://")):
        return PostgreSQLDatabase(url)
    if "://" in url:
        raise InputError(f"study={url.split('://')[0]}://…: unknown kind; give a file, or postgresql://USER@HOST/NAME")
    return SQLiteDatabase(Path(url).expanduser(), create)
