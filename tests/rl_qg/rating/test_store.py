"""The store of a study: tasks are given out, resumed, submitted and counted as they should be."""

import random
from collections import Counter

import pytest

from rl_qg.rating.study.records import FINISHED, Closed, NotAllowed, NotYours
from rl_qg.rating.study.store import Store, open_store
from rl_qg.runtime.errors import InputError
from tests.rl_qg.rating.studies import CRITERIA, VALUES, Clock, consenting_rater, events, rate_all, small_plan

NAMES = [criterion.name for criterion in CRITERIA]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(study_url: str, clock: Clock) -> Store:
    return open_store(study_url, small_plan(), clock)


def task_of(store: Store, rater: str) -> str | None:
    claimed = store.claim(rater)
    return claimed.hit.hit if claimed else None


def finish(store: Store, rater: str) -> str:
    """A rater does a whole task; what came of it."""
    claimed = store.claim(rater)
    assert claimed is not None
    rate_all(store, claimed.id, rater)
    return store.submit(claimed.id, rater)


# --- Giving out ---


def test_the_task_that_lacks_least_is_given_out_first_and_none_twice_to_one_rater(store: Store) -> None:
    one, two, three = (consenting_rater(store) for _ in range(3))
    assert [task_of(store, rater) for rater in (one, two, three)] == ["h0001", "h0001", "h0002"]
    assert finish(store, one) == "submitted"
    assert task_of(store, one) == "h0002"  # one rater has it, nobody has h0003
    assert finish(store, one) == "submitted"
    assert finish(store, one) == "submitted"
    assert store.claim(one) is None
    assert Counter(item.hit.hit for item in store.assignments_of(one)) == {"h0001": 1, "h0002": 1, "h0003": 1}


def test_an_open_assignment_is_resumed_with_what_was_rated(store: Store, clock: Clock) -> None:
    rater = consenting_rater(store)
    assert store.assignments_of(rater) == []
    first = store.claim(rater)
    assert first is not None
    store.shown(first.id, rater, 1)
    clock.now += 10
    store.save(first.id, rater, 1, {"clear": 0})
    again = store.claim(rater)
    assert again is not None
    assert (again.id, again.hit, again.state) == (first.id, small_plan().hits[0], "open")
    assert again.shown == {1: clock.now - 10}
    assert store.assignments_of(rater) == [again]
    assert store.ratings_of(first.id, rater) == {(1, "clear"): 0}


def test_a_study_is_the_same_after_it_was_opened_again(study_url: str, store: Store, clock: Clock) -> None:
    rater = consenting_rater(store)
    token = store.new_session(rater)
    assert finish(store, rater) == "submitted"
    before = (store.progress(), events(store), store.session(token), store.assignments_of(rater))
    store.close()
    reopened = open_store(study_url, small_plan(), clock)
    assert reopened.plan == small_plan()
    assert (reopened.progress(), events(reopened), reopened.session(token), reopened.assignments_of(rater)) == before


def test_raters_who_may_not_rate_get_nothing(store: Store) -> None:
    rater = store.new_rater()
    with pytest.raises(NotAllowed, match="arrived"):
        store.claim(rater)
    store.decline(rater)
    with pytest.raises(NotAllowed, match="declined"):
        store.claim(rater)
    store.give_consent(rater, "2", "de")
    store.set_practice(rater, {"1": VALUES}, passed=False)
    with pytest.raises(NotAllowed, match="screened_out"):
        store.claim(rater)
    store.set_practice(rater, {"1": VALUES}, passed=True)
    assert task_of(store, rater) == "h0001"
    known = store.rater(rater)
    assert (known.consent_version, known.language, known.practice, known.state) == ("2", "de", "passed", "consented")
    for name in ("r0099", "r1' OR 1=1", "", "r1", "a00001"):
        with pytest.raises(NotAllowed):
            store.claim(name)


def test_while_it_is_paused_nobody_gets_a_new_task(store: Store) -> None:
    one, two = consenting_rater(store), consenting_rater(store)
    assert store.claim(one) is not None
    store.pause()
    assert store.progress()["paused"]
    assert store.claim(two) is None
    assert finish(store, one) == "submitted"  # whoever has begun goes on
    store.pause(False)
    assert store.claim(two) is not None


