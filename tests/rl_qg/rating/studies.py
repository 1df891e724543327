"""Plans and stores for tests: small tasks of made-up questions."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from rl_qg.rating.plan_files import PLAN, Hit, Item, StudyPlan, TaskPassage, plan_texts
from rl_qg.rating.protocol import CHOICE, Control, Criterion, Protocol, TaskRecipe
from rl_qg.rating.study.store import Store
from rl_qg.rating.study.tables import rater_name

ENDS = ({"en": "no"}, {"en": "yes"})
CRITERIA = (
    Criterion("clear", {"en": "The question is clear."}, low=ENDS[0], high=ENDS[1]),
    Criterion("answered", {"en": "It can be answered."}, CHOICE, anchors=((3, ENDS[1]), (1, ENDS[0]))),
)
VALUES = {"clear": 70, "answered": 3}


class Clock:
    """A clock that is set by hand; it begins with the year 2100, so that a study with it is not over today."""

    def __init__(self, now: float = 4_102_444_800.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def small_plan(tasks: int = 3, raters: int = 2, items: int = 3, name: str = "small") -> StudyPlan:
    """Tasks of `items` items; the second item is degraded, the last a repeat."""
    protocol = Protocol(
        name="small",
        source="made up",
        criteria=CRITERIA,
        recipe=TaskRecipe(items=items, repeats=1, degraded=1),
        control=Control(),
        title={"en": "Questions"},
        instructions=({"en": "Read."},),
        consent={"en": "Do you agree?"},
        raters_per_hit=raters,
        minutes_per_hit=5,
    )
    hits = tuple(_task(number, items) for number in range(1, tasks + 1))
    settings = {
        "study": name,
        "seed": 13,
        "language": "en",
        "raters_per_hit": raters,
        "retention_days": 30,
        "hits": tasks,
        "items": tasks * items,
        "ratings": tasks * items * len(CRITERIA) * raters,
    }
    return StudyPlan(protocol, hits, json.loads(plan_texts(settings, protocol, hits)[PLAN]))


def _task(number: int, items: int) -> Hit:
    context = f"Passage {number} tells of 東京 and of Ada's engine."
    passage = TaskPassage(f"hash{number}", "", context)
    kinds = ["ordinary", "degraded", *["ordinary"] * (items - 3), "repeat"][:items]
    return Hit(
        f"h{number:04d}",
        "en",
        (passage,),
        tuple(
            Item(
                position=place,
                kind=kind,
                passage=0,
                question=f"What does passage {number} tell ({kind} {place})?",
                answer="Ada",
                answer_start=context.index("Ada"),
                systems=("ce", "scst") if place == 1 else ("ce",),
                item=f"hash{number}-Ada",
                original=None if kind == "ordinary" else 1,
            )
            for place, kind in enumerate(kinds, 1)
        ),
    )


def consenting_rater(store: Store) -> str:
    """A new rater who has agreed."""
    rater = store.new_rater()
    store.give_consent(rater, "1", "en")
    return rater


def events(store: Store, rater: str | None = None) -> list[str]:
    """The kinds of what has happened, of all or of one rater, in order."""
    with store._database.read() as sql:
        rows = sql.rows("SELECT kind, rater FROM event ORDER BY number")
    return [kind for kind, who in rows if rater is None or (who is not None and rater == rater_name(who))]


def rate_all(store: Store, assignment_id: str, rater: str) -> None:
    """Rate every item of an assignment alike."""
    for item in store.assignment(assignment_id, rater).hit.items:
        store.save(assignment_id, rater, item.position, VALUES)


@contextmanager
def locked(store: Store, url: str) -> Iterator[None]:
    """A study that another program keeps from being read."""
    if "://" in url:
        import psycopg

        with psycopg.connect(url) as other:
            other.execute("LOCK TABLE study, rater, assignment IN ACCESS EXCLUSIVE MODE")
            yield
        return
    store._database.close()  # connections that are open and idle would keep the other one out
    with closing(sqlite3.connect(url, isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        yield
