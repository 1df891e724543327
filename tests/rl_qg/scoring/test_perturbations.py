"""Questions made wrong: what is changed, what stays, and what no rule applies to."""

import random

import pytest
from hypothesis import given, strategies as st

from rl_qg.scoring.wrong_questions import entities_by_kind, rule_finder, swap_entity, swap_pronoun

PASSAGE = "Ada Bell was born in Lorn in 1906. She met Carl Foss in Tessel. Her novel Grey Water came out in 1931."


def entity(question: str, answer: str = "", context: str = PASSAGE, seed: int = 0, others=None):
    return swap_entity(question, context, answer, rule_finder, others or {}, random.Random(seed))


def test_an_entity_is_replaced_by_another_of_the_passage() -> None:
    for seed in range(8):
        change = entity("Where was Ada Bell born?", seed=seed)
        assert change is not None and change.rule == "passage" and change.before == "Ada Bell"
        assert change.after in PASSAGE and change.after != "Ada Bell"
        assert change.question == f"Where was {change.after} born?"
        year = entity("What happened in 1906?", seed=seed)
        assert year is not None and year.question == "What happened in 1931?"


def test_an_entity_is_not_replaced_by_the_answer_or_a_word_of_the_question() -> None:
    assert entity("What happened in 1906?", answer="in 1931") is None
    context = "The war of 1906 and the peace of 1931."
    assert entity("Was 1931 after 1906?", context=context) is None
    change = entity("What happened in 1906?", "1931", others={"0 date": ["1906", "1931", "1800"]})
    assert change is not None and (change.after, change.rule) == ("1800", "other passage")
    assert entity("Who was that?") is None


@pytest.mark.parametrize(
    ("question", "context"),
    [
        ("Where was he, living from 1973–1948?", "He came in 1931."),  # half a span of years
        ("Which two streets meet?", "It fell fifty times."),  # a word is no share
        ("Who saved the Amazon forest?", "The Amazonian forest."),  # the same in another form
        ("Who left the United States?", "They left the USA."),
        ("Who was born in Lorn?", "There was Carl Foss."),  # no place
        ("Name a river.", "Carl Foss swam."),
    ],
)
def test_questions_whose_entities_cannot_be_replaced(question: str, context: str) -> None:
    assert all(entity(question, context=context, seed=seed) is None for seed in range(4))


def test_entities_of_all_passages() -> None:
    perturbation = entities_by_kind([PASSAGE, "In 1800 Carl Foss slept."], rule_finder)
    assert perturbation["0 date"] == ["1906", "1931", "1800"]
    assert perturbation["name"].count("Carl Foss") == 1 and set(perturbation["in name"]) == {"Lorn", "Tessel"}


@pytest.mark.parametrize(
    ("question", "changed"),
    [
        ("When did he arrive?", "When did she arrive?"),
        ("Her novel was what?", "His novel was what?"),
        ("Who met her?", "Who met him?"),
        ("Who met her in Lorn?", "Who met him in Lorn?"),
        ("What is its name?", "What is his name?"),
        ("Who sold it?", "Who sold him?"),
        ("When did it end?", "When did he end?"),
        ("What does it mean?", None),
        ("In the US, who decides?", None),
        ("What caused World War I to end?", None),
        ("Who succeeded Elizabeth I of England?", None),
        ("What may I do?", "What may you do?"),
        ("Who sang in the film It?", None),
        ("What did the IT firm sell?", None),
        ("Where was Ada born?", None),
    ],
)
def test_pronouns(question: str, changed: str | None) -> None:
    perturbation = swap_pronoun(question, random.Random(0))
    assert (perturbation and perturbation.question) == changed


@given(st.text(max_size=60), st.integers(0, 3))
def test_any_text_survives(text: str, seed: int) -> None:
    for perturbation in (entity(text, context=text, seed=seed), swap_pronoun(text, random.Random(seed))):
        if perturbation is not None:
            assert (
                perturbation.question != text
                and perturbation.before in text
                and perturbation.after in perturbation.question
            )
