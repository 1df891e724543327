"""Every accepted format of QA data gives the same examples; every broken file gives one clear error."""

import gzip
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, strategies as st

from rl_qg.data.examples import Answer, QAExample
from rl_qg.data.formats import find_once
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError

CONTEXT = "Ada lived in Älvdalen. Ada wrote to Max in 1843."
EXPECTED = [
    QAExample("a", "Ada", CONTEXT, "Where did Ada live?", (Answer("Älvdalen", 13),)),
    QAExample("b", "Ada", CONTEXT, "Who wrote?", (Answer("Ada", 23), Answer("Ada", 0))),
]
LIST_ROWS = [
    {
        "id": example.id,
        "title": example.title,
        "context": example.context,
        "question": example.question,
        "answers": [{"text": answer.text, "answer_start": answer.start} for answer in example.answers],
    }
    for example in EXPECTED
]
DICT_ROWS = [
    {**row, "answers": {key: [answer[key] for answer in row["answers"]] for key in ("text", "answer_start")}}
    for row in LIST_ROWS
]
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Ada",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [{key: row[key] for key in ("id", "question", "answers")} for row in LIST_ROWS],
                }
            ],
        }
    ],
}


def write(path: Path, content: Any) -> Path:
    """Write text, JSON, JSON lines, Parquet or bytes, gzipped when the name says so."""
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(content), path)
        return path
    if isinstance(content, list) and ".jsonl" in path.name:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    if not isinstance(content, str | bytes):
        content = json.dumps(content, ensure_ascii=False)
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", SQUAD),
        ("x.json.gz", SQUAD),
        ("x.JSON", SQUAD),
        ("x.jsonl", LIST_ROWS),
        ("x.jsonl", DICT_ROWS),
        ("x.jsonl.gz", DICT_ROWS),
        ("x.parquet", LIST_ROWS),
        ("x.parquet", DICT_ROWS),
        ("two.dots.jsonl", LIST_ROWS),
        ("x.json", b"\xef\xbb\xbf" + json.dumps(SQUAD).encode()),
        ("x.jsonl", "\n\n" + "\r\n\n".join(json.dumps(row) for row in LIST_ROWS)),
        ("x.jsonl", [{**row, "extra": [1, {"a": None}]} for row in DICT_ROWS]),
    ],
)
def test_every_format_gives_the_same_examples(tmp_path: Path, name: str, content: Any) -> None:
    data = read_examples(write(tmp_path / name, content), role="train")
    assert data.examples == EXPECTED
    assert (data.report["read"], data.report["kept"], data.report["dropped"]) == (2, 2, {})


@pytest.mark.parametrize("rows", [LIST_ROWS, DICT_ROWS])
def test_a_hub_data_set_is_read_by_role(monkeypatch: pytest.MonkeyPatch, rows: list[dict[str, Any]]) -> None:
    loaded = []

    def load(name: str, *, split: str) -> datasets.Dataset:
        loaded.append((name, split))
        return datasets.Dataset.from_list(rows)

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = read_examples("someone/some_squad", role="validation")
    assert data.examples == EXPECTED
    assert loaded == [("someone/some_squad", "validation")]
    assert len(data.hashes["someone/some_squad"]) == 64


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("Couldn't reach 'rajpurkar/squad' on the Hub (LocalEntryNotFoundError)\nmore\nlines"),
        datasets.exceptions.DatasetNotFoundError("Dataset 'rajpurkar/squad' doesn't exist on the Hub"),
        ValueError("Unknown split \"train\". Should be one of ['test']."),
        RuntimeError("Dataset scripts are no longer supported, but found squad.py"),
        OSError(),
    ],
)
def test_an_unreachable_hub_is_one_error_line_that_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def load(name: str, *, split: str, **_: Any) -> datasets.Dataset:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(InputError) as caught:
        read_examples("rajpurkar/squad", role="train")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("rajpurkar/squad: ")
    assert (str(error).splitlines() or ["OSError"])[0] in message
    assert "data.train=FILE" in message
    assert "preset=quickstart" in message


