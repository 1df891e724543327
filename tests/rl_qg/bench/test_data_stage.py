"""`rl-qg bench data`: what is written, how it is divided, and published numbers on real files."""

import io
import json
import re
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rl_qg.bench.benchmark_data import (
    LOST,
    _write_split,
    bench_splits,
    clean_example,
    clean_text,
    divide,
    split_statistics,
    squadshifts_sizes,
    write_bench_data,
)
from rl_qg.commands.cli import run_command
from rl_qg.data.examples import Answer, QAExample, write_squad
from rl_qg.data.reading import read_examples
from rl_qg.runtime.errors import InputError
from rl_qg.settings import BenchSettings

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="the data sets (../shared/data) are not here")


def examples(*questions: int, prefix: str = "p") -> list[QAExample]:
    """Paragraphs with so many questions each."""
    return [
        QAExample(
            f"{prefix}{p}-{q}", f"{prefix}{p}", f"Paragraph {prefix}{p}. Ada ate.", f"Who {q}?", (Answer("Ada", 14),)
        )
        for p, count in enumerate(questions)
        for q in range(count)
    ]


def placed(items: list[QAExample]) -> list[QAExample]:
    return [QAExample(e.id, e.title, e.context, e.question, (Answer("Ada", e.context.index("Ada")),)) for e in items]


def squad(path: Path, *questions: int, prefix: str = "p") -> str:
    write_squad(path, placed(examples(*questions, prefix=prefix)))
    return str(path)


# --- Division


@pytest.mark.parametrize(
    ("name", "questions", "train", "validation", "test"),
    [  # QG-Bench, Table 1
        ("amazon", 9885, 3295, 1648, 4942),
        ("wiki", 7938, 2646, 1323, 3969),
        ("nyt", 10065, 3355, 1678, 5032),
        ("reddit", 9803, 3268, 1634, 4901),
    ],
)
def test_the_sizes_of_squadshifts_are_the_published_ones(
    name: str, questions: int, train: int, validation: int, test: int
) -> None:
    sizes = squadshifts_sizes(questions)
    assert sizes == {"test": test, "validation": validation}, name
    assert questions - sum(sizes.values()) == train


@settings(max_examples=40)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=30), st.integers(0, 40), st.integers(0, 40), st.integers(0, 3))
def test_parts_share_no_paragraph_and_have_their_size_if_they_can(
    counts: list[int], test: int, validation: int, seed: int
) -> None:
    items = examples(*counts)
    parts = divide(items, {"test": test, "validation": validation}, seed)
    assert Counter(e.id for part in parts.values() for e in part) == Counter(e.id for e in items)
    contexts = [{e.context for e in part} for part in parts.values()]
    assert sum(map(len, contexts)) == len(counts)
    for name, size in (("test", test), ("validation", validation)):
        short = size - len(parts[name])
        if short < 0:  # one of the smallest paragraphs, where none is small enough
            least = min(Counter(e.context for e in parts["train"] + parts[name]).values())
            assert len({e.context for e in parts[name]}) == 1 and len(parts[name]) == least > size
        assert all(count > short for count in Counter(e.context for e in parts["train"]).values()) or not short
    assert divide(items[::-1], {"test": test, "validation": validation}, seed)["test"] == parts["test"][::-1]


# --- Cleaning


def test_cleaning_keeps_the_answer_at_its_place() -> None:
    context = "  Ada [1] wrote\n\n to Max[12].[] Ada  left."
    start = context.rindex("Ada")
    example = QAExample(
        "a",
        "t",
        context,
        " Who  left [3]? ",
        (Answer("Ada  left", start), Answer("to Max[12].", context.index("to Max"))),
    )
    assert clean_example(example) == QAExample(
        "a", "t", "Ada wrote to Max. Ada left.", "Who left ?", (Answer("Ada left", 18), Answer("to Max.", 10))
    )
    assert clean_example(QAExample("a", "", "see [1]", "q", (Answer("[1]", 4),))) == LOST


@given(st.text("ab [1]\n", max_size=20), st.text("ab [1]\n", min_size=1, max_size=8), st.text("ab [1]\n", max_size=20))
def test_clean_answers_are_at_their_offsets(before: str, answer: str, after: str) -> None:
    result = clean_example(QAExample("a", "", before + answer + after, "q", (Answer(answer, len(before)),)))
    original = re.sub(r"\s+", " ", re.sub(r"\[\d*\]", "", before + answer + after)).strip()  # lmqg's own lines
    assert clean_text(before + answer + after) == original
    if not isinstance(result, str):
        assert result.context == original
        assert original.startswith(result.answers[0].text, result.answers[0].start)


