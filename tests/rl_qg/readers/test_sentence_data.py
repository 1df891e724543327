"""What classifiers of sentences learn from, by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rl_qg.data.examples import QAExample
from rl_qg.data.splits import take_passages
from rl_qg.readers.encoders import IGNORED
from rl_qg.readers.sentences import (
    LabelledSentences,
    SentenceCollator,
    SentenceItems,
    labelled_sentences,
    positive_weights,
    set_aside,
)
from rl_qg.text.question_types import NINE_TYPES
from tests.questions import example
from tests.toy_reader import toy_tokenizer

MILL = "Ida Koll built it.  The mill stands on the Esk! So it goes. It burned in 1204, they say."
QUESTIONS = [
    example(MILL, "Ida Koll", "Who built the mill?", "a"),
    example(MILL, "1204", "When did it burn, and how often?", "b"),
    example(MILL, "in 1204", "In which year did it burn?", "c"),
    example(MILL, "Ida", " ", "unasked"),
    example(MILL, "it.  The mill", "What did Ida Koll build?", "d"),  # begins in the first sentence
]


def test_labels_by_hand() -> None:
    [passage], counts = labelled_sentences(QUESTIONS, "hierarchical")
    assert passage.sentences == (
        *("Ida Koll built it.", "The mill stands on the Esk!", "So it goes.", "It burned in 1204, they say."),
    )
    assert passage.labels[:, 0].tolist() == [True, False, False, True]
    expected = {"questions": 4, "without_question": 1, "passages": 1, "sentences": 4, "worthy": 2}
    assert counts == expected | {"answers_beyond_sentence": 1}
    [typed], _ = labelled_sentences(QUESTIONS, "types")
    assert typed.sentences == (passage.sentences[0], passage.sentences[3])  # the worthy ones
    names = [{NINE_TYPES[at] for at in np.flatnonzero(row)} for row in typed.labels]
    assert names == [{"who", "what"}, {"when", "which"}]


def test_an_answer_after_the_end_of_a_sentence_is_in_the_next() -> None:
    [passage], _ = labelled_sentences([example("It is. So it goes.", " So", "Why?", start=6)], "worthiness")
    assert passage.labels[:, 0].tolist() == [False, True]


def test_a_question_without_an_answer_says_nothing_about_sentences() -> None:
    known = example("It is. So it goes.", "goes", "What?", start=13)
    [passage], counts = labelled_sentences([known, replace(known, question="Why?", answers=())], "worthiness")
    assert passage.labels[:, 0].tolist() == [False, True]
    assert (counts["questions"], counts["without_question"]) == (1, 1)


def test_weights_by_hand() -> None:
    """Negatives over positives; a label that all have or none has weighs 1."""
    rows = np.array([[1, 1, 0], [0, 1, 0], [0, 1, 0], [0, 1, 0]], dtype=bool)
    halves = [LabelledSentences("", ("",) * 2, rows[:2]), LabelledSentences("", ("",) * 2, rows[2:])]
    assert positive_weights(halves) == [3.0, 1.0, 1.0]


def titled(articles: int, of_each: int) -> list[QAExample]:
    rows = [(title, passage) for title in range(articles) for passage in range(of_each)]
    return [
        replace(example(f"Passage {title} {passage} is.", "is", "?", f"{title}-{passage}"), title=f"article {title}")
        for title, passage in rows
    ]


@pytest.mark.parametrize(("articles", "unit", "count"), [(20, "articles", 4 * 3), (9, "passages", 5)])
def test_whole_articles_are_set_aside_or_passages(articles: int, unit: str, count: int) -> None:
    examples = titled(articles, 3)
    rest, chosen, what = set_aside(examples, 0.2, seed=1)
    assert (what, len(chosen)) == (unit, count)
    assert sorted(one.id for one in [*rest, *chosen]) == sorted(one.id for one in examples)
    if unit == "articles":
        assert not {one.title for one in rest} & {one.title for one in chosen}
    assert set_aside(examples, 0.2, seed=1)[1] == chosen != set_aside(examples, 0.2, seed=2)[1]


@given(st.integers(1, 4), st.floats(0.01, 0.9))
def test_something_is_left_to_train_on(passages: int, fraction: float) -> None:
    rest, chosen, _ = set_aside(titled(1, passages), fraction, seed=0)
    assert rest and bool(chosen) == (passages > 1)


@given(st.integers(1, 20), st.integers(0, 3))
def test_a_limit_takes_whole_passages(limit: int, seed: int) -> None:
    rows = [example(f"Passage {n // 3} is.", "is", "?", str(n)) for n in range(12)]
    taken = take_passages(rows, limit, seed)
    kept = {one.context for one in taken}
    assert taken == [one for one in rows if one.context in kept]  # all questions of a passage, in order
    assert len(taken) == max(3, min(limit, 12) // 3 * 3)
    assert {one.context for one in take_passages(rows, limit + 3, seed)} >= kept


def test_items_and_batches_by_hand() -> None:
    passages = [
        LabelledSentences("", ("the fox", "the old horse saw paris"), np.array([[True], [False]])),
        LabelledSentences("", ("a cat",), np.array([[True]])),
    ]
    tokenizer = toy_tokenizer()
    together = SentenceItems(passages, tokenizer, max_length=5, together=True)
    assert (len(together), together.cut) == (2, 1)
    words = [tokenizer.convert_ids_to_tokens(ids) for ids in together[0]["input_ids"]]
    assert words == [["[CLS]", "the", "fox", "[SEP]"], ["[CLS]", "the", "old", "horse", "[SEP]"]]
    batch = SentenceCollator(tokenizer.pad_token_id)([together[0], together[1]])
    assert batch["attention_mask"].tolist() == [[[1, 1, 1, 1, 0], [1] * 5], [[1, 1, 1, 1, 0], [0] * 5]]
    assert batch["labels"].tolist() == [[[1.0], [0.0]], [[1.0], [float(IGNORED)]]]
    assert (batch["input_ids"][batch["attention_mask"] == 0] == tokenizer.pad_token_id).all()
    alone = SentenceItems(passages, tokenizer, max_length=5, together=False)
    assert [len(alone[n]["input_ids"]) for n in range(len(alone))] == [1, 1, 1]
