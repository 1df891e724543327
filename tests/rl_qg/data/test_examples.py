"""Hashes of examples and passages, and the SQuAD writer."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rl_qg.data.examples import Answer, QAExample, as_example, examples_hash, passage_hash, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError

CONTEXT = "Ada met Max. Max left, Ada stayed in Rome."


def example(key: str, context: str = CONTEXT, question: str = "Who?") -> QAExample:
    return QAExample(key, "", context, question, (Answer(context[:3], 0),))


@pytest.mark.parametrize(
    ("answers", "fault"),
    [
        ({"text": ["Ada"]}, "no column 'answer_start'"),
        ({"text": ["Ada", "Max"], "answer_start": [0]}, "training row 'a': its answers are no columns"),
        (["Ada"], "training row 'a': its answers are no columns"),
        (None, "training row 'a': its answers are no columns"),
    ],
)
def test_rows_with_answers_of_another_form_are_refused(answers: object, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        as_example({"id": "a", "context": CONTEXT, "question": "Who?", "answers": answers})


def test_passages_that_differ_only_in_white_space_have_one_hash() -> None:
    assert passage_hash("a b\n c ") == passage_hash(" a\tb c") == hashlib.sha256(b"a b c").hexdigest()
    assert len({passage_hash(text) for text in ("a b", "ab", "A b", "a b.")}) == 4


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.strip)


@st.composite
def qa_examples(draw: st.DrawFn) -> list[QAExample]:
    titles = draw(st.lists(st.sampled_from(["", "A", "B"]), min_size=1, max_size=8))
    examples = []
    for number, title in enumerate(titles):
        context = draw(st.sampled_from(["Same passage.", "x"]) | texts)
        spans = draw(st.lists(st.tuples(st.integers(0, len(context) - 1), st.integers(1, 9)), min_size=1, max_size=3))
        answers = tuple(Answer(context[start : start + size], start) for start, size in spans)
        answers = tuple(answer for answer in answers if answer.text.strip()) or (Answer(context, 0),)
        examples.append(QAExample(f"id{number}", title, context, draw(texts), answers))
    return examples


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(examples=qa_examples())
def test_written_examples_are_read_back_equal(tmp_path: Path, examples: list[QAExample]) -> None:
    path = tmp_path / "deep" / "x.json"
    assert write_squad(path, iter(examples)) == len(examples)
    data = read_examples(path, role="train")
    assert data.examples == examples
    assert data.report["repaired"]["count"] == 0
    assert examples_hash(data.examples) == examples_hash(examples)


def test_the_written_format_is_squad(tmp_path: Path) -> None:
    one, two, three = example("1"), example("2"), example("3", "Other context")
    write_squad(
        tmp_path / "x.json", [one, two, three, QAExample("4", "T", "cab", "q", (Answer("a", 1), Answer("b", 2)))]
    )
    qas = [{"id": key, "question": "Who?", "answers": [{"text": CONTEXT[:3], "answer_start": 0}]} for key in "12"]
    other = {"id": "3", "question": "Who?", "answers": [{"text": "Oth", "answer_start": 0}]}
    last = {
        "id": "4",
        "question": "q",
        "answers": [{"text": "a", "answer_start": 1}, {"text": "b", "answer_start": 2}],
    }
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {
        "version": "1.1",
        "data": [
            {
                "title": "",
                "paragraphs": [{"context": CONTEXT, "qas": qas}, {"context": "Other context", "qas": [other]}],
            },
            {"title": "T", "paragraphs": [{"context": "cab", "qas": [last]}]},
        ],
    }
    assert write_squad(tmp_path / "empty.json", []) == 0
    assert json.loads((tmp_path / "empty.json").read_text()) == {"version": "1.1", "data": []}


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_squad(path, [example("1")])
    before = path.read_bytes()

    def failing() -> Any:
        yield example("2")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_squad(path, failing())
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["x.json"]


def test_the_hash_of_examples_depends_on_every_field_and_the_order() -> None:
    base = QAExample("i", "t", "abc", "q", (Answer("a", 0),))
    variants = [
        [base],
        [QAExample("j", "t", "abc", "q", (Answer("a", 0),))],
        [QAExample("i", "u", "abc", "q", (Answer("a", 0),))],
        [QAExample("i", "t", "abcd", "q", (Answer("a", 0),))],
        [QAExample("i", "t", "abc", "r", (Answer("a", 0),))],
        [QAExample("i", "t", "abc", "q", (Answer("b", 1),))],
        [QAExample("i", "t", "abc", "q", (Answer("a", 0), Answer("a", 0)))],
        [base, example("1")],
        [example("1"), base],
    ]
    assert len({examples_hash(variant) for variant in variants}) == len(variants)
