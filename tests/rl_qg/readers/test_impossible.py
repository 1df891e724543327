"""Questions that the data call impossible: read, taught, and judged as SQuAD 2.0 does."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.reading import read_examples
from rl_qg.data.streaming import stream_examples
from rl_qg.readers.reader import score_predictions
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from tests.toy_reader import KINDS, run, save_bert, toy_examples, toy_settings

CONTEXT = "Ada wrote the first program."


def squad2(path: Path) -> str:
    answer = {"text": "Ada", "answer_start": 0}
    asked = [
        {"id": "yes", "question": "Who wrote it?", "answers": [answer], "is_impossible": False},
        {"id": "no", "question": "Who sang it?", "answers": [], "plausible_answers": [answer], "is_impossible": True},
        {"id": "blank", "question": " ", "answers": [], "is_impossible": True},
        {"id": "elsewhere", "question": "Who?", "answers": [{"text": "Max", "answer_start": 0}]},
    ]
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": CONTEXT, "qas": asked}]}]}))
    return str(path)


def test_they_are_kept_without_answers_only_where_asked_for(tmp_path: Path) -> None:
    path = squad2(tmp_path / "squad2.json")
    rows = [{"id": "hub", "context": CONTEXT, "question": "Who sang it?", "answers": {"text": [], "answer_start": []}}]
    (tmp_path / "columns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))  # as squad_v2 of the Hub
    files = [path, str(tmp_path / "columns.jsonl")]
    found = read_examples(files, role="train", impossible=True)
    assert {one.id: [answer.text for answer in one.answers] for one in found.examples} == {
        "yes": ["Ada"],
        "no": [],
        "hub": [],
    }
    assert {why: part["ids"] for why, part in found.report["dropped"].items()} == {
        "no question": ["blank"],
        "answer not in context": ["elsewhere"],
    }
    stream = stream_examples(files, role="train", impossible=True)
    assert list(stream) == found.examples and stream.report == found.report and stream.hashes == found.hashes
    assert [one.id for one in read_examples(path, role="train").examples] == ["yes"]


def test_no_answer_is_the_right_one_of_an_impossible_question() -> None:
    """By the rule of SQuAD 2.0: 1 where both are empty after normalising, 0 where one of them is."""
    answerable = QAExample("a", "t", CONTEXT, "Who?", (Answer("Ada", 0),))
    examples = [
        answerable,
        *(replace(answerable, id=name, answers=()) for name in ("empty", "article", "span", "missing")),
    ]
    given = {"a": "", "empty": "", "article": "the", "span": "Ada"}
    scores = score_predictions(given, examples)
    assert scores.exact_matches == scores.f1s == [0.0, 1.0, 1.0, 0.0, 0.0] and scores.missing == 1


def with_impossible(examples: list[QAExample]) -> list[QAExample]:
    """Also a question for a kind of thing that no passage has."""
    assert "the" not in KINDS
    return examples + [replace(one, id=f"{one.id}-no", question="which the ?", answers=()) for one in examples[::3]]


@pytest.mark.slow
def test_a_reader_learns_to_refuse_them(tmp_path: Path) -> None:
    settings = toy_settings(save_bert(tmp_path / "model"), impossible=True)
    train, validation = with_impossible(toy_examples(960, 1)), with_impossible(toy_examples(120, 2))
    result = run(tmp_path / "qa", settings, train, validation)
    assert result["answerable"]["total"] == 120 and result["impossible"]["total"] == 40
    assert result["answerable"]["f1"] > 85 and result["impossible"]["f1"] > 85
    whole = 120 * result["answerable"]["exact_match"] + 40 * result["impossible"]["exact_match"]
    assert result["exact_match"] == pytest.approx(whole / 160)
    assert read_json(tmp_path / "qa/config.json")["abstains"] is True


def test_data_without_any_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"qa\.impossible=true: data\.train has no question without an answer"):
        run(tmp_path / "qa", toy_settings(save_bert(tmp_path / "model"), impossible=True))
