"""The leaderboard: it tests in pairs what `rl-qg evaluate` tests in one run; what it marks, and what it refuses."""

import csv
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pandas import DataFrame

from rl_qg.bench.leaderboard import ModelScore, _page, column_labels, compared, read_results, write_leaderboard
from rl_qg.commands.studies import bench
from rl_qg.evaluation.evaluate import evaluate
from rl_qg.evaluation.predictions import CORPUS, MEAN
from rl_qg.runtime.errors import InputError
from rl_qg.scoring.kept_scores import FILE, ScoreDraws, write_draws
from rl_qg.settings import EvaluateSettings
from rl_qg.stats.intervals import PassageDraws, difference_p, holm
from tests.rl_qg.evaluation import test_evaluate_pairs as of_pairs
from tests.rl_qg.evaluation.test_evaluate import questions
from tests.toy_metrics import SharedWords, WordCount, write_lines


def evaluated(folder: Path, files: dict[str, list[dict[str, Any]]], **options: Any) -> dict[str, Any]:
    """Models that are evaluated together, in a folder of their own; words are better when fewer."""
    folder.mkdir(parents=True)
    paths = {name: str(write_lines(folder / f"{name}.jsonl", rows)) for name, rows in files.items()}
    words = WordCount(-1)
    words.higher_is_better = False
    settings = EvaluateSettings(predictions=paths, **{"resamples": 80, **options})
    return evaluate({"words": words, "shared": SharedWords()}, settings, folder)


@pytest.fixture
def models() -> dict[str, list[dict[str, Any]]]:
    """Three systems that asked about the same answers: b and c repeat words of no reference."""
    rows = questions()
    return {name: [{**row, "question": "x " * extra + row["question"]} for row in rows] for name, extra in
            {"a": 0, "b": 3, "c": 4}.items()}  # fmt: skip


def test_results_of_several_runs_are_tested_as_those_of_one(tmp_path: Path, models: dict[str, Any]) -> None:
    together = evaluated(tmp_path / "together", models)
    for name, rows in models.items():
        evaluated(tmp_path / name, {name: rows})
    record = write_leaderboard([("d", tmp_path / name) for name in models], tmp_path / "board")
    tests = {(row["metric"], row["form"], row["best"], row["against"]): row for row in record["tests"]}
    assert len(tests) == 3 * 2  # words, and shared as mean and as corpus score
    checked = 0
    for row in together["tests"]:
        names = row["predictions"], row["against"]
        found = tests.get((row["metric"], row["form"], *names)) or tests.get(
            (row["metric"], row["form"], *names[::-1])
        )
        if found is not None:
            checked += 1
            sign = 1 if found["best"] == names[0] else -1
            assert (sign * found["value"], found["p"]) == (row["value"], row["p"])
    assert checked == 6
    with (tmp_path / "board" / "leaderboard.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert {(row["data"], row["model"]) for row in rows} == {("d", name) for name in models} and len(rows) == 9
    assert "<title>Leaderboard" in (tmp_path / "board" / "leaderboard.html").read_text(encoding="utf-8")


def result(model: str, value: float, draws: Sequence[float] | None = None, **changes: Any) -> ModelScore:
    kept = None
    if draws is not None:
        kept = ScoreDraws(model, "m", MEAN, "items", 30, 0, True, np.array([value, *draws]))
    base = ModelScore("d", model, "m", MEAN, value, None, None, 60, False, "s", Path(f"{model}.json"), draws=kept)
    return replace(base, **changes)


def marks(results: Sequence[ModelScore]) -> dict[str, str]:
    return {row["model"]: row["mark"] for row in compared(results)[0]}


def test_only_models_that_do_not_differ_from_the_best_are_marked() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 4))
    values += np.array([1.0, 0.9, 0.0, 2.0]) - values.mean(axis=0)
    draws = np.stack([PassageDraws(range(30), resamples=200).means(column) for column in values.T])
    best, near, far, other = (result(name, draws[at, 0], draws[at, 1:]) for at, name in enumerate("abcd"))
    rows, tests = compared([best, near, far])
    assert {row["model"]: row["mark"] for row in rows} == {
        "a": "best",
        "b": "not different from the best",
        "c": "worse",
    }
    p = [difference_p(draws[0] - draws[at], 30) for at in (1, 2)]
    assert [row["p_holm"] for row in tests] == holm([value or 0.0 for value in p]) and p[0] and p[0] > 0.05
    # what cannot be tested is neither marked nor called worse
    assert marks([best, far, replace(other, value=-5.0, draws=None)])["d"] == "not tested"
    elsewhere = replace(other, draws=replace(other.draws, items="others"))
    assert marks([best, far, elsewhere]) == {"a": "not tested", "c": "not tested", "d": "not tested"}
    for change in ({"seed": 1}, {"complete": False}, {"values": other.draws.values[:-1]}):
        assert marks([best, replace(other, draws=replace(other.draws, **change))])["a"] == "not tested"
    assert marks([best]) == {"a": "alone"}
    # lower is better: the order turns round
    lower = [replace(one, lower_is_better=True) for one in (best, near, far)]
    assert marks(lower) == {"a": "worse", "b": "worse", "c": "best"}


