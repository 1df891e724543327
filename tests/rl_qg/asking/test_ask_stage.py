"""`rl-qg ask`: documents to files, with counts, and continued after a kill."""

import csv
import json
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.asking import ask_documents as stage
from rl_qg.asking.ask_documents import ask_documents, report_line, unique_names
from rl_qg.asking.documents import Document
from rl_qg.asking.drafts import Draft
from rl_qg.asking.models import QUESTIONS, chosen_generator, corpus_warning
from rl_qg.asking.question_generator import QuestionGenerator
from rl_qg.commands.cli import _configure_logging, run_command
from rl_qg.commands.compose import full_overrides
from rl_qg.data.corpus import synthetic_examples
from rl_qg.generation.propose_answers import GeneratedAnswers
from rl_qg.miniatures.cache import SHIPPED
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.runtime.resumable_lines import note_path
from rl_qg.settings import AskSettings
from tests.toy_scores import Length

TEXTS = [*dict.fromkeys(example.context for example in synthetic_examples(40, seed=6, prefix="doc"))]
LONG = "\n\n".join(TEXTS[:9] * 2)


@pytest.fixture(scope="module")
def generator() -> QuestionGenerator:
    return QuestionGenerator.from_pretrained("miniature:bart", device="cpu")


def ask(generator: QuestionGenerator, output: Path, *documents: Document, **options: Any) -> dict[str, Any]:
    settings = AskSettings(**{"number": 1, **options})
    return ask_documents(generator, documents, output, settings=settings, state=PartialState(cpu=True))


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_pairs_stand_in_their_passage_and_in_the_document(generator: QuestionGenerator, tmp_path: Path) -> None:
    documents = [Document("a", TEXTS[0]), Document("a", f"\n\n {TEXTS[1]}"), Document("c", "...")]
    report = ask(generator, tmp_path / "p.jsonl", *documents, number=2)
    found = rows(tmp_path / "p.jsonl")
    assert [row["id"].rpartition("-")[0] for row in found] == ["a-1", "a-1", "a~2-1", "a~2-1"]
    assert len({row["id"] for row in found}) == 4
    for row, document in zip(found, [documents[0]] * 2 + [documents[1]] * 2, strict=True):
        start, end = row["answer_start"], row["answer_start"] + len(row["answer"])
        assert row["context"][start:end] == row["answer"] and row["title"] == "a"
        start, end = start + row["passage_start"], end + row["passage_start"]
        assert document.text[start:end] == row["answer"]
    assert (report["documents"], report["passages"], report["pairs"], report["without_pairs"]) == (3, 3, 4, 1)
    assert report["dropped"]["beyond the number"] > 0
    assert json.loads((tmp_path / "p.report.json").read_text()) == report


@pytest.mark.parametrize("reward", [None, Length()], ids=["score", "reward"])
@pytest.mark.parametrize(
    "options",
    [{"number": 1}, {"number": 7}, {"number": None}, {"number": 3, "seed": 2, "min_score": 0.2}],
    ids=["best", "seven", "all", "drawn"],
)
def test_the_pairs_of_a_document_are_those_that_python_gives_for_its_text(
    tmp_path: Path, options: dict[str, Any], reward: Length | None
) -> None:
    generator = QuestionGenerator.from_pretrained("miniature:bart", device="cpu", reward=reward)
    long = "\n\n".join([*TEXTS[5:12], TEXTS[6]])  # of two passages
    documents = [Document("long", long), Document("short", TEXTS[3]), Document("lines", f"A heading\n{TEXTS[4]}")]
    assert ask(generator, tmp_path / "p.jsonl", *documents, **options)["passages"] > 2
    expected = [
        [document.name, pair.question, pair.answer, pair.answer_start, pair.score, pair.reason]
        for document in documents
        for pair in generator.ask(document.text, **options)
    ]
    for row in rows(tmp_path / "p.jsonl"):
        place = row["passage_start"] + row["answer_start"]
        assert expected.pop(0) == [row["title"], row["question"], row["answer"], place, row["score"], row["reason"]]
    assert not expected


