"""How far a study is, and its rows for an export."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any

from rl_qg.rating.plan_files import Hit, StudyPlan
from rl_qg.rating.study.database import Transaction
from rl_qg.rating.study.records import OPEN, STATES, SUBMITTED, SURPLUS, OpenAssignment, Progress
from rl_qg.rating.study.tables import RATER, StudyTables, assignment_name, rater_name, record_of_rater


class Snapshot:
    """One state of a study, whatever is written meanwhile. Holds no identity and no token."""

    def __init__(self, sql: Transaction, plan: StudyPlan) -> None:
        self._sql = sql
        self._plan = plan
        self._hits = {hit.hit: hit for hit in plan.hits}
        self._order = {item.name: number for number, item in enumerate(plan.protocol.criteria)}

    def ratings(self) -> Iterator[dict[str, Any]]:
        """Every rating, as a line of `ratings.jsonl`: by assignment, position, and criterion as the protocol orders
        them.
        """
        ranks = " ".join(f"WHEN ? THEN {number}" for number in self._order.values())
        for number, name, rater, state, position, criterion, value, shown, first, last, changes in self._sql.stream(
            "SELECT assignment.id, hit, rater, state, rating.position, criterion, value, at, first_at, last_at, "
            "changes FROM rating JOIN assignment ON assignment.id = rating.assignment JOIN shown "
            "ON shown.assignment = rating.assignment AND shown.position = rating.position "
            f"ORDER BY assignment.id, rating.position, CASE criterion {ranks} END",
            *self._order,
        ):
            hit = self._hits[name]
            item = hit.items[position - 1]
            first_ms = max(0, round(1000 * (first - shown)))  # a clock that went back makes no negative time
            yield {
                "study": self._plan.study,
                "hit": name,
                "assignment": assignment_name(number),
                "rater": rater_name(rater),
                "position": position,
                "kind": item.kind,
                "systems": [*item.systems],
                "item": item.item,
                "passage": hit.passages[item.passage].passage,
                "original": item.original,
                "criterion": criterion,
                "value": value,
                "first_ms": first_ms,
                "last_ms": max(first_ms, round(1000 * (last - shown))),
                "changes": changes,
                "state": state,
            }

    def assignments(self) -> Iterator[dict[str, Any]]:
        """Every assignment, with times in seconds since 1970."""
        for number, hit, rater, state, started, submitted, language, panel in self._sql.stream(
            "SELECT assignment.id, hit, rater, state, started, submitted, language, panel "
            "FROM assignment JOIN rater ON rater.id = assignment.rater ORDER BY assignment.id"
        ):
            yield {
                "assignment": assignment_name(number),
                "hit": hit,
                "rater": rater_name(rater),
                "state": state,
                "started": started,
                "submitted": submitted,
                "seconds": None if submitted is None else round(max(0.0, submitted - started), 3),
                "language": language,
                "panel": panel,
            }

    def feedback(self) -> Iterator[dict[str, Any]]:
        for rater, assignment, text in self._sql.stream(
            "SELECT rater, assignment, text FROM feedback ORDER BY assignment"
        ):
            yield {"rater": rater_name(rater), "assignment": assignment_name(assignment), "text": text}


class ProgressTables(StudyTables):
    """Reads of a whole study."""

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """The study as it is now, for as long as the block lasts; raters go on meanwhile."""
        with self._database.read() as sql:
            yield Snapshot(sql, self.plan)

    def open_assignments(self) -> list[OpenAssignment]:
        """The tasks that raters have now; those whose lease ends first come first."""
        with self._database.read() as sql:
            rows = sql.rows(
                "SELECT id, rater, hit, lease_until, (SELECT count(DISTINCT position) FROM rating WHERE "
                "rating.assignment = assignment.id) FROM assignment WHERE state = 'open' ORDER BY lease_until, id"
            )
        names = [(assignment_name(row[0]) or "", rater_name(row[1]) or "") for row in rows]
        return [
            OpenAssignment(*name, hit, until, touched, len(self._hits[hit].items))
            for name, (_, _, hit, until, touched) in zip(names, rows, strict=True)
        ]

    def progress(self) -> Progress:
        with self._database.read() as sql:
            paused = sql.rows("SELECT paused FROM study")[0][0]
            raters = [record_of_rater(row).state for row in sql.rows(f"SELECT {RATER} FROM rater")]
            ratings, feedback = (sql.rows(f"SELECT count(*) FROM {name}")[0][0] for name in ("rating", "feedback"))
            rows = sql.rows("SELECT hit, state, lease_until, started, submitted FROM assignment")
        states = Counter(state for _, state, *_ in rows)
        finished = Counter(hit for hit, state, *_ in rows if state == SUBMITTED)
        seconds = [max(0.0, end - begin) for _, state, _, begin, end in rows if state in (SUBMITTED, SURPLUS)]
        minutes = median(seconds) / 60 if seconds else None
        pay, currency = pay_of_task(self.plan)
        return Progress(
            study=self.plan.study,
            created=self.created,
            retention_until=self.retention_until,
            paused=bool(paused),
            tasks=len(self.plan.hits),
            tasks_done=sum(count >= self.plan.raters_per_hit for count in finished.values()),
            wanted=len(self.plan.hits) * self.plan.raters_per_hit,
            assignments={state: states[state] for state in STATES},
            raters=dict(sorted(Counter(raters).items())),
            ratings=ratings,
            feedback=feedback,
            minutes=minutes,
            pay_per_hour=60 * pay / minutes if pay is not None and minutes else None,
            currency=currency,
            systems=_items_of_systems(self.plan.hits, finished),
            next_expiry=min((until for _, state, until, *_ in rows if state == OPEN), default=None),
        )


def _items_of_systems(hits: tuple[Hit, ...], finished: Mapping[str, int]) -> dict[str, dict[str, int]]:
    """How many items of each system were rated, by kind, in the tasks that raters finished."""
    counts: dict[str, dict[str, int]] = {}
    for hit in hits:
        for item in hit.items:
            for system in item.systems:
                kinds = counts.setdefault(system, {})
                kinds[item.kind] = kinds.get(item.kind, 0) + finished.get(hit.hit, 0)
    return dict(sorted(counts.items()))


def pay_of_task(plan: StudyPlan) -> tuple[float | None, str]:
    """What a rater gets for a task, and the currency, as the plan computed it; None where it says nothing."""
    cost = plan.settings.get("cost") or {}
    pay = cost.get("pay_per_hit")
    return (float(pay) if isinstance(pay, int | float) else None), str(cost.get("currency", ""))