def row(**changes: Any) -> dict[str, Any]:
    return {**LIST_ROWS[0], **changes}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in LIST_ROWS[0].items() if key != name}


def squad(qa: Any = None, *, paragraph: Any = None, article: Any = None) -> dict[str, Any]:
    paragraph = paragraph or {"context": CONTEXT, "qas": [SQUAD["data"][0]["paragraphs"][0]["qas"][0], qa]}  # type: ignore[index]
    return {"data": [article or {"title": "t", "paragraphs": [paragraph]}]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        # Not JSON, or not of a known kind
        ("x.json", "", "x.json: malformed JSON at column 1"),
        (
            "x.json",
            '{"data": [\n  {"title" 3}\n]}',
            "x.json: malformed JSON at line 2, column 12: Expecting ':' delimiter",
        ),
        ("x.json", '{"data": [', "x.json: malformed JSON at column 11"),
        ("x.json", '{"a": 1}\n{"a": 2}', "at line 2, column 1: Extra data; name it .jsonl if each line is a record"),
        ("x.json", b'{"data": "\xff"}', r"x.json: not UTF-8 text \(byte 10\)"),
        ("x.json", "[" * 100_000, "x.json: unusable JSON"),
        ("x.json", '{"data": ' + "9" * 5000 + "}", "x.json: unusable JSON"),
        ("x.jsonl", LIST_ROWS[:1], None),
        ("x.jsonl", json.dumps(LIST_ROWS[0]) + '\n{"id": ', r"x.jsonl: line 2: malformed JSON at column"),
        ("x.jsonl", json.dumps(LIST_ROWS[0]) + "\n[]", "x.jsonl: line 2: expected a JSON object, got list"),
        ("x.jsonl", b'{"id": "\xff"}\n', "x.jsonl: line 1: not UTF-8"),
        ("x.docx", "a,b", "x.docx: unknown kind of file; use .json"),
        # Wrong shapes of SQuAD JSON
        ("x.json", LIST_ROWS, "x.json: expected a JSON object, got list"),
        ("x.json", "null", "x.json: expected a JSON object, got NoneType"),
        ("x.json", LIST_ROWS[0], "x.json: field 'data' is missing; there is 'id', 'title'"),
        ("x.json", {"data": {}}, "x.json: field 'data' must be a list, got dict"),
        # Nothing inside
        ("x.json", {"data": []}, "x.json: no usable record: 0 read; check the file"),
        ("x.jsonl", "", "x.jsonl: no usable record: 0 read"),
        (
            "x.jsonl",
            [row(question=""), row(context=None)],
            r"2 read; 1 dropped \(no question\); 1 dropped \(no context\)",
        ),
    ],
)
def test_broken_input_is_one_clear_line(tmp_path: Path, name: str, content: Any, message: str | None) -> None:
    path = write(tmp_path / name, content)
    if message is None:  # one good file: the broken ones are refused for their error, not for their format
        assert read_examples(path, role="train").examples == EXPECTED[:1]
        return
    with pytest.raises(InputError, match=message) as caught:
        read_examples(path, role="train")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))


def good_and(qa: Any = None, **parts: Any) -> dict[str, Any]:
    """A document with one good record and what is wrong."""
    wrong = squad(qa, **parts) if qa is not None or parts else {"data": [7]}
    return {"data": [SQUAD["data"][0], *wrong["data"]]}  # type: ignore[index]


