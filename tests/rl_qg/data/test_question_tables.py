"""Tables of questions: every format gives the same rows, and every broken file one clear error."""

import csv
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from accelerate import PartialState
from hypothesis import given, settings, strategies as st

from rl_qg.data.question_tables import QuestionTable
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.score_file import score_file

COLUMNS = ("question", "context", "answer", "references")
# what a line of plain text can contain; some readers take U+2028 and NEL for line ends, this one must not
LETTERS = st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff") | st.sampled_from("\x85\"', \\")
TEXT = st.text(LETTERS, max_size=8)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"question": TEXT} | {name: TEXT.map(name[0].__add__) for name in ("context", "answer", "references")}
    ),
    min_size=1,
    max_size=5,
)
Rows = list[dict[str, str]]


class Repeats:
    """A metric whose score depends on every column."""

    name = signature = "repeats"
    needs = frozenset({"contexts", "answers", "references"})

    def score(self, questions, contexts, *, answers, references) -> Any:
        rows = [*zip(questions, contexts, answers, references, strict=True)]
        return SimpleNamespace(scores=[hash(str(row)) / 7 for row in rows], parts={"row": [[*row] for row in rows]})


class NoReferences(Repeats):
    needs = frozenset({"contexts", "answers"})

    def score(self, questions, contexts, *, answers, references) -> Any:
        assert references is None
        return super().score(questions, contexts, answers=answers, references=[["-"]] * len(questions))


class QuestionsOnly(Repeats):
    needs = frozenset()

    def score(self, questions, contexts, **columns) -> Any:
        return SimpleNamespace(scores=[0.0] * len(questions), parts={"row": questions})


def scored(source: Any, metric: Any, **columns: str) -> list[tuple[Any, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "scored.jsonl"
        score_file(metric, QuestionTable(source, columns), output, batch_size=2, state=PartialState(cpu=True))
        rows = map(json.loads, output.read_text(encoding="utf-8").rstrip("\n").split("\n"))
        return [(row["score"], row["parts"]["row"]) for row in rows]


# --- one writer for each format, independent of the reader


def as_lines(rows: Rows, path: Path) -> Path:
    path.write_bytes("\n\n".join(json.dumps(row) for row in rows).encode())
    return path


def as_squad_answers(rows: Rows, path: Path) -> Path:
    keys = ("question", "context")
    changed = [
        {
            **{key: row[key] for key in keys},
            "answers": {"text": [row["answer"], "second"], "answer_start": [0, 0]},
            "reference": row["references"],
        }
        for row in rows
    ]
    return as_lines(changed, path)  # type: ignore[arg-type]


def as_tsv(rows: Rows, path: Path) -> Path:
    lines = ["\t".join(COLUMNS), *("\t".join(row[name] for name in COLUMNS) for row in rows)]
    path.write_bytes(("\r\n".join(lines) + "\r\n").encode())
    return path


def as_csv(rows: Rows, path: Path) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, COLUMNS[::-1])
        writer.writeheader()
        writer.writerows(rows)
    return path


def as_parquet(rows: Rows, path: Path) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    return path


def as_texts(rows: Rows, path: Path) -> dict[str, str]:
    paths = {name: path.with_name(f"{name}.anything") for name in COLUMNS}
    for name, text_file in paths.items():
        text_file.write_bytes(b"".join(f"{row[name]}\n".encode() for row in rows))
    return {name: str(text_file) for name, text_file in paths.items()}


def as_squad(rows: Rows, path: Path) -> Path:
    paragraphs = [
        {
            "context": row["context"],
            "qas": [{"id": "x", "question": row["question"], "answers": [{"text": row["answer"], "answer_start": 0}]}],
        }
        for row in rows
    ]
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


WRITERS: dict[str, Callable[[Rows, Path], Any]] = {
    "answers.jsonl": as_squad_answers,
    "in.jsonl": as_lines,
    "in.tsv": as_tsv,
    "in.csv": as_csv,
    "in.parquet": as_parquet,
    "texts": as_texts,
}


@pytest.mark.slow
@settings(max_examples=25)
@given(rows=ROWS)
def test_every_format_gives_the_same_scores_for_the_same_rows(rows: Rows) -> None:
    rows = [*rows, {"question": "q", "context": "c", "answer": "a", "references": "r"}]  # not all questions are empty
    texts = [[row["question"], row["context"], row["answer"], [row["references"]]] for row in rows]
    questions, contexts, answers, references = zip(*texts, strict=True)
    scores = Repeats().score(questions, contexts, answers=answers, references=references).scores
    expected = [*zip(scores, texts, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        for name, write in WRITERS.items():
            source = write(rows, Path(folder) / name)
            assert scored(source, Repeats()) == expected, name
            if name.endswith(("jsonl", "tsv", "csv")):
                packed = Path(folder) / f"{name}.GZ"
                packed.write_bytes(gzip.compress(Path(source).read_bytes()))
                assert scored(packed, Repeats()) == expected, packed.name
        with_references = [part for _, part in scored(Path(folder, "in.jsonl"), NoReferences())]
        squad = as_squad(rows, Path(folder) / "in.json")
        assert [part for _, part in scored(squad, NoReferences())] == with_references


@settings(max_examples=25)
@given(texts=st.lists(st.text(LETTERS | st.sampled_from("\n\t\r"), min_size=1), min_size=1, max_size=4))
def test_csv_cells_may_contain_line_ends_and_quotes(texts: list[str]) -> None:
    rows = [{name: text for name in COLUMNS} for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        source = QuestionTable(as_csv(rows, Path(folder) / "in.csv"))
        assert [row.fields for row in source] == rows
        assert [row.fields for row in source] == rows  # a second iteration gives the same


def test_squad_json_gives_one_row_a_question(tmp_path: Path) -> None:
    answers = [{"text": "Ada", "answer_start": 0}, {"text": "x", "answer_start": 4}]
    qas = [
        {"id": "a", "question": "Who?", "answers": answers},
        {"id": "b", "question": "What?", "answers": [], "is_impossible": True},
    ]
    path = tmp_path / "dev.json.gz"
    document = {"data": [{"title": "T", "paragraphs": [{"context": "Ada x", "qas": qas}]}]}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    source = QuestionTable(path)
    row = {"title": "T", "context": "Ada x"}
    assert [table_row.fields for table_row in source] == [
        {"id": "a", **row, "question": "Who?", "answer": "Ada", "answer_start": 0},
        {"id": "b", **row, "question": "What?", "is_impossible": True},
    ]
    with pytest.raises(InputError, match=r"dev\.json\.gz: question 'b': field 'answer' is missing"):
        score_file(NoReferences(), source, tmp_path / "out.jsonl", batch_size=2, state=PartialState(cpu=True))


def test_columns_of_other_names_and_files_of_qg_bench(tmp_path: Path) -> None:
    (tmp_path / "in.tsv").write_text("Modified Question\tpassage\tgold\n\nWho?\tAda x\tAda\n")
    renamed = scored(
        tmp_path / "in.tsv", NoReferences(), question="Modified Question", context="passage", answer="gold"
    )
    assert [part for _, part in renamed] == [["Who?", "Ada x", "Ada", ["-"]]]
    bench = {"question": "Who?", "paragraph": "Ada x", "sentence": "Ada", "answer": "Ada"}
    (tmp_path / "bench.jsonl").write_text(json.dumps(bench))
    assert scored(tmp_path / "bench.jsonl", NoReferences()) == renamed
    with pytest.raises(InputError, match=r"line 1: field 'passage' is missing .* the row has 'question', 'paragraph'"):
        scored(tmp_path / "bench.jsonl", NoReferences(), context="passage")  # a given name has no alternative


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        ("Ada", "Ada"),
        (["Ada", "Bell"], "Ada"),
        ([{"text": "Ada", "answer_start": 1}], "Ada"),
        ({"text": ["Ada", "B"]}, "Ada"),
        ({"text": "Ada"}, "Ada"),
        ({"text": []}, None),
        ([], None),
        (1906, None),
        ("\n", None),
        ({}, None),
    ],
)
def test_accepted_types_of_an_answer(tmp_path: Path, value: Any, answer: str | None) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "q", "answers": value}))
    source = QuestionTable(tmp_path / "in.jsonl")
    assert [source.value(row, "answer") for row in source] == [answer]