def test_results_of_several_seeds_are_tested_with_the_degrees_of_the_seeds(tmp_path: Path) -> None:
    """Also those whose draws an earlier version wrote, with the degrees of freedom of a single score."""
    rng, expected = np.random.default_rng(1), []
    for at, name in enumerate("ab"):
        values = rng.normal(50 + at, 0.5, 200)
        row = {"predictions": name, "metric": "qa_f1", "form": "readers", "value": values[0], "seeds": 4 - at}
        record = {"scores": [row], "signatures": {"qa_f1": "s"}, "systems": {}, "data": {"dev.json": "h"}}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
        kept = ScoreDraws(name, "qa_f1", "readers", "items", 900, 0, True, values, 900.0, 870.0)
        write_draws(tmp_path / name / FILE, [kept])
        expected.append(values)
    results = read_results([(None, tmp_path / f"{name}.json") for name in "ab"])
    rows, (test,) = compared(results)
    table, *_ = _page(results, rows, [test], column_labels(results)).tables  # which says how many an interval is over
    assert [(row["seeds"], line["seeds of readers"]) for row, line in zip(rows, table.rows, strict=True)] == [
        (4, "4"),
        (3, "3"),
    ]
    assert test["p"] == difference_p(expected[1] - expected[0], 900, 2)


def test_other_signatures_and_data_are_other_columns() -> None:
    first, second = result("a", 1.0), result("b", 2.0, signature="t")
    assert marks([first, second]) == marks([first, result("b", 2.0, data="e")]) == {"a": "alone", "b": "alone"}
    assert list(column_labels([first, second]).values()) == ["m (1)", "m (2)"]
    both = [result("a", 1.0, form=form) for form in (MEAN, CORPUS)]
    assert list(column_labels(both)) == [("m", "s", CORPUS)]  # published tables have the corpus score


def test_the_tests_are_those_of_the_columns_and_name_them() -> None:
    """Of two signatures; the means of the first, which has corpus scores, are no column."""
    spread, results = np.random.default_rng(0).normal(size=100), []
    for signature, form in (("s", CORPUS), ("s", MEAN), ("t", MEAN)):
        for model, value in (("a", 1.0), ("b", 0.5)):
            results.append(result(model, value, value * (1 + spread), signature=signature, form=form))
    rows, tests = compared(results)
    assert [(row["signature"], row["form"]) for row in tests] == [("s", CORPUS), ("s", MEAN), ("t", MEAN)]
    *_, shown = _page(results, rows, tests, column_labels(results)).tables
    assert [line["metric"] for line in shown.rows] == ["m (1)", "m (2)"]


