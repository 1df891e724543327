"""The augmented set: exact counts, a uniform sample that does not depend on the order of lines, and clear errors."""

import gzip
import hashlib
import json
import logging
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rl_qg.augmentation.augment import augment, check_inputs, check_questions, funnel_table
from rl_qg.commands.cli import run_command
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.data.streaming import stream_examples
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import report_path
from rl_qg.settings import AugmentSettings
from tests.full_disk import room_for

PASSAGES = ("Ada lives in Rome.", "Max lives in Oslo.", "Eva lives in Lima.")
GOLD = [
    QAExample("g1", "People", PASSAGES[0], "Where does Ada live?", (Answer("Rome", 13),)),
    QAExample("g2", "Others", "Zoe «née» Zu 😀 naps.", "Who naps in bed?", (Answer("Zoe", 0), Answer("Zu", 10))),
]


def candidate(passage: int, number: int, question: str, **changes: Any) -> dict[str, Any]:
    context = PASSAGES[passage]
    return {
        "id": f"p{passage}",
        "candidate": number,
        "title": "People",
        "context": context,
        "answer": context[13:17],
        "answer_start": 13,
        "question": question,
        "logprob": -1.5,
        **changes,
    }


def write_lines(path: Path, lines: list[Any]) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    path.write_text("".join(text + "\n" for text in texts), encoding="utf-8")
    return path


def paper(min_words: int = 3, max_words: int = 6, **settings: Any) -> AugmentSettings:
    rules = {"length": {"min_words": min_words, "max_words": max_words}}
    rules |= {"answer_in_question": {}, "gold_duplicates": {}, "duplicates": {}}
    return AugmentSettings(**{"num_samples": 100, "filters": rules, **settings})


def run(folder: Path, lines: list[Any], *, gold: Any = GOLD, **settings: Any) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    questions = write_lines(folder / "questions.jsonl", lines)
    return augment(questions, gold, folder / "augmented.json", settings=paper(**settings))


def augmented(folder: Path) -> list[QAExample]:
    return read_examples(folder / "augmented.json", role="train").examples


MIXED = [
    candidate(0, 0, "Where does Ada live?"),  # gold has it
    candidate(0, 1, "In which city is Ada?"),
    candidate(0, 2, "in which city is ada"),
    "",
    candidate(0, 3, "Does Ada live in Rome?"),
    candidate(0, 4, "Where?"),
    candidate(0, 5, " "),
    candidate(1, 0, "Where does Max live now, at last?"),
    candidate(1, 1, "Where does Ada live?"),  # about another passage: not a duplicate
    candidate(1, 2, "Wo wohnt Max, né “Mäx”?"),
    candidate(2, 0, "In which city is Eva?"),
]


def test_the_report_and_the_written_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = run(tmp_path, MIXED)
    dropped = {
        "empty": 1,
        "too short": 1,
        "too long": 1,
        "answer in question": 1,
        "duplicate of gold": 1,
        "duplicate of candidate": 1,
    }
    questions, output = tmp_path / "questions.jsonl", tmp_path / "augmented.json"
    assert report == {
        "gold": 2,
        "candidates": 10,
        "dropped": dropped,
        "notes": [],
        "kept": 4,
        "requested": 100,
        "sampled": 4,
        "written": 6,
        "settings": {
            "num_samples": 100,
            "sampling": "uniform",
            "sample_by": "logprob",
            "sample_relevance": 0.5,
            "seed": 0,
            "filters": paper().filters,
        },
        "measures": {},
        "inputs": {
            "questions": {"path": str(questions), "sha256": hashlib.sha256(questions.read_bytes()).hexdigest()},
            "gold": {"examples": 2, "sha256": report["inputs"]["gold"]["sha256"]},
        },
        "output": {"path": str(output), "sha256": hashlib.sha256(output.read_bytes()).hexdigest()},
    }
    assert json.loads((tmp_path / "augmented.report.json").read_text(encoding="utf-8")) == report
    assert augmented(tmp_path) == [
        *GOLD,
        QAExample("synthetic-p0-1", "People", PASSAGES[0], "In which city is Ada?", (Answer("Rome", 13),)),
        QAExample("synthetic-p1-1", "People", PASSAGES[1], "Where does Ada live?", (Answer("Oslo", 13),)),
        QAExample("synthetic-p1-2", "People", PASSAGES[1], "Wo wohnt Max, né “Mäx”?", (Answer("Oslo", 13),)),
        QAExample("synthetic-p2-0", "People", PASSAGES[2], "In which city is Eva?", (Answer("Lima", 13),)),
    ]
    printed = capsys.readouterr().out
    assert printed == funnel_table(report) + "\n"
    assert "100 were requested; all 4 kept candidates are added" in printed


