"""What the other tables of a study share: the plan, the clock, the secret, names of raters and assignments, events."""

import hmac
import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from rl_qg.rating.plan_files import Hit, StudyPlan
from rl_qg.rating.protocol import Protocol
from rl_qg.rating.study.database import Database, Transaction
from rl_qg.rating.study.records import Event, NotAllowed, NotYours, Rater
from rl_qg.runtime.errors import InputError

# The tables of a study. `{numbered}` is the database's type of a column that numbers its rows. Times are seconds since
# 1970. Who somebody is stands in `identity` alone; tokens are stored as SHA-256.
FORMAT = 1  # of the tables

TABLES = (
    "CREATE TABLE study (id INTEGER PRIMARY KEY CHECK (id = 1), format INTEGER NOT NULL, plan TEXT NOT NULL, "
    "sha256 TEXT NOT NULL, secret TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, paused INTEGER NOT NULL)",
    "CREATE TABLE hit (id TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE, need INTEGER NOT NULL, "
    "payload TEXT NOT NULL)",
    "CREATE TABLE rater (id {numbered}, panel TEXT NOT NULL, external_hash TEXT, consent_version TEXT, "
    "consent_at DOUBLE PRECISION, declined INTEGER NOT NULL DEFAULT 0, practice TEXT, practice_values TEXT, "
    "language TEXT, created DOUBLE PRECISION, forgotten INTEGER NOT NULL DEFAULT 0, UNIQUE (panel, external_hash))",
    "CREATE TABLE identity (rater BIGINT PRIMARY KEY REFERENCES rater (id), panel TEXT NOT NULL, "
    "identity TEXT NOT NULL, extra TEXT NOT NULL)",
    "CREATE TABLE invite (token_hash TEXT PRIMARY KEY, rater BIGINT REFERENCES rater (id), "
    "created DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE session (token_hash TEXT PRIMARY KEY, rater BIGINT NOT NULL REFERENCES rater (id), "
    "created DOUBLE PRECISION NOT NULL, expires DOUBLE PRECISION NOT NULL)",
    "CREATE TABLE assignment (id {numbered}, hit TEXT NOT NULL REFERENCES hit (id), "
    "rater BIGINT NOT NULL REFERENCES rater (id), "
    "state TEXT NOT NULL CHECK (state IN ('open', 'submitted', 'surplus', 'expired', 'returned')), "
    "lease_until DOUBLE PRECISION NOT NULL, started DOUBLE PRECISION NOT NULL, submitted DOUBLE PRECISION, "
    "UNIQUE (hit, rater))",
    "CREATE UNIQUE INDEX one_open ON assignment (rater) WHERE state = 'open'",
    "CREATE INDEX assignment_state ON assignment (state, hit)",
    "CREATE TABLE shown (assignment BIGINT NOT NULL REFERENCES assignment (id), position INTEGER NOT NULL, "
    "at DOUBLE PRECISION NOT NULL, PRIMARY KEY (assignment, position))",
    "CREATE TABLE rating (assignment BIGINT NOT NULL REFERENCES assignment (id), position INTEGER NOT NULL, "
    "criterion TEXT NOT NULL, value INTEGER NOT NULL, first_at DOUBLE PRECISION NOT NULL, "
    "last_at DOUBLE PRECISION NOT NULL, changes INTEGER NOT NULL, PRIMARY KEY (assignment, position, criterion))",
    "CREATE TABLE event (number {numbered}, at DOUBLE PRECISION NOT NULL, kind TEXT NOT NULL, "
    "rater BIGINT REFERENCES rater (id), assignment BIGINT REFERENCES assignment (id), position INTEGER, "
    "detail TEXT NOT NULL)",
    "CREATE TABLE code (value TEXT PRIMARY KEY, kind TEXT NOT NULL, assignment BIGINT REFERENCES assignment (id), "
    "UNIQUE (assignment, kind))",
    "CREATE TABLE feedback (assignment BIGINT PRIMARY KEY REFERENCES assignment (id), "
    "rater BIGINT NOT NULL REFERENCES rater (id), text TEXT NOT NULL, at DOUBLE PRECISION NOT NULL)",
)


DAY = 86_400.0
LONGEST_DETAIL = 500
RATER = "id, panel, consent_version, declined, practice, language, forgotten"


