"""Questions made wrong: what is changed, what stays, and what no rule applies to."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_qg.perturbations import entities_by_kind, negate, rule_finder, swap_entity, swap_pronoun

PASSAGE = "Ada Bell was born in Lorn in 1906. She met Carl Foss in Tessel. Her novel Grey Water came out in 1931."


def entity(question: str, answer: str = "", context: str = PASSAGE, seed: int = 0, others=None):
    return swap_entity(question, context, answer, rule_finder, others or {}, random.Random(seed))


def test_an_entity_gives_way_to_another_of_the_passage() -> None:
    for seed in range(8):
        change = entity("Where was Ada Bell born?", seed=seed)
        assert change is not None and change.rule == "passage" and change.before == "Ada Bell"
        assert change.after in PASSAGE and change.after != "Ada Bell"
        assert change.question == f"Where was {change.after} born?"
        year = entity("What happened in 1906?", seed=seed)
        assert year is not None and year.question == "What happened in 1931?"


def test_neither_the_answer_nor_a_word_of_the_question_takes_its_place() -> None:
    assert entity("What happened in 1906?", answer="in 1931") is None
    context = "The war of 1906 and the peace of 1931."
    assert entity("Was 1931 after 1906?", context=context) is None
    change = entity("What happened in 1906?", "1931", others={"date": ["1906", "1931", "1800"]})
    assert change is not None and (change.after, change.rule) == ("1800", "other passage")
    assert entity("Who was that?") is None


def test_entities_of_all_passages() -> None:
    found = entities_by_kind([PASSAGE, "In 1800 Carl Foss slept."], rule_finder)
    assert found["date"] == ["1906", "1931", "1800"]
    assert found["name"].count("Carl Foss") == 1


@pytest.mark.parametrize(
    ("question", "changed"),
    [
        ("When did he arrive?", "When did she arrive?"),
        ("Her novel was what?", "His novel was what?"),
        ("Who met her?", "Who met him?"),
        ("Who met her in Lorn?", "Who met him in Lorn?"),
        ("What is its name?", "What is his name?"),
        ("What did the IT firm sell?", None),
        ("Where was Ada born?", None),
    ],
)
def test_pronouns(question: str, changed: str | None) -> None:
    found = swap_pronoun(question, random.Random(0))
    assert (found and found.question) == changed


@pytest.mark.parametrize(
    ("question", "changed", "rule"),
    [
        ("Where was Ada Bell born?", "Where wasn't Ada Bell born?", "negated"),
        ("Is it true?", "Isn't it true?", "negated"),
        ("When did she not write?", "When did she not write?", None),
        ("Who did not come?", "Who did come?", "affirmed"),
        ("Who didn't come?", "Who did come?", "affirmed"),
        ("Why cannot it fly?", "Why can it fly?", "affirmed"),
        ("what can n't fly ?", "what can fly ?", "affirmed"),
        ("Name the river.", None, None),
        ("What kind of music?", None, None),
    ],
)
def test_negation(question: str, changed: str | None, rule: str | None) -> None:
    found = negate(question)
    if rule is None and changed is not None:
        assert found is not None and found.question != question
    else:
        assert (found and (found.question, found.rule)) == (changed and (changed, rule))


def test_a_verb_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.perturbations._base_form", lambda verb: None)  # as without WordNet
    for question, changed in {
        "Who wrote Grey Water?": "Who never wrote Grey Water?",
        "What company invented it?": "What company never invented it?",
    }.items():
        found = negate(question)
        assert found is not None and found.question == changed
    monkeypatch.setattr("rl_qg.perturbations._base_form", lambda verb: {"wrote": "write", "owns": "own"}.get(verb))
    found = negate("Who wrote Grey Water?")
    assert found is not None and found.question == "Who did not write Grey Water?"


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_survives(text: str, seed: int) -> None:
    for found in (entity(text, context=text, seed=seed), swap_pronoun(text, random.Random(seed)), negate(text)):
        if found is not None:
            assert found.question != text and found.before in text and found.after in found.question
