"""`rl-qg correlate`: numbers against scipy's, what is undefined, what is kept, and the command as typed."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rl_qg.commands.cli import run_command
from rl_qg.judging.correlate import correlate
from rl_qg.runtime.errors import InputError
from rl_qg.settings import CorrelateSettings
from tests.toy_metrics import WordCount, rated, write_lines

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def run(tmp_path: Path, rows: Any = None, metrics: Any = None, **options: Any) -> dict[str, Any]:
    tmp_path.mkdir(exist_ok=True)
    path = write_lines(tmp_path / "human.jsonl", rows or rated())
    settings = CorrelateSettings(human=str(path), **{"resamples": 400, "folds": 3, **options})
    return correlate(
        {"words": WordCount(), "fewer": WordCount(-1)} if metrics is None else metrics, settings, tmp_path / "out"
    )


def pick(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def test_correlations_of_questions_and_of_systems(tmp_path: Path) -> None:
    rows = rated()
    record = run(tmp_path, rows)
    human = np.array([row["human"]["good"] for row in rows])
    words = np.array([len(row["question"].split()) for row in rows], dtype=float)
    systems = np.array([row["system"] for row in rows])
    means = [[values[systems == one].mean() for one in "abcd"] for values in (words, human)]
    for name, slow in SCIPY.items():
        cells = pick(record["correlations"], criterion="good", level="question", metric="words", coefficient=name)
        assert cells["value"] == pytest.approx(slow(words, human).statistic) and cells["n"] == 48
        assert cells["low"] < cells["value"] < cells["high"]
        cells = pick(record["correlations"], criterion="good", level="system", metric="words", coefficient=name)
        assert cells["value"] == pytest.approx(slow(*means).statistic) and cells["n"] == 4
        other = pick(record["correlations"], criterion="good", level="question", metric="fewer", coefficient=name)
        assert other["value"] == pytest.approx(-slow(words, human).statistic)
    assert record["counts"]["passages"] == record["counts"]["items"] == 12
    assert pick(record["best"], criterion="good", level="question", coefficient="kendall")["metrics"] == ["words"]


def test_the_other_tables(tmp_path: Path) -> None:
    record = run(tmp_path)
    alike = pick(record["win_loss"], criterion="good", metric="words")
    turned = pick(record["win_loss"], criterion="good", metric="fewer")
    assert alike["wins"] == turned["losses"] > 0.5 and alike["ties"] == turned["ties"]
    assert alike["value"] + turned["value"] == pytest.approx(1)
    first = pick(record["redundancy"], criterion="good", step=1)
    assert first["metric"] in ("words", "fewer") and first["r2"] > 0.3  # either says the same to a regression
    assert pick(record["agreement"], criterion="good", statistic="Krippendorff's α, interval")["value"] > 0.5
    fleiss = pick(record["agreement"], criterion="good", statistic="Fleiss' κ")
    assert (fleiss["value"], fleiss["why"]) == (None, "questions have different numbers of ratings")
    kinds = {row["type"]: row for row in record["by_type"] if row["metric"] == "words" and row["criterion"] == "good"}
    assert set(kinds) == {"who"} and kinds["who"]["n"] == 48
    with (tmp_path / "out" / "tables" / "differences.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == record["differences"]["rows"]
    pair = pick(rows, level="question", coefficient="pearson", metric="words", against="authors/given")
    assert float(pair["p_holm"]) < 0.05 and float(pair["williams_p"]) < 0.05


def test_constant_ratings_are_null_with_a_reason(tmp_path: Path) -> None:
    record = run(tmp_path)
    for level in ("question", "system"):
        row = pick(record["correlations"], criterion="same", level=level, metric="words", coefficient="kendall")
        assert (row["value"], row["low"], row["why"]) == (None, None, "all ratings are equal")
    assert pick(record["win_loss"], criterion="same", metric="words")["value"] is None
    for name in ("correlate.json", "correlate.txt", "correlate.html", "tables/correlations.csv"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "NaN" not in text and "nan" not in text, name
    assert json.loads((tmp_path / "out" / "correlate.json").read_text()) == json.loads(json.dumps(record))
    text = (tmp_path / "out" / "correlate.txt").read_text(encoding="utf-8")
    rules = [line for line in text.splitlines() if re.fullmatch("[-:| ]{4,}", line)]  # columns of one dash among them
    assert rules and all(re.fullmatch(r"\| -+( \| -+:)+ \|", line) for line in rules)
    assert "all ratings are equal" in (tmp_path / "out" / "correlate.html").read_text(encoding="utf-8")


def test_a_metric_that_is_better_when_lower_has_its_sign_reversed(tmp_path: Path) -> None:
    class Errors(WordCount):
        higher_is_better = False

    record = run(tmp_path, metrics={"errors": Errors(-1)})
    value = pick(record["correlations"], criterion="good", level="question", metric="errors", coefficient="pearson")
    assert value["value"] > 0.5 and "sign reversed" in record["signatures"]["errors"]


def test_two_ratings_are_classes_and_missing_ones_are_counted(tmp_path: Path) -> None:
    rows = [{**row, "human": {"kept": int(row["human"]["good"] > 3)}, "ratings": None} for row in rated()]
    rows[0]["human"] = {"kept": None}
    rows[1]["metrics"] = None
    record = run(tmp_path, rows)
    kept = [(len(row["question"].split()), row["human"]["kept"]) for row in rows[1:]]
    pairs = [(a > b) + (a == b) / 2 for a, x in kept for b, y in kept if x > y]
    assert pick(record["auc"], metric="words")["value"] == pytest.approx(np.mean(pairs))
    assert record["counts"]["without_rating"] == {"kept": 1}
    assert record["counts"]["without_score"] == {"authors/given": 1}
    row = pick(record["correlations"], level="question", metric="authors/given", coefficient="pearson")
    assert row["n"] == 46


def test_a_question_of_several_systems_counts_for_each(tmp_path: Path) -> None:
    rows = rated(6)
    once = run(tmp_path / "a", [{**row, "system": [row["system"], "z"]} for row in rows])
    twice = run(tmp_path / "b", [*rows, *({**row, "system": "z"} for row in rows)])
    chosen = {"criterion": "good", "level": "system", "metric": "words"}
    for name in SCIPY:
        a, b = (pick(record["correlations"], coefficient=name, **chosen) for record in (once, twice))
        assert a == b and a["n"] == 5


def test_too_few_systems_or_none(tmp_path: Path) -> None:
    record = run(tmp_path, rated(systems=("a", "b")))
    row = pick(record["correlations"], criterion="good", level="system", metric="words", coefficient="pearson")
    assert (row["value"], row["why"]) == (None, "2 systems with ratings; a correlation needs 3")
    record = run(tmp_path, [{**row, "system": None} for row in rated()])
    assert {row["level"] for row in record["correlations"]} == {"question"}


def test_metrics_without_some_scores_are_tested_on_the_questions_of_both(tmp_path: Path) -> None:
    rows = rated(25)
    for number, row in enumerate(rows):
        row["metrics"] = {"best": row["human"]["good"]} if number else {}
        row["metrics"] |= (
            {"half": row["human"]["good"] - len(row["question"])} if number < 50 else {"rest": 1.0 * number}
        )
    record = run(tmp_path, rows)
    with (tmp_path / "out" / "tables" / "differences.csv").open() as stream:
        differences = list(csv.DictReader(stream))
    chosen = {"criterion": "good", "level": "question", "coefficient": "kendall"}
    tested = pick(differences, **chosen, metric="words", against="authors/half")
    human, words = zip(*((row["human"]["good"], len(row["question"].split())) for row in rows[:50]), strict=True)
    half = [row["metrics"]["half"] for row in rows[:50]]
    gap = stats.kendalltau(words, human).statistic - stats.kendalltau(half, human).statistic
    assert (float(tested["value"]), int(tested["n"])) == (pytest.approx(gap), 50)
    assert float(pick(differences, **chosen, metric="words", against="authors/best")["p_holm"]) < 0.05
    best = pick(record["best"], **chosen)
    assert best["metrics"] == ["authors/best"] and best["not_tested"] == []
    assert not [row for row in differences if {row["metric"], row["against"]} == {"authors/half", "authors/rest"}]


def test_systems_are_compared_on_the_questions_of_both_metrics(tmp_path: Path) -> None:
    rows = rated(24)
    for number, row in enumerate(rows):
        row["metrics"] = {"half": float(len(row["question"]) + number % 5)} if number < 40 else {}
    run(tmp_path, rows)
    with (tmp_path / "out" / "tables" / "differences.csv").open() as stream:
        row = pick(
            list(csv.DictReader(stream)),
            **{"criterion": "good", "level": "system", "coefficient": "pearson"},
            **{"metric": "words", "against": "authors/half"},
        )
    columns = [
        [np.mean([value(one) for one in rows[:40] if one["system"] == system]) for system in "abcd"]
        for value in (
            lambda one: len(one["question"].split()),
            lambda one: one["metrics"]["half"],
            lambda one: one["human"]["good"],
        )
    ]
    gap = stats.pearsonr(columns[0], columns[2]).statistic - stats.pearsonr(columns[1], columns[2]).statistic
    assert float(row["value"]) == pytest.approx(gap)


def test_metrics_not_tested_are_named_under_the_table(tmp_path: Path) -> None:
    rows = rated()
    for number, row in enumerate(rows):
        row["metrics"] = {"first": row["human"]["good"]} if number < 24 else {"last": row["human"]["good"]}
    record = run(tmp_path, rows, {})
    best = pick(record["best"], criterion="good", level="question", coefficient="kendall")
    assert len(best["metrics"]) == len(best["not_tested"]) == 1
    text = (tmp_path / "out" / "correlate.txt").read_text(encoding="utf-8")
    assert f"Not tested against the best, and so without *: {best['not_tested'][0]} (r, ρ, τ-b" in text
    line = next(line for line in text.splitlines() if line.startswith(f"| {best['not_tested'][0]} "))
    assert "1.000" in line and "*" not in line and "– |" in line


def test_the_regression_names_the_metrics_that_it_leaves_out(tmp_path: Path) -> None:
    rows = rated(10)  # 40 questions, of which the last is not rated
    rows[-1] |= {"human": {}, "ratings": None}
    for number, row in enumerate(rows):
        row["metrics"] = {name: float(number % 7) for name, count in (("most", 36), ("few", 35)) if number < count}
    record = run(tmp_path, rows, criteria=["good"])
    assert record["redundancy_left_out"] == [{"criterion": "good", "metric": "authors/few", "n": 35, "of": 39}]
    for row in record["redundancy"]:  # 36 of 39 are more than 90 %, 35 are fewer
        assert (row["n"], row["of"], row["candidates"]) == (36, 39, 3)
    for name in ("correlate.txt", "correlate.html"):
        text = (tmp_path / "out" / name).read_text(encoding="utf-8")
        assert "On 36 of 39 rated questions: those for which all 3 metrics compared have a score. Left out" in text
        assert "too few questions: authors/few (35)." in text
    record = run(tmp_path / "all", rated(10))
    assert record["redundancy_left_out"] == []
    assert "Left out" not in (tmp_path / "all" / "out" / "correlate.txt").read_text(encoding="utf-8")


def test_types_are_those_of_the_file_or_else_of_the_words(tmp_path: Path) -> None:
    rows = [{**row, **({"type": "why"} if number % 2 else {})} for number, row in enumerate(rated())]
    chosen = {"metric": "words", "criterion": "good", "coefficient": "kendall"}
    record = run(tmp_path, rows)
    for kind, first in (("why", 1), ("who", 0)):
        row = pick(record["by_type"], type=kind, **chosen)
        pairs = zip(*((len(one["question"].split()), one["human"]["good"]) for one in rows[first::2]), strict=True)
        assert (row["n"], row["value"]) == (24, pytest.approx(stats.kendalltau(*pairs).statistic))
    record = run(tmp_path / "other", rows, language="other")
    assert {row["type"] for row in record["by_type"]} == {"why", "other"}
    record = run(tmp_path / "none", rated(), language="other")
    assert record["by_type"] == []
    assert "by type of question" not in (tmp_path / "none" / "out" / "correlate.txt").read_text(encoding="utf-8")


def test_the_page_says_that_systems_are_held_fixed(tmp_path: Path) -> None:
    run(tmp_path)
    run(tmp_path / "none", [{**row, "system": None} for row in rated()])
    texts = [(tmp_path / folder / "correlate.txt").read_text(encoding="utf-8") for folder in ("out", "none/out")]
    assert ["the systems are held fixed" in text for text in texts] == [True, False]


def test_one_passage_has_no_intervals_and_no_tests(tmp_path: Path) -> None:
    rows = [{**row, "context": "p", "item": "i"} for row in rated(5)]
    record = run(tmp_path, rows)
    assert record["differences"]["rows"] == 0
    for key in ("correlations", "win_loss", "agreement", "by_type"):
        for row in record[key]:
            assert row.get("low") is None and "why" in row, (key, row)
    text = (tmp_path / "out" / "correlate.txt").read_text(encoding="utf-8")
    assert "One passage alone: there are no intervals and no tests." in text
    few = run(tmp_path / "few", rated(9))
    assert few["counts"]["passages"] == 9
    assert "Only 9 passages" in (tmp_path / "few" / "out" / "correlate.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_qg.commands.cli._stay_offline_without_a_hub", lambda: None)
    path = write_lines(tmp_path / "human.jsonl", rated(5))
    metrics = "metrics=[{_target_: tests.toy_metrics.WordCount, sign: -1, label: fewer},tests.toy_metrics.WordCount]"
    arguments = [f"human={path}", metrics, "resamples=40", "max_selected=1", "training.use_cpu=true"]
    run_command("correlate", [*arguments, f"output={tmp_path}/out", "criteria=[good]"])
    record = json.loads((tmp_path / "out" / "correlate.json").read_text())
    assert list(record["signatures"]) == ["fewer", "WordCount", "authors/given"]
    assert {row["criterion"] for row in record["correlations"]} == {"good"}
    with pytest.raises(InputError, match="output has no value"):
        run_command("correlate", arguments)
    with pytest.raises(InputError, match=r"correlate\.resamples=38 must be at least 39"):
        run_command("correlate", [*arguments, "output=x", "resamples=38"])
    needing = "metrics=[{_target_: tests.toy_metrics.WordCount, needs: [answers]}]"
    with pytest.raises(
        InputError, match=r"human\.jsonl: line 1: 'answer' is missing or no text, and metric WordCount needs it"
    ):
        run_command("correlate", [f"human={path}", needing, f"output={tmp_path}/other"])


@pytest.mark.parametrize("name", ["system", "questions", "criterion"])
def test_no_criterion_is_called_as_another_column(tmp_path: Path, name: str) -> None:
    rows = [{"question": f"Who {at}?", "context": "x", "human": {"good": at, name: at}} for at in range(6)]
    with pytest.raises(InputError, match=rf"human\.jsonl: criterion '{name}' is the name of another column"):
        run(tmp_path, rows)
    assert run(tmp_path, rows, criteria=["good"])["counts"]["questions"] == 6
