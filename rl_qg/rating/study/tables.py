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
from rl_qg.rating.study.records import CROWDED, OTHER_BROWSER, NotAllowed, NotYours, Rater
from rl_qg.runtime.errors import InputError

FORMAT = 1  # of the tables in `schema.sql`
DAY = 86_400.0
LONGEST_DETAIL = 500
RATER = "id, panel, consent_version, declined, practice, language, forgotten"


class StudyTables:
    """A study in a database; `clock`: seconds since 1970. For no rater's name methods raise `NotAllowed`."""

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
        """From this time on the data of raters are to be deleted (`forget`), in seconds since 1970."""
        return self.created + self.plan.retention_days * DAY

    def now(self) -> float:
        return self._clock()

    def check(self) -> None:
        """Raises `StoreFailed` where the database does not answer, however many wait for its connections."""
        with self._database.read(apart=True) as sql:
            sql.row("SELECT id FROM study")

    def close(self) -> None:
        self._database.close()

    def pause(self, paused: bool = True, by: str = "") -> None:
        """Give out no more tasks; whoever has one goes on. Or give them out again. `by`: whom the log names."""
        with self._database.write() as sql:
            sql.run("UPDATE study SET paused = ?", int(paused))
            self._note(sql, "paused" if paused else "resumed", detail=by)

    def note(self, kind: str, detail: str) -> None:
        with self._database.write() as sql:
            self._note(sql, kind, detail=detail)

    def warn(self, kind: str, rater: str) -> None:
        """Write what is suspicious of a rater to the owner's log, at most once an hour."""
        with self._database.write() as sql:
            number, now = self._rater(sql, rater)[0], self._clock()
            recent = "SELECT 1 FROM event WHERE kind = ? AND rater = ? AND at BETWEEN ? AND ?"
            if sql.row(recent, kind, number, now - 3600, now) is None:
                self._note(sql, kind, number)

    def is_noted(self, kind: str, detail: str) -> bool:
        with self._database.read() as sql:
            return sql.row("SELECT 1 FROM event WHERE kind = ? AND detail = ?", kind, detail) is not None

    def log(self) -> list[tuple[float, str, str, str]]:
        """What the owner did or ought to know, the newest first: when, what, of which rater or assignment, by whom."""
        with self._database.read() as sql:
            rows = sql.rows(
                "SELECT at, kind, rater, assignment, detail FROM event WHERE rater IS NULL "
                f"OR kind IN ('{OTHER_BROWSER}', '{CROWDED}') ORDER BY number DESC LIMIT 50"
            )
        return [
            (at, kind, rater_name(rater) if rater else assignment_name(task) if task else "", detail)
            for at, kind, rater, task, detail in rows
        ]

    def _note(
        self, sql: Transaction, kind: str, rater: int | None = None, assignment: int | None = None, detail: str = ""
    ) -> None:
        """Append an event; none is ever changed."""
        values = self._clock(), kind, rater, assignment, storable(detail)[:LONGEST_DETAIL]
        sql.run("INSERT INTO event (at, kind, rater, assignment, detail) VALUES (?, ?, ?, ?, ?)", *values)

    def rater(self, rater: str) -> Rater:
        with self._database.read() as sql:
            return self._rater(sql, rater)[1]

    def _rater(self, sql: Transaction, name: str) -> tuple[int, Rater]:
        number = _number(name, "r")
        row = sql.row(f"SELECT {RATER} FROM rater WHERE id = ?", number) if number is not None else None
        if row is None:
            raise NotAllowed(f"{name}: no such rater")
        return row[0], record_of_rater(row)

    def _hash(self, text: str) -> str:
        return hmac.new(self._secret, text.encode(), sha256).hexdigest()


def record_of_rater(row: Sequence[Any]) -> Rater:
    number, panel, version, declined, practice, language, forgotten = row
    return Rater(rater_name(number), panel, version, bool(declined), practice, language, bool(forgotten))


def rater_name(number: int) -> str:
    return f"r{number:04d}"


def assignment_name(number: int) -> str:
    return f"a{number:05d}"


def _number(name: str, letter: str) -> int | None:
    """The number in a name of a rater or an assignment; None for anything else."""
    if not re.fullmatch(f"{letter}[0-9]{{4,15}}", name, re.ASCII):
        return None
    number = int(name[1:])
    return number if name in (rater_name(number), assignment_name(number)) else None


def assignment_number(name: str) -> int:
    """The number of an assignment's row; raises `NotYours` where it is not the name of one."""
    number = _number(name, "a")
    if number is None:
        raise NotYours(f"{name[:20]!r}: no assignment of yours")
    return number


def storable(text: str) -> str:
    """A text that every database takes: PostgreSQL refuses NUL, both refuse half of a surrogate pair."""
    return text.replace("\0", "").encode(errors="replace").decode()