QA = {"id": "bad", "question": "q", "answers": []}
WRONG_START = [{"text": "Ada", "answer_start": "1st"}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        # SQuAD JSON
        ("x.json", good_and(), r"x.json: data\[1\]: expected an object, got int"),
        ("x.json", good_and(article=row()), r"x.json: data\[1\]: field 'paragraphs' is missing"),
        (
            "x.json",
            good_and(article={"title": 3, "paragraphs": [{"context": "c", "qas": [QA]}]}),
            r"data\[1\]: field 'title' must be text, got int",
        ),
        ("x.json", good_and(paragraph={"qas": [QA]}), r"data\[1\].paragraphs\[0\]: field 'context' is missing"),
        ("x.json", good_and(paragraph={"context": "c"}), r"paragraphs\[0\]: field 'qas' is missing"),
        ("x.json", good_and("qa"), r"data\[1\].paragraphs\[0\].qas\[1\]: expected an object, got str"),
        ("x.json", good_and({"question": "q"}), r"qas\[1\]: field 'answers' is missing"),
        ("x.json", good_and({"answers": []}), r"qas\[1\]: field 'question' is missing"),
        ("x.json", good_and({"question": ["q"], "answers": []}), r"qas\[1\]: field 'question' must be text, got list"),
        ("x.json", good_and({"question": "q", "answers": "a"}), r"qas\[1\]: answers: must be a list of objects"),
        ("x.json", good_and({**QA, "answers": [{"text": "a"}]}), "answers: field 'answer_start' is missing"),
        ("x.json", good_and({**QA, "answers": WRONG_START}), "answers: field 'answer_start' must be .*, got '1st'"),
        # Flat rows
        *[
            ("x.jsonl", [row(), without(name)], f"x.jsonl: line 2: field '{name}' is missing")
            for name in ("context", "question", "answers")
        ],
        ("x.jsonl", [row(), row(id=[1])], "line 2: field 'id' must be text, got list"),
        ("x.jsonl", [row(), row(answers=["Ada"])], "line 2: answers: expected an object, got str"),
        ("x.jsonl", [row(), row(answers=[{"text": 3, "answer_start": 0}])], "field 'text' must be text, got int"),
        ("x.jsonl", [row(), row(answers=[{"text": "a", "answer_start": True}])], "a whole number, got True"),
        ("x.jsonl", [row(), row(answers=[{"text": "a", "answer_start": 1.5}])], "a whole number, got 1.5"),
        ("x.jsonl", [row(), row(answers=[{"text": "a", "answer_start": "1.5"}])], "a whole number, got '1.5'"),
        (
            "x.jsonl",
            [row(), row(answers={"text": ["a", "b"], "answer_start": [0]})],
            "line 2: answers: 2 texts but 1 offsets",
        ),
        ("x.jsonl", [row(), row(answers={"text": "a", "answer_start": 0})], "answers: field 'text' must be a list"),
        (
            "x.jsonl",
            [row(), {"paragraph": "p", "question": "q", "sentence": "p"}],
            "line 2: field 'answer' is missing",
        ),
        (
            "x.csv",
            "context,question,answer\nAda wrote.,Who?,Ada\nAda wrote.,Who?\n",
            "line 3: 2 cells under a header of 3",
        ),
        ("x.csv", "context,question,answer\nAda wrote.\nAda wrote.,Who?,Ada\n", "line 2: 1 cells under a header of 3"),
    ],
)
def test_a_malformed_record_costs_no_other_and_is_named(tmp_path: Path, name: str, content: Any, message: str) -> None:
    path = write(tmp_path / name, content)
    data = read_examples(path, role="train")
    dropped = {reason: part["count"] for reason, part in data.report["dropped"].items()}
    assert data.report["read"] == data.report["kept"] + sum(dropped.values()) and data.report["kept"] >= 1
    assert dropped == {"malformed record": 1}
    (fault,) = data.report["malformed"]
    assert fault.startswith(str(path)) and re.search(message, fault)
    assert fault in data.summary() and "\n" not in data.summary()