@pytest.mark.parametrize(
    ("fields", "start"),
    [
        ({"answer_start": 16}, 16),
        ({"answer_start": "16"}, 16),
        ({"answer_start": 16.0}, 16),
        ({"answer_start": " "}, None),
        ({"answer_start": None}, None),
        ({"answer_start": "-1", "answers": {"text": ["5"], "answer_start": [6]}}, 6),
        ({"answer": "1995"}, None),  # the answer itself is no offset
        ({}, None),
    ],
)
def test_where_an_answer_starts(tmp_path: Path, fields: dict[str, Any], start: int | None) -> None:
    (tmp_path / "in.jsonl").write_text(json.dumps({"question": "q", "answer": "5"} | fields))
    source = QuestionTable(tmp_path / "in.jsonl")
    assert [source.answer_start(row) for row in source] == [start]


def test_a_cell_that_says_where_an_answer_starts_is_read(tmp_path: Path) -> None:
    for kind, sign in (("csv", ","), ("tsv", "\t")):
        rows = ["question,answer,answer_start", "How old?,5,16", "When?,1995,", "Which?,5,first"]
        (tmp_path / f"in.{kind}").write_text("\n".join(rows).replace(",", sign))
        source = QuestionTable(tmp_path / f"in.{kind}")
        good, blank, bad = source
        assert (source.answer_start(good), source.answer_start(blank)) == (16, None)
        with pytest.raises(InputError, match=r"in\..sv: .* field 'answer_start' must be a whole number, got 'first'"):
            source.answer_start(bad)


def test_blank_references_are_none(tmp_path: Path) -> None:
    rows = [{"question": "q", "references": texts} for texts in (["", "r", " "], ["\n"], "", [])]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = QuestionTable(tmp_path / "in.jsonl")
    assert [source.value(row, "references") for row in source] == [["r"], None, None, None]


