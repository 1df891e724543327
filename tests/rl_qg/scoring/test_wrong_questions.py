"""Wrong questions are wrong, each in its own way."""

from collections import Counter

import pytest

from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import QAExample
from rl_qg.data.oracle import examine
from rl_qg.scoring.wrong_questions import ANSWER_KINDS, KINDS, TEMPLATE, wrong_questions
from tests.questions import example

FAUST = "Faust is a play by Goethe. It was printed in 1808, in Leipzig! Napoleon read it?"
ROWS = [
    example(FAUST, "Goethe", "Who wrote the play Faust?", id="a"),
    example(FAUST, "1808", "When was Faust printed?", id="b"),
    example("Paris lies on the Seine.", "Seine", "What river is in Paris", id="c"),
]


@pytest.fixture(scope="module")
def corpus() -> list[QAExample]:
    return list(synthetic_examples(60, seed=2))


@pytest.fixture(scope="module")
def made(corpus: list[QAExample]) -> dict[str, list[str | None]]:
    return wrong_questions(corpus, [], seed=0)


def test_on_the_embedded_corpus_the_oracle_agrees(corpus: list[QAExample], made: dict[str, list[str | None]]) -> None:
    verdicts = {
        kind: Counter(
            judged.verdict
            for text, item in zip(texts, corpus, strict=True)
            if text and (judged := examine(text, item)) is not None
        )
        for kind, texts in made.items()
    }
    n = len(corpus)
    assert verdicts["wrong_entity"]["other_subject"] >= 0.98 * n
    assert verdicts["wrong_attribute"] == {"wrong_relation": n}
    assert set(verdicts["other_answer"]) == {"other_subject", "wrong_relation"}
    assert verdicts["repeated"]["ill_formed"] == verdicts["template"]["ill_formed"] == n
    assert verdicts["copied"]["ill_formed"] == n
    assert verdicts["shuffled"]["ill_formed"] >= 0.98 * n and verdicts["fragment"]["ill_formed"] >= 0.95 * n
    assert verdicts["other_word"]["ill_formed"] >= 0.9 * sum(verdicts["other_word"].values()) > 0.8 * n
    assert verdicts["other_passage"]["right"] == 0 and sum(verdicts["other_passage"].values()) == n


def test_no_wrong_question_is_the_right_one_and_the_seed_decides(
    corpus: list[QAExample], made: dict[str, list[str | None]]
) -> None:
    assert tuple(made) == tuple(KINDS) and set(ANSWER_KINDS) < set(KINDS)
    for texts in made.values():
        assert all(text != item.question for text, item in zip(texts, corpus, strict=True))
    assert wrong_questions(corpus, [], seed=0) == made != wrong_questions(corpus, [], seed=1)


def test_each_kind_on_ordinary_text() -> None:
    made = wrong_questions(ROWS, [], seed=0)
    assert made["other_answer"] == [ROWS[1].question, ROWS[0].question, None]
    assert made["other_passage"][0] == ROWS[2].question and made["other_passage"][2] in {r.question for r in ROWS[:2]}
    assert made["fragment"] == ["Who wrote?", "When was?", "What river"]
    assert made["repeated"] == [
        "Who wrote the play Faust the play Faust?",
        "When was Faust printed Faust printed?",
        "What river is in Paris is in Paris",
    ]
    assert made["copied"] == [
        "Faust is a play by Goethe?",
        "It was printed in 1808, in Leipzig?",
        "Paris lies on the Seine?",
    ]
    assert made["template"] == [TEMPLATE] * 3
    assert [sorted(str(text).rstrip("?").split()) for text in made["shuffled"]] == [
        sorted(row.question.rstrip("?").split()) for row in ROWS
    ]
    assert made["wrong_attribute"] == [None] * 3
    changed = made["wrong_entity"][2]  # the river's name or the city's
    assert changed is None or (changed != ROWS[2].question and changed.startswith("What river"))


def test_questions_that_cannot_be_spoilt_have_none() -> None:
    made = wrong_questions([example("Who knows Faust", "Faust", "Who?")], [], seed=0)
    assert {kind for kind, texts in made.items() if texts[0]} == {"repeated", "copied", "template"}


def test_the_template_is_for_english_questions_alone() -> None:
    made = wrong_questions([example("Der Turm steht hier.", "Turm", "Welcher Bau steht hier?")], [], seed=0)
    assert made["template"] == [None] and made["shuffled"] != [None]


def test_other_questions_come_from_the_pool_too() -> None:
    made = wrong_questions(ROWS[:1], ROWS, seed=0)
    assert (made["other_answer"], made["other_passage"]) == ([ROWS[1].question], [ROWS[2].question])