def test_a_file_of_malformed_records_alone_is_an_error_that_names_the_first(tmp_path: Path) -> None:
    one = write(tmp_path / "one.jsonl", [row(id=[1])])
    with pytest.raises(InputError, match=r"^.*one.jsonl: line 1: field 'id' must be text, got list$"):
        read_examples(one, role="train")
    two = write(tmp_path / "two.jsonl", [row(id=[1]), row(question=2)])
    with pytest.raises(InputError, match=r"two.jsonl: all 2 records are malformed; .*line 1: field 'id' must be text"):
        read_examples(two, role="train")
    with pytest.raises(
        InputError, match=r"2 read; 1 dropped \(malformed record\); 1 dropped \(no question\); .*line 1"
    ):
        read_examples(write(tmp_path / "x.jsonl", [row(id=[1]), row(question="")]), role="train")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.json", {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [
            {"id": "a", "answers": [{"text": "Max", "answer_start": 36}]}]}]}]}),
        ("x.jsonl", [{"id": "a", "context": CONTEXT, "answers": {"text": ["Max"], "answer_start": [36]}}]),
        ("x.jsonl", [{"id": "a", "context": CONTEXT, "answer": "Max"}]),
        ("x.jsonl", [{"id": "a", "paragraph": CONTEXT, "answer": "Max", "question": None}]),
    ],
)  # fmt: skip
def test_answers_to_ask_about_need_no_question(tmp_path: Path, name: str, content: Any) -> None:
    """But only where the caller allows it."""
    path = write(tmp_path / name, content)
    data = read_examples(path, role="train", allow_unlabelled=True)
    assert data.examples == [QAExample("a", "", CONTEXT, "", (Answer("Max", 36),))]
    with pytest.raises(InputError, match=r"field 'question' is missing|no question"):
        read_examples(path, role="train")


@pytest.mark.parametrize("start", ["23", " 23 ", "23.0", 23.0, "２３"])
def test_an_offset_given_as_text_is_read(tmp_path: Path, start: Any) -> None:
    """TQuAD writes its offsets so. `Ada` is twice in the passage: without its offset it could not be placed."""
    document = squad({"id": "t", "question": "Who wrote?", "answers": [{"text": "Ada", "answer_start": start}]})
    data = read_examples(write(tmp_path / "tquad.json", document), role="train")
    assert data.examples[1].answers == (Answer("Ada", 23),)
    assert (data.report["repaired"]["count"], data.report["dropped"]) == (0, {})


@pytest.mark.parametrize("start", ["", " ", None, "-1"])
def test_an_unknown_offset_is_found_where_the_answer_occurs_once(tmp_path: Path, start: Any) -> None:
    answers = {"text": ["Älvdalen"], "answer_start": [start]}
    assert read_examples(write(tmp_path / "x.jsonl", [row(answers=answers)]), role="train").examples == EXPECTED[:1]


def test_tables_with_one_answer_a_row(tmp_path: Path) -> None:
    rows = [
        ["id", "title", "context", "question", "answer", "answer_start"],
        ["a", "Ada", CONTEXT, "Where did Ada live?", "Älvdalen", ""],
        ["b", "Ada", CONTEXT, "Who wrote?", "Ada", "23"],
    ]
    expected = [EXPECTED[0], replace(EXPECTED[1], answers=(Answer("Ada", 23),))]
    quoted = "\n".join(",".join(f'"{cell}"' for cell in cells) for cells in rows)
    for path in (
        write(tmp_path / "x.csv", quoted),
        write(tmp_path / "x.csv.gz", quoted),
        write(tmp_path / "x.tsv", "\n".join("\t".join(cells) for cells in rows)),
    ):
        assert read_examples(path, role="train").examples == expected


def test_the_list_of_articles_of_du_et_al_is_read_as_squad(tmp_path: Path) -> None:
    assert read_examples(write(tmp_path / "train.json", SQUAD["data"]), role="train").examples == EXPECTED


