"""Who rates which task: tasks are given out, kept by leases, and submitted; ratings are saved one by one.

A task is live with a rater whose assignment is open or submitted. It is given out while fewer raters have it live than
the plan wants, first the one that lacks least. All decisions are made in writing transactions, one after another, so
two raters cannot be given the last place of a task.

Leases and the clock: an open assignment is held for `lease_s` after its last sign of life. Whoever comes back later
goes on with it if nobody else has it by now; what they rated is kept in any case. When the clock has gone back, no
lease lasts longer than `lease_s` from the next time a task is asked for; when it jumps ahead, leases end early, and
their raters go on in the same way. Order is that of numbers, not of times; no duration is negative.
"""

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

from rl_qg.rating.protocol import Criterion
from rl_qg.rating.study import records
from rl_qg.rating.study.database import Database, Transaction
from rl_qg.rating.study.tables import StudyTables, assignment_name, assignment_number, rater_name, storable
from rl_qg.runtime.errors import InputError

LEAST_LEASE_S = 1800.0
LONGEST_FEEDBACK = 5000
ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"  # of codes: no 0 or O, 1 or I
LIVE = "(SELECT count(*) FROM assignment AS live WHERE live.hit = hit.id AND live.state IN ('open', 'submitted'))"


class _AssignmentRow(NamedTuple):
    id: int
    hit: str
    rater: int
    state: str
    started: float
    submitted: float | None


COLUMNS = ", ".join(_AssignmentRow._fields)


