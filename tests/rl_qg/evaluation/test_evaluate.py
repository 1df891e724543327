"""`rl-qg evaluate`: means and corpus scores, their slices and tests, against sums written out and sacrebleu."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu

import rewards
from rl_qg.commands.cli import run_command
from rl_qg.evaluation.evaluate import evaluate
from rl_qg.evaluation.predictions import CORPUS, MEAN, Predictions, example_rows, passage_groups
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import MetricRow
from rl_qg.settings import EvaluateSettings
from rl_qg.stats.intervals import PassageDraws, interval_ends
from tests.toy_metrics import SharedWords, WordCount, write_lines


def questions(passages: int = 10, extra: int = 0, seed: int = 0) -> list[dict[str, Any]]:
    rng, more = np.random.default_rng(seed), np.random.default_rng(seed + 1)
    words = "who when what is was the a man town river built long".split()
    rows = []
    for number in range(2 * passages):
        gold = " ".join(rng.choice(words, 6)) + "?"
        text = " ".join([*gold[:-1].split()[: int(rng.integers(1, 6))], *more.choice(words, extra + 1)]) + "?"
        rows.append({"question": text, "context": f"c{number // 2}", "answer": "a", "references": [gold]})
    return rows


def run(tmp_path: Path, files: dict[str, list[dict[str, Any]]], metrics: Any = None, **options: Any) -> dict[str, Any]:
    tmp_path.mkdir(exist_ok=True)
    paths = {name: str(write_lines(tmp_path / f"{name}.jsonl", rows)) for name, rows in files.items()}
    settings = EvaluateSettings(predictions=paths, **{"resamples": 80, **options})
    metrics = {"words": WordCount(), "shared": SharedWords()} if metrics is None else metrics
    return evaluate(metrics, settings, tmp_path / "out")


def pick(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def test_mean_and_corpus_score_with_intervals_over_passages(tmp_path: Path) -> None:
    rows = questions()
    record = run(tmp_path, {"one": rows})
    counts = SharedWords().statistics([row["question"] for row in rows], [row["references"] for row in rows])
    weights = np.concatenate(list(PassageDraws([row["context"] for row in rows], resamples=80).blocks()))
    times = np.repeat(weights, 2, axis=1)  # two questions a passage
    slow = {
        MEAN: (times * (counts[:, 0] / counts[:, 1])).sum(axis=1) / times.sum(axis=1),
        CORPUS: (times * counts[:, 0]).sum(axis=1) / (times * counts[:, 1]).sum(axis=1),
    }
    for form, values in slow.items():
        cells = pick(record["scores"], by="all", metric="shared", form=form)
        assert cells["value"] == pytest.approx(values[0])
        assert (cells["low"], cells["high"]) == pytest.approx(interval_ends(values, weights.shape[1]))
    assert slow[MEAN][0] != pytest.approx(slow[CORPUS][0], abs=1e-3)
    assert [row["form"] for row in record["scores"] if row["by"] == "all" and row["metric"] == "words"] == [MEAN]


def test_scores_come_from_the_counts_where_a_metric_can_take_them(tmp_path: Path) -> None:
    class Counted(SharedWords):
        def score(self, questions, contexts, **columns) -> Any:
            raise AssertionError("the counts are there")

        def sentence(self, counts: np.ndarray) -> np.ndarray:
            return counts[:, 0] / counts[:, 1]

    rows = questions()
    cells, expected = (
        run(tmp_path / name, {"one": rows}, {"shared": metric()})
        for name, metric in (("a", Counted), ("b", SharedWords))
    )
    assert cells["scores"] == expected["scores"]
    kept = [(tmp_path / name / "out" / "scores" / "one" / "shared.jsonl").read_text() for name in "ab"]
    assert kept[0] == kept[1]


def test_types_and_lengths_divide_the_questions(tmp_path: Path) -> None:
    rows = questions(20)
    record = run(tmp_path, {"one": rows}, lengths=[4, 6])
    for by in ("type", "length"):
        rows_of_kind = [row for row in record["scores"] if row["by"] == by and row["metric"] == "words"]
        assert sum(row["n"] for row in rows_of_kind) == 40
        total = sum(row["n"] * row["value"] for row in rows_of_kind)
        assert total / 40 == pytest.approx(np.mean([len(row["question"].split()) for row in rows]))
    short = [len(row["question"].split()) for row in rows if len(row["question"].split()) < 4]
    assert pick(record["scores"], kind="0-3 words", metric="words")["value"] == pytest.approx(np.mean(short))
    assert {row["kind"] for row in record["scores"] if row["by"] == "length"} == {
        *("0-3 words", "4-5 words", "6 words or more"),
    }


def test_a_language_without_question_words_has_no_types(tmp_path: Path) -> None:
    record = run(tmp_path, {"one": questions()}, language="other")
    assert {row["by"] for row in record["scores"]} == {"all", "length"}
    assert "By type" not in (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")
    assert {row["by"] for row in run(tmp_path, {"one": questions()}, language="EN")["scores"]} == {
        "all",
        "type",
        "length",
    }


def test_a_draw_without_a_question_of_a_kind_does_not_count_as_0(tmp_path: Path) -> None:
    """Two passages of forty have long questions: draws without both say nothing about long questions."""
    rows = [
        {"question": text, "context": f"c{number}", "references": [text]}
        for number, text in enumerate(["Where is the old town of the man who built it?"] * 2 + ["Who was he?"] * 38)
    ]
    record = run(tmp_path, {"one": rows}, {"bleu1": rewards.load("bleu1")}, lengths=[8])
    for form in (MEAN, CORPUS):
        cells = pick(record["scores"], kind="8 words or more", form=form)
        assert (cells["value"], cells["n"]) == (1.0, 2) and cells["low"] > 0.1


def test_bleu_of_the_corpus_is_that_of_sacrebleu(tmp_path: Path) -> None:
    rows = questions(15)
    record = run(tmp_path, {"one": rows}, {"bleu4": rewards.load("bleu4")})
    cells = pick(record["scores"], by="all", metric="bleu4", form=CORPUS)
    expected = sacrebleu.corpus_bleu([row["question"] for row in rows], [[row["references"][0] for row in rows]])
    assert cells["value"] == pytest.approx(expected.score / 100)
    assert record["signatures"]["bleu4"].startswith("bleu|order:4")


def test_files_about_the_same_questions_are_compared_question_by_question(tmp_path: Path) -> None:
    near, far = questions(30), questions(30, extra=4)
    again = [dict(row) for row in near]
    record = run(tmp_path, {"near": near, "far": far, "again": again}, resamples=300)
    row = pick(record["tests"], metric="words", predictions="near", against="far")
    gaps = [len(a["question"].split()) - len(b["question"].split()) for a, b in zip(near, far, strict=True)]
    assert row["value"] == pytest.approx(np.mean(gaps)) and row["better"] == "far"
    same = pick(record["tests"], metric="shared", form=CORPUS, predictions="near", against="again")
    assert (same["value"], same["p"], same["better"]) == (0, 1, None)
    assert {row["family"] for row in record["tests"]} == {9}  # three pairs; words once, shared in two forms
    assert all(row["p_holm"] >= row["p"] for row in record["tests"])


def test_two_files_about_few_passages_differ_by_no_more_than_their_scores_can(tmp_path: Path) -> None:
    far = [{**row, "question": "nothing?"} for row in questions(2)]
    near = [{**row, "question": row["references"][0]} for row in far[:2]] + far[2:]  # right about one of two passages
    (row,) = run(tmp_path, {"near": near, "far": far}, {"rouge_l": rewards.load("rouge_l")})["tests"]
    assert (row["value"], row["low"], row["high"]) == (pytest.approx(0.5), -1, 1)


def test_the_better_file_of_a_metric_that_should_be_low(tmp_path: Path) -> None:
    class Errors(WordCount):
        higher_is_better = False

    record = run(tmp_path, {"near": questions(30), "far": questions(30, extra=4)}, {"errors": Errors()})
    assert record["tests"][0]["better"] == "near" and record["lower_is_better"] == ["errors"]


def test_files_about_different_passages_are_not_paired(tmp_path: Path) -> None:
    rows = questions()
    record = run(tmp_path, {"one": rows, "two": [*rows[:-1], {**rows[-1], "answer": "b"}]})
    assert record["tests"] == [] and "line 20" in record["not_paired"]
    record = run(tmp_path, {"one": rows, "two": rows[:-1]})
    assert record["not_paired"] == "one has 20 questions and two 19"
    assert "Not compared question by question" in (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")


def test_questions_without_a_score_are_counted(tmp_path: Path) -> None:
    class Sparse(WordCount):
        def score(self, questions, contexts, **columns) -> Any:
            cells = super().score(questions, contexts, **columns)
            cells.scores[0] = None
            return cells

    record = run(tmp_path, {"one": questions()}, {"sparse": Sparse()})
    cells = pick(record["scores"], by="all")
    assert (cells["n"], cells["without_score"]) == (19, 1)
    assert "Questions without a score: sparse (one) 1" in (tmp_path / "out" / "evaluate.html").read_text()


def test_one_passage_and_few(tmp_path: Path) -> None:
    near = [{**row, "context": "p"} for row in questions(5)]
    record = run(tmp_path, {"near": near, "far": [{**row, "question": row["question"] + " so"} for row in near]})
    assert all(row["low"] is None and "one passage" in row["why"] for row in record["scores"])
    assert [(row["p"], row.get("better")) for row in record["tests"]] == [(None, None)] * len(record["tests"])
    assert "One passage alone" in (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")
    near = questions(2)
    record = run(tmp_path, {"near": near, "far": [{**row, "question": row["question"] + " so"} for row in near]})
    for row in record["tests"]:
        assert (row["p"] < 0.05) == (row["low"] > 0 or row["high"] < 0) or row["low"] == row["high"]
        assert row["p"] == 0.5 or row["low"] < row["high"]  # values that are all the same: the test of two signs
    assert any(row["p"] == 0.5 for row in record["tests"])
    assert "Only 2 passages" in (tmp_path / "out" / "evaluate.txt").read_text(encoding="utf-8")


def test_text_files_by_column_are_one_input(tmp_path: Path) -> None:
    rows = questions(3)
    for name, column in (("q", [row["question"] for row in rows]), ("r", [row["references"][0] for row in rows])):
        (tmp_path / f"{name}.txt").write_text("\n".join(column) + "\n")
    predictions = {"question": str(tmp_path / "q.txt"), "references": str(tmp_path / "r.txt")}
    settings = EvaluateSettings(predictions=predictions, resamples=20)
    record = evaluate({"shared": SharedWords()}, settings, tmp_path / "out")
    assert record["counts"] == {"q": {"questions": 6, "passages": 6}}
    expected = run(tmp_path, {"one": rows})
    assert pick(record["scores"], by="all", form=MEAN)["value"] == pytest.approx(
        pick(expected["scores"], by="all", form=MEAN, metric="shared")["value"]
    )


def test_bad_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.jsonl: line 1: field 'question' is missing or no text; the row has"):
        run(tmp_path, {"a": [{"context": "c"}]})
    with pytest.raises(InputError, match=r"a\.jsonl: line 2: 'references' is missing or no list .* references=train"):
        run(tmp_path, {"a": [*questions(1)[:1], {"question": "q"}]})
    with pytest.raises(InputError, match="holds no question"):
        run(tmp_path, {"a": []})
    for predictions in ("", [], [3], {}):
        with pytest.raises(InputError, match="predictions has no value"):
            evaluate({}, EvaluateSettings(predictions=predictions), tmp_path)
    with pytest.raises(InputError, match="x is named twice"):
        evaluate({}, EvaluateSettings(predictions=["a", "x", "x"]), tmp_path)


def test_scores_of_files_with_similar_names_are_kept_apart(tmp_path: Path) -> None:
    paths = {
        name: str(write_lines(tmp_path / f"{seed}.jsonl", questions(3, seed=seed)))
        for seed, name in enumerate(("a/b", "a_b"))
    }
    for _ in range(2):
        words = WordCount()
        evaluate({"words": words}, EvaluateSettings(predictions=paths, resamples=20), tmp_path / "out")
    assert words.seen == 0  # the second time every score is there


def test_without_passages_rows_with_equal_references_are_drawn_together() -> None:
    from rl_qg.scoring.kept_scores import MetricRow

    rows = [MetricRow("w", "q", None, None, ("r",)), MetricRow("w", "p", None, None, ("r",)), MetricRow("w", "q")]
    first, second, third = passage_groups([*rows])
    assert first == second != third


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    for name in ("ce", "scst"):
        rows = [{("paragraph" if key == "context" else key): row[key] for key in row} for row in questions(3)]
        write_lines(tmp_path / f"{name}.jsonl", rows)
    files = f"predictions=[{tmp_path}/ce.jsonl,{tmp_path}/scst.jsonl]"
    arguments = [files, "metrics=[tests.toy_metrics.SharedWords]", f"output={tmp_path}/out", "resamples=40"]
    run_command("evaluate", [*arguments, "training.use_cpu=true"])
    record = json.loads((tmp_path / "out" / "evaluate.json").read_text())
    assert list(record["counts"]) == ["ce", "scst"] and record["counts"]["ce"]["passages"] == 3
    assert (tmp_path / "out" / "tables" / "tests.csv").exists()
    assert sorted(path.name for path in (tmp_path / "out" / "scores").iterdir()) == ["ce", "scst"]
    name = "tests.toy_metrics.SharedWords"
    for metrics in (f"metrics={name}", f"metrics={{_target_: {name}, label: mine}}"):
        run_command("evaluate", [files, metrics, f"output={tmp_path}/other", "resamples=40", "training.use_cpu=true"])
    with pytest.raises(InputError, match="references=True: give a file"):
        run_command("evaluate", [*arguments, "references=true"])
    with pytest.raises(InputError, match=r"evaluate\.lengths=\[3, 2\] must rise"):
        run_command("evaluate", [*arguments, "lengths=[3,2]"])


def test_systems_side_by_side(tmp_path: Path) -> None:
    """The page has passage, answer, human question, and what every file asks, with its scores."""
    files = {"a": questions(extra=1), "b": questions(extra=2, seed=3)}
    for first, second in zip(*files.values(), strict=True):
        second["references"] = first["references"]
    files["b"][16] |= {"question": ""}
    record = run(tmp_path, files, {"words": WordCount()}, examples=[3, 17])
    shown = record["examples"]
    about = {"number": 3, "context": "c1", "answer": "a"}
    asked = {name: {"asked by": name, "question": rows[2]["question"]} for name, rows in files.items()}
    words = {name: {"words": float(len(rows[2]["question"].split()))} for name, rows in files.items()}
    human = {"asked by": "human", "question": files["a"][2]["references"][0]}
    assert shown[:3] == [about | human, *(about | asked[name] | words[name] for name in files)]
    assert [row["number"] for row in shown] == [3] * 3 + [17] * 3
    text = (tmp_path / "out" / "evaluate.txt").read_text()
    assert "## Side by side: question 17\n\nc8 Answer: a.\n\n| asked by |" in text
    assert (tmp_path / "out" / "tables" / "examples.csv").read_text().startswith("number,context,answer,asked by,")
    spread = run(tmp_path / "spread", files, {"words": WordCount()}, examples=3)["examples"]
    assert list(dict.fromkeys(row["number"] for row in spread)) == [1, 7, 14]


@pytest.mark.parametrize(("total", "count", "numbers"), [(9, 5, [1, 2, 4, 6, 8]), (3, 5, [1, 2, 3]), (4, 0, [])])
def test_examples_are_spread_over_all_questions(total: int, count: int, numbers: list[int]) -> None:
    rows = [MetricRow("line", f"q{number}", f"c{number}") for number in range(total)]
    file = Predictions("a", rows, {}, {}, PassageDraws(range(total), resamples=2))
    assert [row["number"] for row in example_rows([file], count)] == numbers


def test_a_metric_with_the_name_of_a_column_leaves_the_questions_there(tmp_path: Path) -> None:
    files = {"a": questions()}
    (_, generated) = run(tmp_path, files, {"question": WordCount()}, examples=1)["examples"]
    assert generated["question"] == files["a"][0]["question"] and generated["question (score)"] > 0


@pytest.mark.parametrize(
    ("examples", "extra", "message"),
    [
        ([21], 0, r"examples=\[21\]: the files have 20 questions; give numbers up to that"),
        (2, 1, "examples=2: a has 20"),
    ],
)
def test_examples_that_cannot_be_shown(tmp_path: Path, examples: Any, extra: int, message: str) -> None:
    files = {"a": questions(), "b": questions(10 + extra)}
    with pytest.raises(InputError, match=message):
        run(tmp_path, files, {"words": WordCount()}, examples=examples)


@pytest.mark.parametrize("examples", [-1, True, [0], "three", 1.5])
def test_examples_are_a_number_or_numbers(examples: Any) -> None:
    (fault,) = EvaluateSettings(predictions="p", examples=examples).conflicts()
    assert fault.startswith(f"examples={examples} is neither a number of questions nor a list of such numbers")
