"""Files of rated questions: what may be missing, and what is wrong, by line and field."""

import csv
import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import pytest

from rl_qg.judging.judgements import criteria_of, read_judgements
from rl_qg.runtime.errors import InputError
from tests.toy_metrics import rated, write_lines


def test_missing_fields_are_filled_in(tmp_path: Path) -> None:
    rows = [
        {"question": "a?", "context": "c  d", "answer": "x", "ratings": {"ok": [1, None, 2]}, "system": ["s", "t"]},
        {"question": "b?", "context": "c d", "answer": "x", "human": {"ok": 3, "not": None}, "ratings": {"ok": [9]}},
        {"question": "c?", "human": {}, "references": None, "system": 4, "item": 7},
        {"question": ""},
    ]
    path = tmp_path / "h.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    first, second, third, fourth = read_judgements(path)
    assert first.human == {"ok": 1.5} and second.human == {"ok": 3.0}
    assert first.systems == ("s", "t") and third.systems == ("4",) and second.systems == ()
    assert first.group == second.group and first.item == second.item  # white space of a passage does not count
    assert (third.item, third.group) == ("7", "7") and len({third.group, fourth.group, first.group}) == 3
    assert criteria_of([first, second, third]) == ["ok"]
    assert criteria_of([first, second, third], ["ok", "ok"]) == ["ok"]


def test_the_type_of_the_question_asked(tmp_path: Path) -> None:
    rows = [{"question": "It did.", "type": "yes/no"}, {"question": "Who?", "type": None}, {"question": "Who?"}]
    read = read_judgements(write_lines(tmp_path / "h.jsonl", rows))
    assert [judgement.type for judgement in read] == ["yes/no", None, None]


def test_any_label_is_a_type(tmp_path: Path) -> None:
    rows = [{"question": "a", "type": label} for label in ("PERSON", "how many", "of my own")]
    read = read_judgements(write_lines(tmp_path / "h.jsonl", rows))
    assert [judgement.type for judgement in read] == ["PERSON", "how many", "of my own"]
    path = write_lines(tmp_path / "two.jsonl", [*rows, {"question": "a", "type": "Of my own"}])
    with pytest.raises(
        InputError, match=r"line 4: field 'type' is 'Of my own', elsewhere it is 'of my own'; write one"
    ):
        read_judgements(path)
    path = write_lines(tmp_path / "many.jsonl", [{"question": "a", "type": f"id {n}"} for n in range(51)])
    with pytest.raises(InputError, match=r"many\.jsonl: field 'type' has 51 different labels; give at most 50"):
        read_judgements(path)


def test_raters_subsets_and_controls(tmp_path: Path) -> None:
    rows = [
        {"question": "a", "ratings": {"x": [1, 2, 3]}, "raters": ["r", 4, None], "subset": ["s", "t", "s"]},
        {"question": "b", "subset": "s", "control": True},
        {"question": "c", "raters": None, "subset": None, "control": None},
    ]
    first, second, third = read_judgements(write_lines(tmp_path / "h.jsonl", rows))
    assert first.raters == ("r", "4", None) and first.subsets == ("s", "t") and not first.control
    assert second.subsets == ("s",) and second.control
    assert (third.raters, third.subsets, third.control) == ((), (), False)


def test_answers_are_sorted_by_the_question_that_they_answer(tmp_path: Path) -> None:
    with (tmp_path / "small_all.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(
            [
                ["question", "answer", "reference1", "scores"],
                ["when did it end ?", "in may", "may", "4.5"],
                ["did it end ?", "who knows", "yes", "1"],
            ]
        )
    script = Path(__file__).parents[3] / "experiments" / "meta-evaluation" / "prepare.py"
    rows = list(runpy.run_path(str(script))["kpqa"]("small")(tmp_path))
    read = read_judgements(write_lines(tmp_path / "h.jsonl", rows))
    assert [(judgement.row.question, judgement.type) for judgement in read] == [
        ("in may", "when"),
        ("who knows", "yes/no"),
    ]


