"""The store of a study: everything that raters do, how far it is, and its rows for an export."""

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from rl_qg.rating.plan_files import StudyPlan
from rl_qg.rating.study.assignments import AssignmentTables
from rl_qg.rating.study.database import Database, Transaction, open_database
from rl_qg.rating.study.raters import RaterTables
from rl_qg.rating.study.records import FINISHED, OPEN, STATES, SUBMITTED, StoreFailed
from rl_qg.rating.study.tables import FORMAT, RATER, assignment_name, rater_name, record_of_rater
from rl_qg.runtime.errors import InputError

SCHEMA = Path(__file__).with_name("schema.sql")


class Snapshot:
    """One state of a study, whatever is written meanwhile. Holds no identity and no token."""

    def __init__(self, sql: Transaction, plan: StudyPlan) -> None:
        self._sql = sql
        self._plan = plan
        self._hits = {hit.hit: hit for hit in plan.hits}

    def ratings(self) -> Iterator[dict[str, Any]]:
        """Every rating, as a line of `ratings.jsonl`: by assignment, position, the protocol's order of criteria."""
        ranks = " ".join(f"WHEN ? THEN {number}" for number, _ in enumerate(self._plan.protocol.criteria))
        for number, name, rater, state, position, criterion, value, shown, first, last, changes in self._sql.stream(
            "SELECT assignment.id, hit, rater, state, rating.position, criterion, value, at, first_at, last_at, "
            "changes FROM rating JOIN assignment ON assignment.id = rating.assignment JOIN shown "
            "ON shown.assignment = rating.assignment AND shown.position = rating.position "
            f"ORDER BY assignment.id, rating.position, CASE criterion {ranks} END",
            *(criterion.name for criterion in self._plan.protocol.criteria),
        ):
            hit = self._hits[name]
            first_ms = max(0, round(1000 * (first - shown)))  # a clock that went back makes no negative time
            yield {
                "study": self._plan.study,
                "hit": name,
                "assignment": assignment_name(number),
                "rater": rater_name(rater),
                **hit.fields_of(hit.items[position - 1]),
                "criterion": criterion,
                "value": value,
                "first_ms": first_ms,
                "last_ms": max(first_ms, round(1000 * (last - shown))),
                "changes": changes,
                "state": state,
            }

    def assignments(self) -> Iterator[dict[str, Any]]:
        """Every assignment, with times in seconds since 1970."""
        names = ("assignment", "hit", "rater", "state", "started", "submitted", "seconds", "language", "panel")
        for row in self._sql.stream(
            "SELECT assignment.id, hit, rater, state, started, submitted, submitted - started, language, panel "
            "FROM assignment JOIN rater ON rater.id = assignment.rater ORDER BY assignment.id"
        ):
            one = dict(zip(names, row, strict=True))
            one |= {"assignment": assignment_name(one["assignment"]), "rater": rater_name(one["rater"])}
            yield one | {"seconds": None if one["seconds"] is None else round(max(0.0, one["seconds"]), 3)}

    def feedback(self) -> Iterator[dict[str, Any]]:
        for rater, assignment, text in self._sql.stream(
            "SELECT rater, assignment, text FROM feedback ORDER BY assignment"
        ):
            yield {"rater": rater_name(rater), "assignment": assignment_name(assignment), "text": text}


