"""Raters: who they are (apart from all else), their sessions, what they agreed to, and how they are forgotten."""

import json
import secrets
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

from rl_qg.rating.study.database import Transaction, deadline
from rl_qg.rating.study.records import OTHER_BROWSER, SUBMITTED, SURPLUS, Session, StoreFailed, Suspicious
from rl_qg.rating.study.tables import DAY, RATER, StudyTables, rater_name, record_of_rater, storable
from rl_qg.runtime.errors import InputError

SESSION_S, SESSIONS = 14 * DAY, 20  # how long one is valid, and how many of a rater are kept, the newest
LONGEST_IDENTITY = 200
SCRUB_S = 1.0  # that others wait while what a rater deleted is removed from the disk
# What `forget` deletes from.
PERSONAL = tuple("rater identity invite session event code feedback assignment shown rating".split())


class RaterTables(StudyTables):
    """Tables rater, identity, invite and session. Of tokens only SHA-256 is stored."""

    def new_rater(self) -> str:
        """A volunteer, who comes by no panel and no invitation."""
        with self._database.write() as sql:
            return rater_name(self._insert_rater(sql, "open", None))

    def rater_of_panel(
        self, panel: str, identity: str, extra: Mapping[str, str] | None = None, *, stranger_to: str | None = None
    ) -> str:
        """The rater of an identity on a panel, such as prolific: the same identity is the same rater. It is looked up
        by HMAC-SHA-256, and stands only in the table `identity`. `extra`: what else the panel's address held, as the
        number of its session; the newest is kept. `stranger_to`: the rater of the browser ("" for none) that brings
        an id which anybody may know; where another browser has a session of this rater, what is stored stays.
        """
        identity = storable(identity).strip()
        if not 0 < len(identity) <= LONGEST_IDENTITY:
            raise InputError(f"the participant's id has {len(identity)} characters; give 1 to {LONGEST_IDENTITY}")
        hashed = self._hash(f"identity\n{panel}\n{identity}")
        kept = json.dumps({storable(str(key)): storable(str(value)) for key, value in (extra or {}).items()})
        with self._database.write() as sql:
            row = sql.row("SELECT id FROM rater WHERE panel = ? AND external_hash = ?", panel, hashed)
            number = row[0] if row else self._insert_rater(sql, panel, hashed)
            elsewhere = stranger_to not in (None, rater_name(number)) and self._has_session(sql, number)
            sql.run(
                "INSERT INTO identity (rater, panel, identity, extra) VALUES (?, ?, ?, ?) ON CONFLICT (rater) DO "
                + ("NOTHING" if elsewhere else "UPDATE SET extra = excluded.extra"),
                *(number, panel, identity, kept),
            )
        return rater_name(number)

    def add_invites(self, count: int) -> list[str]:
        tokens = [secrets.token_urlsafe(32) for _ in range(count)]
        with self._database.write() as sql:
            for token in tokens:
                sql.run("INSERT INTO invite (token_hash, created) VALUES (?, ?)", _sha(token), self._clock())
        return tokens

    def rater_of_invite(self, token: str) -> str | None:
        """The rater of an invitation, the same each time; None for a token that was never given out."""
        with self._database.write() as sql:
            row = sql.row("SELECT rater FROM invite WHERE token_hash = ?", _sha(token))
            if row is None:
                return None
            number = row[0]
            if number is None:
                number = self._insert_rater(sql, "invite", None)
                sql.run("UPDATE invite SET rater = ? WHERE token_hash = ?", number, _sha(token))
            return rater_name(number)

    def _insert_rater(self, sql: Transaction, panel: str, hashed: str | None) -> int:
        insert = "INSERT INTO rater (panel, external_hash, created) VALUES (?, ?, ?) RETURNING id"
        return int(sql.rows(insert, panel, hashed, self._clock())[0][0])

    def new_session(self, rater: str, *, only: bool = False) -> str:
        """A token for a browser, valid for `SESSION_S`. With `only`, raises `Suspicious` where the rater has one."""
        token, now = secrets.token_urlsafe(32), self._clock()
        with self._database.write() as sql:
            number, _ = self._rater(sql, rater)
            if only and self._has_session(sql, number):
                raise Suspicious(OTHER_BROWSER, rater)
            sql.run(
                "INSERT INTO session (token_hash, rater, created, expires) VALUES (?, ?, ?, ?)",
                *(_sha(token), number, now, now + SESSION_S),
            )
            # Not those that are over: a clock that jumps ahead would end all, also when it is set right again.
            kept = "SELECT token_hash FROM session WHERE rater = ? ORDER BY created DESC, token_hash LIMIT ?"
            sql.run(f"DELETE FROM session WHERE rater = ? AND token_hash NOT IN ({kept})", number, number, SESSIONS)
        return token

    def _has_session(self, sql: Transaction, number: int) -> bool:
        return sql.row("SELECT 1 FROM session WHERE rater = ? AND expires > ?", number, self._clock()) is not None

    def end_sessions(self, rater: str, by: str) -> None:
        """Let a rater come from another browser."""
        with self._database.write() as sql:
            sql.run("DELETE FROM session WHERE rater = ?", self._rater(sql, rater)[0])
            self._note(sql, "let in", detail=f"{rater} {by}")

    def session(self, token: str) -> Session | None:
        """The session of a token; None if it is unknown, has ended or has expired."""
        with self._database.read() as sql:
            values = _sha(token), self._clock()
            row = sql.row("SELECT rater FROM session WHERE token_hash = ? AND expires > ?", *values)
        return Session(rater_name(row[0]), self._hash(f"csrf\n{token}")) if row else None

    def give_consent(self, rater: str, version: str, language: str) -> None:
        columns = "consent_version = ?, consent_at = ?, language = ?, declined = 0"
        self._change(rater, "consent", version, columns, (version, self._clock(), language))

    def decline(self, rater: str) -> None:
        """The rater does not agree, or takes the agreement back: a task that was not submitted is free again, and
        what was rated in it is deleted. Of a remark nothing stays on the disk, unless somebody reads the database.
        """
        unfinished = "SELECT id FROM assignment WHERE rater = ? AND state IN ('open', 'expired')"
        with self._database.write() as sql:
            number, _ = self._rater(sql, rater)
            sql.run("UPDATE rater SET declined = 1 WHERE id = ?", number)
            deleted = {
                table: sql.run(f"DELETE FROM {table} WHERE assignment IN ({unfinished})", number)
                for table in ("rating", "shown", "feedback")
            }
            sql.run(f"UPDATE assignment SET state = 'returned' WHERE id IN ({unfinished})", number)
            self._note(sql, "declined", number)
        if deleted["feedback"]:
            with suppress(InputError, StoreFailed), deadline(SCRUB_S):
                self._database.scrub(("feedback",))

    def set_practice(self, rater: str, values: Any, passed: bool | None) -> None:
        """What was said of practice questions (any JSON), and whether it passes; None: not all are answered yet."""
        state = None if passed is None else "passed" if passed else "failed"
        self._change(rater, "practice", state or "", "practice = ?, practice_values = ?", (state, json.dumps(values)))

    def practice_values(self, rater: str) -> Any:
        with self._database.read() as sql:
            number, _ = self._rater(sql, rater)
            row = sql.row("SELECT practice_values FROM rater WHERE id = ?", number)
        return json.loads(row[0]) if row and row[0] else None

    def _change(self, rater: str, event: str, detail: str, columns: str, values: tuple[Any, ...]) -> None:
        with self._database.write() as sql:
            number, _ = self._rater(sql, rater)
            sql.run(f"UPDATE rater SET {columns} WHERE id = ?", *values, number)
            self._note(sql, event, number, detail=detail)

    def forget(self, rater: str | None, ratings: bool = False, by: str = "") -> Counter[str]:
        """Delete identity, sessions, invitation, codes, feedback and events of a rater; None: of all, as is due after
        `retention_until`. Rows stay, empty, as tombstones. With `ratings` they are deleted too, and the assignments:
        their tasks are given out again. Returns how much of each was deleted, and `kept_ratings`.
        """
        forgotten = Counter[str]()
        with self._database.write() as sql:
            every = sql.rows("SELECT id FROM rater ORDER BY id")
            for number, *_ in every if rater is None else [self._rater(sql, rater)]:
                forgotten.update(_forget(sql, number, ratings))
            if rater is None:
                sql.run("DELETE FROM invite")
            self._note(sql, "forgot", detail=f"{rater or 'all raters'} {by}".strip())
        self._database.scrub(PERSONAL)
        return forgotten

    def identities(self) -> list[dict[str, Any]]:
        """The raters whose identity is known, for payment; nothing else returns an identity. Tasks `submitted` count,
        those of `surplus` came too late: both are paid. `codes` of completion are those that were shown; `extra` is
        what else the panel's address held.
        """
        columns = ", ".join(f"rater.{name}" for name in RATER.split(", "))
        with self._database.read() as sql:
            rows = sql.rows(
                f"SELECT identity, extra, {columns} FROM identity JOIN rater ON rater.id = identity.rater "
                "ORDER BY rater.id"
            )
            tasks = sql.rows("SELECT rater, state FROM assignment WHERE state IN ('submitted', 'surplus')")
            codes = sql.rows(
                "SELECT rater, value FROM code JOIN assignment ON assignment.id = code.assignment "
                "WHERE kind = 'completed' ORDER BY assignment.id"
            )
        counts = Counter(tasks)
        known = []
        for identity, extra, *row in rows:
            rater, number = record_of_rater(row), row[0]
            known.append(
                {
                    **{"rater": rater.id, "panel": rater.panel, "identity": identity, "state": rater.state},
                    **{"submitted": counts[number, SUBMITTED], "surplus": counts[number, SURPLUS]},
                    "codes": [value for who, value in codes if who == number],
                    "extra": json.loads(extra),
                }
            )
        return known

    def raters(self) -> list[tuple[str, str]]:
        with self._database.read() as sql:
            rows = sql.rows(f"SELECT {RATER} FROM rater ORDER BY id")
        return [(record.id, record.state) for record in map(record_of_rater, rows)]


