"""Unanswerable questions for SQuAD 2.0: how they are made, that every reader has to refuse them, and their file."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rl_qg.asking import unanswerable
from rl_qg.asking.exports import export_file
from rl_qg.asking.unanswerable import KINDS, OTHER, OWN, QUESTION, candidates
from rl_qg.data.question_tables import QuestionTable
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import ExportSettings

ADA = "Ada Bell met Carl Foss in 1906. She wrote three books in Rome."
DORA = "Dora Lund wrote five books. She lived in Oslo."
EVA = "Eva Holm wrote many books in Rome."


def row(question: str, context: str, answer: str, number: int) -> dict[str, Any]:
    about = {"id": f"q{number}", "title": context.split()[0], "context": context, "question": question}
    return {**about, "answer": answer, "answer_start": context.index(answer)}


ROWS = [
    row("Which books did Ada Bell write?", ADA, "three books", 1),
    row("Where did Dora Lund live?", DORA, "Oslo", 2),
    row("Where did she write books?", ADA, "Rome", 3),
    row("What did Eva Holm write?", EVA, "many books", 4),
]


class Scripted:
    """Is sure that there is no answer to the questions of a list, and counts what it reads."""

    signature = "scripted"

    def __init__(self, refuses: set[str]) -> None:
        self.refuses, self.read = refuses, list[str]()

    def impossible(self, questions: tuple[str, ...], contexts: tuple[str, ...]) -> list[float]:
        self.read += questions
        return [0.5 if question in self.refuses else 0.49 for question in questions]


def read_by(monkeypatch: pytest.MonkeyPatch, *readers: Scripted) -> None:
    named = {str(number): reader for number, reader in enumerate(readers)}
    monkeypatch.setattr(unanswerable, "abstaining_reader", lambda path, device: named[path])


def exported(folder: Path, name: str = "squad2.json", **options: Any) -> str:
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(one) + "\n" for one in ROWS), encoding="utf-8")
    settings = ExportSettings(format="squad2", **options)
    return export_file(QuestionTable(source), folder / name, settings, use_cpu=True)


def questions(path: Path) -> list[dict[str, Any]]:
    articles = json.loads(path.read_text())["data"]
    return [
        {**question, "context": part["context"]}
        for one in articles
        for part in one["paragraphs"]
        for question in part["qas"]
    ]


def test_candidates_by_hand() -> None:
    made, missing = candidates(ROWS, seed=0)
    swaps = {one["id"].partition("-")[0]: one for one in made if one["kind"] != QUESTION}
    assert swaps["q1"]["question"] == "Which books did Carl Foss write?" and swaps["q1"]["kind"] == OWN
    assert swaps["q2"]["kind"] == OTHER and swaps["q2"]["question"] in {
        f"Where did {name} live?" for name in ("Ada Bell", "Carl Foss", "Eva Holm")
    }
    assert (swaps["q1"]["context"], swaps["q1"]["answer"]) == (ADA, "three books")
    found = {one["id"].partition("-")[0]: one for one in made if one["kind"] == QUESTION}
    assert found["q1"]["context"] in (DORA, EVA) and found["q1"]["title"] == found["q1"]["context"].split()[0]
    assert found["q3"]["context"] == DORA  # Eva's has the answer, Rome
    assert all(
        one["answer_start"] == -1 and one["question"] == ROWS[int(one["id"][1]) - 1]["question"]
        for one in found.values()
    )
    assert len({one["id"] for one in made}) == len(made)
    tried = missing.total() - missing["asked of that passage already"]
    assert len(made) + missing.total() == 2 * len(ROWS) and tried == 8 - len(swaps) - len(found)
    assert candidates(ROWS, seed=0) == (made, missing)


def test_ids_are_none_that_the_file_has() -> None:
    made = [one["id"] for one in candidates(ROWS, seed=0)[0]]
    more = [
        {**row("Who met Carl Foss?", ADA, "Ada Bell", 5), "id": name} for name in (made[0], made[1], f"{made[1]}+")
    ]
    rows = [*ROWS, *more]
    again = [one["id"] for one in candidates(rows, seed=0)[0]]
    assert again[:2] == [f"{made[0]}+", f"{made[1]}++"] and again[2] == made[2]
    assert len({*again, *(one["id"] for one in rows)}) == len(again) + len(rows)


def test_what_the_file_asks_of_a_passage_is_not_asked_of_it_again() -> None:
    again = row("which books did Carl Foss write", ADA, "three books", 5)
    made, missing = candidates([*ROWS, again], seed=0)
    assert "Which books did Carl Foss write?" not in {one["question"] for one in made if one["id"].startswith("q1")}
    assert missing["asked of that passage already"] >= 1
    twice, missing = candidates([*ROWS, ROWS[0]], seed=0)  # as of several candidates of an answer
    assert len({(one["question"], one["context"]) for one in twice}) == len(twice)
    assert [one["kind"] for one in candidates([ROWS[1]], 0)[0]] == []  # no other passage, and no other name


def test_every_reader_has_to_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = candidates(ROWS, seed=3)
    texts = [one["question"] for one in made]
    first, second = Scripted(set(texts) - {texts[0]}), Scripted(set(texts) - {texts[1]})
    read_by(monkeypatch, first, second)
    told = exported(tmp_path, unanswerable=2.0, readers=["0", "1"], seed=3)
    written = questions(tmp_path / "squad2.json")
    none = [one for one in written if one["is_impossible"]]
    expected = [one for one in made if one["question"] not in texts[:2]]
    assert sorted((one["question"], one["context"], one["kind"]) for one in none) == sorted(
        (one["question"], one["context"], one["kind"]) for one in expected
    )
    assert texts[0] not in second.read and not [one for one in none if one["answers"]]
    for one in none:
        plausible = one["plausible_answers"]
        assert bool(plausible) == (one["kind"] != QUESTION)
        assert all(one["context"].startswith(each["text"], each["answer_start"]) for each in plausible)
    report = json.loads((tmp_path / "squad2.report.json").read_text())
    counts = Counter(one["kind"] for one in made)
    assert {kind: found["made"] for kind, found in report["kinds"].items()} == {kind: counts[kind] for kind in KINDS}
    assert report["unanswerable"] == len(none) == sum(found["kept"] for found in report["kinds"].values())
    assert [sum(found["refused"][step] for found in report["kinds"].values()) for step in (0, 1)] == [
        sum(text != texts[0] for text in texts),
        len(expected),
    ]
    assert sum(found["share"] for found in report["kinds"].values()) == pytest.approx(1, abs=1e-3)
    assert f"{report['kinds'][OWN]['kept']} {OWN}" in told
    assert [one["id"] for one in written if not one["is_impossible"]] == ["q1", "q3", "q2", "q4"]  # by passage
    data = read_examples(tmp_path / "squad2.json", role="train")
    assert [one.id for one in data.examples] == ["q1", "q3", "q2", "q4"]
    assert data.report["dropped"]["impossible question"]["count"] == len(none)


def test_the_same_command_goes_on_and_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {one["question"] for one in candidates(ROWS, seed=0)[0]}
    monkeypatch.setattr(unanswerable, "AT_ONCE", 2)
    reader = Scripted(texts)
    read_by(monkeypatch, reader)
    exported(tmp_path, "whole.json", unanswerable=0.5, readers=["0"])
    assert len([one for one in questions(tmp_path / "whole.json") if one["is_impossible"]]) == 2  # of four answerable
    kept = tmp_path / "whole.json.readers" / "reader-1.jsonl"
    lines = kept.read_text().splitlines(keepends=True)
    other = tmp_path / "other.json.readers" / "reader-1.jsonl"
    other.parent.mkdir()
    other.write_text("".join(lines[:2]) + lines[2][:5])  # a kill in the second batch
    seen = len(reader.read)
    exported(tmp_path, "other.json", unanswerable=0.5, readers=["0"])
    assert len(reader.read) - seen == seen - 2 and other.read_text() == kept.read_text()
    assert (tmp_path / "other.json").read_bytes() == (tmp_path / "whole.json").read_bytes()
    exported(tmp_path, "other.json", unanswerable=0.5, readers=["0"])
    with pytest.raises(InputError, match=r"other\.json: exists, of other readers or another seed; delete it"):
        exported(tmp_path, "other.json", unanswerable=0.5, readers=["0"], seed=1)
    assert len(reader.read) == 2 * seen - 2  # neither read a question


def test_what_cannot_be_made_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_by(monkeypatch, Scripted(set()))
    with pytest.raises(
        InputError, match=r"unanswerable=1: none is left of \d questions .*, 0 of which the readers re"
    ):
        exported(tmp_path, unanswerable=1.0, readers=["0"])
    assert not [*tmp_path.glob("squad2*.json")]
    (tmp_path / "squad2.json").write_text("{}")
    with pytest.raises(InputError, match=r"squad2\.json: exists, and there is no squad2\.report\.json beside it"):
        exported(tmp_path, unanswerable=1.0, readers=["0"])
    for options, message in (
        ({"format": "squad"}, "no effect with format=squad: "),
        ({"readers": []}, r"readers=\[\] "),
    ):
        with pytest.raises(InputError, match=message):
            ExportSettings(**{"format": "squad2", "unanswerable": 1.0, **options}).check()


def test_impossible_questions_of_the_file_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_by(monkeypatch, Scripted({one["question"] for one in candidates(ROWS, seed=0)[0]}))
    exported(tmp_path, unanswerable=1e308, readers=["0"])  # all of them
    none = [one for one in questions(tmp_path / "squad2.json") if one["is_impossible"]]
    for form in ("squad2", "beir", "retrieval"):
        output = tmp_path / f"again.{form}"
        told = export_file(QuestionTable(tmp_path / "squad2.json"), output, ExportSettings(format=form))
        assert told.endswith(f"{4 + len(none)} rows, 4 questions written; impossible, left out: {len(none)}")


def test_squad2_without_unanswerable_questions(tmp_path: Path) -> None:
    exported(tmp_path)
    document = json.loads((tmp_path / "squad2.json").read_text())
    assert document["version"] == "v2.0" and not (tmp_path / "squad2.report.json").exists()
    assert {one["is_impossible"] for one in questions(tmp_path / "squad2.json")} == {False}
    assert len(document["data"]) == 3 and [len(one["paragraphs"]) for one in document["data"]] == [1, 1, 1]
