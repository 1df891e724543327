"""`rl-qg evaluate pairs=true`: forms of files, means over passages, intervals, tests between files, and messages."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rewards
from rewards.overlap.published_lmqg import PUBLISHED
from rewards.sets import PUBLISHED_OPTIONS, QAAligned
from rl_qg.commands.cli import run_command
from rl_qg.data.question_tables import QuestionTable
from rl_qg.evaluation.pairs import (
    DISTINCT,
    EXACT,
    MORE,
    NO_TEXT,
    REPEATED,
    HumanPairs,
    evaluate_pairs,
    pair_sets,
    read_pair_file,
)
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.metrics import published_options
from rl_qg.settings import EvaluateSettings
from tests.lmqg_outputs import DATA, published_outputs
from tests.toy_metrics import WordCount, write_lines

ADA, MILL = "Ada wrote notes in 1843.", "Ida built the mill in 1204 ."
PAIRS = {
    ADA: [("Who wrote notes?", "Ada"), ("When did Ada write?", "1843")],
    MILL: [("Who built the mill?", "Ida")],
}


@pytest.fixture
def gold(tmp_path: Path) -> str:
    """Human pairs about three passages, of which a file knows two; the second question has two answers."""
    rows = [
        *(row(ADA, "Who wrote notes?", "Ada"), row(ADA, "When were they written?", "in 1843", "1843")),
        *(row(MILL, "Who built it?", "Ida"), row("Nobody asks.", "Who asks?", "Nobody")),
    ]
    return str(write_lines(tmp_path / "gold.jsonl", rows))


def row(context: str, question: str, *answers: str) -> dict[str, Any]:
    spans = {"text": list(answers), "answer_start": [context.find(answer) for answer in answers]}
    return {"id": question, "context": context, "question": question, "answers": spans}


def flat(pairs: dict[str, list[tuple[str, str]]]) -> list[dict[str, Any]]:
    return [{"context": c, "question": q, "answer": a} for c, group in pairs.items() for q, a in group]


def run(tmp_path: Path, gold: str, files: dict[str, Any], **options: Any) -> dict[str, Any]:
    settings = EvaluateSettings(predictions=files, references=gold, pairs=True, **{"resamples": 50, **options})
    evaluate_pairs({"rouge": rewards.load("rouge_l"), "words": WordCount()}, settings, tmp_path / "out")
    record: dict[str, Any] = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    return record


def values(record: dict[str, Any], name: str) -> dict[tuple[str, str], float]:
    return {(row["metric"], row["part"]): row["value"] for row in record["scores"] if row["predictions"] == name}


def test_means_over_passages_are_those_of_the_metric(tmp_path: Path, gold: str) -> None:
    record = run(tmp_path, gold, {"mine": str(write_lines(tmp_path / "p.jsonl", flat(PAIRS)))})
    human = [
        [("Who wrote notes?", "Ada"), ("When were they written?", "in 1843")],
        [("Who built it?", "Ida")],
        [("Who asks?", "Nobody")],
    ]
    want = QAAligned(rewards.load("rouge_l")).score([PAIRS[ADA], PAIRS[MILL], []], human)
    got = values(record, "mine")
    for part, value in want.mean().items():
        assert got["rouge", part] == pytest.approx(value), part
    # Ada: both answers are among the human ones; Ida too; the third passage has no pairs.
    assert got[EXACT, "precision"] == pytest.approx(2 / 3) == got[EXACT, "recall"]
    assert got[DISTINCT, "share"] == 1 and got[REPEATED, "number"] == 0
    assert got[MORE, "number"] == pytest.approx((0 + 0 - 1) / 3)
    assert record["signatures"]["rouge"] == want.signature
    assert record["left_out"] == {
        "words": "it is no rewards.Metric, which names what it needs and the bounds of its scores"
    }
    text = (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")
    assert "mine: 3 pairs on 2 of 3 passages (people: 4)" in text and "words left out: it is no rewards.Metric" in text
    assert "1 of these passages are in no file: they count as 0." in text and "one-to-one F1" in text
    assert (tmp_path / "out" / "tables" / "scores.csv").exists()


def test_passages_that_nobody_asks_about_may_be_left_out(tmp_path: Path, gold: str) -> None:
    files = {"mine": str(write_lines(tmp_path / "p.jsonl", flat(PAIRS)))}
    asked = values(run(tmp_path, gold, files, passages="asked"), "mine")
    every = values(run(tmp_path, gold, files), "mine")
    assert asked[EXACT, "precision"] == 1 and every["rouge", "f1"] == pytest.approx(asked["rouge", "f1"] * 2 / 3)


def test_all_forms_of_files_give_the_same_pairs(tmp_path: Path) -> None:
    joined = {ADA: "question: Who wrote notes?, answer: Ada | question: When did Ada write?, answer: 1843", MILL: ""}
    pairs = {**PAIRS, MILL: []}
    lists = [
        {"context": c, "pairs": [{"question": q, "answer": a, "score": 0.5} for q, a in group]}
        for c, group in pairs.items()
    ]
    (tmp_path / "p.txt").write_text("\n".join(joined.values()) + "\n")
    (tmp_path / "c.txt").write_text("\n".join(joined) + "\n")
    sources: list[Any] = [
        write_lines(tmp_path / "lists.jsonl", lists),
        write_lines(tmp_path / "lmqg.jsonl", [{"paragraph": c, "questions_answers": t} for c, t in joined.items()]),
        {"questions_answers": str(tmp_path / "p.txt"), "context": str(tmp_path / "c.txt")},
    ]
    reads = [read_pair_file(QuestionTable(source)) for source in sources]
    assert [list(read.pairs.values()) for read in reads] == [[*pairs.values()]] * 3
    one_a_row = read_pair_file(QuestionTable(write_lines(tmp_path / "flat.jsonl", flat(PAIRS))))
    assert list(one_a_row.pairs.values()) == [*PAIRS.values()]


def test_what_is_no_pair_is_counted(tmp_path: Path, gold: str) -> None:
    rows = [
        {"context": ADA, "question": "Who?", "answer": " "},
        {"context": ADA, "questions_answers": "question: Who?, answer: Ada | Ada | question: Who?, answer: Ada"},
        {"context": "Another passage.", "question": "Who?", "answer": "Another"},
    ]
    record = run(tmp_path, gold, {"mine": str(write_lines(tmp_path / "p.jsonl", rows))})
    count = record["counts"]["mine"]
    assert count["dropped"] == {NO_TEXT: 1, "malformed question-answer pair": 1}
    assert (count["pairs"], count["repeated"], count["passages_without_human_pairs"]) == (2, 1, 1)
    assert values(record, "mine")[REPEATED, "number"] == pytest.approx(1 / 3)
    assert values(record, "mine")[DISTINCT, "share"] == 0.5  # of the one passage with questions


def test_human_pairs_keep_repetitions_and_count_what_has_no_answer(tmp_path: Path) -> None:
    rows = [row(ADA, "Who?", "Ada"), row(ADA, "Who?", "Ada"), row(ADA, "Why?")]
    human = HumanPairs(str(write_lines(tmp_path / "gold.jsonl", rows)))
    assert [[one.pair for one in group] for group in human.pairs.values()] == [[("Who?", "Ada")] * 2]
    assert human.dropped == {NO_TEXT: 1}


def test_two_files_are_compared_on_the_same_passages(tmp_path: Path) -> None:
    names = [f"n{at}" for at in range(30)]
    contexts = [f"{name} is here, and x{name} was there." for name in names]
    gold = [row(c, f"Who is here, {n}?", n) for c, n in zip(contexts, names, strict=True)]
    good = [
        {"context": one["context"], "question": one["question"], "answer": one["answers"]["text"][0]} for one in gold
    ]
    bad = [{**one, "question": "What?", "answer": "there"} for one in good]
    files = {name: str(write_lines(tmp_path / f"{name}.jsonl", rows)) for name, rows in (("a", bad), ("b", good))}
    record = run(tmp_path, str(write_lines(tmp_path / "gold.jsonl", gold)), files, resamples=1000)
    tests = {(one["metric"], one["part"]): one for one in record["tests"]}
    assert tests["rouge", "f1"]["better"] == "b" == tests[EXACT, "precision"]["better"]
    one, other = values(record, "a"), values(record, "b")
    assert tests["rouge", "recall"]["value"] == pytest.approx(one["rouge", "recall"] - other["rouge", "recall"])
    assert tests[REPEATED, "number"]["p"] == 1 and tests[REPEATED, "number"]["better"] is None
    assert (MORE, "number") not in tests
    scores = {(row["predictions"], row["metric"], row["part"]): row for row in record["scores"]}
    assert scores["b", "rouge", "f1"]["low"] == pytest.approx(0.025 ** (1 / 30), rel=1e-5)  # perfect in 30 of 30


def test_files_are_compared_where_both_have_pairs(tmp_path: Path, gold: str) -> None:
    """Shares of differing questions: a has 1/2, 1/4 and 1; b has 1, none and 1; c has pairs where b has none."""
    one, two = ("Who?", "Ada"), ("When?", "1843")
    elsewhere = "Nobody asks."
    pairs = {
        "a": {ADA: [one, one], MILL: [one] * 4, elsewhere: [one]},
        "b": {ADA: [one, two], elsewhere: [two]},
        "c": {MILL: [one]},
    }
    files = {name: str(write_lines(tmp_path / f"{name}.jsonl", flat(of))) for name, of in pairs.items()}
    tests = run(tmp_path, gold, files)["tests"]
    found = {(row["predictions"], row["against"]): row for row in tests if row["metric"] == DISTINCT}
    assert found["a", "b"]["value"] == pytest.approx((-1 / 2 + 0) / 2) and found["a", "b"]["n"] == 2
    assert found["a", "c"]["value"] == pytest.approx(1 / 4 - 1) and found["a", "c"]["n"] == 1
    assert found["a", "c"]["low"] is None and found["a", "c"]["p"] is None  # one passage alone
    assert found["b", "c"]["value"] is None and found["b", "c"]["why"] == "no passage with both"


def test_a_killed_command_goes_on(tmp_path: Path, gold: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"mine": str(write_lines(tmp_path / "p.jsonl", flat(PAIRS)))}
    monkeypatch.setattr("rl_qg.evaluation.sets.PASSAGES_AT_ONCE", 1)
    whole = run(tmp_path, gold, files)
    kept = tmp_path / "out" / "pairs" / "mine" / "rouge.jsonl"
    lines = kept.read_bytes().splitlines(keepends=True)
    assert len(lines) == 4  # a note, and a line for each passage
    kept.write_bytes(b"".join(lines[:2]) + lines[2][:5])
    assert run(tmp_path, gold, files) == whole and kept.read_bytes() == b"".join(lines)


def test_options_as_published() -> None:
    of_pairs = {name: PUBLISHED[name] for name in PUBLISHED_OPTIONS}
    entries: list[Any] = ["bertscore", "rouge_l", {"metric": "BERTScore", "part": "f", "label": "f"}]
    bertscore = {"metric": "bertscore", "part": "precision", "label": "bertscore"}
    of_user = {"metric": "bertscore", "part": "f", "label": "f"}
    assert published_options(entries, of_pairs) == [bertscore, "rouge_l", of_user]
    rouge = {"metric": "lmqg_rouge_l", "label": "rouge_l"}
    assert published_options(entries, PUBLISHED) == [bertscore, rouge, of_user]
    mover = {"metric": "moverscore", "variant": "v2", "label": "moverscore"}
    assert published_options("moverscore", of_pairs) == [mover]
    assert published_options("", of_pairs) == ""


def test_the_command_on_published_outputs(tmp_path: Path) -> None:
    outputs = published_outputs()[:40]
    human = [row(output.context or "", q, a) for output in outputs for q, a in output.human or []]
    (tmp_path / "pairs.txt").write_text("".join(f"{output.text}\n" for output in outputs))
    (tmp_path / "passages.txt").write_text("".join(f"{output.context}\n" for output in outputs))
    gold = write_lines(tmp_path / "gold.jsonl", human)
    source = f"{{questions_answers: {tmp_path / 'pairs.txt'}, context: {tmp_path / 'passages.txt'}}}"
    options = ["pairs=true", f"references={gold}", "metrics=[rouge_l]", "resamples=40", f"output={tmp_path / 'out'}"]
    run_command("evaluate", [f"predictions={source}", *options])
    record = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    assert record["counts"]["pairs"]["pairs"] == sum(len(output.pairs) for output in outputs)
    expected = [len({q for q, _ in output.pairs}) / len(output.pairs) for output in outputs if output.pairs]
    assert values(record, "pairs")[DISTINCT, "share"] == pytest.approx(np.mean(expected), abs=0.02)
    assert DATA.is_dir()


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"question": "Who?", "answer": "Ada"}],
            "line 1: field 'context' is missing or no text; the row has 'question'",
        ),
        ([{"context": ADA, "answer": "Ada"}], "line 1: no 'question', 'pairs' or 'questions_answers'; the row has"),
        ([{"context": ADA, "pairs": [{"question": "Who?"}]}], "line 1: field 'pairs' must be a list of objects"),
        ([{"context": ADA, "pairs": []}], "mine: no passage has a pair; check what wrote them"),
        ([], "p.jsonl: holds no row; check the file"),
        (
            [{"context": "Elsewhere.", "question": "Who?", "answer": "I"}],
            "mine: none of its 1 passages has human pairs in .*gold.jsonl; give the file that its passages are from",
        ),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, gold: str, rows: list[dict[str, Any]], message: str) -> None:
    path = str(write_lines(tmp_path / "p.jsonl", rows))
    with pytest.raises(InputError, match=message):
        pair_sets({"mine": read_pair_file(QuestionTable(path))}, HumanPairs(gold))


def test_references_are_needed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="references='': pairs are compared with human ones; give a file"):
        HumanPairs("")
    empty = write_lines(tmp_path / "gold.jsonl", [row(ADA, "Why?")])
    with pytest.raises(InputError, match="holds no question with an answer; check the file"):
        HumanPairs(str(empty))
    with pytest.raises(InputError, match="pairs=true and sets=true are two commands; choose one"):
        run_command("evaluate", ["predictions=p.jsonl", "pairs=true", "sets=true", "output=o", "metrics=[rouge_l]"])


def test_intervals_stay_within_the_bounds_of_their_measure(tmp_path: Path, gold: str) -> None:
    """Of measures at a bound in every passage too: three passages do not prove that all others are alike."""
    pairs = {
        ADA: [("Who wrote notes?", "Ada"), ("When were they written?", "in 1843")],
        MILL: [("Who built it?", "Ida")],
        "Nobody asks.": [("Who asks?", "Nobody")],
    }
    record = run(tmp_path, gold, {"mine": str(write_lines(tmp_path / "mine.jsonl", flat(pairs)))})
    rows = {(one["metric"], one["part"]): one for one in record["scores"]}
    least = 0.025 ** (1 / 3)  # Clopper and Pearson, 3 of 3
    for key, best in {(EXACT, "recall"): 1, ("rouge", "precision"): 1, ("rouge", "f1"): 2 / (2 + 1e-6)}.items():
        assert rows[key]["value"] == pytest.approx(best, abs=1e-12) == rows[key]["high"]
        assert rows[key]["low"] == pytest.approx(least * best)


def test_a_passage_without_pairs_counts_as_0_whatever_the_bounds_of_the_metric(tmp_path: Path) -> None:
    contexts = [f"Text {k}." for k in range(20)]
    gold = [row(context, "Who?", "Text") for context in contexts]
    few = flat({context: [("Who?", "Text")] for context in contexts[:3]})
    files = {"few": str(write_lines(tmp_path / "few.jsonl", few))}
    settings = EvaluateSettings(
        predictions=files, references=str(write_lines(tmp_path / "gold.jsonl", gold)), pairs=True, resamples=200
    )
    metric = rewards.load("rouge_l")
    metric.bounds = (1 / 3, 1.0)  # as of MoverScore
    evaluate_pairs({"rouge": metric}, settings, tmp_path / "out")
    record = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    for one in record["scores"]:
        assert one["low"] <= one["value"] <= one["high"]
    shares = next(one for one in record["scores"] if one["metric"] == DISTINCT)
    assert shares["n"] == 3 and shares["low"] == pytest.approx(0.025 ** (1 / 3))  # 3 passages have questions
