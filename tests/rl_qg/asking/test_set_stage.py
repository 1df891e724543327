"""`rl-qg ask strategy=…`: documents to sets in files, with counts, and continued after a kill."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.asking import ask_documents as document_output
from rl_qg.asking.ask_documents import ask_documents, report_line
from rl_qg.asking.documents import Document
from rl_qg.asking.models import ways_of
from rl_qg.asking.sets import SetGenerator
from rl_qg.commands.cli import run_command
from rl_qg.generation.prompts import Prompt
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AskSettings
from rl_qg.settings.generation import STRATEGIES
from tests.rl_qg.generation.test_question_pool import tiny

PARAGRAPHS = [f"W{k} w2 w3 . W4 w{k + 1} . W6 w{k + 2} w8 w9 w1 w2 ." for k in range(10)]
LONG = Document("long", "\n\n".join(PARAGRAPHS))
STRATEGY = "sentence_one2one"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("one2one")
    tiny(folder, granularity="sentence", mode="one2one")
    return folder


@pytest.fixture(scope="module")
def generator(model: Path) -> SetGenerator:
    return SetGenerator.from_pretrained(model, device="cpu")


def ask(generator: SetGenerator, output: Path, *documents: Document, **options: Any) -> dict[str, Any]:
    settings = AskSettings(**{"number": 2, "strategy": STRATEGY, **options})
    return ask_documents(generator, documents, output, settings=settings, state=PartialState(cpu=True))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_a_set_for_each_passage(generator: SetGenerator, tmp_path: Path) -> None:
    report = ask(generator, tmp_path / "s.jsonl", Document("a", PARAGRAPHS[0]), LONG)
    found = rows(tmp_path / "s.jsonl")
    assert [*found[0]] == [
        *("id", "title", "context", "start", "strategy", "questions", "pool", "reason", "dropped"),
    ]
    assert [row["id"] for row in found[:2]] == ["a-1", "long-1"] and len(found) >= 5
    for row in found:
        text = PARAGRAPHS[0] if row["title"] == "a" else LONG.text
        assert text[row["start"] :].startswith(row["context"]) and row["strategy"] == STRATEGY
        assert row["pool"] == len(row["questions"]) + sum(row["dropped"].values())
        for question in row["questions"]:
            unit = row["context"][question["start"] : question["end"]]
            assert unit.endswith(".") and unit.count(".") == 1
    counts = {name: report[name] for name in ("documents", "passages", "questions", "without_questions", "pool")}
    assert counts == {
        "documents": 2,
        "passages": len(found),
        "questions": sum(len(row["questions"]) for row in found),
        "without_questions": sum(not row["questions"] for row in found),
        "pool": sum(row["pool"] for row in found),
    }
    assert json.loads((tmp_path / "s.report.json").read_text()) == report
    assert f"{counts['questions']} questions of {counts['pool']} that were generated" in report_line(report)


def test_a_file_that_was_cut_off_is_continued_to_the_same_bytes(
    generator: SetGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(document_output, "PASSAGES", 2)
    output = tmp_path / "s.jsonl"
    assert ask(generator, output, LONG, select="rand")["passages"] >= 4
    whole = output.read_bytes()
    for size in (len(whole) - 7, whole.index(b'"id": "long-4"'), whole.index(b'"long-3"') + 3, 0):
        output.write_bytes(whole[:size])
        ask(generator, output, LONG, select="rand")
        assert output.read_bytes() == whole
    for options, change in (
        ({"number": 3, "select": "rand"}, "number: 2 -> 3"),
        ({"select": "mmr"}, "select: rand -> mmr"),
        ({"select": "rand", "candidates": 2}, "candidates: None -> 2"),
    ):
        with pytest.raises(InputError, match=rf"holds sets made with other settings \({change}\)"):
            ask(generator, output, LONG, **options)
    with pytest.raises(InputError, match="long: has changed since"):
        ask(generator, output, Document("long", LONG.text[:-1]), select="rand")


def test_json_and_csv(generator: SetGenerator, tmp_path: Path) -> None:
    document = Document("a", PARAGRAPHS[0])
    ask(generator, tmp_path / "s.json", document)
    ask(generator, tmp_path / "t.csv", document)
    (found,) = json.loads((tmp_path / "s.json").read_text())
    with (tmp_path / "t.csv").open(newline="") as stream:
        table = [*csv.DictReader(stream)]
    assert [row["question"] for row in table] == [question["question"] for question in found["questions"]]
    assert {row["context"] for row in table} == {PARAGRAPHS[0]} and table[0]["type"] == "other"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.json", "s.report.json", "t.csv", "t.report.json"]
    with pytest.raises(InputError, match=r"output=s\.gift: gift needs answers, and sets have none; name a file that"):
        ask(generator, tmp_path / "s.gift", document)


def test_no_question_at_all_is_an_error(generator: SetGenerator, tmp_path: Path) -> None:
    class Nothing:
        def impossible(self, questions: Any, contexts: Any) -> list[float]:
            return [1.0 for _ in questions]

    strict = SetGenerator(generator._generator, name=generator.name, reader=Nothing())
    with pytest.raises(
        InputError, match=r"no question was found in 1 passage \(0 of 2 questions: \d+ were generated;"
    ):
        ask(strict, tmp_path / "s.csv", Document("a", PARAGRAPHS[0]))
    assert not [*tmp_path.iterdir()]


def test_the_command(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(LONG.text)
    command = ["a.txt", f"strategy={STRATEGY}", "training.use_cpu=true"]
    run_command("ask", [*command, "number=auto", "candidates=4", "output=s.jsonl", f"model.path={model}"])
    assert len({len(row["questions"]) for row in rows(Path("s.jsonl"))}) > 1
    for given, message in (
        ([], r"model\.path has no value, and strategy=sentence_one2one needs a model"),
        (
            ["model.path=miniature:bart"],
            r"was trained with model\.task=questions and writes no sets",
        ),
        ([f"model.path={model}", "reader=none", "select=rank"], "select=rank: orders by answerability; give reader="),
        ([f"model.path={model}", "worthiness=./nowhere"], r"worthiness=\./nowhere"),
        ([f"model.path={model}", "selector=nowhere", "select=learned"], "selector=nowhere: no such file"),
    ):
        with pytest.raises(InputError, match=message):
            run_command("ask", [*command, *given, "output=t.jsonl"])


def test_a_model_of_another_strategy_is_refused(generator: SetGenerator, tmp_path: Path) -> None:
    for options, message in (
        (
            {"strategy": "sentence_one2many"},
            "sentence_one2many: .* was trained for sentence_one2one; give that",
        ),
        ({"select": "rank"}, "select=rank: orders by answerability; give reader="),
    ):
        with pytest.raises(InputError, match=message):
            ask(generator, tmp_path / "s.jsonl", LONG, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": "auto"}, "number=auto: is for sets; give strategy= too"),
        ({"select": "mmr", "types": "x"}, "select=mmr, types=x: is for sets; give strategy= too"),
        (
            {"strategy": STRATEGY, "way": "pipeline"},
            "way=pipeline: is for pairs; leave it out, or",
        ),
        (
            {"strategy": STRATEGY, "format": "gift"},
            "format=gift: needs answers, and sets have none; use",
        ),
        ({"strategy": "words"}, f"strategy=words is not one of null, {', '.join(STRATEGIES)}"),
        ({"strategy": STRATEGY, "batch_size": 2}, "batch_size=2: is for pairs; leave it out"),
        ({"strategy": STRATEGY, "types": "RUN"}, "types=RUN: is for strategy=type_one2one and type_one2many"),
        ({"strategy": STRATEGY, "selector": "s.json"}, "selector=s.json: is for select=learned; give that"),
        (
            {"strategy": STRATEGY, "select": "learned", "selector": "s.json", "similarity": "bert"},
            "similarity=bert: select=learned was trained with similarity=words",
        ),
        ({"number": 0}, "number=0 is neither a whole number from 1, auto nor null"),
        ({"number": True}, "number=True is neither a whole number from 1, auto nor null"),
        ({"number": 2.5}, "number=2.5 is neither a whole number from 1, auto nor null"),
    ],
)
def test_settings_that_mean_nothing_are_named(options: dict[str, Any], message: str) -> None:
    assert next(AskSettings(**options).faults()).startswith(message)


def test_a_model_of_sets_says_how_to_use_it() -> None:
    prompt = Prompt(task="sets", granularity="type", mode="one2one")
    with pytest.raises(InputError, match=r"RUN: this model writes sets .* strategy=type_one2one"):
        ways_of(prompt, "RUN")


@pytest.mark.parametrize("options", [{}, {"number": None}, {"strategy": STRATEGY, "number": "auto", "select": "mmr"}])
def test_settings_that_are_right(options: dict[str, Any]) -> None:
    assert not [*AskSettings(**options).faults()]