def test_results_that_contradict_each_other_are_refused(tmp_path: Path, models: dict[str, Any]) -> None:
    evaluated(tmp_path / "one", {"a": models["a"]})
    evaluated(tmp_path / "two", {"a": models["b"]})
    with pytest.raises(InputError, match="both have words of 'a' on 'd', with other values; name the models apart"):
        read_results([("d", tmp_path / "one"), ("d", tmp_path / "two")])
    assert len(read_results([("d", tmp_path / "one"), ("e", tmp_path / "two")])) == 6
    assert len(read_results([("d", tmp_path / "one")] * 2)) == 3


def test_names_of_data(tmp_path: Path, models: dict[str, Any]) -> None:
    """The file of human questions; with its folder where it is called test."""
    for name in ("english", "german"):
        (tmp_path / name).mkdir()
        gold = [
            {"id": str(at), "answers": {"text": ["c"], "answer_start": [0]}, "context": row["context"],
             "question": f"{name} {row['references'][0]}"} for at, row in enumerate(models["a"])
        ]  # fmt: skip
        write_lines(tmp_path / name / "test.jsonl", gold)
        rows = [{**row, "id": str(at), "answer": "c"} for at, row in enumerate(models["a"])]
        references = str(tmp_path / name / "test.jsonl")
        evaluated(tmp_path / f"of-{name}", {"a": rows}, references=references)
    sources = [tmp_path / "of-english", tmp_path / "of-german"]
    assert {one.data for one in read_results([(None, path) for path in sources])} == {"english/test", "german/test"}
    with pytest.raises(InputError, match="are about other human questions, and both are called 'x'"):
        read_results([("x", path) for path in sources])
    run = tmp_path / "run"  # which does not say what its human questions were, and hides nothing
    run.mkdir()
    (run / "evaluation.json").write_text(json.dumps({"models": {"ce": {"rouge_l": 0.2}}, "reward_signature": "r"}))
    for path in sources:
        record = json.loads((path / "evaluate.json").read_text())
        scores = [{**row, "metric": "rouge_l"} for row in record["scores"] if row["metric"] == "words"]
        (path / "evaluate.json").write_text(json.dumps({**record, "scores": scores}))
    with pytest.raises(InputError, match="are about other human questions"):
        read_results([("x", path) for path in (run, *sources)])


def test_one_data_set_in_two_formats_is_one(tmp_path: Path, models: dict[str, Any]) -> None:
    gold = [
        {"id": str(at), "answers": {"text": ["c"], "answer_start": [0]}, "context": row["context"],
         "question": row["references"][0]} for at, row in enumerate(models["a"])
    ]  # fmt: skip
    write_lines(tmp_path / "dev.jsonl", gold)
    DataFrame(gold).to_parquet(tmp_path / "dev.parquet")
    for name, kind in (("a", "jsonl"), ("b", "parquet")):
        rows = [{**row, "id": str(at), "answer": "c"} for at, row in enumerate(models[name])]
        evaluated(tmp_path / name, {name: rows}, references=str(tmp_path / f"dev.{kind}"))
    results = read_results([(None, tmp_path / name) for name in "ab"])
    assert {one.data for one in results} == {tmp_path.name + "/dev"}
    assert all(row["mark"] != "not tested" for row in compared(results)[0])