# --- The command


def test_shares_of_one_file(tmp_path: Path) -> None:
    data = squad(tmp_path / "all.json", *[2] * 10)
    run_command("bench", ["data", f"data={data}", f"output_dir={tmp_path / 'out'}", "test_share=0.2"])
    record = json.loads((tmp_path / "out" / "statistics.json").read_text())
    sizes = {name: part["questions"] for name, part in record["splits"].items()}
    assert sizes == {"train": 14, "validation": 2, "test": 4} and record["wanted"] == {"test": 4, "validation": 2}
    read = {name: read_examples(tmp_path / "out" / f"{name}.json", role="train").examples for name in sizes}
    assert {name: len(part) for name, part in read.items()} == sizes
    for name, part in read.items():
        rows = read_examples(tmp_path / "out" / f"{name}.jsonl", role="train").examples
        assert rows == part
    assert "| test | 4 | 2 | 2 |" in (tmp_path / "out" / "statistics.md").read_text()
    again = bench_splits(BenchSettings(data=data, test_share=0.2))[0]
    assert again == read  # the same seed
    assert bench_splits(BenchSettings(data=data, test_share=0.2, seed=1))[0] != read


def test_a_missing_test_set_is_taken_from_training_as_large_as_validation(tmp_path: Path) -> None:
    data, validation = squad(tmp_path / "t.json", *[3] * 8), squad(tmp_path / "v.json", 3, 3, prefix="v")
    parts, record = bench_splits(BenchSettings(data=data, validation=validation))
    assert {name: len(part) for name, part in parts.items()} == {"train": 18, "validation": 6, "test": 6}
    assert not {e.context for e in parts["test"]} & {e.context for e in parts["train"]}
    assert record["wanted"] == {"test": 6}


def test_a_paragraph_of_two_given_splits_stays_in_the_later_one(tmp_path: Path) -> None:
    data, test = squad(tmp_path / "t.json", 1, 2, 3), squad(tmp_path / "test.json", 1, 2)
    parts, record = bench_splits(
        BenchSettings(data=data, test=test, validation=squad(tmp_path / "v.json", 1, prefix="v"))
    )
    assert {name: len(part) for name, part in parts.items()} == {"train": 3, "validation": 1, "test": 3}
    assert record["shared_paragraphs_dropped"] == {"train": 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "data has no value"),
        ({"data": "one.json"}, "too few paragraphs to divide: nothing is left for test"),
        (
            {"data": "all.json", "validation": "one.json", "split": "squadshifts"},
            "split=squadshifts divides data alone",
        ),
        ({"data": "all.json", "test": "all.json"}, "data: every paragraph is also in a later split"),
        ({"data": "no.json"}, "no such file"),
    ],
)
def test_what_cannot_be_divided_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    squad(tmp_path / "one.json", 4)
    squad(tmp_path / "all.json", *[1] * 20, prefix="q")
    with pytest.raises(InputError, match=message):
        write_bench_data(BenchSettings(**options), tmp_path / "out")


def test_files_of_somebody_else_and_the_input_are_not_written_over(tmp_path: Path) -> None:
    data = squad(tmp_path / "train.json", *[1] * 20)
    before = Path(data).read_bytes()
    with pytest.raises(InputError, match=r"would write over the input .*train\.json"):
        write_bench_data(BenchSettings(data=data), tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "test.json").write_text("mine")
    with pytest.raises(InputError, match=r"test\.json in it is not of this command"):
        write_bench_data(BenchSettings(data=data), tmp_path / "out")
    assert Path(data).read_bytes() == before and (tmp_path / "out" / "test.json").read_text() == "mine"
    write_bench_data(BenchSettings(data=data), tmp_path / "new")
    first = (tmp_path / "new" / "test.json").read_bytes()
    for changed, named in (({"test_share": 0.0}, "test_share"), ({"seed": 1}, "seed")):
        with pytest.raises(InputError, match=rf"holds splits of other settings \({named}\); name another folder"):
            write_bench_data(BenchSettings(data=data, **changed), tmp_path / "new")
    write_bench_data(BenchSettings(data=data), tmp_path / "new")  # its own files are written anew
    assert (tmp_path / "new" / "test.json").read_bytes() == first
    squad(tmp_path / "train.json", *[1] * 21, prefix="changed")
    with pytest.raises(InputError, match=r"train\.json: has changed since the splits in .*new were made"):
        write_bench_data(BenchSettings(data=data), tmp_path / "new")
    assert (tmp_path / "new" / "test.json").read_bytes() == first
    (tmp_path / "new" / "statistics.json").write_text('{"bench_data": false}')  # of a call that was killed
    write_bench_data(BenchSettings(data=data, test_share=0.0), tmp_path / "new")
    assert not (tmp_path / "new" / "test.json").exists() and (tmp_path / "new" / "validation.json").exists()