# --- Rating ---


def test_saving_again_changes_and_counts(store: Store, clock: Clock) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    store.shown(claimed.id, rater, 2)
    for seconds, value in ((1, 10), (2, 10), (4, 90), (8, 90), (16, 10)):
        clock.now = claimed.started + seconds
        store.save(claimed.id, rater, 2, {"clear": value})
    with store.snapshot() as snapshot:
        (record,) = snapshot.ratings()
    found = {name: record[name] for name in ("position", "criterion", "value", "first_ms", "last_ms", "changes")}
    assert found == {
        "position": 2,
        "criterion": "clear",
        "value": 10,
        "first_ms": 1000,
        "last_ms": 16000,
        "changes": 2,
    }


@pytest.mark.parametrize(
    "values",
    [{"clear": 101}, {"clear": -1}, {"answered": 2}, {"funny": 1}, {"clear": True}, {"clear": 5.0}, {"clear": "5"}],
)
def test_values_that_are_none_of_the_criterion_are_refused_and_nothing_of_them_is_kept(store: Store, values) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    with pytest.raises(InputError):
        store.save(claimed.id, rater, 1, {"answered": 3, **values})
    for position in (0, 4, True, 1.0, "1"):
        with pytest.raises(InputError):
            store.save(claimed.id, rater, position, VALUES)
        with pytest.raises(InputError):
            store.shown(claimed.id, rater, position)
    assert store.ratings_of(claimed.id, rater) == store.assignment(claimed.id, rater).shown == {}


def test_nobody_reaches_the_assignment_of_another(store: Store) -> None:
    owner, other = consenting_rater(store), consenting_rater(store)
    claimed = store.claim(owner)
    assert claimed is not None
    for name in (claimed.id, "a00099", "a1", "a00001 ", "a٠٠٠٠١", "x", "", "a" + "9" * 40):
        for attempt in (
            lambda name=name: store.save(name, other, 1, VALUES),
            lambda name=name: store.ratings_of(name, other),
            lambda name=name: store.submit(name, other),
            lambda name=name: store.shown(name, other, 1),
            lambda name=name: store.assignment(name, other),
            lambda name=name: store.add_feedback(name, other, "text"),
        ):
            with pytest.raises(NotYours):
                attempt()
    assert store.ratings_of(claimed.id, owner) == {}
    assert store.assignment(claimed.id, owner).state == "open"


# --- Ending ---


def test_a_task_that_lacks_a_rating_stays_open_and_submit_says_the_same_again(store: Store) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    for position, values in ((1, VALUES), (2, VALUES), (3, {"answered": 1})):
        store.save(claimed.id, rater, position, values)
    assert store.submit(claimed.id, rater) == "open"
    rate_all(store, claimed.id, rater)
    assert [store.submit(claimed.id, rater) for _ in range(2)] == ["submitted"] * 2
    with pytest.raises(Closed):
        store.save(claimed.id, rater, 1, {"clear": 1})
    assert events(store, rater) == ["consent", "given", "submitted"]


def test_codes_are_the_same_each_time_and_different_for_each(store: Store) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    kinds = ("completed", "no_consent", "screened_out", "full")
    codes = [store.code(of, kind) for of in (claimed.id, None) for kind in kinds]
    assert codes == [store.code(of, kind) for of in (claimed.id, None) for kind in kinds]
    assert len(set(codes)) == 8


def test_a_task_given_back_goes_to_others_only(store: Store) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    give_back(store, rater)
    assert task_of(store, rater) == "h0002"
    with pytest.raises(Closed):
        store.submit(claimed.id, rater)
    with pytest.raises(Closed):  # in another tab
        store.add_feedback(claimed.id, rater, "text")
    assert task_of(store, consenting_rater(store)) == "h0002"
    assert task_of(store, consenting_rater(store)) == "h0001"