def test_the_table_shows_the_funnel(tmp_path: Path) -> None:
    report = {**run(tmp_path, MIXED, num_samples=2), "candidates": 12345}
    table = [line.rsplit(maxsplit=1) for line in funnel_table(report).splitlines()]
    assert table == [
        ["candidates", "12,345"],
        ["- empty", "-1"],
        ["- too short", "-1"],
        ["- too long", "-1"],
        ["- answer in question", "-1"],
        ["- duplicate of gold", "-1"],
        ["- duplicate of candidate", "-1"],
        ["kept", "4"],
        ["sampled", "2"],
        ["gold", "2"],
        ["written", "4"],
    ]


def many(number: int) -> list[dict[str, Any]]:
    return [candidate(i % 3, i, f"Where is number {i}?") for i in range(number)]


@pytest.mark.parametrize("num_samples", [0, 1, 7, 39, 40, 41])
def test_the_sample_has_the_requested_size(tmp_path: Path, num_samples: int) -> None:
    report = run(tmp_path, many(40), num_samples=num_samples)
    ids = [e.id for e in augmented(tmp_path)]
    assert (report["kept"], report["sampled"]) == (40, min(num_samples, 40))
    assert len(ids) == len(set(ids)) == 2 + min(num_samples, 40)
    assert ids[:2] == ["g1", "g2"]
    indices = [int(key.rsplit("-", 1)[1]) for key in ids[2:]]
    assert indices == sorted(indices)  # in the order of the file


def test_seeds_differ_and_smaller_samples_nest(tmp_path: Path) -> None:
    def sample(num_samples: int, seed: int) -> set[str]:
        run(tmp_path, many(60), num_samples=num_samples, seed=seed)
        return {e.id for e in augmented(tmp_path)[2:]}

    assert sample(10, 1) == sample(10, 1) < sample(30, 1)
    assert sample(10, 1) != sample(10, 2)


def test_a_shuffled_file_gives_the_same_sample(tmp_path: Path) -> None:
    samples = []
    for lines in (many(40), many(40)[::-1], random.Random(0).sample(many(40), 40)):
        run(tmp_path, lines, num_samples=10)
        samples.append({e.id for e in augmented(tmp_path)})
    assert samples[0] == samples[1] == samples[2]


@pytest.mark.slow
def test_every_candidate_is_sampled_equally_often(tmp_path: Path) -> None:
    lines = many(8)
    counts: Counter[str] = Counter()
    for seed in range(40):
        run(tmp_path, lines, num_samples=4, seed=seed)
        counts.update(e.id for e in augmented(tmp_path)[2:])
    assert len(counts) == 8
    assert all(abs(count - 20) < 16 for count in counts.values())  # 5 standard deviations of a binomial


words = st.sampled_from(["Where", "is", "it", "Ada", "Rome", "now", "and", "then"])


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    questions=st.lists(st.tuples(st.integers(0, 2), st.lists(words, min_size=2, max_size=7)), min_size=1, max_size=25),
    num_samples=st.integers(0, 6),
    seed=st.integers(0, 10**6),
)
def test_the_order_of_lines_does_not_matter(
    tmp_path: Path, questions: list[tuple[int, list[str]]], num_samples: int, seed: int
) -> None:
    lines = [candidate(p, i, " ".join(question) + "?") for i, (p, question) in enumerate(questions)]
    lines.append(candidate(0, 99, "which one is kept?"))  # where nothing is kept, nothing is written
    mixed = random.Random(seed).sample(lines, len(lines))
    results = []
    for folder, order in ((tmp_path / "a", lines), (tmp_path / "b", mixed)):
        folder.mkdir(exist_ok=True)
        report = run(folder, order, num_samples=num_samples)
        sampled = augmented(folder)[2:]
        counts = {name: report[name] for name in ("candidates", "dropped", "kept", "sampled")}
        results.append((counts, sorted((e.context, e.question.casefold()) for e in sampled)))
        assert report["candidates"] == sum(report["dropped"].values()) + report["kept"]
        assert augmented(folder)[:2] == GOLD
        assert all(3 <= len(e.question.split()) <= 6 and e.answers[0].text not in e.question for e in sampled)
    assert results[0] == results[1]