class AssignmentTables(StudyTables):
    """Tables assignment, shown, rating, feedback and code.

    A method that is given an assignment raises `NotYours` where it is another rater's, or there is none; one that
    changes it `Closed` where it was submitted or given back; one that is given an item or values `InputError` where
    the task has no such item, or the protocol no such criterion or value.
    """

    def __init__(self, database: Database, clock: Callable[[], float]) -> None:
        super().__init__(database, clock)
        self.lease_s = max(LEAST_LEASE_S, 60 * self.plan.protocol.minutes_per_hit)
        self._criteria: dict[str, Criterion] = {item.name: item for item in self.plan.protocol.criteria}

    def assignment(self, assignment_id: str, rater: str) -> records.Assignment:
        with self._database.read() as sql:
            return self._record(sql, self._own(sql, assignment_id, rater))

    def assignments_of(self, rater: str) -> list[records.Assignment]:
        """All assignments that a rater ever had, in the order in which they were given out."""
        with self._database.read() as sql:
            number, _ = self._rater(sql, rater)
            rows = sql.rows(f"SELECT {COLUMNS} FROM assignment WHERE rater = ? ORDER BY id", number)
            return [self._record(sql, row) for row in rows]

    def claim(self, rater: str, beside: Set[str] = frozenset(), most: int | None = None) -> records.Assignment | None:
        """The open assignment of a rater, else one that expired and that nobody else has taken, else a new one.

        None: nothing is left for this rater, or the study is paused. Raises `Suspicious` where raters `beside` this
        one have `most` tasks open.
        """
        with self._database.write() as sql:
            number, record = self._rater(sql, rater)
            if record.state != "consented":
                raise records.NotAllowed(f"{rater}: may not rate ({record.state})")
            now = self._clock()
            # A lease that ends later than a full lease from now was made before the clock went back.
            longest = now + self.lease_s
            sql.run("UPDATE assignment SET lease_until = ? WHERE state = 'open' AND lease_until > ?", longest, longest)
            expire = "UPDATE assignment SET state = 'expired' WHERE state = 'open' AND lease_until < ?"
            for expired in sql.rows(f"{expire} RETURNING rater, id", now):
                self._note(sql, "expired", *expired)
            if found := self._open(sql, number):
                return found
            if _paused(sql):
                return None
            if most is not None:
                open_now = sql.rows("SELECT rater FROM assignment WHERE state = 'open'")
                if sum(rater_name(one) in beside for (one,) in open_now) >= most:
                    raise records.Suspicious(records.CROWDED, rater)
            return self._next(sql, number, now)

    def is_paused(self) -> bool:
        with self._database.read() as sql:
            return _paused(sql)

    def _open(self, sql: Transaction, rater: int) -> records.Assignment | None:
        row = sql.row(f"SELECT {COLUMNS} FROM assignment WHERE rater = ? AND state = 'open'", rater)
        return self._record(sql, row) if row else None

    def _next(self, sql: Transaction, rater: int, now: float) -> records.Assignment | None:
        """The last expired assignment of the rater whose task still lacks somebody, open again, else a new one."""
        expired = sql.row(
            "SELECT assignment.id FROM assignment JOIN hit ON hit.id = assignment.hit "
            f"WHERE rater = ? AND state = 'expired' AND {LIVE} < need ORDER BY assignment.id DESC LIMIT 1",
            rater,
        )
        if expired:
            sql.run("UPDATE assignment SET state = 'open', lease_until = ? WHERE id = ?", now + self.lease_s, *expired)
            self._note(sql, "reopened", rater, *expired)
            return self._open(sql, rater)
        hit = sql.row(
            f"SELECT id FROM hit WHERE {LIVE} < need "
            "AND NOT EXISTS (SELECT 1 FROM assignment WHERE assignment.hit = hit.id AND rater = ?) "
            f"ORDER BY {LIVE} DESC, number LIMIT 1",
            rater,
        )
        if hit is None:
            return None
        insert = "INSERT INTO assignment (hit, rater, state, lease_until, started) VALUES (?, ?, 'open', ?, ?)"
        given = sql.rows(f"{insert} RETURNING id", hit[0], rater, now + self.lease_s, now)
        self._note(sql, "given", rater, given[0][0], detail=hit[0])
        return self._open(sql, rater)

    def shown(self, assignment_id: str, rater: str, position: int) -> None:
        """An item was shown; the first time counts."""
        with self._database.write() as sql:
            row = self._own(sql, assignment_id, rater)
            self._check_position(row, position)
            if row.state in (records.OPEN, records.EXPIRED):
                self._show(sql, row.id, position, self._clock())

    def ratings_of(self, assignment_id: str, rater: str) -> dict[tuple[int, str], int]:
        """What a rater has said so far: (position, criterion) to value."""
        with self._database.read() as sql:
            row = self._own(sql, assignment_id, rater)
            found = sql.rows("SELECT position, criterion, value FROM rating WHERE assignment = ?", row.id)
        return {(position, criterion): value for position, criterion, value in found}

    def save(self, assignment_id: str, rater: str, position: int, values: Mapping[str, int]) -> None:
        """Keep ratings of one item, all or none, and renew the lease. The same ratings again change nothing."""
        self.check_values(values)
        with self._database.write() as sql:
            row = self._own(sql, assignment_id, rater)
            if row.state not in (records.OPEN, records.EXPIRED):
                raise records.Closed(f"{assignment_id}: was {row.state}")
            self._check_position(row, position)
            now = self._clock()
            self._show(sql, row.id, position, now)
            for criterion, value in values.items():
                sql.run(
                    "INSERT INTO rating (assignment, position, criterion, value, first_at, last_at, changes) "
                    "VALUES (?, ?, ?, ?, ?, ?, 0) ON CONFLICT (assignment, position, criterion) DO UPDATE "
                    "SET value = excluded.value, last_at = excluded.last_at, changes = rating.changes + 1 "
                    "WHERE rating.value <> excluded.value",
                    *(row.id, position, criterion, value, now, now),
                )
            # A sign of life: a longer lease, and an expired assignment is open again where its task lacks somebody.
            sql.run(
                "UPDATE assignment SET lease_until = ?, state = 'open' WHERE id = ? AND (state = 'open' OR "
                f"state = 'expired' AND (SELECT {LIVE} < need FROM hit WHERE hit.id = assignment.hit) AND NOT EXISTS "
                "(SELECT 1 FROM assignment AS other WHERE other.rater = assignment.rater AND other.state = 'open'))",
                *(now + self.lease_s, row.id),
            )

    def _show(self, sql: Transaction, assignment: int, position: int, now: float) -> None:
        sql.run(
            "INSERT INTO shown (assignment, position, at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            *(assignment, position, now),
        )

    def _check_position(self, row: _AssignmentRow, position: int) -> None:
        items = len(self._hits[row.hit].items)
        if isinstance(position, bool) or not isinstance(position, int) or not 1 <= position <= items:
            raise InputError(f"item {position!r:.20}: the task has items 1 to {items}")

    def check_values(self, values: Mapping[str, int]) -> None:
        for name, value in values.items():
            criterion = self._criteria.get(name)
            if criterion is None:
                raise InputError(f"{name!r:.40}: no such criterion; there are {', '.join(self._criteria)}")
            allowed = {value for value, _ in criterion.anchors} or range(criterion.lowest, criterion.highest + 1)
            if isinstance(value, bool) or not isinstance(value, int) or value not in allowed:
                raise InputError(f"{name}={value!r:.20}: not a value from {criterion.lowest} to {criterion.highest}")

    def submit(self, assignment_id: str, rater: str) -> str:
        """End an assignment and return its state; again, it says the same. Nothing happens while a rating is missing.

        The state is `submitted` while the task lacks a finished rater, also after the lease has expired; else
        `surplus`: somebody else was first; it is paid, kept and marked.
        """
        with self._database.write() as sql:
            row = self._own(sql, assignment_id, rater)
            if row.state in records.FINISHED:
                return row.state
            if row.state == records.RETURNED:
                raise records.Closed(f"{assignment_id}: was given back")
            rated = {*sql.rows("SELECT position, criterion FROM rating WHERE assignment = ?", row.id)}
            wanted = {(item.position, name) for item in self._hits[row.hit].items for name in self._criteria}
            if not wanted <= rated:
                return row.state
            lacks_one = sql.row(
                "SELECT 1 FROM hit WHERE id = ? AND need > (SELECT count(*) FROM assignment "
                "WHERE assignment.hit = hit.id AND state = 'submitted')",
                row.hit,
            )
            state = records.SUBMITTED if lacks_one else records.SURPLUS
            sql.run("UPDATE assignment SET state = ?, submitted = ? WHERE id = ?", state, self._clock(), row.id)
            self._note(sql, state, row.rater, row.id)
            return state

    def expire(self, assignment_id: str, by: str = "") -> bool:
        """End a lease now, so that the task is given out again; False: no assignment of this name is open."""
        with self._database.write() as sql:
            number = assignment_number(assignment_id)
            changed = sql.run("UPDATE assignment SET state = 'expired' WHERE id = ? AND state = 'open'", number)
            if changed:
                self._note(sql, records.EXPIRED, None, number, detail=f"by hand {by}".strip())
            return bool(changed)

    def add_feedback(self, assignment_id: str, rater: str, text: str) -> None:
        """Keep what a rater says at the end; a later text replaces it."""
        with self._database.write() as sql:
            row = self._own(sql, assignment_id, rater)
            if row.state == records.RETURNED:
                raise records.Closed(f"{assignment_id}: was given back")
            sql.run(
                "INSERT INTO feedback (assignment, rater, text, at) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (assignment) DO UPDATE SET text = excluded.text, at = excluded.at",
                *(row.id, row.rater, storable(text)[:LONGEST_FEEDBACK], self._clock()),
            )

    def feedback_of(self, assignment_id: str, rater: str) -> str:
        with self._database.read() as sql:
            found = sql.row("SELECT text FROM feedback WHERE assignment = ?", self._own(sql, assignment_id, rater).id)
        return str(found[0]) if found else ""

    def code(self, assignment_id: str | None, kind: str) -> str:
        """What a rater shows to be paid, always the same: of an assignment, or (None) of the whole study."""
        number = None if assignment_id is None else assignment_number(assignment_id)
        where, values = ("assignment IS NULL", ()) if number is None else ("assignment = ?", (number,))
        with self._database.write() as sql:
            found = sql.row(f"SELECT value FROM code WHERE kind = ? AND {where}", kind, *values)
            if found is None:
                value = "".join(secrets.choice(ALPHABET) for _ in range(10))
                found = (value,)
                sql.run("INSERT INTO code (value, kind, assignment) VALUES (?, ?, ?)", value, kind, number)
        return str(found[0])

    def _own(self, sql: Transaction, assignment_id: str, rater: str) -> _AssignmentRow:
        found = sql.row(f"SELECT {COLUMNS} FROM assignment WHERE id = ?", assignment_number(assignment_id))
        if found is None or rater_name((row := _AssignmentRow(*found)).rater) != rater:
            raise records.NotYours(f"{assignment_id[:20]!r}: no assignment of yours")
        return row

    def _record(self, sql: Transaction, row: Sequence[Any]) -> records.Assignment:
        one = _AssignmentRow(*row)
        shown: dict[int, float] = dict(sql.rows("SELECT position, at FROM shown WHERE assignment = ?", one.id))
        names = assignment_name(one.id), self._hits[one.hit], rater_name(one.rater)
        return records.Assignment(*names, one.state, one.started, one.submitted, shown)


def _paused(sql: Transaction) -> bool:
    return sql.row("SELECT 1 FROM study WHERE paused = 1") is not None