def test_feedback_is_kept_as_text(store: Store) -> None:
    rater = consenting_rater(store)
    claimed = store.claim(rater)
    assert claimed is not None
    store.add_feedback(claimed.id, rater, "first")
    store.add_feedback(claimed.id, rater, "'); DROP TABLE rating; -- \0 \ud800 <b> 東京")
    with store.snapshot() as snapshot:
        (record,) = snapshot.feedback()
    assert record == {"rater": rater, "assignment": claimed.id, "text": "'); DROP TABLE rating; --  ? <b> 東京"}


# --- Leases ---


def alone(store: Store, clock: Clock, minutes: float) -> tuple[str, str, str]:
    """One rater has begun, so long ago that the lease is over, and another has the same and only place since.

    Returns:
        the first rater, its assignment, and the second rater.
    """
    first, second = consenting_rater(store), consenting_rater(store)
    claimed = store.claim(first)
    assert claimed is not None
    clock.now += 60 * minutes
    assert task_of(store, second) == claimed.hit.hit
    return first, claimed.id, second


@pytest.fixture
def single(study_url: str, clock: Clock) -> Store:
    """A study with one place."""
    return open_store(study_url, small_plan(tasks=1, raters=1), clock)


def test_an_expired_lease_frees_the_task(single: Store, clock: Clock) -> None:
    first, assignment, second = alone(single, clock, minutes=31)
    assert single.assignment(assignment, first).state == "expired"
    assert single.claim(first) is None
    assert single.progress()["assignments"] == {"open": 1, "submitted": 0, "surplus": 0, "expired": 1, "returned": 0}
    clock.now += 31 * 60
    resumed = single.claim(first)  # now the second has gone, and the first goes on with its own
    assert resumed is not None
    assert resumed.id == assignment
    assert single.claim(second) is None


def test_saving_keeps_a_lease(single: Store, clock: Clock) -> None:
    first, second = consenting_rater(single), consenting_rater(single)
    claimed = single.claim(first)
    assert claimed is not None
    for _ in range(5):
        clock.now += 29 * 60
        single.save(claimed.id, first, 1, VALUES)
        assert single.claim(second) is None


def test_who_comes_late_counts_unless_another_has_finished(single: Store, clock: Clock) -> None:
    first, assignment, second = alone(single, clock, minutes=31)
    rate_all(single, assignment, first)  # saved although it has expired; the place stays the second's
    assert single.assignment(assignment, first).state == "expired"
    assert single.submit(assignment, first) == "submitted"
    assert finish(single, second) == "surplus"
    assert single.progress()["assignments"]["surplus"] == 1
    assert single.progress()["tasks_done"] == 1
    assert single.claim(consenting_rater(single)) is None


def test_who_comes_after_another_has_finished_is_surplus_and_kept(single: Store, clock: Clock) -> None:
    first, assignment, second = alone(single, clock, minutes=31)
    single.save(assignment, first, 1, VALUES)
    assert finish(single, second) == "submitted"
    rate_all(single, assignment, first)
    assert [single.submit(assignment, first) for _ in range(2)] == ["surplus"] * 2
    with single.snapshot() as snapshot:
        states = Counter(record["state"] for record in snapshot.ratings())
    assert states == {"submitted": 6, "surplus": 6}


def test_saving_after_the_lease_takes_the_free_place_again(single: Store, clock: Clock) -> None:
    first, second = consenting_rater(single), consenting_rater(single)
    claimed = single.claim(first)
    assert claimed is not None
    assert single.expire(claimed.id)
    assert not single.expire(claimed.id)
    single.save(claimed.id, first, 1, VALUES)
    assert single.assignment(claimed.id, first).state == "open"
    assert single.claim(second) is None