GOOD = candidate(0, 1, "In which city is Ada?")


def lacking(name: str) -> dict[str, Any]:
    return {key: value for key, value in GOOD.items() if key != name}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "x", "candi', "malformed JSON at column"),
        ("[1, 2]", "expected a JSON object, got list"),
        (lacking("id"), "field 'id' is missing"),
        (lacking("candidate"), "field 'candidate' is missing"),
        (lacking("title"), "field 'title' is missing"),
        (lacking("context"), "field 'context' is missing"),
        (lacking("answer"), "field 'answer' is missing"),
        (lacking("answer_start"), "field 'answer_start' is missing"),
        (lacking("question"), "field 'question' is missing"),
        ({**GOOD, "question": None}, "field 'question' must be str, got NoneType"),
        ({**GOOD, "candidate": "1"}, "field 'candidate' must be int, got str"),
        ({**GOOD, "candidate": True}, "field 'candidate' must be int, got bool"),
        ({**GOOD, "answer_start": 13.0}, "field 'answer_start' must be int, got float"),
        (json.dumps({**GOOD, "question": "Where \ud800 is it?"}), "field 'question' holds half a character"),
        ({**GOOD, "language": 5}, "field 'language' must be str, got int"),
        (json.dumps({**GOOD, "language": "\ud800"}), "field 'language' holds half a character"),
        ({**GOOD, "answer": " "}, "the answer is empty .id p0."),
        ({**GOOD, "candidate": -2}, "candidate=-2 is below 0; count from 0"),
        ({**GOOD, "answer_start": 12}, "answer 'Rome' is not at answer_start=12 in the context .id p0."),
        ({**GOOD, "answer_start": -5}, "answer 'Rome' is not at answer_start=-5"),
        ({**GOOD, "answer": "Oslo"}, "answer 'Oslo' is not at answer_start=13"),
        (candidate(0, 0, "Where might Ada be?"), "candidate 0 of id p0 is there already; give each line its own"),
    ],
)
def test_a_broken_line_is_named_and_nothing_is_written(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(tmp_path, [candidate(0, 0, "What town is it?"), "", line])
    assert str(caught.value).startswith(f"{tmp_path / 'questions.jsonl'}: line 3: ")
    assert "\n" not in str(caught.value)
    assert [item.name for item in tmp_path.iterdir()] == ["questions.jsonl"]


def test_bytes_that_are_not_utf8_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b'\n{"id": "\xff"}\n')
    with pytest.raises(InputError, match=r"q.jsonl: line 2: not UTF-8"):
        augment(path, GOLD, tmp_path / "a.json", settings=paper())


def test_repeated_candidates_are_an_error_even_if_a_filter_drops_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: candidate 4 of id p0 is there already"):
        run(tmp_path, [candidate(0, 4, "Where?"), GOOD | {"candidate": 4}])
    assert run(tmp_path, [candidate(0, 4, "Where?"), GOOD | {"candidate": 5}])["candidates"] == 2