def test_metrics_of_other_human_questions_are_not_put_in_one_table(tmp_path: Path) -> None:
    """Nor are those of readers, whose questions are in `data`; results that do not say theirs stay."""
    for folder, place, metric, of in (
        ("words", "references", "words", {"a/squad.json": "1"}),
        ("readers", "data", "qa_f1", {"b/squad.json": "2"}),
        ("same", "data", "qa_f1", {"b/squad.json": "1"}),
        ("none", "references", "bleu4", {}),
    ):
        row = {"predictions": "a", "metric": metric, "value": 0.5}
        (tmp_path / folder).mkdir()
        record = {"scores": [row], "signatures": {metric: "s"}, place: of}
        (tmp_path / folder / "evaluate.json").write_text(json.dumps(record))
    words, readers, same, none = (tmp_path / name for name in ("words", "readers", "same", "none"))
    with pytest.raises(InputError, match=f"^{words}/.* and {readers}/.*: are about other human.*called 'squad'; name"):
        read_results([(None, words), (None, readers)])
    assert {one.data for one in read_results([("e", words), ("d", readers)])} == {"e", "d"}
    assert {one.data for one in read_results([(None, words), (None, same), ("squad", none)])} == {"squad"}


def test_runs_and_what_is_no_result(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(InputError, match=r"run: holds neither evaluate\.json nor evaluation\.json"):
        read_results([(None, run)])
    measured = {"reward": {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 8}, "rouge_l": 0.25}
    record = {"models": {"ce": measured, "gold": {"reward": {"mean": 1.0}}}, "examples": 8, "reward_signature": "r"}
    (run / "evaluation.json").write_text(json.dumps(record))
    (run / "config.yaml").write_text("data: {validation: folder/dev.json}")
    found = read_results([(None, run)])
    assert [(one.data, one.model, one.metric, one.value, one.low) for one in found] == [
        ("folder/dev", "run/ce", "reward", 0.5, 0.4),
        ("folder/dev", "run/ce", "rouge_l", 0.25, None),
    ]
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(InputError, match=r"other\.json: is no result"):
        read_results([(None, tmp_path / "other.json")])
    with pytest.raises(InputError, match="no such file or folder"):
        read_results([(None, tmp_path / "missing")])


def test_a_result_of_pairs_is_refused_by_name(tmp_path: Path, models: dict[str, Any]) -> None:
    evaluated(tmp_path / "a", {"a": models["a"]})
    gold = write_lines(tmp_path / "gold.jsonl", [of_pairs.row(of_pairs.ADA, "Who wrote notes?", "Ada")])
    pairs = write_lines(tmp_path / "pairs.jsonl", of_pairs.flat(of_pairs.PAIRS))
    of_pairs.run(tmp_path, str(gold), {"mine": str(pairs)})
    with pytest.raises(InputError, match=f"^{tmp_path / 'out'}: has no score of a model .*pairs=true.*; leave it out"):
        read_results([("d", tmp_path / "a"), ("d", tmp_path / "out")])


@pytest.mark.parametrize(
    "words", [[], ["output=board"], ["runs/a", "output=a", "output=b"], ["--dry-run", "output=a"]]
)
def test_arguments_of_the_command(words: list[str]) -> None:
    with pytest.raises(InputError, match=r"give results and one output=FOLDER"):
        bench(["report", *words])


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.update(scores=7),
        lambda record: record.update(signatures=[]),
        lambda record: record["scores"][0].pop("metric"),
        lambda record: record["scores"][0].update(metric=["words"]),
        lambda record: record["scores"][0].update(value="0.5"),
        lambda record: record["scores"][0].update(low=float("nan")),
        lambda record: record["scores"].insert(0, None),
        lambda record: record.update(references=3),
    ],
)
def test_a_result_that_was_changed_is_named(tmp_path: Path, models: dict[str, Any], change: Any) -> None:
    evaluated(tmp_path / "a", {"a": models["a"]})
    path = tmp_path / "a" / "evaluate.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match=f"{path.parent}: is not as its command wrote it"):
        read_results([(None, path.parent)])


def test_a_metric_that_is_called_model_stands_beside_the_models(tmp_path: Path) -> None:
    score = ModelScore("d", "a", "model", MEAN, 0.5, None, None, 9, False, "s", tmp_path)
    rows, tests = compared([score])
    (table,) = _page([score], rows, tests, column_labels([score])).tables
    assert list(table.rows) == [{"model": "a", "model ": "0.5000"}]
