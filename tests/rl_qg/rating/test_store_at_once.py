"""Many raters at once, a killed process, a full disk: no task is served twice, and no rating is lost."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from rl_qg.rating.study.records import StoreFailed
from rl_qg.rating.study.store import Store, open_store
from tests.full_disk import room_for
from tests.rl_qg.rating.studies import VALUES, consenting_rater, rate_all, small_plan

ROOT = Path(__file__).parents[3]


def at_once(work: Callable[[Any], Any], arguments: Sequence[Any]) -> list[Any]:
    """What a function returns for each argument, each in a thread, all let go at the same moment."""
    barrier = Barrier(len(arguments))

    def run(argument: Any) -> Any:
        barrier.wait()
        return work(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))


def test_fifty_raters_at_once_rate_every_task_as_often_as_wanted(study_url: str) -> None:
    tasks, wanted, threads = 30, 2, 50
    store = open_store(study_url, small_plan(tasks, wanted))
    raters = [consenting_rater(store) for _ in range(threads)]

    def work(rater: str) -> list[tuple[str, str]]:
        done = []
        while claimed := store.claim(rater):
            for position in (1, 2, 3):
                store.save(claimed.id, rater, position, {"clear": position, "answered": 1})
            done.append((claimed.hit.hit, store.submit(claimed.id, rater)))
        return done

    done = [pair for one in at_once(work, raters) for pair in one]
    assert Counter(done) == {(hit.hit, "submitted"): wanted for hit in store.plan.hits}
    with store.snapshot() as snapshot:
        ratings = Counter((record["position"], record["criterion"], record["value"]) for record in snapshot.ratings())
    every = tasks * wanted
    assert ratings == {(n, name, value): every for n in (1, 2, 3) for name, value in (("clear", n), ("answered", 1))}
    progress = store.progress()
    assert (progress["tasks_done"], progress["wanted"], progress["ratings"]) == (tasks, every, every * 6)
    assert progress["assignments"] == {"open": 0, "submitted": every, "surplus": 0, "expired": 0, "returned": 0}


def test_of_two_who_race_for_the_last_place_one_gets_it(study_url: str) -> None:
    repetitions = 50
    store = open_store(study_url, small_plan(tasks=repetitions, raters=1))
    stores = [store, open_store(study_url)]  # as two processes have them
    pair = [consenting_rater(store) for _ in stores]
    other = consenting_rater(store)
    for _ in range(repetitions - 1):  # all places but one are taken
        claimed = store.claim(other)
        assert claimed is not None
        rate_all(store, claimed.id, other)
        store.submit(claimed.id, other)
    for _ in range(repetitions):
        claims = at_once(lambda one: one[0].claim(one[1]), [*zip(stores, pair, strict=True)])
        (won,) = [claim for claim in claims if claim is not None]
        store.expire(won.id)
        assert store.progress()["assignments"]["open"] == 0
        pair = [consenting_rater(store) for _ in stores]


def test_two_windows_of_one_rater_get_one_task_and_submit_once(study_url: str) -> None:
    store = open_store(study_url, small_plan(tasks=20, raters=3))
    for _ in range(10):
        rater = consenting_rater(store)
        claims = at_once(lambda _, rater=rater: store.claim(rater), range(4))
        assert len({claim.id for claim in claims}) == 1
        at_once(lambda _, rater=rater, claim=claims[0]: rate_all(store, claim.id, rater), range(2))
        ended = at_once(lambda _, rater=rater, claim=claims[0]: store.submit(claim.id, rater), range(4))
        codes = at_once(lambda _, claim=claims[0]: store.code(claim.id, "completed"), range(4))
        assert {*ended} == {"submitted"}
        assert len({*codes}) == 1
    progress = store.progress()
    assert progress["assignments"]["submitted"] == 10
    assert progress["ratings"] == 10 * 6


def test_one_identity_that_arrives_many_times_at_once_is_one_rater(study_url: str) -> None:
    store = open_store(study_url, small_plan())
    token = store.add_invites(1)[0]
    assert len({*at_once(lambda _: store.rater_of_panel("prolific", "5f1", {}), range(8))}) == 1
    assert len({*at_once(lambda _: store.rater_of_invite(token), range(8))}) == 1
    assert len(store.raters()) == 2


def test_processes_that_begin_a_study_together_make_one(study_url: str) -> None:
    plan = small_plan()
    stores = at_once(lambda _: open_store(study_url, plan), range(6))
    rater = consenting_rater(stores[0])
    claims = at_once(lambda store: store.claim(rater), stores)
    assert {claim.id for claim in claims} == {"a00001"}
    assert {store.session(stores[0].new_session(rater)).rater for store in stores} == {rater}  # one secret


def test_a_new_file_is_opened_by_several_at_once(tmp_path: Path) -> None:
    """SQLite refuses all but one of those that make the log at once (4 of 60 times before they tried again)."""
    plan = small_plan()
    for number in range(40):
        at_once(lambda _, path=tmp_path / f"{number}.db": open_store(str(path), plan), range(6))


# --- Killed ---

SAVES = """
import sys
from rl_qg.rating.study.store import open_store
from tests.rl_qg.rating.studies import consenting_rater, small_plan
store = open_store(sys.argv[1], small_plan(tasks=1, raters=1, items=200))
rater = consenting_rater(store)
claimed = store.claim(rater)
for position in range(1, 201):
    store.save(claimed.id, rater, position, {"clear": position % 100, "answered": 3})
    print(position, flush=True)
store.submit(claimed.id, rater)
"""


@pytest.mark.slow
def test_a_killed_process_loses_no_rating_that_it_said_was_saved(study_url: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SAVES, study_url],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 25:
            os.kill(process.pid, signal.SIGKILL)  # anywhere within the next save
            break
    said = [int(line), *map(int, process.stdout.read().split())][-1]
    assert process.wait() == -signal.SIGKILL
    store = open_store(study_url, small_plan(tasks=1, raters=1, items=200))
    saved = store.ratings_of("a00001", "r0001")
    whole = {(n, name): value for n in range(1, said + 1) for name, value in (("clear", n % 100), ("answered", 3))}
    assert whole.items() <= saved.items()
    assert len(saved) - len(whole) in (0, 2)  # the save that was not yet reported: all of it or nothing
    resumed = store.claim("r0001")
    assert resumed is not None
    assert (resumed.id, resumed.state) == ("a00001", "open")
    for position in range(1, 201):
        store.save("a00001", "r0001", position, VALUES)
    assert store.submit("a00001", "r0001") == "submitted"


# --- Full disk ---


def saved_until_full(store: Store, assignment: str, rater: str, path: Path) -> int:
    """Save items until the disk is full; how many were saved."""
    size = max(Path(f"{path}{end}").stat().st_size for end in ("", "-wal"))
    with room_for(size + 400_000):
        for position in range(1, 201):
            try:
                store.save(assignment, rater, position, VALUES)
            except StoreFailed as error:
                assert "disk is full" in str(error)
                return position - 1
    pytest.fail("the disk was not full")


def test_a_full_disk_is_said_and_the_study_goes_on_when_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "study.db"
    store = open_store(str(path), small_plan(tasks=1, raters=1, items=200))
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    saved = saved_until_full(store, claimed.id, rater, path)
    assert 0 < saved < 200
    assert len(store.ratings_of(claimed.id, rater)) == 2 * saved  # nothing half of the one that failed
    rate_all(store, claimed.id, rater)
    assert store.submit(claimed.id, rater) == "submitted"
    store.close()
    assert open_store(str(path)).progress()["ratings"] == 400
