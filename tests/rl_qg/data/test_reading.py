"""Which records are kept, repaired or dropped, and what the report says about them."""

import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from rl_qg.data.examples import Answer
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError

SHARED = Path(__file__).resolve().parents[3].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the shared real data sets are not on this machine")

CONTEXT = "Ada met Max. Max left, Ada stayed in Rome."


def rows_file(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def row(key: str, *answers: tuple[str, int | None], **changes: Any) -> dict[str, Any]:
    given_answers = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": key, "context": CONTEXT, "question": "Who?", "answers": given_answers, **changes}


def test_each_kind_of_record_is_kept_repaired_or_dropped(tmp_path: Path) -> None:
    path = rows_file(
        tmp_path / "x.jsonl",
        row("right", ("Max", 13)),
        row("moved", ("Rome", 36)),
        row("negative", ("Rome", -5)),  # context[-5:] starts with the answer, but that is no offset
        row("unknown", ("Rome", None)),
        row("beyond", ("Rome", 9999)),
        row("float", ("Max", 8.0)),
        row("some", ("Max", 8), ("Lima", 3), ("Ada", 1)),
        row("partly moved", ("Max", 8), ("Rome", 3)),
        row("absent", ("Lima", 0)),
        row("several", ("Max", 0)),
        row("unknown of several", ("Ada", None)),  # it occurs at 0, but also elsewhere
        row("blank answer", (" ", 3)),
        row("no answers"),
        row("null answers", answers=None),
        row("blank question", ("Max", 8), question=" \n"),
        row("null question", ("Max", 8), question=None),
        row("blank context", ("Max", 8), context="\t"),
        row("surrogate", ("Max", 8), question="Who \ud800?"),
    )
    data = read_examples(path, role="train")
    assert {e.id: e.answers for e in data.examples} == {
        "right": (Answer("Max", 13),),
        "moved": (Answer("Rome", 37),),
        "negative": (Answer("Rome", 37),),
        "unknown": (Answer("Rome", 37),),
        "beyond": (Answer("Rome", 37),),
        "float": (Answer("Max", 8),),
        "some": (Answer("Max", 8),),
        "partly moved": (Answer("Max", 8), Answer("Rome", 37)),
    }
    report = data.report
    assert {reason: part["ids"] for reason, part in report["dropped"].items()} == {
        "answer not in context": ["absent"],
        "answer misplaced and ambiguous": ["several", "unknown of several"],
        "no answer": ["blank answer", "no answers", "null answers"],
        "no question": ["blank question", "null question"],
        "no context": ["blank context"],
        "broken characters": ["surrogate"],
    }
    assert report["repaired"] == {"count": 5, "ids": ["moved", "negative", "unknown", "beyond", "partly moved"]}
    assert report["answers_dropped"] == {"count": 1, "ids": ["some"]}
    assert report["read"] == 18 == report["kept"] + sum(part["count"] for part in report["dropped"].values())
    assert data.summary().startswith("train data: 8 of 18 records; repaired 5; answers dropped 1; dropped 2 (")


def test_an_answer_that_overlaps_itself_is_ambiguous(tmp_path: Path) -> None:
    path = rows_file(tmp_path / "x.jsonl", row("ok", ("Max", 8)), row("aa", ("aa", 7), context="Baaa!"))
    dropped = read_examples(path, role="train").report["dropped"]
    assert dropped == {"answer misplaced and ambiguous": {"count": 1, "ids": ["aa"]}}


def test_offsets_count_unicode_characters(tmp_path: Path) -> None:
    path = rows_file(tmp_path / "x.jsonl", row("x", ("Ünï", 3), context="😀é Ünï"))
    assert read_examples(path, role="train").report["repaired"]["count"] == 0


def test_impossible_questions_of_squad_v2_are_dropped_with_a_count(tmp_path: Path) -> None:
    answers = [{"text": "Max", "answer_start": 8}]
    qas = [
        {"id": "yes", "question": "Who?", "answers": answers, "is_impossible": False},
        {"id": "no", "question": "Who not?", "answers": [], "plausible_answers": answers, "is_impossible": True},
        {"id": "neither", "question": "Who not?", "is_impossible": True},
    ]
    path = tmp_path / "v2.json"
    path.write_text(json.dumps({"version": "v2.0", "data": [{"paragraphs": [{"context": CONTEXT, "qas": qas}]}]}))
    data = read_examples(path, role="train")
    assert [e.id for e in data.examples] == ["yes"]
    assert data.report["dropped"] == {"impossible question": {"count": 2, "ids": ["no", "neither"]}}


def test_unlabelled_records_are_kept_if_allowed(tmp_path: Path) -> None:
    no_field = row("no field", ("Max", 8))
    del no_field["question"]
    path = rows_file(tmp_path / "x.jsonl", row("blank", ("Max", 8), question=""), no_field, row("full", ("Max", 8)))
    questions = [e.question for e in read_examples(path, role="train", allow_unlabelled=True).examples]
    assert questions == ["", "", "Who?"]


def test_repeated_ids_become_unique_and_are_counted(tmp_path: Path) -> None:
    first = rows_file(tmp_path / "x.jsonl", *[row(key, ("Max", 8)) for key in ("a", "a-2", "a", "b")])
    second = rows_file(tmp_path / "y.jsonl", *[row(key, ("Max", 8)) for key in ("b", "a", "c")])
    data = read_examples([first, str(second)], role="train")
    assert [e.id for e in data.examples] == ["a", "a-2", "a-3", "b", "b-2", "a-4", "c"]
    assert data.report["duplicate_ids"] == {"count": 3, "ids": ["a", "b", "a"]}
    assert (data.report["read"], data.report["kept"]) == (7, 7)
    assert data.report["sources"] == [str(first), str(second)]
    assert data.hashes == {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in (first, second)}


def test_the_report_counts_all_but_lists_the_first_thousand(tmp_path: Path) -> None:
    path = rows_file(tmp_path / "x.jsonl", row("ok", ("Max", 8)), *[row(f"r{i}", ("Lima", 0)) for i in range(1500)])
    part = read_examples(path, role="train").report["dropped"]["answer not in context"]
    assert part == {"count": 1500, "ids": [f"r{i}" for i in range(1000)]}


def test_an_unusable_source_among_good_ones_is_named(tmp_path: Path) -> None:
    good = rows_file(tmp_path / "good.jsonl", row("ok", ("Max", 8)))
    bad = rows_file(tmp_path / "bad.jsonl", row("no", ("Lima", 8)))
    with pytest.raises(InputError, match=r"bad.jsonl: no usable record: 1 read; 1 dropped \(answer not in context\)"):
        read_examples([good, bad], role="train")


@needs_shared
@pytest.mark.parametrize(
    ("name", "articles", "passage_count", "questions", "answers", "repaired"),
    [
        ("squad/dev_part1-v1.1.json.gz", 24, 913, 4961, 17778, []),
        ("squad/du_test-v1.1.json.gz", 44, 2430 - 1, 11877, 11877, []),  # one of 2430 paragraphs occurs twice
        ("piaf/piaf-v1.0.json.gz", 191, 761, 3835, 3835, ["p140295202390160", "p140295202893328"]),
        ("xquad/xquad.ar.json.gz", 48, 240, 1190, 1190, []),
        ("xquad/xquad.zh.json", 48, 240, 1190, 1190, []),
    ],
)
def test_real_files_give_the_counts_of_their_source(
    name: str, articles: int, passage_count: int, questions: int, answers: int, repaired: list[str]
) -> None:
    data = read_examples(SHARED / name, role="train")
    examples = data.examples
    assert len(examples) == questions == data.report["read"] == data.report["kept"]
    assert len({e.title for e in examples}) == articles
    assert len({e.context for e in examples}) == passage_count
    assert sum(len(e.answers) for e in examples) == answers
    assert all(e.context[a.start : a.start + len(a.text)] == a.text for e in examples for a in e.answers)
    assert sorted(data.report["repaired"]["ids"]) == repaired
    assert data.report["dropped"] == {}


def test_repeated_ids_get_the_first_free_number(tmp_path: Path) -> None:
    draw = random.Random(0)
    keys = [draw.choice(("a", "a-2", "a-3", "b", "a-2-2")) for _ in range(200)]
    expected: list[str] = []
    for key in keys:
        names = (key, *(f"{key}-{number}" for number in range(2, 300)))
        expected.append(next(name for name in names if name not in expected))
    path = rows_file(tmp_path / "x.jsonl", *(row(key, ("Rome", 37)) for key in keys))
    assert [example.id for example in read_examples(path, role="train").examples] == expected