class Store(RaterTables, AssignmentTables):
    """A study. All methods may be called from many threads, and from several processes at once."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The study as it is now, for as long as the block lasts; raters go on meanwhile."""
        with self._database.read() as sql:
            yield Snapshot(sql, self.plan)

    def open_assignments(self) -> list[dict[str, Any]]:
        """The tasks that raters have now: `id`, `rater`, `hit`, `lease_until` (seconds since 1970), and how many
        `items` are `touched`, that is have a rating. Those whose lease ends first come first.
        """
        with self._database.read() as sql:
            rows = sql.rows(
                "SELECT id, rater, hit, lease_until, (SELECT count(DISTINCT position) FROM rating WHERE "
                "rating.assignment = assignment.id) FROM assignment WHERE state = 'open' ORDER BY lease_until, id"
            )
        return [
            {
                **{"id": assignment_name(number), "rater": rater_name(rater), "hit": hit, "lease_until": until},
                **{"touched": touched, "items": len(self._hits[hit].items)},
            }
            for number, rater, hit, until, touched in rows
        ]

    def progress(self) -> dict[str, Any]:
        """How far a study is, for the page of its owner and `rl-qg rate status`. `wanted` are assignments: tasks times
        raters of each; `minutes` is the median of a task, `pay_per_hour` that of the plan's task in so many minutes,
        `systems` has items by kind in the tasks that raters finished.
        """
        with self._database.read() as sql:
            paused = sql.rows("SELECT paused FROM study")[0][0]
            raters = [record_of_rater(row).state for row in sql.rows(f"SELECT {RATER} FROM rater")]
            ratings, feedback = (sql.rows(f"SELECT count(*) FROM {name}")[0][0] for name in ("rating", "feedback"))
            rows = sql.rows("SELECT hit, state, lease_until, started, submitted FROM assignment")
        states = Counter(state for _, state, *_ in rows)
        finished = Counter(hit for hit, state, *_ in rows if state == SUBMITTED)
        seconds = [max(0.0, end - begin) for _, state, _, begin, end in rows if state in FINISHED]
        minutes = median(seconds) / 60 if seconds else None
        cost = self.plan.settings.get("cost") or {}  # as the plan computed it
        pay = cost.get("pay_per_hit") if isinstance(cost.get("pay_per_hit"), int | float) else None
        systems: dict[str, Counter[str]] = {}
        for hit in self.plan.hits:
            for item in hit.items:
                for system in item.systems:
                    systems.setdefault(system, Counter())[item.kind] += finished[hit.hit]
        return {
            "study": self.plan.study,
            "created": self.created,
            "retention_until": self.retention_until,
            "paused": bool(paused),
            "tasks": len(self.plan.hits),
            "tasks_done": sum(count >= self.plan.raters_per_hit for count in finished.values()),
            "wanted": len(self.plan.hits) * self.plan.raters_per_hit,
            "assignments": {state: states[state] for state in STATES},
            "raters": dict(sorted(Counter(raters).items())),
            "ratings": ratings,
            "feedback": feedback,
            "minutes": minutes,
            "pay_per_hour": 60 * pay / minutes if pay is not None and minutes else None,
            "currency": str(cost.get("currency", "")),
            "systems": {system: dict(kinds) for system, kinds in sorted(systems.items())},
            "next_expiry": min((until for _, state, until, *_ in rows if state == OPEN), default=None),
        }


def open_store(url: str, plan: StudyPlan | None = None, clock: Callable[[], float] = time.time) -> Store:
    """Open the study of a `url` (`open_database`). With a plan it is made if there is none; else there must be one."""
    database = open_database(url, create=plan is not None)
    try:
        if plan is not None:
            _create(database, plan, clock())
        return Store(database, clock)
    except BaseException:
        database.close()
        raise


@contextmanager
def opened_store(url: str, plan: StudyPlan | None = None) -> Iterator[Store]:
    """A study, for a command: what the database could not do is one line."""
    try:
        with closing(open_store(url, plan)) as store:
            yield store
    except StoreFailed as error:
        raise InputError(f"study={error.filename}: {error.strerror}; run the command again") from None


def _create(database: Database, plan: StudyPlan, now: float) -> None:
    """Make the tables and keep the plan; where there is a study, check that it is of this plan."""
    with database.write() as sql:
        if sql.has_table("study") and not sql.has_table("assignment"):
            raise InputError(f"study={database.place}: has a table of another program; name another database")
        if not sql.has_table("study"):
            for table in SCHEMA.read_text(encoding="utf-8").split(";"):
                sql.run(table.format(numbered=database.NUMBERED))
            sql.run(
                "INSERT INTO study (id, format, plan, sha256, secret, created, paused) VALUES (1, ?, ?, ?, ?, ?, 0)",
                *(FORMAT, json.dumps(dict(plan.settings)), plan.sha256, secrets.token_hex(32), now),
            )
            for number, hit in enumerate(plan.hits, 1):
                sql.run(
                    "INSERT INTO hit (id, number, need, payload) VALUES (?, ?, ?, ?)",
                    *(hit.hit, number, plan.raters_per_hit, json.dumps(asdict(hit))),
                )
        row = sql.row("SELECT sha256, format FROM study")
    if row is None or row[1] != FORMAT:
        raise InputError(f"study={database.place}: was made by another version of rl-qg; serve it with that one")
    if row[0] != plan.sha256:
        raise InputError(
            f"study={database.place}: belongs to another plan (it has changed since the study began); name another "
            "file, as study=study2.db, or restore the plan"
        )