@pytest.mark.parametrize("saves", [False, True])
def test_no_lease_is_eternal_when_the_clock_goes_back(single: Store, clock: Clock, saves: bool) -> None:
    first, second = consenting_rater(single), consenting_rater(single)
    clock.now += 400 * 86_400  # a year ahead by mistake
    claimed = single.claim(first)
    assert claimed is not None
    single.shown(claimed.id, first, 1)
    clock.now -= 400 * 86_400
    if saves:
        single.save(claimed.id, first, 1, {"clear": 5})
    assert single.claim(second) is None  # it has a lease still, but not for longer than one
    clock.now += 31 * 60
    assert single.claim(second) is not None
    rate_all(single, claimed.id, first)
    assert single.submit(claimed.id, first) == "submitted"
    with single.snapshot() as snapshot:
        assert all(0 <= record["first_ms"] <= record["last_ms"] for record in snapshot.ratings())
        assert [record["seconds"] for record in snapshot.assignments()] == [0.0, None]
    assert events(single, first) == ["consent", "given", "expired", "submitted"]


def test_a_clock_that_jumps_ahead_costs_no_rating(single: Store, clock: Clock) -> None:
    first, assignment, _ = alone(single, clock, minutes=60 * 24 * 365)
    clock.now -= 86_400 * 365
    rate_all(single, assignment, first)
    assert single.submit(assignment, first) == "submitted"


def test_a_warning_from_the_future_hides_none(single: Store, clock: Clock) -> None:
    rater = consenting_rater(single)
    for back in (86_400 * 365, 0, -3601):
        single.warn("crowded", rater)
        clock.now -= back
    assert [kind for _, kind, _, _ in single.log()] == ["crowded"] * 2
    single.warn("crowded", rater)
    assert len(single.log()) == 3, "an hour later"


# --- Any history ---


@pytest.mark.parametrize("seed", range(3))
def test_no_history_serves_a_task_twice(study_url: str, clock: Clock, seed: int) -> None:
    """Five raters do whatever comes to mind, while the clock moves; a task is never held by more than it needs."""
    draw = random.Random(seed)
    store = open_store(study_url, small_plan(tasks=4, raters=2, items=3), clock)
    raters = [consenting_rater(store) for _ in range(5)]
    for _ in range(60):
        clock.now += draw.choice([1, 60, 1000, -500])
        rater = draw.choice(raters)
        mine = store.assignments_of(rater)
        action = draw.choice(["claim", "claim", "finish", "finish", "save", "back", "expire"])
        if action == "claim" or not mine:
            check_claim(store, raters, rater)
        elif action == "expire":
            store.expire(draw.choice(mine).id)
        else:
            act(store, rater, draw.choice(mine).id, action)
        held = [item for one in raters for item in store.assignments_of(one)]
        assert max(Counter(item.rater for item in held if item.state == "open").values(), default=0) <= 1
        assert max(Counter(item.hit.hit for item in held if item.state == "submitted").values(), default=0) <= 2
        assert max(Counter((item.hit.hit, item.rater) for item in held).values(), default=0) <= 1


def give_back(store: Store, rater: str) -> None:
    """Take the agreement back, which frees the task, and give it again."""
    store.decline(rater)
    store.give_consent(rater, "1", "en")


def act(store: Store, rater: str, assignment: str, action: str) -> None:
    before = store.assignment(assignment, rater).state
    try:
        if action == "save":
            store.save(assignment, rater, 1, VALUES)
        elif action == "back":
            give_back(store, rater)
        else:
            rate_all(store, assignment, rater)
            assert store.submit(assignment, rater) in FINISHED
    except Closed:
        assert before in ("submitted", "surplus", "returned")


def check_claim(store: Store, raters: list[str], rater: str) -> None:
    """A claim against the rule, computed from all assignments."""
    before = {item.id: item for item in store.assignments_of(rater)}
    claimed = store.claim(rater)
    held = [item for one in raters for item in store.assignments_of(one)]
    live = Counter(
        item.hit.hit
        for item in held
        if item.state in ("open", "submitted") and (claimed is None or item.id != claimed.id)
    )
    had = {item.hit.hit for item in before.values()}
    free = {hit.hit: live[hit.hit] for hit in store.plan.hits if live[hit.hit] < 2 and hit.hit not in had}
    if claimed is None:
        assert not free
    elif claimed.id not in before:
        assert free[claimed.hit.hit] == max(free.values())
    elif before[claimed.id].state == "expired":
        assert live[claimed.hit.hit] < 2