def test_a_blank_column_does_not_hide_the_other_name(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"references": texts, "answer": "", "context": ""}
        | {"reference": "r", "answers": {"text": ["a"]}, "paragraph": "p"}
        for texts in ("", ["", " "], [], None)
    ]
    rows += [
        {"references": ["s"], "reference": "r", "answer": "b", "answers": ["a"], "context": "c", "paragraph": "p"}
    ]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    source = QuestionTable(tmp_path / "in.jsonl")
    found = [[source.value(row, name) for name in ("references", "answer", "context")] for row in source]
    assert found == [[["r"], "a", "p"]] * 4 + [[["s"], "b", "c"]]
    named = QuestionTable(tmp_path / "in.jsonl", {"references": "own"})
    assert {named.value(row, "references") is None for row in named} == {True}  # who names a column means that one


def test_text_files_of_unequal_length_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("one\ntwo\n\n")  # a blank line is an item
    (tmp_path / "c.txt").write_text("one\ntwo\nthree\nfour\nfive")
    files = {"question": tmp_path / "q.txt", "context": tmp_path / "c.txt"}
    with pytest.raises(InputError, match=r"q\.txt has 3 lines, .*c\.txt has 5 lines: give every column one item"):
        scored(files, QuestionsOnly())
    (tmp_path / "c.txt").write_text("one\ntwo\nthree")
    assert [row.fields["question"] for row in QuestionTable(files)] == ["one", "two", ""]
    names = f"{tmp_path / 'q.txt'}, {tmp_path / 'c.txt'}"
    assert [row.where for row in QuestionTable(files)] == [f"line {number} of {names}" for number in (1, 2, 3)]


def test_dates_in_a_parquet_file_are_written_as_text(tmp_path: Path) -> None:
    from datetime import date

    rows = [{"question": "q", "context": "c", "answer": "a", "day": date(2020, 1, 2)}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "in.parquet")
    output = tmp_path / "out.jsonl"
    for _ in range(2):  # and found again by a second run
        score_file(
            NoReferences(), QuestionTable(tmp_path / "in.parquet"), output, batch_size=2, state=PartialState(cpu=True)
        )
    assert json.loads(output.read_text())["day"] == "2020-01-02"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.jsonl", b'{"question": 1', r"in\.jsonl: line 1: malformed JSON"),
        ("in.jsonl", b"[]", r"in\.jsonl: line 1: expected a JSON object"),
        ("in.jsonl", b'{"question": "\xff"}', r"in\.jsonl: line 1: not UTF-8"),
        ("in.jsonl.gz", b"plain", r"in\.jsonl\.gz: cannot be read to its end"),
        ("in.json", b"[]", r"in\.json: expected a JSON object"),
        ("in.parquet", b"PAR", r"in\.parquet: cannot be read as Parquet"),
        ("in.tsv", b"question\tcontext\nq\n", r"in\.tsv: line 2: 1 cells under a header of 2"),
        ("in.tsv", b"question\tquestion\nq\tr\n", r"in\.tsv: line 1: two columns have the same name"),
        ("in.tsv", b"question\tcontext\nq\t\xe9\n", r"in\.tsv: line 2: not UTF-8"),
        ("in.csv", b'question,context\n\n"q\n\n",c\nq,c,d\n', r"in\.csv: line 6: 3 cells under a header of 2"),
        ("in.csv", b'question,context\n"q,c\n', r"in\.csv: line 2: malformed CSV"),
        ("in.csv", b'question,context\n"q"r,c\n', r"in\.csv: line 2: malformed CSV"),
        (
            "in.csv",
            b"question,context\rq,c\r",
            r"in\.csv: its lines end in CR alone; save it with LF",
        ),
        ("in.csv", b"question,context\n", r"in\.csv: holds no row"),
        ("in.csv", b"", r"in\.csv: holds no row"),
        ("in.txt", b"q", r"in\.txt: unknown kind of file; .*'input={question: q\.txt, context: c\.txt}'"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_error_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        scored(tmp_path / name, QuestionsOnly())
    assert "\n" not in str(error.value)


def test_a_missing_file_is_named_before_a_metric_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no\.jsonl: no such file"):
        QuestionTable(tmp_path / "no.jsonl")
    with pytest.raises(InputError, match="is a folder"):
        QuestionTable(tmp_path)
    with pytest.raises(InputError, match=r"no\.txt: no such file"):
        QuestionTable({"question": tmp_path / "no.txt"})


def test_a_byte_order_mark_and_long_cells_are_read(tmp_path: Path) -> None:
    long = "word " * 40_000  # 200,000 characters
    (tmp_path / "in.csv").write_text(f"\ufeffquestion,context\nq,{long}\n", encoding="utf-8")
    (tmp_path / "in.tsv").write_text(f"\ufeffquestion\tcontext\nq\t{long}\n", encoding="utf-8")
    for name in ("in.csv", "in.tsv"):
        assert [row.fields for row in QuestionTable(tmp_path / name)] == [{"question": "q", "context": long}]