def test_an_item_is_the_passage_and_the_answer_whatever_the_group(tmp_path: Path) -> None:
    rows = [
        {"question": "a?", "context": "c", "answer": "x", "group": "one", "human": {"ok": 1}},
        {"question": "b?", "context": "c", "answer": "x", "group": "two", "human": {"ok": 2}},
        {"question": "c?", "context": "d", "answer": "x", "group": "two", "human": {"ok": 2}},
        {"question": "d?", "group": "two", "human": {"ok": 2}},
    ]
    first, second, third, fourth = read_judgements(write_lines(tmp_path / "h.jsonl", rows))
    assert first.item == second.item != third.item and first.group != second.group
    assert fourth.item == "two"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": None}, "field 'question' is missing"),
        ({"question": 3}, "field 'question' is int, not text: 3"),
        ({"context": ["c"]}, "field 'context' is list, not text"),
        ({"references": "r"}, "field 'references' is no list of texts"),
        ({"references": ["r", None]}, "field 'references' is no list of texts"),
        ({"human": 4}, "field 'human' is int; give an object"),
        ({"human": {"good": "4"}}, "human.good is '4', not a finite number"),
        ({"human": {"good": float("nan")}}, "human.good is nan, not a finite number"),
        ({"ratings": {"good": 4}}, "ratings.good is no list"),
        ({"ratings": {"good": [1, "x"]}}, "ratings.good is 'x', not a finite number"),
        ({"metrics": {"m": "high"}}, "metrics.m is 'high', not a finite number"),
        ({"human": {"good": 10**400}}, "human.good is 1000.*, not a finite number"),
        ({"ratings": {"good": [-(10**400)]}}, "ratings.good is -1000.*, not a finite number"),
        ({"human": {"good": 1.1e50}}, r"human.good is 1.1e\+50, not a finite number \(at most 1e\+50\)"),
        ({"human": {"\ud800": 4}}, r"field 'human' has the name '.ud800', which is no text"),
        ({"metrics": {"\ud800": 4}}, r"field 'metrics' has the name '.ud800', which is no text"),
        ({"system": "\ud800"}, "field 'system' is str, not text"),
        ({"system": ["\ud800"]}, "field 'system' is list, not text"),
        ({"system": ["a", 3]}, "field 'system' is list, not text"),
        ({"type": 3}, "field 'type' is int, not text: 3"),
        ({"type": "Who"}, "field 'type' is 'Who', elsewhere it is 'who'; write one of them throughout$"),
        ({"type": "person"}, "field 'type' is 'person', elsewhere it is 'PERSON'"),
        ({"type": ""}, "field 'type' is ''; give a label of 1 to 40 characters on one line"),
        ({"type": "a\nb"}, "field 'type' is 'a..b'; give a label"),
        ({"type": "x" * 41}, "field 'type' is 'x*'; give a label"),
        ({"subset": ["a", 3]}, "field 'subset' is int, not text: 3"),
        ({"subset": " a"}, "field 'subset' is ' a'; give a label .* without blanks around it"),
        ({"control": "yes"}, "field 'control' is 'yes'; give true or false"),
        ({"raters": "r"}, "field 'raters' is no list of names: 'r'"),
        ({"raters": ["r", 2.5, "s"]}, "field 'raters' is no list of names"),
        ({"raters": ["r"]}, r"ratings\.good has 3 ratings and 'raters' 1 names; give one name for each rating"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    rows = rated(1)
    path = tmp_path / "h.jsonl"
    path.write_text("\n".join(map(json.dumps, [rows[0], {**rows[1], **change}])))
    with pytest.raises(InputError, match=rf"h\.jsonl: line 2: {message}") as error:
        read_judgements(path)
    assert "\n" not in str(error.value)


TABLE = [
    ["#TEXT", "REF", "SYS", "FLUENCY", "first", "second", "BLEU"],
    ["who ?", "who was it ?", "a", "0.5", "1", "", ".25"],
    ["when ?", "", "b", "", "2", "4", ""],
]
COLUMNS = {
    **{"question": "#TEXT", "references": "REF", "system": "SYS", "human": {"fluency": "FLUENCY"}},
    **{"ratings": {"clear": ["first", "second"]}, "metrics": {"bleu": "BLEU"}},
}


@pytest.mark.parametrize("ending", ["tsv", "csv", "csv.gz", "jsonl"])
def test_columns_of_a_table(tmp_path: Path, ending: str) -> None:
    separator = "\t" if ending == "tsv" else ","
    text = "".join(separator.join(cells) + "\n" for cells in TABLE)
    if ending == "jsonl":
        rows = [dict(zip(TABLE[0], map(_json_value, cells), strict=True)) for cells in TABLE[1:]]
        text = "".join(json.dumps(row) + "\n" for row in rows)
    path = tmp_path / f"h.{ending}"
    path.write_bytes(gzip.compress(text.encode()) if ending.endswith("gz") else text.encode())
    first, second = read_judgements(path, columns=COLUMNS)
    assert (first.row.question, first.row.references, first.systems) == ("who ?", ("who was it ?",), ("a",))
    assert (first.human, first.metrics) == ({"fluency": 0.5, "clear": 1.0}, {"bleu": 0.25})
    assert (second.row.references, second.human, second.metrics) == (None, {"clear": 3.0}, {})
    assert second.ratings == {"clear": (2.0, 4.0)} and first.ratings == {"clear": (1.0, None)}


def _json_value(cell: str) -> Any:
    """What a JSON file has in place of the text in a cell."""
    if cell in ("who was it ?",):
        return [cell]
    return None if not cell else float(cell) if cell.replace(".", "").isdigit() else cell


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"question": "TEXT"}, r"line 2: columns\.question=TEXT: there is no such column; there are #TEXT, REF"),
        ({"human": {"fluency": "F"}}, r"line 2: columns\.human\.fluency=F: there is no such column"),
        ({"ratings": {"clear": ["first", "third"]}}, r"columns\.ratings\.clear=third: there is no such column"),
        ({"ratings": {"clear": "first"}}, r"columns\.ratings=.*: name columns, such as .*\[COLUMN, COLUMN\]"),
        ({"human": "FLUENCY"}, r"columns\.human='FLUENCY': name columns, such as columns\.human={fluency: COLUMN}"),
        ({"human": {"text": "SYS"}}, r"line 2: column 'SYS' is 'a', no number"),
    ],
)
def test_columns_that_are_not_there_or_no_numbers(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    path = tmp_path / "h.tsv"
    path.write_text("".join("\t".join(cells) + "\n" for cells in TABLE))
    with pytest.raises(InputError, match=message):
        read_judgements(path, columns={**COLUMNS, **columns})


def test_published_ratings_in_a_table_are_read_as_they_are() -> None:
    """SimQG's file of crowd ratings, whose first line is in its description."""
    folder = Path(__file__).resolve().parents[3].parent / "shared" / "data" / "simqg"
    if not folder.is_dir():
        pytest.skip("SimQG (../shared/data/simqg) is not here")
    columns = {"question": "GENQ", "context": "#PASSAGE", "references": "REFQ", "human": {"similar": "SIMILAR"}}
    judgements = read_judgements(folder / "simqg_mturk_part1.tsv", columns=columns)
    script = Path(__file__).parents[3] / "experiments" / "meta-evaluation" / "prepare.py"
    slow = list(runpy.run_path(str(script))["simqg"](folder))
    assert len(judgements) == len(slow) == 254
    assert [one.human["similar"] for one in judgements] == [row["human"]["similar"] for row in slow]
    assert [one.row.question for one in judgements] == [row["question"] for row in slow]


def test_files_and_criteria_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"human=.*no\.jsonl: no such file"):
        read_judgements(tmp_path / "no.jsonl")
    with pytest.raises(InputError, match="holds no question"):
        read_judgements(write_lines(tmp_path / "empty.jsonl", []))
    judgements = read_judgements(write_lines(tmp_path / "h.jsonl", rated(1)))
    with pytest.raises(InputError, match="nobody rated 'fluency'; the file has good, same"):
        criteria_of(judgements, ["fluency"])
    unrated = read_judgements(write_lines(tmp_path / "u.jsonl", [{"question": "q"}]))
    with pytest.raises(InputError, match="no question has a rating"):
        criteria_of(unrated)
