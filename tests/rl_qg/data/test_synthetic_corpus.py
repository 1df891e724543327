"""The embedded corpus: reproducible, with correct answers, and not solvable by one fixed question."""

import re
from collections import defaultdict

from rl_qg.data.synthetic_corpus import synthetic_examples


def test_same_arguments_give_the_same_text_and_others_do_not() -> None:
    first = list(synthetic_examples(30, seed=1))
    assert first == list(synthetic_examples(30, seed=1))
    assert {e.context for e in first}.isdisjoint(e.context for e in synthetic_examples(30, seed=2))
    assert {e.context for e in first}.isdisjoint(
        e.context for e in synthetic_examples(30, seed=1, prefix="validation")
    )


def test_more_passages_begin_with_the_same_ones() -> None:
    many, few = list(synthetic_examples(30, seed=1)), list(synthetic_examples(10, seed=1))
    assert many[: len(few)] == few


def test_every_answer_is_at_its_offset_and_every_id_is_unique() -> None:
    examples = list(synthetic_examples(300, seed=0))
    for item in examples:
        answer = item.answers[0]
        assert item.context[answer.start : answer.start + len(answer.text)] == answer.text
    assert len({item.id for item in examples}) == len(examples) > 1200


def test_questions_end_in_a_question_mark_and_never_contain_their_answer() -> None:
    for item in synthetic_examples(300, seed=0):
        assert item.question.endswith("?")
        assert not re.search(rf"\b{re.escape(item.answers[0].text)}\b", item.question)
        assert item.question[0].isupper()
        assert "{" not in item.question + item.context


def test_a_question_must_name_its_subject() -> None:
    """Most passages state one kind of fact about both subjects, so the relation alone gives no answer."""
    passages = defaultdict(list)
    for item in synthetic_examples(200, seed=0):
        passages[item.context].append(item)
    doubled = 0
    for items in passages.values():
        starts = [item.question.split()[0] for item in items]
        doubled += len(set(starts)) < len(starts)
    assert doubled > 0.8 * len(passages)
    kinds = {item.question.split()[0] for items in passages.values() for item in items}
    assert {"When", "Who", "Where", "What", "Which", "How", "In"} <= kinds