def _forget(sql: Transaction, number: int, ratings: bool) -> Counter[str]:
    mine = "assignment IN (SELECT id FROM assignment WHERE rater = ?)"
    done = Counter(
        events=sql.run(f"DELETE FROM event WHERE rater = ? OR {mine}", number, number),
        feedback=sql.run("DELETE FROM feedback WHERE rater = ?", number),
        sessions=sql.run("DELETE FROM session WHERE rater = ?", number),
        identities=sql.run("DELETE FROM identity WHERE rater = ?", number),
        codes=sql.run(f"DELETE FROM code WHERE {mine}", number),  # a panel knows who sent one
    )
    sql.run("DELETE FROM invite WHERE rater = ?", number)
    counted = sql.rows(f"SELECT count(*) FROM rating WHERE {mine}", number)
    done["ratings" if ratings else "kept_ratings"] = int(counted[0][0])
    if ratings:
        for table in ("rating", "shown"):
            sql.run(f"DELETE FROM {table} WHERE {mine}", number)
        sql.run("DELETE FROM assignment WHERE rater = ?", number)
    else:
        sql.run("UPDATE assignment SET state = 'returned' WHERE rater = ? AND state IN ('open', 'expired')", number)
    done["raters"] = sql.run(
        "UPDATE rater SET external_hash = NULL, consent_version = NULL, consent_at = NULL, declined = 0, "
        "practice = NULL, practice_values = NULL, language = NULL, created = NULL, forgotten = 1 "
        "WHERE id = ? AND forgotten = 0",
        number,
    )
    return done


def _sha(token: str) -> str:
    return sha256(token.encode(errors="replace")).hexdigest()