def test_a_hub_data_set_has_a_configuration_after_a_colon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """lmqg's data sets are scripts, which `datasets` runs no longer: then its conversion is read, a folder here."""
    for configuration, question in (("amazon", "Amazon?"), ("reddit", "Reddit?")):
        for split in ("train", "test"):
            row = {**without("id"), "question": f"{question} {split}"}
            folder = tmp_path / configuration / split
            folder.mkdir(parents=True)
            datasets.Dataset.from_list([row]).to_parquet(folder / "0000.parquet")
    read = datasets.load_dataset

    def load(name: str, *configuration: str, revision: str = "main", **options: Any) -> datasets.Dataset:
        assert name == "lmqg/qg_squadshifts"
        if revision == "main":
            assert configuration == ("amazon",)
            raise RuntimeError("Dataset scripts are no longer supported, but found qg_squadshifts.py")
        assert revision == "refs/convert/parquet"
        return read(str(tmp_path), *configuration, **options)

    monkeypatch.setattr(datasets, "load_dataset", load)
    data = read_examples("lmqg/qg_squadshifts:amazon", role="test")
    assert [(example.id, example.question) for example in data.examples] == [
        ("qg_squadshifts-amazon-test-1", "Amazon? test")
    ]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.parquet", b"PAR1 not parquet", "cannot be read as Parquet"),
        ("x.parquet", b"", "cannot be read as Parquet"),
        ("x.json.gz", b"not gzip", "cannot be read to its end"),
        ("x.json.gz", gzip.compress(b"[1]", mtime=0)[:10] + b"\xff" * 20, "cannot be read to its end"),
        ("x.jsonl.gz", gzip.compress(json.dumps(LIST_ROWS[0]).encode())[:-6], "cannot be read to its end"),
    ],
)
def test_a_file_whose_content_is_not_what_its_name_says(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError, match=message) as caught:
        read_examples(path, role="train")
    assert "\n" not in str(caught.value)


def test_a_truncated_parquet_file_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "x.parquet", LIST_ROWS)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_examples(path, role="train")


@pytest.mark.parametrize(
    "name", ["missing.json", "./missing", "/nowhere/missing.parquet", "../a/b/c", "~/nowhere/x.json"]
)
def test_a_missing_file_never_asks_the_hub(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: pytest.fail("asked the Hub"))
    with pytest.raises(InputError, match="no such file: check the path"):
        read_examples(name, role="train")


def test_a_path_may_begin_with_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "x.json", SQUAD)
    data = read_examples("~/x.json", role="train")
    assert data.examples == EXPECTED
    assert len(data.hashes["~/x.json"]) == 64


def test_what_is_no_regular_file_is_called_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "device.jsonl").symlink_to("/dev/null")
    (tmp_path / "loop.jsonl").symlink_to("loop.jsonl")
    of_kind = {"pipe": "is a pipe or device", "device": "is a pipe or device", "loop": "is a link to no file"}
    for name, fault in of_kind.items():
        with pytest.raises(InputError, match=rf"{name}\.jsonl: {fault}"):
            read_examples(str(tmp_path / f"{name}.jsonl"), role="train")


def test_a_folder_as_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a folder: name the files in it"):
        read_examples(tmp_path, role="train")


def test_no_source_is_an_error() -> None:
    with pytest.raises(InputError, match=r"no validation data given: set data\.validation=FILE"):
        read_examples([], role="validation")


SENTENCES = "Max met Ada in Rome. Ada met Max in Oslo, and Max left Oslo."


@pytest.mark.parametrize(
    ("answer", "sentence", "start"),
    [
        ("Rome", "Max met Ada in Rome.", 15),  # once in the paragraph
        ("Rome", "no such sentence", 15),
        ("Ada", "Ada met Max in Oslo, and Max left Oslo.", 21),  # twice in the paragraph, once in the sentence
        ("Max", "Ada met Max in Oslo, and Max left Oslo.", 29),  # twice in the sentence: the first there
        ("Max", "no such sentence", None),
        ("Max", "M", None),  # the sentence itself occurs several times
        ("Max", "", None),
        ("Ada", "Max left Oslo.", None),
        ("Lima", "Max met Ada in Rome.", None),
        ("", "Max met Ada in Rome.", None),
    ],
)
def test_a_qg_bench_answer_is_found_in_its_sentence(
    tmp_path: Path, answer: str, sentence: str, start: int | None
) -> None:
    good = {"paragraph": "Good.", "sentence": "Good.", "question": "q?", "answer": "Good"}
    bad = {"paragraph": SENTENCES, "sentence": sentence, "question": "q?", "answer": answer}
    data = read_examples(write(tmp_path / "bench.jsonl", [good, bad]), role="train")
    assert data.examples[0] == QAExample("bench-1", "", "Good.", "q?", (Answer("Good", 0),))
    if start is None:
        assert len(data.examples) == 1
        assert [part["ids"] for part in data.report["dropped"].values()] == [["bench-2"]]
    else:
        assert data.examples[1].answers == (Answer(answer, start),)
        assert data.report["repaired"]["count"] == 0


