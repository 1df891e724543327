"""Tasks: how many items of each kind, which systems, and how far forms of a question are from each other."""

import logging
import random
from collections import Counter
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import given, settings, strategies as st

from rl_qg.data.examples import passage_hash
from rl_qg.rating.plan_files import Hit, Item, TaskPassage
from rl_qg.rating.planning.hits import (
    INCOMPLETE,
    NOT_DRAWN,
    NOT_FULL,
    NOT_MADE,
    Tasks,
    arranged,
    counts_of,
    longest_distance,
    make_tasks,
    nearest,
    repeats_and_degraded,
    roles,
)
from rl_qg.rating.planning.questions import StudyQuestions, Subject
from rl_qg.rating.protocol import TaskRecipe
from rl_qg.runtime.errors import InputError

QASCORE = TaskRecipe("one_passage", items=20, repeats=3, degraded=6, distance=4)
ITEMS = TaskRecipe("items", items=16, repeats=1, degraded=3, distance=3)
BLOCKS = TaskRecipe("blocks", items=100, repeats=10, degraded=10, references=10, distance=40, lengths="crowd_alone")


def subject(number: int, questions: dict[str, str]) -> Subject:
    context = f"Passage {number} tells of town {number} and of river {number}, which the people of {number} like."
    passage = TaskPassage(passage_hash(context), f"Town {number}", context)
    return Subject(f"item{number}", passage, str(number), context.index(str(number)), questions)


def study(subjects: int, systems: int, *, human: bool = False) -> StudyQuestions:
    """Every system asks something else about every subject."""
    names = [f"s{number}" for number in range(systems)] + ["human"] * human
    asked = [
        subject(number, {name: f"What does system {name} ask about town {number}?" for name in names})
        for number in range(subjects)
    ]
    return StudyQuestions(names, asked)


def made(questions: StudyQuestions, recipe: TaskRecipe, seed: int = 1, items: int | None = None) -> Tasks:
    return make_tasks(questions, recipe, language="en", seed=seed, items=items)


def kinds(hit: Hit) -> Counter[str]:
    return Counter(item.kind for item in hit.items)


def original(hit: Hit, item: Item) -> Item:
    return item if item.original is None else hit.items[item.original - 1]


def distances(hit: Hit) -> list[int]:
    """Between all forms of one question."""
    return [
        abs(one.position - other.position)
        for one in hit.items
        for other in hit.items
        if one.position < other.position and original(hit, one) == original(hit, other)
    ]


# --- One passage ---


def test_eleven_systems_make_11_ordinary_3_repeats_and_6_degraded() -> None:
    tasks = made(study(33, 11), QASCORE)
    assert len(tasks.hits) == 33
    for hit in tasks.hits:
        assert kinds(hit) == {"ordinary": 11, "repeat": 3, "degraded": 6}
        assert len(hit.passages) == 1
        assert len({item.item for item in hit.items}) == 1
        repeated = {original(hit, item).systems for item in hit.items if item.kind == "repeat"}
        worse = {original(hit, item).systems for item in hit.items if item.kind == "degraded"}
        assert len(repeated) == 3 and len(worse) == 6, "a system has a form once"
        assert len(repeated & worse) == 1, "as in the paper: one both, two repeated, five degraded, three neither"


# The tasks that passed in each run (table 4a); N of Human and of the others (tables 5 and 6).
@pytest.mark.parametrize(("passed", "human", "others"), [(334, 668, 4008), (282, 564, 3384)])
def test_a_task_with_human_questions_is_that_of_the_paper(passed: int, human: int, others: int) -> None:
    """QAScore, section 4.2.1."""
    tasks = made(study(passed, 10, human=True), QASCORE)
    shown: Counter[str] = Counter()
    for hit in tasks.hits:
        forms: dict[str, list[str]] = {}
        for item in hit.items:
            [system] = item.systems
            forms.setdefault(system, []).append(item.kind)
            shown[system] += item.kind != "degraded"
        assert sorted(forms.pop("human")) == ["degraded", "ordinary", "repeat"]
        assert Counter(tuple(sorted(kinds)) for kinds in forms.values()) == {
            ("ordinary", "repeat"): 2,
            ("degraded", "ordinary"): 5,
            ("ordinary",): 3,
        }
    assert shown.pop("human") == human
    assert sum(shown.values()) == others and max(shown.values()) - min(shown.values()) <= 1


