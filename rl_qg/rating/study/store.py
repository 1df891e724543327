"""The store of a study: everything that raters do, in one database (SQLite, or PostgreSQL for several hosts).

SQL is in this room alone.
"""

import json
import secrets
import time
from collections.abc import Callable

from rl_qg.rating.plan_files import StudyPlan
from rl_qg.rating.study.assignments import AssignmentTables
from rl_qg.rating.study.database import Database, open_database
from rl_qg.rating.study.progress import ProgressTables
from rl_qg.rating.study.raters import RaterTables
from rl_qg.rating.study.tables import FORMAT, TABLES
from rl_qg.runtime.errors import InputError


class Store(RaterTables, AssignmentTables, ProgressTables):
    """A study. All methods may be called from many threads, and from several processes at once."""


def open_store(url: str, plan: StudyPlan | None = None, clock: Callable[[], float] = time.time) -> Store:
    """Open a study. `url`: a file (SQLite), or `postgresql://USER@HOST/NAME`. With a plan the study is made if there
    is none; without one there must be one.
    """
    database = open_database(url, create=plan is not None)
    try:
        if plan is not None:
            _create(database, plan, clock())
        return Store(database, clock)
    except BaseException:
        database.close()
        raise


def _create(database: Database, plan: StudyPlan, now: float) -> None:
    """Make the tables and keep the plan; where there is a study, check that it is of this plan."""
    with database.write() as sql:
        if sql.has_table("study") and not sql.has_table("assignment"):
            raise InputError(f"study={database.place}: has a table of another program; name another database")
        if not sql.has_table("study"):
            for table in TABLES:
                sql.run(table.format(numbered=database.NUMBERED))
            sql.run(
                "INSERT INTO study (id, format, plan, sha256, secret, created, paused) VALUES (1, ?, ?, ?, ?, ?, 0)",
                *(FORMAT, json.dumps(dict(plan.settings)), plan.sha256, secrets.token_hex(32), now),
            )
            for number, hit in enumerate(plan.hits, 1):
                sql.run(
                    "INSERT INTO hit (id, number, need, payload) VALUES (?, ?, ?, ?)",
                    *(hit.hit, number, plan.raters_per_hit, json.dumps(hit.to_dict())),
                )
        row = sql.row("SELECT sha256, format FROM study")
    if row is None or row[1] != FORMAT:
        raise InputError(f"study={database.place}: was made by another version of rl-qg; serve it with that one")
    if row[0] != plan.sha256:
        raise InputError(
            f"study={database.place}: belongs to another plan (it has changed since the study began); name another "
            "file, as study=study2.db, or restore the plan"
        )
