"""Human questions joined to generated ones: by id, by passage and answer, or reported as not joined."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rl_qg.evaluation.evaluate import evaluate
from rl_qg.evaluation.predictions import MEAN
from rl_qg.evaluation.references import BY_ANSWER, BY_ID, GoldQuestions
from rl_qg.runtime.errors import InputError
from rl_qg.settings import EvaluateSettings
from tests.toy_metrics import SharedWords, write_lines

PASSAGE = "Faust is a play by Goethe. It is long."


def record(name: str | None, question: str, answer: str = "Goethe", context: str = PASSAGE) -> dict[str, Any]:
    fields = {"context": context, "question": question, "answers": {"text": [answer], "answer_start": [0]}}
    return fields if name is None else {"id": name, **fields}


@pytest.fixture
def gold(tmp_path: Path) -> GoldQuestions:
    rows = [
        record("a", "Who wrote Faust?"),
        record("b", "Whose play is Faust?"),
        record("c", "What is Faust?", "a play"),
        record("twice", "One?", "long"),
        record("twice", "Two?", "long"),
        record("blank", "   ", "It"),
        record(None, "Who wrote Faust?"),
        record("None", "Is it named so?", "is"),
    ]
    return GoldQuestions(str(write_lines(tmp_path / "gold.jsonl", rows)))


def test_an_id_joins_only_its_own_question(gold: GoldQuestions) -> None:
    assert gold.find("b", PASSAGE, "Goethe") == (("Whose play is Faust?",), BY_ID)
    assert gold.find("b", None, None) == (("Whose play is Faust?",), BY_ID)
    assert gold.find("b", PASSAGE.replace(" ", "  "), None)[1] == BY_ID
    assert gold.find("gold-7", None, None) == (("Who wrote Faust?",), BY_ID)  # as `generate` names it


def test_passage_and_answer_join_every_question_once(gold: GoldQuestions) -> None:
    want = (("Who wrote Faust?", "Whose play is Faust?"), BY_ANSWER)
    assert gold.find(None, PASSAGE, " Goethe ") == want
    assert gold.find("unknown", f" {PASSAGE}\n", "Goethe") == want
    assert gold.find("twice", PASSAGE, "long") == (("One?", "Two?"), BY_ANSWER)


def test_an_id_of_another_passage_or_answer_joins_nothing(gold: GoldQuestions) -> None:
    assert gold.find("gold-7", PASSAGE, "a play") == (
        ("What is Faust?",),
        BY_ANSWER,
    )  # the seventh row of another file
    assert gold.find("c", PASSAGE, "Goethe")[1] == BY_ANSWER
    assert gold.find("a", "Another passage.", "Goethe") == ((), "")


def test_nothing_is_joined_where_there_is_no_human_question(gold: GoldQuestions) -> None:
    for example_id, context, answer in (
        *((None, PASSAGE, "goethe"), (None, PASSAGE, None), (None, None, "Goethe"), (None, None, None)),
        *(("blank", PASSAGE, "It"), ("never", PASSAGE, "Goethe."), ("None", "Another passage.", "Goethe")),
    ):
        assert gold.find(example_id, context, answer) == ((), "")
    assert gold.find("None", None, None) == (("Is it named so?",), BY_ID)


def test_the_same_question_twice_is_one_reference(tmp_path: Path) -> None:
    path = str(write_lines(tmp_path / "gold.jsonl", [record("a", "Who wrote Faust?")]))
    assert GoldQuestions([path, path]).find("a", PASSAGE, "Goethe") == (("Who wrote Faust?",), BY_ID)


def test_unanswerable_questions_are_no_references(tmp_path: Path) -> None:
    qas = [
        {"id": "x", "question": "Who wrote Faust?", "answers": [{"text": "Goethe", "answer_start": 19}]},
        {"id": "y", "question": "Who sang it?", "answers": [], "is_impossible": True},
    ]
    path = tmp_path / "squad2.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": qas}]}]}))
    gold = GoldQuestions(str(path))
    assert gold.find("y", PASSAGE, None) == ((), "") and gold.of_passage(PASSAGE) == ("Who wrote Faust?",)


def test_every_answer_of_squad_joins(tmp_path: Path) -> None:
    answers = [{"text": "Goethe", "answer_start": 19}, {"text": "by Goethe", "answer_start": 16}]
    paragraph = {"context": PASSAGE, "qas": [{"id": "x", "question": "Who wrote Faust?", "answers": answers}]}
    path = tmp_path / "dev.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [paragraph]}]}))
    gold = GoldQuestions([str(path)])
    assert gold.find(None, PASSAGE, "by Goethe") == (("Who wrote Faust?",), BY_ANSWER)
    assert list(gold.hashes()) == [str(path)]


def test_sources_without_questions_are_refused(tmp_path: Path) -> None:
    empty = write_lines(tmp_path / "empty.jsonl", [record("a", " ")])
    with pytest.raises(InputError, match=r"empty\.jsonl: holds no question"):
        GoldQuestions(str(empty))
    for sources in ([], [3], [""], True, {"a": str(empty)}, None):
        with pytest.raises(InputError, match="give a file, such as references="):
            GoldQuestions(sources)


def questions(tmp_path: Path, *rows: dict[str, Any]) -> str:
    base = {"context": PASSAGE, "answer": "Goethe", "references": ["nothing of this"]}
    return str(write_lines(tmp_path / "questions.jsonl", [{**base, **row} for row in rows]))


def test_evaluation_against_joined_questions(tmp_path: Path) -> None:
    gold = write_lines(tmp_path / "gold.jsonl", [record("a", "Who wrote Faust?"), record("b", "Whose play?")])
    rows = [{"id": "b", "question": "Who wrote Faust?"}, {"id": "new", "question": "Who wrote Faust?"}]
    settings = EvaluateSettings(predictions=questions(tmp_path, *rows), references=str(gold), resamples=20)
    results = evaluate({"shared": SharedWords()}, settings, tmp_path / "out")
    assert results["counts"]["questions"]["references_by"] == {"id": 1, "passage and answer": 1}
    assert list(results["references"]) == [str(gold)]
    (mean,) = [row for row in results["scores"] if row["by"] == "all" and row["form"] == MEAN]
    assert mean["value"] == pytest.approx((0 + 1) / 2)
    text = (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")
    assert "references joined: 1 by id, 1 by passage and answer" in text


def test_human_questions_without_a_prediction_are_counted(tmp_path: Path) -> None:
    gold = write_lines(tmp_path / "gold.jsonl", [record(name, f"Who wrote {name}?", "It") for name in "abcdefg"])
    rows = [{"id": "b", "question": "Who wrote b?", "answer": "It"}]
    settings = EvaluateSettings(predictions=questions(tmp_path, *rows), references=str(gold), resamples=20)
    counts = evaluate({"shared": SharedWords()}, settings, tmp_path / "out")["counts"]["questions"]
    assert counts == {"questions": 1, "passages": 1, "references_by": {"id": 1}, "references_unused": 6}
    text = (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")
    assert "references joined: 1 by id; 6 human questions without any here" in text


def test_a_row_without_a_human_question_is_named_with_their_number(tmp_path: Path) -> None:
    gold = write_lines(tmp_path / "gold.jsonl", [record("a", "Who wrote Faust?")])
    rows = [{"id": "a", "question": "q"}, {"question": "q", "answer": "It"}, {"question": "q", "answer": "long"}]
    settings = EvaluateSettings(predictions=questions(tmp_path, *rows), references=str(gold))
    with pytest.raises(
        InputError, match=r"questions\.jsonl: line 2: no question in .*gold\.jsonl is about .*\(2 of 3 rows"
    ):
        evaluate({"shared": SharedWords()}, settings, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_set_without_a_question_joins_none(tmp_path: Path) -> None:
    gold = write_lines(tmp_path / "gold.jsonl", [record("a", "Who wrote Faust?")])
    rows = [{"questions": ["Who?", "What?"]}, {"questions": []}]
    settings = EvaluateSettings(predictions=questions(tmp_path, *rows), references=str(gold), resamples=40)
    counts = evaluate({"shared": SharedWords()}, settings, tmp_path / "out")["counts"]["questions"]
    assert (counts["questions"], counts["references_by"]) == (2, {"passage": 2})
    other = write_lines(tmp_path / "other.jsonl", [record("a", "Who?", context="Another passage about Goethe.")])
    with pytest.raises(InputError, match=r"3 of 3 rows have none there"):
        evaluate({"shared": SharedWords()}, replace(settings, references=str(other)), tmp_path / "out")