@pytest.mark.parametrize("systems", [1, 2, 3, 4, 7, 10, 13])
def test_beside_people_each_system_is_as_often_in_each_role(systems: int) -> None:
    # By hand: 2/10 and 5/10 of the systems, their sum rounded, divided by the largest remainder.
    repeats, degraded = {1: (0, 1), 2: (0, 1), 3: (1, 1), 4: (1, 2), 7: (1, 4), 10: (2, 5), 13: (3, 6)}[systems]
    for subjects in (2 * systems, 2 * systems + systems // 2):
        tasks = made(study(subjects, systems, human=True), replace(QASCORE, distance=1), seed=subjects)
        counts = counts_of(tasks.hits, [f"s{number}" for number in range(systems)])
        for kind, of_task in (("repeat", repeats), ("degraded", degraded)):
            found = [count[kind] for count in counts.values()]
            assert sum(found) == of_task * subjects
            assert max(found) - min(found) <= (0 if subjects % systems == 0 else 2)


def test_a_recipe_without_repeats_has_none_of_human_questions() -> None:
    for hit in made(study(6, 5, human=True), replace(QASCORE, repeats=0, items=17)).hits:
        assert kinds(hit)["repeat"] == 0 and kinds(hit)["degraded"] == 1 + 3
        assert ("human",) in {item.systems for item in hit.items if item.kind == "degraded"}


def test_the_kinds_of_an_item() -> None:
    for hit in made(study(11, 11), QASCORE).hits:
        for item in hit.items:
            of = original(hit, item)
            assert of.kind == "ordinary" and of.systems == item.systems and of.item == item.item
            if item.kind == "repeat":
                assert item.question == of.question and item.position > of.position
            if item.kind == "degraded":
                words, before = item.question.split(), of.question.split()
                assert item.question != of.question and len(words) == len(before) == 8
                assert (words[0], words[-1]) == (before[0], before[-1])
        assert [item.position for item in hit.items] == [*range(1, 21)]


@pytest.mark.parametrize("systems", [1, 2, 3, 4, 7, 11, 14])
def test_each_system_is_as_often_in_each_role(systems: int) -> None:
    repeats, degraded = repeats_and_degraded(systems, QASCORE)
    for subjects in (2 * systems, 3 * systems, 2 * systems + systems // 2):
        tasks = made(study(subjects, systems), replace(QASCORE, distance=1), seed=subjects)
        counts = counts_of(tasks.hits, [f"s{number}" for number in range(systems)])
        assert {count["ordinary"] for count in counts.values()} == {subjects}
        for kind, of_task in (("repeat", repeats), ("degraded", degraded)):
            found = [count[kind] for count in counts.values()]
            assert sum(found) == of_task * subjects
            assert max(found) - min(found) <= (0 if subjects % systems == 0 else 1)


def test_shares_of_other_numbers_of_systems() -> None:
    # By hand: 3/11 and 6/11 of the systems, their sum rounded, divided by the largest remainder.
    by_hand = {1: (0, 1), 2: (1, 1), 3: (1, 1), 4: (1, 2), 5: (1, 3), 6: (2, 3), 8: (2, 5), 10: (3, 5), 22: (6, 12)}
    assert {systems: repeats_and_degraded(systems, QASCORE) for systems in by_hand} == by_hand
    for systems in range(1, 40):
        of_circle = Counter(kind for kinds in roles(systems, QASCORE) for kind in kinds)
        assert (of_circle["repeat"], of_circle["degraded"]) == repeats_and_degraded(systems, QASCORE)


@settings(max_examples=60, deadline=None)
@given(systems=st.integers(4, 14), seed=st.integers(0, 2**32 - 1), distance=st.integers(1, 4))
def test_forms_of_a_question_keep_the_distance(systems: int, seed: int, distance: int) -> None:
    tasks = made(study(3, systems), replace(QASCORE, distance=distance), seed=seed)
    assert min(min(distances(hit)) for hit in tasks.hits) >= distance
    assert not tasks.nearer or systems < 4


def test_fewer_systems_have_the_greatest_distance_that_is_possible() -> None:
    tasks = made(study(9, 3), QASCORE)  # two of three questions have a second form
    assert tasks.nearer == {3: 9}
    assert {min(distances(hit)) for hit in tasks.hits} == {3}


def test_a_distance_that_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(InputError, match=r"distance=12 cannot be kept with items=20.*; give 9 or less"):
        made(study(3, 11), replace(QASCORE, distance=12))
    with pytest.raises(InputError, match=r"distance=13 cannot be kept with items=16.*; give 12 or less"):
        made(study(3, 11), replace(ITEMS, distance=13))
    for hit in made(study(11, 11), replace(QASCORE, distance=9)).hits:
        assert min(distances(hit)) == 9


def test_equal_questions_are_shown_once_and_count_for_all_who_asked() -> None:
    questions = study(22, 4)
    for each in questions.subjects[:5]:
        each.questions["s1"] = each.questions["s0"]
    for name in questions.systems:
        questions.subjects[5].questions[name] = "Who?"
    tasks = made(questions, replace(QASCORE, distance=4))
    counts = counts_of(tasks.hits, questions.systems)
    assert {count["ordinary"] for count in counts.values()} == {22}
    shared = [item for hit in tasks.hits for item in hit.items if len(item.systems) > 1 and item.kind == "ordinary"]
    assert sorted(item.systems for item in shared) == [("s0", "s1")] * 5 + [("s0", "s1", "s2", "s3")]
    for hit in tasks.hits:
        ordinary = [item.question for item in hit.items if item.kind == "ordinary"]
        assert len(set(ordinary)) == len(ordinary)
    assert sum(tasks.nearer.values()) == 6, "where three questions are left, or one"


def test_passages_without_a_question_of_every_system_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    questions = study(6, 3)
    del questions.subjects[1].questions["s2"]
    del questions.subjects[4].questions["s0"]
    tasks = made(questions, replace(QASCORE, distance=2), items=3)
    assert len(tasks.hits) == 3
    assert (tasks.left_out[INCOMPLETE], tasks.left_out[NOT_DRAWN]) == (2, 1)
    assert caplog.messages == ["rate_plan.items=3: 3 of 4 passages with their answer are drawn"]
    for each in questions.subjects:
        each.questions.pop("s1")
    with pytest.raises(InputError, match=r"question of every system \(of 6: s0 5, s1 0, s2 5\); give files"):
        made(questions, QASCORE)


def test_a_question_that_cannot_be_degraded_is_counted() -> None:
    tasks = made(study(1, 3), replace(QASCORE, distance=2))  # no other passage
    assert kinds(tasks.hits[0]) == {"ordinary": 3, "repeat": 1}
    assert tasks.left_out[NOT_MADE["degraded"]] == 1


# --- Any passages ---


def test_items_of_any_passages() -> None:
    tasks = made(study(40, 3), ITEMS)
    assert len(tasks.hits) == 10
    counts = counts_of(tasks.hits, ["s0", "s1", "s2"])
    for hit in tasks.hits:
        assert kinds(hit) == {"ordinary": 12, "repeat": 1, "degraded": 3}
        assert len(hit.passages) == 4, "questions about a passage stay together"
        assert min(distances(hit)) >= 3
    assert [count["ordinary"] for count in counts.values()] == [40, 40, 40]
    assert [count["degraded"] for count in counts.values()] == [10, 10, 10]
    assert {count["repeat"] for count in counts.values()} <= {3, 4}


def test_tasks_of_a_remainder_have_about_the_same_length() -> None:
    questions = study(7, 3)
    del questions.subjects[0].questions["s1"]
    tasks = made(questions, ITEMS)
    assert [kinds(hit)["ordinary"] for hit in tasks.hits] == [10, 10]
    ordinary = [(item.item, item.systems) for hit in tasks.hits for item in hit.items if item.kind == "ordinary"]
    assert len(ordinary) == len(set(ordinary)) == 20


def test_references_are_not_questions_of_a_system() -> None:
    recipe = replace(ITEMS, references=2)
    tasks = made(study(10, 2, human=True), recipe)
    counts = counts_of(tasks.hits, ["s0", "s1", "human"])
    assert counts["human"] == {"ordinary": 0, "repeat": 0, "degraded": 0, "reference": 2 * len(tasks.hits)}
    for hit in tasks.hits:
        for item in hit.items:
            if item.kind == "reference":
                assert "system human" in item.question and original(hit, item).item == item.item
    with pytest.raises(InputError, match="gold has no value"):
        made(study(10, 2), recipe)


# --- Direct assessment ---


def test_blocks_of_direct_assessment() -> None:
    tasks = made(study(75, 3, human=True), BLOCKS)
    assert len(tasks.hits) == 3
    assert tasks.left_out[NOT_FULL] == 15
    for hit in tasks.hits:
        assert kinds(hit) == {"ordinary": 70, "repeat": 10, "degraded": 10, "reference": 10}
        for block in range(10):
            part = hit.items[10 * block : 10 * block + 10]
            assert Counter(item.kind for item in part) == {"ordinary": 7, "repeat": 1, "degraded": 1, "reference": 1}
            opposite = range(10 * ((block + 5) % 10) + 1, 10 * ((block + 5) % 10) + 11)
            assert all(item.original in opposite for item in part if item.kind != "ordinary")
        assert min(distances(hit)) > 40
        assert all(
            len(i.question.split()) < len(original(hit, i).question.split()) for i in hit.items if i.kind == "degraded"
        )
    counts = counts_of(tasks.hits, ["s0", "s1", "s2"])
    assert [count["ordinary"] for count in counts.values()] == [70, 70, 70]
    assert {count["repeat"] for count in counts.values()} == {10}
    with pytest.raises(InputError, match="60 different ones; a task of this protocol needs 70"):
        made(study(20, 3, human=True), BLOCKS)


# --- Order ---


def test_the_greatest_distance_is_found_in_small_cases() -> None:
    """Against all orders of all tasks of up to four questions with up to three forms."""
    for forms in product((1, 2, 3), repeat=3):
        if sum(forms) > 7 or max(forms) == 1:
            continue
        order = [number for number, count in enumerate(forms) for _ in range(count)]
        assert longest_distance(forms) == max(map(nearest, set(permutations(order)))), forms


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=30), st.integers(0, 1000), st.integers(0, 10))
def test_an_order_has_every_form_and_keeps_the_distance(forms: list[int], seed: int, less: int) -> None:
    distance = max(1, longest_distance(forms) - less)
    order = arranged(forms, distance, random.Random(seed))
    assert Counter(order) == {number: count for number, count in enumerate(forms)}
    last: dict[int, int] = {}
    for place, number in enumerate(order):
        assert place - last.get(number, -1000) >= distance
        last[number] = place


def test_orders_are_random() -> None:
    """A question without other forms is as often at each end as in the middle."""
    places = Counter(arranged([2, 2, 2, 1, 1, 1], 2, random.Random(seed)).index(5) for seed in range(900))
    assert set(places) == set(range(9))
    assert max(places.values()) < 2 * min(places.values())


# --- The seed ---


def test_the_seed_and_the_questions_decide() -> None:
    first, again, other = (made(study(12, 5), QASCORE, seed=seed) for seed in (1, 1, 2))
    assert first.hits == again.hits != other.hits
    turned = study(12, 5)
    turned.subjects.reverse()
    assert made(turned, QASCORE, seed=1).hits == first.hits, "rows in another order"


def test_a_study_of_the_size_of_the_paper() -> None:
    tasks = made(study(786, 11), QASCORE)
    assert len(tasks.hits) == 786
    assert sum(len(hit.items) for hit in tasks.hits) == 786 * 20
    assert tasks.hits[-1].hit == "h0786"