def test_bench_needs_a_subcommand_and_a_folder() -> None:
    with pytest.raises(InputError, match=r"bench dta: no such subcommand; did you mean 'data'\?"):
        run_command("bench", ["dta"])
    with pytest.raises(InputError, match="bench: no such subcommand; choose one of data, transfer"):
        run_command("bench", [])
    with pytest.raises(InputError, match="output_dir has no value"):
        run_command("bench", ["data", "data=x.json"])


# --- Real files


@needs_shared
@pytest.mark.parametrize(
    ("file", "questions", "means", "wrong"),
    [
        # Means of QG-Bench's published statistics (question, paragraph, answer), to all digits
        ("squad/du_test-v1.1.json.gz", 11877, (60.649406415761554, 699.3066430916898, 17.27742695966995), 0.63),
        ("squad/dev_part1-v1.1.json.gz", 4961, (), 3.5),
        ("xquad/xquad.zh.json", 1190, (), 4.9),
        ("jaquad/jaquad_dev_0003.json.gz", 826, (), 10.4),
    ],
)
def test_means_and_first_occurrence_errors_of_real_data(
    file: str, questions: int, means: tuple[float, ...], wrong: float
) -> None:
    """The share of rows that the first occurrence of the answer's text would mark wrongly, as measured on QG-Bench's
    code; here every answer is at its offset.
    """
    parts, _ = bench_splits(BenchSettings(test=str(SHARED / file)))
    for example in parts["test"]:
        assert example.context.startswith(example.answers[0].text, example.answers[0].start)
    statistics = split_statistics(parts["test"])
    assert statistics["questions"] == questions
    found = tuple(statistics["mean_characters"][name] for name in ("question", "paragraph", "answer"))
    assert not means or found == means
    assert 100 * statistics["first_occurrence_wrong"] / questions == pytest.approx(wrong, abs=0.051)


@needs_shared
@pytest.mark.parametrize(("domain", "sizes"), [("restaurants", (823, 129, 136)), ("tripadvisor", (875, 143, 397))])
def test_subjqa_has_as_many_questions_as_published(domain: str, sizes: tuple[int, ...]) -> None:
    """QG-Bench, Table 1. No passage or answer has the word that marks questions without an answer."""
    folder = SHARED / "subjqa" / domain
    for name, size in zip(("train", "dev", "test"), sizes, strict=True):
        data = read_examples(folder / f"{name}.csv.gz", role="test")
        assert len(data.examples) == size and set(data.report["dropped"]) <= {"impossible question"}
        assert not any("ANSWERNOTFOUND" in example.context for example in data.examples)


@needs_shared
@pytest.mark.parametrize(
    ("file", "questions", "repaired"),
    [  # questions as each SOURCE.md counts them; PIAF has two offsets that are one character off
        ("squadshifts/new_wiki_v1.0.json.gz", 7938, 0),
        ("squadshifts/reddit_v1.0.json.gz", 9803, 0),
        ("piaf/piaf-v1.0.json.gz", 3835, 2),
        ("xquad/xquad.ar.json.gz", 1190, 0),
        ("xquad/xquad.de.json", 1190, 0),
        ("xquad/xquad.es.json", 1190, 0),
        ("xquad/xquad.ru.json.gz", 1190, 0),
    ],
)
def test_real_files_are_read_whole(file: str, questions: int, repaired: int) -> None:
    data = read_examples(SHARED / file, role="test")
    assert (len(data.examples), data.report["dropped"], data.report["repaired"]["count"]) == (questions, {}, repaired)


@needs_shared
def test_jaquad_in_several_files() -> None:
    files = sorted((SHARED / "jaquad").glob("jaquad_train_*.json.gz"))
    assert len(read_examples(files, role="train").examples) == 3056


def test_the_bar_of_a_split_is_taken_off_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, clock = io.StringIO(), count(step=3)  # seconds
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("tqdm.std.time", lambda: next(clock))
    _write_split(tmp_path, "train", placed(examples(2, 3)))
    assert "train: " in stream.getvalue() and stream.getvalue().endswith("\r") and "\n" not in stream.getvalue()
