"""From passages to `answers.jsonl`: every passage once, correct offsets, and the same file after a kill."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from accelerate import PartialState

from rl_qg.commands.compose import compose
from rl_qg.data.corpus import synthetic_examples
from rl_qg.data.examples import write_squad
from rl_qg.data.passages import Passages, has_answers, passage_key, passage_keys
from rl_qg.data.reading import read_examples
from rl_qg.data.splits import answer_spans, with_additional_spans
from rl_qg.generation import propose_answers as answers
from rl_qg.generation.propose_answers import method, propose_answers, report_line, report_path
from rl_qg.runtime.errors import InputError
from rl_qg.settings import AnswersSettings
from rl_qg.text.spans import Span
from tests.full_disk import room_for
from tests.questions import example

RULES = AnswersSettings(batch_size=2)
TEXTS = [
    "Paris was founded in 1200.",
    "and so it is with them",  # nothing to propose
    "Rome has 42 km of roads, says Anna Berg.",
    "Oslo lies in Norway since 1048.",
    "as it was before it",
    "Bergen is a town in Norway.",
    "of these they are",
]


def run(source: Path, output: Path, settings: AnswersSettings = RULES, excluded: Any = (), **options: Any) -> Any:
    passages = Passages([str(source)], settings.passages, excluded)
    return propose_answers(passages, output, settings=settings, state=PartialState(cpu=True), **options)


def written(tmp_path: Path, texts: list[str] = TEXTS) -> Path:
    path = tmp_path / "contexts.txt"
    path.write_text("\n".join(texts))
    return path


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


# --- Reading passages ---


def test_each_form_of_file_gives_its_distinct_passages(tmp_path: Path) -> None:
    two = [example("One  two.", "One", "?", id="a"), example("One  two.", "two", "?", id="b")]
    write_squad(tmp_path / "qa.json", [*two, example("Three.", "Three", "?", id="c")])
    flat = [{"context": "One two.", "id": 7, "title": "T"}, {"paragraph": "Four."}, {"text": ""}]
    (tmp_path / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in flat))
    with gzip.open(tmp_path / "plain.txt.gz", "wt", encoding="utf-8") as stream:
        stream.write("\ufeffFive\nsix\n\n\nSeven\n")
    names = [str(tmp_path / name) for name in ("qa.json", "flat.jsonl", "plain.txt.gz")]
    lines = Passages(names)
    assert [(passage.id, passage.title, passage.context) for passage in lines] == [
        ("qa-1", "title", "One  two."),
        ("qa-2", "title", "Three."),
        ("flat-2", "", "Four."),
        ("plain-1", "", "Five"),
        ("plain-2", "", "six"),
        ("plain-3", "", "Seven"),
    ]
    counts = lines.counts
    assert (counts.read, counts.kept, counts.empty, counts.repeated) == (8, 6, 1, 1)
    assert [passage.context for passage in Passages(names[2:], "paragraph")] == ["Five six", "Seven"]
    without = Passages(names, excluded={passage_key("One two."), passage_key("six")})
    assert [passage.context for passage in without] == ["Three.", "Four.", "Five", "Seven"]
    assert without.counts.excluded == 3
    assert passage_keys(names[:1]) == {passage_key("One two."), passage_key("Three.")}


def test_a_table_and_a_squad_file_without_questions_are_read(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table({"context": ["One.", "Two."]}), tmp_path / "t.parquet")
    (tmp_path / "s.json").write_text(json.dumps({"data": [{"paragraphs": [{"context": "Three."}]}]}))
    names = [str(tmp_path / "t.parquet"), str(tmp_path / "s.json")]
    assert [passage.context for passage in Passages(names)] == ["One.", "Two.", "Three."]
    assert not any(map(has_answers, names))


def test_whether_a_file_has_answers(tmp_path: Path) -> None:
    write_squad(tmp_path / "qa.json", [example("One two.", "One", "?")])
    forms = {
        "with.jsonl": {"context": "a b", "answers": {"text": ["a"], "answer_start": [0]}},
        "bench.jsonl": {"paragraph": "a b", "sentence": "a b", "answer": "a", "question": "?"},
        "without.jsonl": {"context": "a b", "answers": {"text": [], "answer_start": []}},
        "bare.jsonl": {"context": "a b"},
    }
    for name, row in forms.items():
        (tmp_path / name).write_text(json.dumps(row))
    result = {name: has_answers(str(tmp_path / name)) for name in ["qa.json", *forms]}
    assert result == {
        "qa.json": True,
        "with.jsonl": True,
        "bench.jsonl": True,
        "without.jsonl": False,
        "bare.jsonl": False,
    }


KNOWN = [example("Known.", "Known", "")]
WITHOUT_ANSWER = {"context": "Another one."}
WITH_ANSWER = {"context": "Built in 1990.", "answers": {"text": ["1990"], "answer_start": [9]}}


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([WITHOUT_ANSWER, WITH_ANSWER], True),  # a row without answers counts as such
        ([{"context": "Built in 1990.", "reply": "1990"}], False),  # not a format of QA data
        ([WITHOUT_ANSWER, {"context": "Built in 1990.", "answer": "1990"}], True),
        ([{"text": "Built in 1990.", "answers": WITH_ANSWER["answers"]}], False),
        ([{"paragraph": "Another one."}, {"paragraph": "Ada.", "sentence": "Ada.", "answer": "Ada"}], True),
    ],
)
def test_a_file_that_has_answers_is_read_to_its_end(tmp_path: Path, rows: list[Any], expected: bool) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert has_answers(str(path)) is expected
    if expected:
        stream = with_additional_spans(KNOWN, [str(path)], set())
        assert (len(stream), stream.report["dropped"]["no answer"]["count"]) == (2, 1)
    assert len(list(Passages([str(path)]))) == len(rows)


def test_squad_paragraphs_without_questions_have_no_answers(tmp_path: Path) -> None:
    qas = [{"id": "1", "question": "When?", "answers": [{"text": "1990", "answer_start": 9}]}, {"id": "2"}]
    paragraphs = [{"context": "Another one."}, {"context": "Built in 1990.", "qas": qas}]
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    assert has_answers(str(path))
    assert len(with_additional_spans(KNOWN, [str(path)], set())) == 2
    report = read_examples(path, role="train").report
    assert (report["kept"], len(report["malformed"])) == (1, 2)
    assert "paragraphs[0]: field 'qas' is missing" in report["malformed"][0]


def test_lone_surrogates_are_counted_and_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        f"{json.dumps({**WITH_ANSWER, 'context': chr(0xD800) + ' 1990'})}\n{json.dumps(WITH_ANSWER)}\n"
    )
    name = str(tmp_path / "a.jsonl")
    assert passage_keys([name]) == {passage_key("Built in 1990.")}
    assert Passages([name], excluded=passage_keys([name])).form == "line"
    stream = with_additional_spans(KNOWN, [name], {passage_key("Other.")})
    assert (len(stream), stream.report["dropped"]["broken characters"]["count"]) == (2, 1)


def test_a_file_of_validation_passages_alone_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(WITH_ANSWER) + "\n")
    with pytest.raises(InputError, match=r"a\.jsonl: all passages are also in data\.validation"):
        with_additional_spans(KNOWN, [str(path)], {passage_key(WITH_ANSWER["context"])})


@pytest.mark.parametrize("name", ["paren (1), it's {b}: #東.txt", "a\\'b\\", "[a.txt,b.txt]"])
def test_a_file_may_have_any_name(name: str) -> None:
    expected = ["a.txt", "b.txt"] if name.startswith("[") else name
    assert compose("answers", [name, "output=o"]).answers.input == expected


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", None, r"a\.txt: no such file"),
        ("a.pdf", b"x", r"a\.pdf: unknown kind of file; use \.txt"),
        ("a.txt", b"\n \n", r"a\.txt: no usable passage: read 0, empty 0"),
        ("a.txt", b"ok\n\xff\xfe\n", r"a\.txt: line 2: not UTF-8"),
        ("a.jsonl", b'{"title": "x"}\n', r"a\.jsonl: line 1: no passage; expected one of the fields context"),
        ("a.jsonl", b'{"context": 3}\n', r"a\.jsonl: line 1: field 'context' must be text, got int"),
        ("a.jsonl", b"[1]\n", r"a\.jsonl: line 1: expected a JSON object"),
        ("a.json", b'{"data": [{"paragraphs": [{}]}]}', r"data\[0\]\.paragraphs\[0\]: field 'context' must be text"),
        ("a.json", b'{"rows": []}', r"a\.json: field 'data' is missing; there is 'rows'"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as error:
        run(tmp_path / name, tmp_path / "out.jsonl")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "out.jsonl").exists()


# --- Proposing ---


def test_generation_reads_every_line(tmp_path: Path) -> None:
    source, output = written(tmp_path, [*TEXTS, " " + TEXTS[0]]), tmp_path / "answers.jsonl"
    report = run(source, output)
    lines = rows(output)
    assert list(lines[0]) == ["id", "title", "context", "question", "answers", "kind"]
    for line in lines:
        (answer,) = line["answers"]
        assert line["context"][answer["answer_start"] :].startswith(answer["text"]) and line["question"] == ""
    assert {line["answers"][0]["text"] for line in lines} >= {"1200", "42 km", "Anna Berg", "1048", "Norway"}
    result = read_examples(output, role="train", allow_unlabelled=True)
    assert len(result.examples) == len(lines) == len(answer_spans(result.examples))
    assert result.report["dropped"] == {} and not any(
        result.report[name]["count"] for name in ("repaired", "duplicate_ids")
    )
    assert report["passages"] == {
        "read": 8,
        "kept": 7,
        "empty": 0,
        "broken": 0,
        "malformed": 0,
        "repeated": 1,
        "excluded": 0,
    }
    assert report["without_span"] == 3 == 7 - len({line["context"] for line in lines})
    assert report["spans"] == sum(report["kinds"].values()) == len(lines)
    assert "3 of them without any; left out: repeated 1" in report_line(report)


def test_the_limit_keeps_the_best_answers(tmp_path: Path) -> None:
    source = written(tmp_path)
    every = run(source, tmp_path / "all.jsonl", replace(RULES, max_per_context=None))
    assert every["spans"] > run(source, tmp_path / "one.jsonl", replace(RULES, max_per_context=1))["spans"]
    firsts = {line["context"]: line for line in reversed(rows(tmp_path / "all.jsonl"))}
    assert rows(tmp_path / "one.jsonl") == list(reversed(firsts.values()))


@pytest.mark.parametrize("cut", [0.0, 0.1, 0.3, 0.5, 0.77, 0.999, 1.0])
def test_a_killed_run_continues_without_a_missing_or_repeated_line(tmp_path: Path, cut: float) -> None:
    source, whole, killed = written(tmp_path), tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    report = run(source, whole)
    run(source, killed)
    report_path(killed).unlink()
    with killed.open("rb+") as stream:
        stream.truncate(int(killed.stat().st_size * cut))
    again = run(source, killed)
    assert killed.read_bytes() == whole.read_bytes()
    assert {**again, "output": 0} == {**report, "output": 0}


def test_a_complete_file_is_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, output = written(tmp_path), tmp_path / "answers.jsonl"
    report = run(source, output)
    monkeypatch.setattr(answers, "rule_spans", lambda *a: pytest.fail("proposed again"))
    assert run(source, output) == report


def test_a_damaged_report_is_written_again_and_that_of_another_file_is_kept(tmp_path: Path) -> None:
    source, output = written(tmp_path), tmp_path / "answers.jsonl"
    report, lines = run(source, output), output.read_bytes()
    report_path(output).write_text("{}")
    assert run(source, output) == report
    assert output.read_bytes() == lines
    with pytest.raises(InputError, match=r"answers\.report\.json beside it is the report of answers\.jsonl"):
        run(source, tmp_path / "answers.txt")


def test_a_resumed_run_proposes_only_for_the_remaining_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = written(tmp_path), tmp_path / "answers.jsonl"
    run(source, output)
    report_path(output).unlink()
    contexts: list[str] = []
    original = answers.rule_spans
    monkeypatch.setattr(answers, "rule_spans", lambda text, *rest: contexts.append(text) or original(text, *rest))
    run(source, output)
    assert contexts == TEXTS[4:]  # the batch of the last lines and the batches after it


def test_other_settings_changed_data_and_an_unknown_file_are_refused(tmp_path: Path) -> None:
    source, output = written(tmp_path), tmp_path / "answers.jsonl"
    run(source, output)
    before = output.read_bytes()
    with pytest.raises(InputError, match=r"answers made with other settings \(max_per_context: 10 -> 2\)"):
        run(source, output, replace(RULES, max_per_context=2))
    with pytest.raises(InputError, match=r"answers made with other settings \(excluded: "):
        run(source, output, excluded={passage_key(TEXTS[0])})
    written(tmp_path, [*TEXTS, "Berlin has 3 rivers."])
    with pytest.raises(InputError, match=r"contexts\.txt: has changed since .*accept_changed_data=true"):
        run(source, output)
    assert output.read_bytes() == before
    assert run(source, output, accept_changed_data=True)["passages"]["kept"] == 8  # continues after the existing lines
    assert output.read_bytes().startswith(before) and len(output.read_bytes()) > len(before)
    written(tmp_path, TEXTS[1:])
    with pytest.raises(InputError, match=r"line 1 is not about the passage in its place"):
        run(source, output, accept_changed_data=True)
    unknown = tmp_path / "notes.jsonl"
    unknown.write_text("mine\n")
    with pytest.raises(InputError, match="was not made by this command"):
        run(source, unknown)
    assert unknown.read_text() == "mine\n"


def test_a_full_disk_is_one_line_and_the_same_command_continues(tmp_path: Path) -> None:
    source, output, whole = written(tmp_path, TEXTS * 3), tmp_path / "answers.jsonl", tmp_path / "whole.jsonl"
    texts = [f"{text} And {number} more." for number, text in enumerate(TEXTS * 30)]
    source = written(tmp_path, texts)
    run(source, whole)
    with (
        room_for(whole.stat().st_size * 2 // 3),
        pytest.raises(InputError, match=r"answers\.jsonl: cannot be written further"),
    ):
        run(source, output)
    assert whole.read_bytes().startswith(output.read_bytes()) and output.stat().st_size
    run(source, output)
    assert output.read_bytes() == whole.read_bytes()


def test_an_unknown_method_and_a_missing_library_are_one_line(tmp_path: Path) -> None:
    source = written(tmp_path)
    with pytest.raises(InputError, match=r"answers\.method=magic is not one of rules, spacy, extractor"):
        run(source, tmp_path / "a.jsonl", replace(RULES, method="magic"))
    with pytest.raises(InputError, match=r"answers\.extractor has no value"):
        run(source, tmp_path / "a.jsonl", replace(RULES, method="extractor"))
    with pytest.raises(InputError, match=r"answers\.extractor=/no/model: no such folder"):
        run(source, tmp_path / "a.jsonl", replace(RULES, method="extractor", extractor="/no/model"))
    with pytest.raises(InputError, match=r"spacy.*(not installed|cannot be loaded).*install.*method=rules"):
        run(source, tmp_path / "a.jsonl", replace(RULES, method="spacy", spacy_model="no_such_model"))


def test_passages_without_any_answer_are_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "in.txt"
    path.write_text("and so it was, for ever and ever\n")
    with pytest.raises(InputError, match=r"no answer was found in 1 passages by method=rules; use another method"):
        run(path, tmp_path / "answers.jsonl")


def test_a_language_without_rules_is_said(caplog: pytest.LogCaptureFixture) -> None:
    method(replace(RULES, language="eu"), PartialState(cpu=True))
    assert "language=eu: its rules are not known" in caplog.text
    propose, _ = method(replace(RULES, language="DEU"), PartialState(cpu=True))
    assert "deu" not in caplog.text
    [spans] = propose(["Am 3. März 1902 wurde die Brücke gebaut."])
    assert any(span.kind == "date" and span.end - span.start == len("3. März 1902") for span in spans)


def test_spacy_proposes_the_entities_of_its_pipeline(tmp_path: Path) -> None:
    spacy = pytest.importorskip("spacy", reason="spaCy is optional")
    parse = spacy.blank("en")
    ruler = parse.add_pipe("entity_ruler")
    ruler.add_patterns([{"label": "GPE", "pattern": "Norway"}, {"label": "GPE", "pattern": "the town of Oslo"}])
    parse.to_disk(tmp_path / "model")
    source = written(tmp_path, ["It is the town of Oslo in Norway, so Norway.", "Nothing."])
    settings = replace(RULES, method="spacy", spacy_model=str(tmp_path / "model"))
    report = run(source, tmp_path / "a.jsonl", settings)
    result = [
        (line["answers"][0]["text"], line["answers"][0]["answer_start"], line["kind"])
        for line in rows(tmp_path / "a.jsonl")
    ]
    assert result == [("town of Oslo", 10, "gpe"), ("Norway", 26, "gpe")]
    assert report["without_span"] == 1
    spacy.blank("en").to_disk(tmp_path / "empty")
    with pytest.raises(InputError, match="finds neither entities nor noun chunks"):
        run(source, tmp_path / "b.jsonl", replace(settings, spacy_model=str(tmp_path / "empty")))


# --- Into generation ---


def test_spans_of_files_are_added_once_and_without_validation_passages(tmp_path: Path) -> None:
    known = answer_spans(list(synthetic_examples(6, seed=0)))
    others = list(synthetic_examples(4, seed=1))
    write_squad(tmp_path / "more.json", [*known[:3], *others])
    held_out = {passage_key(others[0].context)}
    stream = with_additional_spans(known, [str(tmp_path / "more.json")], held_out)
    result = list(stream)
    assert result[: len(known)] == known
    kept = [item for item in others if item.context != others[0].context]
    assert [(item.context, item.answers) for item in result[len(known) :]] == [
        (item.context, item.answers) for item in answer_spans(kept)
    ]
    assert not any(item.question for item in result[len(known) :])
    assert len(kept) < len(others) and len(stream) == len(result)


def test_answers_that_their_sentence_lacks_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A generator may write any words: here one that stands in two of the passages, and one that stands in none."""

    class Generated:
        left_out = 0

        def __call__(self, contexts: list[str]) -> list[list[Span]]:
            self.left_out += sum(1 + ("Norway" not in context) for context in contexts)
            places = [context.find("Norway") for context in contexts]
            return [[Span(at, at + 6, "generated", 0.5)] if at >= 0 else [] for at in places]

    monkeypatch.setattr(answers, "method", lambda *_: (Generated(), {"method": "generator"}))
    report = run(written(tmp_path), tmp_path / "a.jsonl")
    assert (report["spans"], report["not_in_sentence"]) == (2, 7 + 5)
    assert report_line(report).endswith("; 12 answers cut or not in their sentence")
