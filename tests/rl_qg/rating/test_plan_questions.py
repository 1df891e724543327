"""The questions of a study: which of them are about the same passage and answer, and what is left out."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.rating.planning.questions import EMPTY, FURTHER, NOT_FOUND, read_questions
from rl_qg.runtime.errors import InputError
from tests.toy_metrics import write_lines

ADA = "Ada wrote the program in London in 1843. London was large."


def row(question: str, answer: str = "Ada", start: int | None = 0, **others: Any) -> dict[str, Any]:
    return {"context": ADA, "answer": answer, "answer_start": start, "question": question, **others}


def lines(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in rows), encoding="utf-8")
    return str(path)


def test_systems_by_name_by_field_and_by_file(tmp_path: Path) -> None:
    one, other = lines(tmp_path / "ce.jsonl", row("Who?")), lines(tmp_path / "scst.jsonl", row("Who wrote it?"))
    assert read_questions([one, other]).systems == ["ce", "scst"]
    assert read_questions({"first": one, "second": other}).systems == ["first", "second"]
    both = lines(tmp_path / "all.jsonl", row("Who?", system="a"), row("When?", "1843", 35, system="b"), row("X?"))
    assert read_questions(both).systems == ["a", "b", "all"]
    assert read_questions({"mine": both}).systems == ["mine"]


def test_one_subject_for_each_passage_and_answer(tmp_path: Path) -> None:
    first = lines(tmp_path / "a.jsonl", row("Who?"), row("Where?", "London", 25), row("Which?", "London", 41))
    spaced = ADA.replace("in London", "in  London")
    second = lines(
        tmp_path / "b.jsonl",
        row(" Who \n wrote?", start=None),
        {"context": spaced, "question": "Is it so?", "answer": "yes"},
        row("Where then?", "London", 25),
    )
    study = read_questions([first, second])
    found = {(subject.answer, subject.answer_start): subject.questions for subject in study.subjects}
    assert found == {
        ("Ada", 0): {"a": "Who?", "b": "Who wrote?"},
        ("London", 25): {"a": "Where?", "b": "Where then?"},
        ("London", 41): {"a": "Which?"},
        ("yes", None): {"b": "Is it so?"},
    }
    assert len({subject.item for subject in study.subjects}) == 4
    assert len({subject.passage.passage for subject in study.subjects}) == 1
    for subject in study.subjects:
        start, text = subject.answer_start, subject.passage.context
        assert start is None or text[start : start + len(subject.answer)] == subject.answer


def test_an_answer_without_a_place_has_that_of_the_other_files(tmp_path: Path) -> None:
    without = lines(tmp_path / "a.jsonl", row("Where?", "London", None), row("Who?", start=None))
    one = lines(tmp_path / "b.jsonl", row("Where then?", "London", 41))
    two = lines(tmp_path / "c.jsonl", row("Where then?", "London", 25), row("Which?", "London", 41))
    places = [(subject.answer, subject.answer_start) for subject in read_questions([without, one]).subjects]
    assert places == [("London", 41), ("Ada", 0)]
    first = read_questions([without, two]).subjects[0]  # two places are known: the first in the passage
    assert (first.answer_start, [*first.questions]) == (25, ["a", "c"])


def test_yes_and_no_have_no_place_and_short_answers_that_of_a_word(tmp_path: Path) -> None:
    context = "Nobody knows who made 12 engines in 1912; not one of 2 does, yes, no."
    given = [{"context": context, "question": f"Is it {answer}?", "answer": answer} for answer in ("yes", "No", "2")]
    given.append({"context": context, "question": "What?", "answer": "no", "answer_start": 66})
    subjects = read_questions(lines(tmp_path / "a.jsonl", *given)).subjects
    places = [(subject.answer, subject.answer_start) for subject in subjects]
    assert places == [("yes", None), ("No", None), ("2", context.index("2 does")), ("no", 66)]


def test_a_passage_in_other_white_space_is_the_same_subject(tmp_path: Path) -> None:
    spaced = ADA.replace("Ada", " Ada").replace(". London", ".\n\nLondon")
    one = lines(tmp_path / "a.jsonl", row("Which?", "London", 41), row("Where?", "in London", 22))
    other = row("Which then?", "London", spaced.rindex("London")) | {"context": spaced}
    without = row("Where then?", "in London", None) | {"context": spaced}
    subjects = read_questions([one, lines(tmp_path / "b.jsonl", other, without)]).subjects
    found = [(subject.answer_start, [*subject.questions]) for subject in subjects]
    assert found == [(41, ["a", "b"]), (22, ["a", "b"])]
    assert {subject.passage.context for subject in subjects} == {ADA}


def test_equal_questions_differ_in_nothing_but_white_space_and_composition(tmp_path: Path) -> None:
    files = [
        lines(tmp_path / f"{name}.jsonl", row(text))
        for name, text in (("a", "Où est-il ?"), ("b", "Ou\u0300  est-il ?"), ("c", "où est-il ?"))
    ]
    subject = read_questions(files).subjects[0]
    assert subject.asked() == [("Où est-il ?", ("a", "b")), ("où est-il ?", ("c",))]


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        row("Who?"),
        row("Who then?", candidate=1),
        row("  ", "London", 25),
        row("Who?", "Eve", 3),
        row("When?", "1843", 2),  # a wrong offset: the answer is where it is in the passage
    )
    study = read_questions(path)
    assert study.left_out == {FURTHER: 1, EMPTY: 1, NOT_FOUND: 1}
    assert [(s.answer, s.answer_start, s.questions) for s in study.subjects] == [
        ("Ada", 0, {"a": "Who?"}),
        ("1843", 35, {"a": "When?"}),
    ]


def test_human_questions_of_qa_data(tmp_path: Path) -> None:
    examples = [
        QAExample("q1", "Ada", ADA, "Who  wrote it?", (Answer("Ada", 0),)),
        QAExample("q2", "Ada", ADA, "When was it?", (Answer("1843", 35),)),
    ]
    write_squad(tmp_path / "dev.json", examples)
    gold = str(tmp_path / "dev.json")
    path = lines(tmp_path / "a.jsonl", row("Who?", id="q1"), row("When?", "1843", 35), row("Where?", "London", 25))
    study = read_questions(path, gold)
    assert study.systems == ["a", "human"]
    assert [subject.questions.get("human") for subject in study.subjects] == ["Who wrote it?", "When was it?", None]
    with pytest.raises(InputError, match="a system is called human"):
        read_questions({"human": path}, gold)
    other = lines(tmp_path / "b.jsonl", {"context": "Eve ate.", "answer": "Eve", "question": "Who?"})
    with pytest.raises(InputError, match="has no question about a passage and answer of the systems"):
        read_questions(other, gold)


def test_further_human_questions_about_one_answer_are_counted(tmp_path: Path) -> None:
    asked = ("Who wrote it?", "Who was it?", "Which person?")
    write_squad(
        tmp_path / "dev.json",
        [QAExample(f"q{at}", "Ada", ADA, text, (Answer("Ada", 0),)) for at, text in enumerate(asked)]
        + [QAExample("q9", "Ada", ADA, "When was it?", (Answer("1843", 35),))],
    )
    path = lines(tmp_path / "a.jsonl", row("Who?"), row("When?", "1843", 35))
    study = read_questions(path, str(tmp_path / "dev.json"))
    assert [subject.questions["human"] for subject in study.subjects] == ["Who wrote it?", "When was it?"]
    assert study.left_out == {FURTHER: 2}


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"question": "Who?"}, "line 1: field 'context' is missing"),
        ({"context": ADA}, "line 1: field 'question' is missing"),
        ({"context": ADA, "question": 3}, "line 1: field 'question' is missing or no text"),
        (row("Who?", system="a|b"), r"line 1: system 'a\|b' is no name"),
        (row("Who?", system=3), "line 1: system 3 is no name"),
        (row(""), "hold no question that can be rated"),
    ],
)
def test_a_wrong_row_is_named(given: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=fault):
        read_questions(lines(tmp_path / "a.jsonl", given))


@pytest.mark.parametrize("name", ["a|b.jsonl", ".jsonl.jsonl"])
def test_the_name_of_a_file_is_checked_where_it_names_a_system(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 1: system '(a\|b)?' is no name"):
        read_questions(lines(tmp_path / name, row("Who?")))
    assert read_questions(lines(tmp_path / name, row("Who?", system="ce"))).systems == ["ce"]


def test_a_title_that_is_no_text_is_none(tmp_path: Path) -> None:
    """Half a surrogate pair could not be written to the plan."""
    (tmp_path / "a.jsonl").write_text(json.dumps(row("Who?", title="A \ud800")) + "\n")
    assert read_questions(str(tmp_path / "a.jsonl")).subjects[0].passage.title == ""


def test_files_need_different_names(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    files = [lines(tmp_path / "a.jsonl", row("Who?")), lines(tmp_path / "x" / "a.jsonl", row("Who?"))]
    with pytest.raises(InputError, match="2 files are called a; give names"):
        read_questions(files)
    with pytest.raises(InputError, match="questions has no value"):
        read_questions(None)


def test_the_place_of_an_answer_is_read_in_every_form(tmp_path: Path) -> None:
    context = "In 1900 the town had a mill. In 1900 the church burned."
    asked = {"When did it have a mill?": context.index("1900"), "When did the church burn?": context.rindex("1900")}
    rows = [{"context": context, "question": one, "answer": "1900", "answer_start": at} for one, at in asked.items()]
    with (tmp_path / "flat.csv").open("w", newline="") as file:
        (table := csv.DictWriter(file, rows[0])).writeheader()
        table.writerows(rows)
    write_lines(tmp_path / "flat.jsonl", rows)
    squad = [{**row, "answers": {"text": ["1900"], "answer_start": [row.pop("answer_start")]}} for row in rows]
    write_lines(tmp_path / "squad.jsonl", [{key: row[key] for key in row if key != "answer"} for row in squad])
    for name in ("flat.csv", "flat.jsonl", "squad.jsonl"):
        subjects = read_questions({"m": str(tmp_path / name)}).subjects
        assert sorted(one.answer_start for one in subjects) == sorted(asked.values()), name
