"""Entities and pronouns exchanged within the groups of QRelScore, Appendix C."""

import random

import pytest
from hypothesis import given, strategies as st

from rl_qg.judging.alterations import GROUPS, swap_in_group, swap_pronoun_in_group
from rl_qg.scoring.wrong_questions import rule_finder
from rl_qg.text.spans import Span

LABELS = {
    "Ada": "person",
    "Carl": "per",
    "Lorn": "gpe",
    "Tessel": "loc",
    "Guild": "org",
    "1906": "date",
    "six": "cardinal",
}
LABELS |= {"Faust": "work_of_art"}
CONTEXT = "Carl met Ada in Lorn, left Tessel in 1906, and six of the Guild read Faust."


def find(text: str) -> list[Span]:
    """As a tagger: each name with its label."""
    found = [(text.find(name), name, label) for name, label in LABELS.items() if name in text]
    return [Span(start, start + len(name), label, 2.0) for start, name, label in found]


def swapped(question: str, groups: str, context: str = CONTEXT) -> set[str]:
    changes = [swap_in_group(question, context, find, GROUPS[groups], random.Random(seed)) for seed in range(30)]
    return {change.after for change in changes if change}


@pytest.mark.parametrize(
    ("question", "three", "four"),
    [
        ("Who met Ada?", {"Carl"}, {"Carl"}),
        ("What is in Lorn?", {"Tessel", "Guild"}, {"Tessel"}),
        ("What is the Guild?", {"Tessel", "Lorn"}, set()),
        ("What was in 1906?", {"six"}, {"six"}),
        ("Who read Faust?", set(), set()),  # a work has no group
        ("Who met Zoe?", set(), set()),
    ],
)
def test_an_entity_is_replaced_within_its_group(question: str, three: set[str], four: set[str]) -> None:
    assert (swapped(question, "three"), swapped(question, "four")) == (three, four)


def test_the_question_is_part_of_the_pool() -> None:
    assert swapped("Did Ada meet Carl?", "three", context="Nobody met.") == {"Ada", "Carl"}


def test_rules_know_names_and_numbers() -> None:
    context = "Ada Bell was born in Lorn in 1906 with 12 toes."
    changes = [
        swap_in_group("Where was Ada Bell in 1906?", context, rule_finder, GROUPS["three"], random.Random(seed))
        for seed in range(20)
    ]
    assert {(change.before, change.after, change.rule) for change in changes if change} == {
        ("Ada Bell", "Lorn", "name group"),
        ("1906", "12", "number group"),
    }


@pytest.mark.parametrize(
    ("question", "others"),
    [
        ("What did Who think of his home?", {"my", "your", "her", "its", "our", "their"}),  # as in Table 7
        ("When did he arrive?", {"you", "she", "we", "they"}),
        ("Where was he born?", {"she"}),  # was you
        ("Why does she sing?", {"he"}),
        ("What he eats is what?", {"she"}),
        ("Who met her?", {"me", "you", "him", "us", "them"}),
        ("Who met her in Lorn?", {"me", "you", "him", "us", "them"}),
        ("Her novel was what?", {"My", "Your", "His", "Its", "Our", "Their"}),
        ("Which house was his?", {"mine", "yours", "hers", "ours", "theirs"}),
        ("What did it mean?", set()),  # no gender
        ("Where are they?", set()),
    ],
)
def test_a_pronoun_with_a_gender_is_replaced_within_its_group(question: str, others: set[str]) -> None:
    changes = [swap_pronoun_in_group(question, random.Random(seed)) for seed in range(60)]
    assert {change.after for change in changes if change} == others


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_survives(text: str, seed: int) -> None:
    for change in (
        swap_in_group(text, text, rule_finder, GROUPS["three"], random.Random(seed)),
        swap_pronoun_in_group(text, random.Random(seed)),
    ):
        if change is not None:
            assert change.question != text and change.before in text and change.after in change.question