def test_qg_bench_columns_are_read_from_parquet(tmp_path: Path) -> None:
    rows = [
        {"paragraph": SENTENCES, "sentence": SENTENCES[:20], "question": "q?", "answer": "Rome", "paragraph_id": "p1"}
    ]
    assert read_examples(write(tmp_path / "b.parquet", rows), role="train").examples[0].answers == (
        Answer("Rome", 15),
    )


def test_missing_ids_and_titles_are_filled_in(tmp_path: Path) -> None:
    rows = [
        {key: value for key, value in row().items() if key not in ("id", "title")},
        row(id=None, title=None),
        row(id="", title=""),
        row(id=12),
    ]
    examples = read_examples(write(tmp_path / "my.data.jsonl.gz", rows), role="train").examples
    assert [example.id for example in examples] == ["my.data-1", "my.data-2", "my.data-3", "12"]
    assert {example.title for example in examples[:3]} == {""}
    nameless = squad({"question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]})
    assert [e.id for e in read_examples(write(tmp_path / "s.json", nameless), role="train").examples] == ["a", "s-2"]


@given(st.lists(st.sampled_from("a1 "), max_size=8).map("".join), st.sampled_from(["a", "1", "11", "a a", "a1"]))
def test_an_answer_without_an_offset_is_where_it_stands_once(whole: str, part: str) -> None:
    places = [at for at in range(len(whole)) if whole.startswith(part, at)]
    words = [at for at in places if not f" {whole} "[at].isalnum() and not f"{whole} "[at + len(part)].isalnum()]
    found = find_once(part, whole)
    if len(places) > 1:
        assert found == (words[0] if len(words) == 1 else -2)
    elif places:
        (at,) = places
        inside = any(f" {whole} "[end : end + 2].isdecimal() for end in (at, at + len(part)))
        assert found == (-1 if inside else at)
    else:
        assert found == -1


@pytest.mark.parametrize(
    ("part", "whole", "place"),
    [
        ("10", "In 2010 it ended.", -1),
        ("10", "In 2010, 10 men came.", 9),
        ("500", "Of 1,500 men came few.", -1),
        ("500", "Of 1.500,25 euros", -1),
        ("500 men", "Of 1,500 men", -1),
        ("1,500 men", "Of 1,500 men", 3),
        ("500", "Of 1,500 men 500 came, in all 500.5.", 13),
        ("5", "It is 3.5 m long", -1),
        ("3", "It is 3,5 m long", -1),
        ("10", "Um 10.30 Uhr", 3),
        ("16", "In John 3.16", 10),
        ("12", "Goals in minutes 12,19", 17),
        ("1945", "am 12.03.1945 in Berlin", 9),
        ("2010", "of 2009,2010 and 2011", 8),
        ("30", "at 10:30.", 6),
        ("10", "9, 10, 11", 3),
        ("5", "in 1.5.", -1),
        ("Ada", "Adam met Ada.", 9),
        ("Ada", "Ada met Ada.", -2),
        ("German", "It is in Germany.", 9),
        ("1990", "In the 1990s.", 7),
        ("五", "五人が十五人", -2),  # without spaces there are no whole words
        ("京都", "、京都、は京都です", -2),
        ("京都", "東京都", 1),
        ("a b a", "a b a b a", -2),
        ("a" * 300, "a" * 300 + " " + "a" * 301, -2),
    ],
)
def test_where_an_answer_is_placed(part: str, whole: str, place: int) -> None:
    assert find_once(part, whole) == place


def test_a_row_whose_answer_is_a_word_of_it_once_is_read(tmp_path: Path) -> None:
    context = "In 2010 ten men and 10 women wrote to Adam and Ada."
    rows = [{"id": text, "context": context, "question": "Who?", "answer": text} for text in ("10", "Ada", "01")]
    data = read_examples(write(tmp_path / "x.jsonl", rows), role="train")
    assert [example.answers[0].start for example in data.examples] == [20, 47]