class StudyTables:
    """A study in a database. A method that is given a rater raises `NotAllowed` where there is none of this name.

    Args:
        database: with the tables of a study.
        clock: seconds since 1970.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        self._database = database
        self._clock = clock
        with database.read() as sql:
            row = sql.row("SELECT plan, secret, created FROM study") if sql.has_table("assignment") else None
            if row is None:
                raise InputError(f"study={database.place}: holds no study; name the database of `rl-qg rate serve`")
            hits = sql.rows("SELECT payload FROM hit ORDER BY number")
        settings, where = json.loads(row[0]), database.place
        tasks = tuple(
            Hit.from_dict(f"{where}: task {number}", json.loads(text)) for number, (text,) in enumerate(hits)
        )
        self.plan = StudyPlan(Protocol.from_dict(f"{where}: protocol", settings["protocol"]), tasks, settings)
        self.created: float = row[2]
        self._secret = bytes.fromhex(row[1])
        self._hits = {hit.hit: hit for hit in tasks}

    @property
    def place(self) -> str:
        """The database, for messages: its file, or its address without a password."""
        return self._database.place

    @property
    def retention_until(self) -> float:
        """From this time on the data of raters are to be deleted (`forget_all`), in seconds since 1970."""
        return self.created + self.plan.retention_days * DAY

    def now(self) -> float:
        return self._clock()

    def close(self) -> None:
        self._database.close()

    # --- Pause ---

    def pause(self) -> None:
        """Give out no more tasks; whoever has one goes on."""
        self._set_paused(1)

    def resume(self) -> None:
        self._set_paused(0)

    def _set_paused(self, value: int) -> None:
        with self._database.write() as sql:
            sql.run("UPDATE study SET paused = ?", value)
            self._note(sql, "paused" if value else "resumed")

    # --- Events ---

    def add_event(
        self,
        kind: str,
        rater: str | None = None,
        assignment: str | None = None,
        position: int | None = None,
        detail: str = "",
    ) -> None:
        """Append an event; events are never changed."""
        with self._database.write() as sql:
            self._note(sql, kind, _number(rater, "r"), _number(assignment, "a"), position, detail)

    def events(self, rater: str | None = None, limit: int = 200) -> list[Event]:
        """The last events, of all or of one rater, in the order in which they happened."""
        where, values = ("WHERE rater = ? ", (_number(rater, "r"),)) if rater else ("", ())
        with self._database.read() as sql:
            rows = sql.rows(
                f"SELECT number, at, kind, rater, assignment, position, detail FROM event {where}"
                "ORDER BY number DESC LIMIT ?",
                *values,
                limit,
            )
        return [
            Event(row[0], row[1], row[2], rater_name(row[3]), assignment_name(row[4]), row[5], row[6])
            for row in reversed(rows)
        ]

    def _note(
        self,
        sql: Transaction,
        kind: str,
        rater: int | None = None,
        assignment: int | None = None,
        position: int | None = None,
        detail: str = "",
    ) -> None:
        sql.run(
            "INSERT INTO event (at, kind, rater, assignment, position, detail) VALUES (?, ?, ?, ?, ?, ?)",
            *(self._clock(), kind, rater, assignment, position, storable(detail)[:LONGEST_DETAIL]),
        )

    # --- Raters ---

    def rater(self, rater: str) -> Rater:
        """A rater."""
        with self._database.read() as sql:
            return self._rater(sql, rater)[1]

    def _rater(self, sql: Transaction, name: str) -> tuple[int, Rater]:
        number = _number(name, "r")
        row = sql.row(f"SELECT {RATER} FROM rater WHERE id = ?", number) if number is not None else None
        if row is None:
            raise NotAllowed(f"{name}: no such rater")
        return row[0], record_of_rater(row)

    def _hash(self, text: str) -> str:
        """HMAC-SHA-256 with the secret of the study."""
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()


def record_of_rater(row: Sequence[Any]) -> Rater:
    """A rater from the columns `RATER`."""
    return Rater(rater_name(row[0]) or "", row[1], row[2], bool(row[3]), row[4], row[5], bool(row[6]))


def rater_name(number: int | None) -> str | None:
    """The pseudonym of a rater: r0001."""
    return None if number is None else f"r{number:04d}"


def assignment_name(number: int | None) -> str | None:
    """The name of an assignment: a00001."""
    return None if number is None else f"a{number:05d}"


def _number(name: str | None, letter: str) -> int | None:
    """The number in a name of a rater or an assignment; None for anything else."""
    if not re.fullmatch(f"{letter}[0-9]{{4,15}}", name or "", re.ASCII):
        return None
    number = int((name or "")[1:])
    return number if name in (rater_name(number), assignment_name(number)) else None


def assignment_number(name: str) -> int:
    """The number of an assignment's row.

    Raises:
        NotYours: it is not the name of one.
    """
    number = _number(name, "a")
    if number is None:
        raise NotYours(f"{name[:20]!r}: no assignment of yours")
    return number


def storable(text: str) -> str:
    """A text that every database takes: PostgreSQL refuses NUL, both refuse half of a surrogate pair."""
    return text.replace("\0", "").encode(errors="replace").decode()