@pytest.mark.slow
def test_rules_find_answers_in_a_passage_where_the_model_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a number: in the command and in Python alike."""
    generator = QuestionGenerator.from_pretrained(QUESTIONS, device="cpu")
    text = "\n\n".join(TEXTS[5:12])
    first = generator.passages(text)[0].text
    found = GeneratedAnswers.__call__
    monkeypatch.setattr(
        GeneratedAnswers, "__call__", lambda self, texts: [[]] if texts == [first] else found(self, texts)
    )
    ask(generator, tmp_path / "p.jsonl", Document("long", text), number=None)
    answers = [row["passage_start"] + row["answer_start"] for row in rows(tmp_path / "p.jsonl")]
    assert answers == [pair.answer_start for pair in generator.ask(text, number=None)]
    assert min(answers) < len(first) < max(answers)


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv"])
def test_a_command_that_was_killed_is_continued_to_the_same_bytes(
    generator: QuestionGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(stage, "PASSAGES", 1)
    output, made, document = tmp_path / name, tmp_path / f".{name}.jsonl", Document("long", LONG)
    with monkeypatch.context() as until_the_end:  # what the command has made when it is killed before it chooses
        until_the_end.setattr(stage._DocumentOutput, "_finish", lambda self, *others: {})
        ask(generator, output, document, number=8)
    assert sorted(tmp_path.iterdir()) == [made, note_path(made)]
    lines, note = made.read_bytes(), note_path(made).read_bytes()
    asked, complete = list[int](), QuestionGenerator.complete

    def counted_complete(self: QuestionGenerator, drafts: Sequence[Draft]) -> None:
        asked.append(len(drafts))
        complete(self, drafts)

    monkeypatch.setattr(QuestionGenerator, "complete", counted_complete)
    whole = set[bytes]()
    for size in (len(lines) - 7, lines.index(b"\n", len(lines) // 2), 0):
        asked.clear()
        made.write_bytes(lines[:size])
        note_path(made).write_bytes(note)
        report = ask(generator, output, document, number=8)
        assert report["pairs"] == 8 and sum(asked) <= (1 if size == len(lines) - 7 else report["passages"])
        assert not made.exists() and not note_path(made).exists()
        whole.add(output.read_bytes())
        if name == "p.csv":
            continue
        asked.clear()
        assert ask(generator, output, document, number=8) == report and not asked  # all of it is there
        with pytest.raises(InputError, match=r"holds pairs made with other settings \(number: 8 -> 2\)"):
            ask(generator, output, document, number=2)
        with pytest.raises(InputError, match="long: has changed since"):
            ask(generator, output, Document("long", LONG[:-1]), number=8)
        output.unlink()
    assert len(whole) == 1
    made.write_bytes(lines)
    note_path(made).write_bytes(note)
    with pytest.raises(InputError, match=r"holds pairs made with other settings \(number: 8 -> 2\)"):
        ask(generator, output, document, number=2)


@pytest.mark.parametrize(
    ("name", "place"),
    [("p.jsonl", "before the output"), ("p.csv", "before the report"), ("p.jsonl", "after the report")],
)
def test_a_command_that_was_killed_at_its_report_is_continued(
    generator: QuestionGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: str
) -> None:
    class Killed(BaseException):
        pass

    def killed(*others: Any) -> None:
        raise Killed

    def killed_at_the_report(path: Path, report: Any) -> None:
        if "pairs" in report:
            raise Killed
        write_json(path, report)

    monkeypatch.setattr(stage, "PASSAGES", 1)
    document, whole = Document("long", LONG), tmp_path / "whole" / name
    whole.parent.mkdir()
    report = ask(generator, whole, document, number=4)
    (tmp_path / "cut").mkdir()
    output = tmp_path / "cut" / name
    with monkeypatch.context() as until_the_report:
        if place == "before the output":
            until_the_report.setattr(stage, "atomic_writer", killed)
        elif place == "before the report":
            until_the_report.setattr(stage, "write_json", killed_at_the_report)
        else:
            until_the_report.setattr(stage._DocumentOutput, "_remove_hidden", killed)
        with pytest.raises(Killed):
            ask(generator, output, document, number=4)
    asked, complete = list[int](), QuestionGenerator.complete

    def counted_complete(self: QuestionGenerator, drafts: Sequence[Draft]) -> None:
        asked.append(len(drafts))
        complete(self, drafts)

    monkeypatch.setattr(QuestionGenerator, "complete", counted_complete)
    assert ask(generator, output, document, number=4)["pairs"] == report["pairs"] == 4
    assert sum(asked) <= 1 < report["passages"] and output.read_bytes() == whole.read_bytes()
    assert [one.name for one in sorted(output.parent.iterdir())] == [
        one.name for one in sorted(whole.parent.iterdir())
    ]


@pytest.mark.parametrize("name", ["p.jsonl", "p.csv"])
def test_a_file_of_others_is_kept_that_came_between_a_kill_and_the_command_again(
    generator: QuestionGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    output, document = tmp_path / name, Document("long", LONG)
    with monkeypatch.context() as until_the_end:
        until_the_end.setattr(stage._DocumentOutput, "_finish", lambda self, *others: {})
        ask(generator, output, document, number=4)
    output.write_text("of others")
    with pytest.raises(InputError, match=f"{name}: (the file was not made by this command|exists, and there is no)"):
        ask(generator, output, document, number=4)
    assert output.read_text() == "of others"
    output.unlink()
    assert ask(generator, output, document, number=4)["pairs"] == 4


def test_documents_with_one_name_are_told_apart(generator: QuestionGenerator, tmp_path: Path) -> None:
    first, second = Document("notes", TEXTS[0]), Document("notes", TEXTS[1])
    ask(generator, tmp_path / "p.jsonl", first, second)
    other = Document("notes", TEXTS[2])
    for name, documents in (("notes", (other, second)), ("notes~2", (first, other))):
        with pytest.raises(InputError, match=f"{name}: has changed since"):
            ask(generator, tmp_path / "p.jsonl", *documents)
    named = [Document(name, TEXTS[0]) for name in ("a", "a", "a~2", "b", "a")]
    assert unique_names(named) == ["a", "a~3", "a~2", "b", "a~4"]
    ask(generator, tmp_path / "five.json", *named)
    ids = [row["id"] for row in json.loads((tmp_path / "five.json").read_text())]
    assert len(set(ids)) == len(ids) == 5


def test_one_is_written_without_a_plural() -> None:
    one = {"pairs": 1, "passages": 1, "documents": 1, "without_pairs": 0, "dropped": {}}
    assert report_line(one) == "1 pair of 1 passage in 1 document; 0 passages without any of them"


def test_other_formats_are_written_at_the_end(generator: QuestionGenerator, tmp_path: Path) -> None:
    ask(generator, tmp_path / "p.csv", Document("a", TEXTS[0]))
    with (tmp_path / "p.csv").open(newline="") as stream:
        (row,) = csv.DictReader(stream)
    assert row["question"] and TEXTS[0][int(row["answer_start"]) :].startswith(row["answer"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.report.json"]
    (tmp_path / "mine.csv").write_text("mine")
    with pytest.raises(InputError, match=r"mine\.csv: exists, and there is no mine\.report\.json"):
        ask(generator, tmp_path / "mine.csv", Document("a", TEXTS[0]))
    assert (tmp_path / "mine.csv").read_text() == "mine"


def test_no_pair_at_all_is_an_error(generator: QuestionGenerator, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no pair was found in 1 passage \(.*below min_score \d+.*\); lower"):
        ask(generator, tmp_path / "p.jsonl", Document("a", TEXTS[0]), min_score=1.0)
    with pytest.raises(InputError, match=r"no pair was found in 1 passage \(no answer to ask about\)"):
        ask(generator, tmp_path / "q.json", Document("a", "and of the"))
    assert not list(tmp_path.iterdir())


def test_files_come_first_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a, b.txt").write_text(TEXTS[0])
    Path("x=1.md").write_text(TEXTS[1])
    assert full_overrides("ask", ["-", "number=2"]) == [("ask.input", "-"), ("ask.number", 2)]
    run_command("ask", ["a, b.txt", "x=1.md", "output=p.json", "model.path=miniature:bart", "number=1"])
    assert [row["title"] for row in json.loads(Path("p.json").read_text())] == ["a, b", "x=1"]


def test_without_an_output_pairs_are_json_lines_in_a_pipe_and_a_table_in_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(LONG)
    command = ["a.txt", "model.path=miniature:bart", "number=3"]
    run_command("ask", [*command, "output=p.jsonl"])
    expected = Path("p.jsonl").read_text()
    capsys.readouterr()
    for given in ([], ["output=-"], ["--output", "-"]):
        run_command("ask", [*command, *given])
        assert capsys.readouterr().out == expected
    run_command("ask", [*command, "format=gift"])
    assert capsys.readouterr().out.count("::") >= 3
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    run_command("ask", command)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("|")[1].strip() == "question" and len(lines) == 5
    assert [line.split("|")[1].strip() for line in lines[2:]] == [
        " ".join(row["question"].split()) for row in rows(Path("p.jsonl"))
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "a.txt",
        "p.jsonl",
        "p.jsonl.settings.json",
        "p.report.json",
    ]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="several processes need a file"):
        run_command("ask", command)


def test_what_ask_writes_is_scored_and_scored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(TEXTS[0])
    run_command("ask", ["a.txt", "model.path=miniature:bart", "number=3", "output=p.jsonl"])
    run_command("score", ["reward=form", "input=p.jsonl", "output=s.jsonl"])
    asked, scored = rows(Path("p.jsonl")), rows(Path("s.jsonl"))
    assert [row["earlier_score"] for row in scored] == [row["score"] for row in asked]
    assert all(row["score"] in (0, 1) and row["parts"] and "earlier_parts" not in row for row in scored)
    with pytest.raises(InputError, match="has fields 'score' and 'earlier_score'"):
        run_command("score", ["reward=form", "input=s.jsonl", "output=t.jsonl"])


def test_a_metric_orders_the_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(TEXTS[0])
    command = ["a.txt", "output=p.jsonl", "model.path=miniature:bart", "number=3"]
    run_command("ask", [*command, "rerank={_target_: tests.toy_scores.Length}"])
    found = rows(Path("p.jsonl"))
    values = [row["scores"]["length"] for row in found]
    assert values == sorted(values, reverse=True) == pytest.approx([len(row["question"]) / 3 for row in found])
    with pytest.raises(InputError, match=r"holds pairs made with other settings \(rerank: .*length.* -> "):
        run_command("ask", command)
    with pytest.raises(InputError, match=r"ask\.rerank=.*: give one metric"):
        run_command("ask", [*command, "rerank=[bleu4,rouge_l]"])
    with pytest.raises(InputError, match="compares with human questions, and there are none"):
        run_command("ask", ["a.txt", "output=q.jsonl", "model.path=miniature:bart", "rerank=rouge_l"])


@pytest.mark.parametrize(
    ("data", "name", "warned"),
    [
        ("", "packaged:english", False),  # no run is there
        ("data: {train: world}", "runs/quickstart", True),
        ("data: {train: mine.json}", "runs/quickstart", False),
        ("not: [of, a run", "runs/quickstart", False),
    ],
)
def test_the_command_says_which_model_answers_and_warns_of_one_that_knows_the_embedded_corpus_alone(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: str,
    name: str,
    warned: bool,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Ada Lovelace wrote the first program in London in 1843.")
    if data:
        shutil.copytree(SHIPPED / "bart", "runs/quickstart/ce")
        Path("runs/quickstart/config.yaml").write_text(data)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    _configure_logging()
    run_command("ask", ["a.txt", "output=p.json", "number=1"])
    printed = capsys.readouterr()
    assert f"model: {name}, for model.path has no value\n" in printed.err and not printed.out
    [row] = json.loads(Path("p.json").read_text())
    report = json.loads(Path("p.report.json").read_text())
    assert row["model"] == report["model"] == name
    if not warned:
        assert "warning" not in {*row, *report} and "embedded corpus" not in printed.err
        return
    assert row["warning"] == report["warning"] and f"warning: {row['warning']}\n" in printed.err
    for part in (f"{name} knows only the embedded corpus", "other texts", "nonsense", "scores", "model.path="):
        assert part in row["warning"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "granularity=sentence mode=one2one order=best",
            "granularity=sentence, mode=one2one, order=best: is for",
        ),
        ("strategy=sentence_one2many order=best", "order=best: is for rl-qg train; leave it out"),
        ("language=de", "language=de: packaged:english asks about English texts alone; give another model.path="),
        ("language=deu model.path=packaged:english", "language=deu: packaged:english asks about English texts alone"),
    ],
)
def test_keys_that_would_do_nothing_are_refused(
    given: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("Ada Lovelace wrote the first program in London in 1843.")
    with pytest.raises(InputError, match=message):
        run_command("ask", ["a.txt", "output=p.json", *given.split()])
    assert not Path("p.json").exists()


def test_a_model_that_is_named_is_said_too_and_knows_its_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for folder in ("run/scst", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "config.json").touch()
    (tmp_path / "run/config.yaml").write_text("data: {train: world}")
    with caplog.at_level("INFO"):
        assert chosen_generator(str(tmp_path / "elsewhere")) == str(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="the package has"):
            chosen_generator("miniature:bert")
    assert caplog.messages == [f"model: {tmp_path / 'elsewhere'}"]
    for path in (tmp_path / "run", tmp_path / "run/scst", "miniature:bart"):
        assert corpus_warning(path).startswith(f"{path} knows only the embedded corpus")
    for path in ("t5-base", "lmqg/t5-base-squad-qg", tmp_path / "elsewhere"):
        assert corpus_warning(path) == ""
