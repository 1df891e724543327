"""QG-Bench's rows: columns worked by hand, true offsets, and reading them back."""

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rl_qg.data.examples import COLUMNS, HIGHLIGHT, Answer, QAExample, marked, unified_row
from rl_qg.data.reading import read_examples
from rl_qg.generation.prompts import highlight

CONTEXT = "Ada met Max. Ada wrote to him in 1843."
EXAMPLE = QAExample("a", "Ada", CONTEXT, "Who wrote?", (Answer("Ada", 13), Answer("him", 26)))


def test_the_columns_of_a_row() -> None:
    """`Ada` is marked where it is the answer, which is not where it first occurs."""
    row = unified_row(EXAMPLE)
    assert {name: row[name] for name in COLUMNS} == {
        "paragraph": CONTEXT,
        "sentence": "Ada wrote to him in 1843.",
        "question": "Who wrote?",
        "answer": "Ada",
        "paragraph_answer": "Ada met Max. <hl> Ada <hl> wrote to him in 1843.",
        "sentence_answer": "<hl> Ada <hl> wrote to him in 1843.",
        "paragraph_sentence": "Ada met Max. <hl> Ada wrote to him in 1843. <hl>",
        "paragraph_question": f"question: Who wrote?, context: {CONTEXT}",
    }
    assert row["paragraph_answer"] == highlight(EXAMPLE)  # what the project's models read
    with pytest.raises(ValueError, match="is not at character 12"):
        unified_row(QAExample("a", "", CONTEXT, "q", (Answer("Ada", 12),)))


def test_rows_are_read_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(unified_row(EXAMPLE)) + "\n")
    (example,) = read_examples(path, role="train").examples
    assert example == QAExample("a", "Ada", CONTEXT, "Who wrote?", EXAMPLE.answers[:1])


@given(st.text(max_size=30), st.text(min_size=1, max_size=8).filter(str.strip), st.text(max_size=30))
def test_without_its_marks_a_column_is_its_text(before: str, answer: str, after: str) -> None:
    context = before + answer + after
    row = unified_row(QAExample("a", "", context, "q", (Answer(answer, len(before)),)))
    assert marked(context, len(before), len(before) + len(answer)) == row["paragraph_answer"]
    assert row["paragraph_answer"] == f"{before}{HIGHLIGHT} {answer} {HIGHLIGHT}{after}"
    sentence = str(row["sentence"])
    assert answer in sentence and sentence in context
    head, _, tail = str(row["paragraph_sentence"]).partition(f"{HIGHLIGHT} {sentence} {HIGHLIGHT}")
    assert head + sentence + tail == context