def test_inputs_are_not_overwritten(tmp_path: Path) -> None:
    questions = write_lines(tmp_path / "q.jsonl", MIXED)
    write_squad(tmp_path / "gold.json", GOLD)
    (tmp_path / "link.json").symlink_to(tmp_path / "gold.json")
    write_squad(tmp_path / "a.report.json", GOLD)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    over = r"would be written over .*; name another file"
    for output, read in (("link.json", "gold.json"), ("gold.json", "link.json"), ("a.json", "a.report.json")):
        with pytest.raises(InputError, match=over):
            check_inputs(tmp_path / output, [questions, tmp_path / read])
    with pytest.raises(InputError, match=over):
        run_command(
            "augment", [f"questions={questions}", f"gold={tmp_path}/gold.json", f"output={tmp_path}/gold.json"]
        )
    with pytest.raises(InputError, match=over):
        augment(questions, GOLD, questions, settings=paper())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_report_of_another_output_is_not_overwritten(tmp_path: Path) -> None:
    run(tmp_path, MIXED)
    report = report_path(tmp_path / "augmented.json")
    before = report.read_bytes()
    with pytest.raises(InputError, match=r"augmented\.report\.json beside it is the report of augmented\.json"):
        augment(tmp_path / "questions.jsonl", GOLD, tmp_path / "augmented.parquet", settings=paper())
    assert report.read_bytes() == before
    (tmp_path / "augmented.json").unlink()
    augment(tmp_path / "questions.jsonl", GOLD, tmp_path / "augmented.parquet", settings=paper())
    report.write_text("{}")
    with pytest.raises(InputError, match=r"does not say what augmented\.parquet was made from"):
        check_questions(tmp_path / "questions.jsonl", tmp_path / "augmented.parquet", accept_changed_data=False)


def test_gzipped_questions_are_read_like_others(tmp_path: Path) -> None:
    plain = run(tmp_path, MIXED)
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress((tmp_path / "questions.jsonl").read_bytes()))
    (tmp_path / "augmented.json").rename(tmp_path / "plain.json")
    report = augment(tmp_path / "q.jsonl.gz", GOLD, tmp_path / "augmented.json", settings=paper())
    assert (report["candidates"], report["kept"], report["dropped"]) == (10, plain["kept"], plain["dropped"])
    assert (tmp_path / "augmented.json").read_bytes() == (tmp_path / "plain.json").read_bytes()
    (tmp_path / "half.jsonl.gz").write_bytes((tmp_path / "q.jsonl.gz").read_bytes()[:-9])
    with pytest.raises(InputError, match=r"half\.jsonl\.gz: cannot be read to its end"):
        augment(tmp_path / "half.jsonl.gz", GOLD, tmp_path / "augmented.json", settings=paper())


