"""QA-based evaluation: intervals against a slow loop, tests in pairs, correlations against scipy, and the command."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau, pearsonr, spearmanr

from rl_qg.commands.cli import run_command
from rl_qg.data.examples import QAExample, write_squad
from rl_qg.evaluation.qa_evaluation import (
    F1,
    System,
    correlations_with_metrics,
    few_systems,
    metric_values,
    named_files,
    qa_record,
)
from rl_qg.readers.train_reader import TrainedReader
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json
from rl_qg.stats.intervals import PassageDraws, difference_p, interval_ends
from tests.toy_reader import save_distilbert, toy_examples

GOLD = [QAExample(f"q{n}", "", f"passage {n // 2}", "who ?", ()) for n in range(24)]


def system(name: str, level: float, *, files: int = 1, seeds: int = 1) -> System:
    rng = np.random.default_rng(len(name) + round(level))
    readers = {}
    for number in range(files):
        f1 = np.clip(rng.normal(level, 20, (seeds, len(GOLD))), 0, 100)
        readers[f"{name}-{number}"] = TrainedReader({"f1": f1, "exact_match": (f1 > 60) * 100.0}, 9, {}, [])
    return System(name, readers)


def test_intervals_and_tests_are_those_of_draws_one_by_one() -> None:
    """Of a generator with several files the seeds are the files, each the mean over its readers."""
    ce, scst = system("ce", 40, files=3, seeds=2), system("scst", 50, files=3)
    record, draws = qa_record([ce, scst], GOLD, resamples=100, seed=5)
    slow, tables = {}, {}
    for one in (ce, scst):
        table = np.stack([reader.scores["f1"].mean(axis=0) for reader in one.readers.values()])
        of_passages = PassageDraws([example.context for example in GOLD], seeds=3, resamples=100, seed=5)
        slow[one.name] = of_passages.means_over_seeds(table)
        (row,) = [row for row in record["scores"] if row["predictions"] == one.name and row["metric"] == F1]
        assert row["value"] == pytest.approx(table.mean()) and row["seeds"] == 3
        tables[one.name] = table
        ends = interval_ends(slow[one.name], 12, degrees=of_passages.degrees_over_seeds(table), bounds=(0.0, 100.0))
        assert (row["low"], row["high"]) == pytest.approx(ends)
        assert record["systems"][one.name]["f1"] == pytest.approx(table.mean())
    (test,) = [row for row in record["tests"] if row["metric"] == F1]
    degrees = of_passages.degrees_over_seeds(tables["ce"] - tables["scst"])
    assert test["p"] == difference_p(slow["ce"] - slow["scst"], 12, degrees) and test["p_holm"] >= test["p"]
    assert {(one.predictions, one.metric) for one in draws} == {(a, b) for a in ("ce", "scst") for b in ("qa_em", F1)}


def test_passages_that_cancel_leave_the_degrees_of_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of a difference of systems that answer the same questions is the variance of k seeds, with k - 1
    degrees of freedom; where the numbers of seeds differ, those of the fewest.
    """
    rng, given = np.random.default_rng(0), list[float | None]()
    of_passages = np.repeat(rng.normal(50, 15, len(GOLD) // 2), 2)

    def of_seeds(name: str, shifts: list[float]) -> System:
        f1 = of_passages + np.array(shifts)[:, None]
        return System(name, {"one": TrainedReader({"f1": f1, "exact_match": f1}, 9, {}, [])})

    def spied(values: Any, passages: float, degrees: float | None = None) -> float | None:
        given.append(degrees)
        return difference_p(values, passages, degrees)

    monkeypatch.setattr("rl_qg.stats.intervals.difference_p", spied)
    systems = [of_seeds("a", [0, 1, 2]), of_seeds("b", [2, 0, -1]), of_seeds("c", [1, 0]), of_seeds("d", [1])]
    record, draws = qa_record(systems, GOLD, resamples=60, seed=0)
    expected = {"ab": 2, "ac": 1, "ad": 2, "bc": 1, "bd": 2, "cd": 1}
    tested = [row["predictions"] + row["against"] for row in record["tests"]]
    assert dict(zip(tested, given, strict=True)) == pytest.approx(expected)
    assert {one.predictions: one.degrees for one in draws} == {"a": 2, "b": 2, "c": 1, "d": None}
    ends = interval_ends(draws[1].values - draws[3].values, 12, degrees=2)  # F1 of a and of b
    (row,) = [row for row in record["tests"] if (row["predictions"], row["against"], row["metric"]) == ("a", "b", F1)]
    assert (row["low"], row["high"]) == pytest.approx(ends)
    values = {("m", "f"): {"a": 1.0, "b": 2.0, "c": 4.0, "d": 3.0}}
    y = np.stack([one.values for one in draws if one.metric == F1])
    slow = np.array([pearsonr([1, 2, 4, 3], column).statistic for column in y.T])
    (row,) = [r for r in correlations_with_metrics(values, draws) if (r["with"], r["coefficient"]) == (F1, "pearson")]
    assert (row["low"], row["high"]) == pytest.approx(interval_ends(slow, 12, degrees=1, bounds=(-1.0, 1.0)))


def evaluation(path: Path, values: dict[str, float], **changes: Any) -> Path:
    rows = [{"predictions": name, "by": "all", "metric": "m", "form": "f", "value": v} for name, v in values.items()]
    rows.append({**rows[0], "by": "type", "value": -1.0})
    path.write_text(json.dumps({"scores": rows, "signatures": {"m": "s"}, "lower_is_better": [], **changes}))
    return path


def test_correlations_over_systems_are_those_of_scipy(tmp_path: Path) -> None:
    systems = [system(name, level) for name, level in {"a": 20.0, "bb": 70.0, "ccc": 30.0, "dddd": 60.0}.items()]
    _, draws = qa_record(systems, GOLD, resamples=50, seed=0)
    metric = {"a": 0.1, "bb": 0.4, "ccc": 0.3, "dddd": 0.2, "elsewhere": 9.0}
    sources = [evaluation(tmp_path / "1.json", dict(list(metric.items())[:2]))]
    sources += [evaluation(tmp_path / "2.json", dict(list(metric.items())[2:]))]
    values = metric_values(sources, [one.name for one in systems])
    rows = {row["coefficient"]: row for row in correlations_with_metrics(values, draws) if row["with"] == F1}
    y = [one.table(F1).mean() for one in systems]
    x = [metric[one.name] for one in systems]
    for name, function in {"pearson": pearsonr, "spearman": spearmanr, "kendall": kendalltau}.items():
        expected = function(x, y)
        assert rows[name]["value"] == pytest.approx(expected.statistic) and rows[name]["n"] == 4
        assert rows[name]["p"] == pytest.approx(expected.pvalue)
    slow = [pearsonr(x, [one.values[at] for one in draws if one.metric == F1]).statistic for at in range(51)]
    ends = interval_ends(np.array(slow), 12, bounds=(-1.0, 1.0))
    assert (rows["pearson"]["low"], rows["pearson"]["high"]) == pytest.approx(ends)
    turned = evaluation(tmp_path / "3.json", metric, lower_is_better=["m"])
    assert metric_values([turned], ["a"]) == {("m", "f"): {"a": -0.1}}
    turned.write_text(json.dumps({name: json.loads(turned.read_text())[name] for name in ("scores", "signatures")}))
    assert metric_values([turned], ["a"]) == {("m", "f"): {"a": 0.1}}  # higher is better
    assert few_systems(3).startswith("3 systems, which is few: ")
    assert "which is few: where nothing is related, one order of 24" in few_systems(4)
    assert few_systems(2) == "2 of the generators have metrics: a correlation over systems needs 3."
    two = metric_values(sources[:1], ["a", "bb"])
    assert {row["value"] for row in correlations_with_metrics(two, draws)} == {None}


@pytest.mark.parametrize(
    ("changes", "values", "message"),
    [
        ({"signatures": {"m": "other"}}, {"a": 0.1}, "metric m has other options"),
        ({}, {"a": 0.2}, "has another m of a"),
        ({}, {"z": 0.2}, "has none of the generators a, b"),
        ({"scores": None, "signatures": None}, {"a": 0.1}, None),
        *(
            (changes, {"a": value}, r"2\.json: is not as its command wrote it")
            for changes, value in (
                ({"scores": [None]}, 0.1),
                ({"scores": 7}, 0.1),
                ({"signatures": {}}, 0.1),
                ({}, "x"),
            )
        ),
    ],
)
def test_evaluations_that_cannot_be_joined(tmp_path: Path, changes: Any, values: Any, message: str | None) -> None:
    first, second = evaluation(tmp_path / "1.json", {"a": 0.1}), evaluation(tmp_path / "2.json", values, **changes)
    if message is None:
        second.write_text("[]")
        message = "is no result of rl-qg evaluate"
    with pytest.raises(InputError, match=message):
        metric_values([first, second], ["a", "b"])
    with pytest.raises(InputError, match=r"no such file; give evaluate\.json files"):
        metric_values([tmp_path / "3.json"], ["a"])


def test_files_of_generators() -> None:
    assert named_files("x/ce.jsonl") == {"ce": ["x/ce.jsonl"]}
    assert named_files(["a.jsonl", "b.json"]) == {"a": ["a.jsonl"], "b": ["b.json"]}
    assert named_files({"ce": "1.jsonl", "scst": ["2.jsonl", "3.jsonl"]}) == {
        "ce": ["1.jsonl"],
        "scst": ["2.jsonl", "3.jsonl"],
    }
    for wrong in ("", {}, [], {"ce": []}, {"ce": ["a", "a"]}, ["x/a.jsonl", "y/a.jsonl"]):
        with pytest.raises(InputError, match="questions"):
            named_files(wrong)


def test_the_command_and_its_continuation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.chdir(tmp_path)
    save_distilbert(Path("model"), size=16)
    write_squad("dev.json", toy_examples(8, 2))
    write_squad("ce.json", toy_examples(12, 1))
    rows = [
        {"id": one.id, "context": one.context, "question": one.question, "answer": one.answers[0].text,
         "answer_start": one.answers[0].start} for one in toy_examples(12, 3)
    ]  # fmt: skip
    Path("scst.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation(Path("evaluate.json"), {"ce": 0.1, "scst": 0.2})
    words = ["data=dev.json", "questions={ce: ce.json, scst: [scst.jsonl, ce.json]}", "output=qa.json"]
    words += ["evaluations=[evaluate.json]", "preset=smoke", "qa.model.path=model", "qa.max_length=32"]
    words += ["qa.doc_stride=8", "qa.max_steps=1", "qa_evaluate.max_questions=10", "max_data=6"]
    run_command("qa-evaluate", words)
    record = read_json(Path("qa.json"))
    assert "qa_evaluate.max_data=6: 6 of 8 human questions are used" in caplog.messages
    assert "qa_evaluate.max_questions=10: 10 of 12 questions of scst.jsonl are used" in caplog.messages
    assert set(record["systems"]) == {"ce", "scst"} and len(record["systems"]["scst"]["files"]) == 2
    assert all(file["questions"] == 10 for file in record["systems"]["scst"]["files"].values())
    assert record["few_systems"].startswith("2 of the generators")
    assert "Differences" in Path("qa.html").read_text(encoding="utf-8")

    def refuse(*args: Any, **options: Any) -> None:
        raise AssertionError("a finished reader was trained again")

    monkeypatch.setattr("rl_qg.readers.train_reader._run_seed", refuse)
    run_command("qa-evaluate", words)
    assert read_json(Path("qa.json")) == record
    Path("qa.json").write_text("{}")
    with pytest.raises(InputError, match=r"output=qa\.json: qa\.json is not of this command"):
        run_command("qa-evaluate", words)