def test_nothing_is_written_if_nothing_is_kept(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no candidate of 1 is kept \(too short 1\); loosen"):
        run(tmp_path, [candidate(0, 0, "Where?")])
    assert not (tmp_path / "augmented.json").exists() and not (tmp_path / "augmented.report.json").exists()


def test_windows_line_ends_and_blank_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    texts = [json.dumps(candidate(i, i, f"Where is é number {i}?"), ensure_ascii=False) for i in range(3)]
    path.write_bytes("\r\n \r\n".join(texts).encode())  # Windows ends, blank lines, none at the end
    report = augment(path, GOLD, tmp_path / "augmented.json", settings=paper())
    assert report["kept"] == 3
    assert [e.question for e in augmented(tmp_path)[2:]] == [f"Where is é number {i}?" for i in range(3)]


def test_invalid_files_and_settings_are_errors(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"settings": paper()}
    questions = write_lines(tmp_path / "q.jsonl", [GOOD])
    with pytest.raises(InputError, match=r"nowhere\.jsonl: no such file; give the questions.jsonl"):
        augment(tmp_path / "nowhere.jsonl", GOLD, tmp_path / "a.json", **settings)
    with pytest.raises(InputError, match=r"empty\.jsonl: holds no candidate"):
        augment(write_lines(tmp_path / "empty.jsonl", [" "]), GOLD, tmp_path / "a.json", **settings)
    with pytest.raises(InputError, match=r"give a name that ends in \.json, \.jsonl, \.parquet"):
        augment(questions, GOLD, tmp_path / "a.csv", **settings)
    earlier = QAExample("synthetic-p0-1", "", "c", "q", (Answer("c", 0),))
    with pytest.raises(InputError, match=r"gold holds a generated question \(id synthetic-p0-1\)"):
        augment(questions, [*GOLD, earlier], tmp_path / "a.json", **settings)
    assert not (tmp_path / "a.json").exists()


def test_gold_may_be_a_stream(tmp_path: Path) -> None:
    listed = run(tmp_path, MIXED)
    text = (tmp_path / "augmented.json").read_bytes()
    write_squad(tmp_path / "gold.json", GOLD)
    streamed = run(tmp_path, MIXED, gold=stream_examples(tmp_path / "gold.json", role="train"))
    sources = streamed["inputs"]["gold"].pop("sources")
    assert streamed["inputs"]["gold"].pop("report")["kept"] == 2
    assert sources == {str(tmp_path / "gold.json"): hashlib.sha256((tmp_path / "gold.json").read_bytes()).hexdigest()}
    assert streamed == listed
    assert (tmp_path / "augmented.json").read_bytes() == text


@pytest.mark.parametrize("fraction", [0.5, 1.0])
def test_a_full_disk_is_one_error_line_and_leaves_no_partial_file(tmp_path: Path, fraction: float) -> None:
    """Space for half of the augmented set; then for all of it, but not for the longer report."""
    lines = MIXED[:2] if fraction == 1.0 else MIXED
    run(tmp_path, lines)
    questions, output = tmp_path / "questions.jsonl", tmp_path / "augmented.json"
    whole = output.read_bytes()
    message = (
        r"augmented\.json: cannot be written \(File too large\); .*questions\.jsonl is unchanged: free disk space"
    )
    with room_for(int(len(whole) * fraction)), pytest.raises(InputError, match=message):
        augment(questions, GOLD, output, settings=paper())
    assert {path.name for path in tmp_path.iterdir()} == {"questions.jsonl", output.name, report_path(output).name}
    assert output.read_bytes() == whole
    assert json.loads(report_path(output).read_text()) == {"output": {"path": str(output)}}
    run(tmp_path, lines)
    assert report_path(output).exists()


def test_changed_questions_are_refused_unless_accepted(tmp_path: Path) -> None:
    questions, output = tmp_path / "questions.jsonl", tmp_path / "augmented.json"
    run(tmp_path, MIXED)
    check_questions(questions, output, accept_changed_data=False)
    write_lines(questions, MIXED[:-1])
    with pytest.raises(
        InputError, match=r"questions\.jsonl: has changed since .*augmented\.json was begun .*accept_changed_data=true"
    ):
        check_questions(questions, output, accept_changed_data=False)
    check_questions(questions, output, accept_changed_data=True)


def test_the_report_is_beside_the_output() -> None:
    assert report_path(Path("x/augmented.json")) == Path("x/augmented.report.json")
    assert report_path(Path("a.b.json")) == Path("a.b.report.json")


def test_a_file_of_somebody_else_is_not_overwritten(tmp_path: Path) -> None:
    output = tmp_path / "augmented.json"
    output.write_text("mine")
    with pytest.raises(InputError, match=r"output=.*augmented\.json: exists, and there is no augmented\.report\.json"):
        run(tmp_path, MIXED)
    assert output.read_text() == "mine"


def test_a_kill_between_the_writes_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the output is written, and after it: the same command ends with the output of a whole run."""
    whole = run(tmp_path / "whole", MIXED)
    writes = [("write_augmented", "before"), ("write_data_card", "after")]  # the report is written last
    for name, moment in writes:
        with monkeypatch.context() as patch:
            patch.setattr(f"rl_qg.augmentation.augment.{name}", killed)
            with pytest.raises(KeyboardInterrupt):
                run(tmp_path / moment, MIXED)
        assert run(tmp_path / moment, MIXED)["output"]["sha256"] == whole["output"]["sha256"]


def killed(*arguments: object) -> None:
    raise KeyboardInterrupt


def test_unanswerable_gold_questions_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_squad(tmp_path / "gold.json", GOLD)
    document = json.loads((tmp_path / "gold.json").read_text())
    document["data"][0]["paragraphs"][0]["qas"][0] |= {"is_impossible": True, "answers": []}
    (tmp_path / "gold.json").write_text(json.dumps(document))
    write_lines(tmp_path / "questions.jsonl", MIXED)
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO)
    run_command("augment", ["questions=questions.jsonl", "gold=gold.json", "output=a.json", "num_samples=9"])
    line = f"gold: train data: {len(GOLD) - 1} of {len(GOLD)} records; dropped 1 (impossible question)"
    assert line in caplog.text
    report = json.loads((tmp_path / "a.report.json").read_text())["inputs"]["gold"]["report"]
    assert report["dropped"]["impossible question"]["count"] == 1
