"""A small study whose results the tests write, so that every number can be computed in another way."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from rl_qg.data.examples import write_squad
from rl_qg.pages.plots import RUN_COLOURS
from rl_qg.reports.report import write_report
from rl_qg.reports.study_view import _draw, _with_units
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import write_json
from rl_qg.stats.intervals import holm
from rl_qg.studies.jobs import read_job_file
from rl_qg.studies.study import Grid, ResourceData, Study, StudyExamples, make_grid
from rl_qg.studies.study_results import StudyResults, write_study_output
from tests.questions import example
from tests.rl_qg.reports.run_folders import Page

FILE = """
output_dir: OUT
data: {train: t.json, validation: {one: a.json, two: b.json}}
resources: {"25": 0.25}
generators: {ce: {stages: ce}, good: {reward: qrelscore}, poor: {reward: bartscore}}
comparisons: [[good, poor]]
filters: {paper: []}
amounts: [0, 1, 2]
seeds: [1, 2, 3]
resamples: 400
"""
GAIN = {"none": 0.0, "ce": 0.0, "good": 0.3, "poor": -0.1}
WORDS = ("Who", "When", "Where", "What")


@pytest.fixture
def grid(tmp_path: Path) -> tuple:
    """30 passages with 4 questions each, 20 of them in set one."""
    (tmp_path / "study.yaml").write_text(FILE.replace("OUT", str(tmp_path / "out")))
    study = read_job_file(Study, tmp_path / "study.yaml")
    examples = []
    for passage in range(30):
        unasked = example(f"Passage {passage} tells of Ann and Bob.", "Ann", "")
        examples += [replace(unasked, id=f"{passage}-{n}", question=f"{WORDS[n]} is told of?") for n in range(4)]
    sets = {each.id: "one" if int(each.id.split("-")[0]) < 20 else "two" for each in examples}
    data = tmp_path / "out" / "data"
    resource = ResourceData("25", data / "25", examples[:10], examples, examples)
    counts, sources = {"train_passages": 3, "resource 25": {"gold": 10}, "reading": {}}, {"a.json": "0" * 64}
    study_examples = StudyExamples(data / "validation", examples, [], sets, {"25": resource}, counts, sources)
    return study, study_examples, make_grid(study, study_examples, {"25": []})


def fill(study, examples, grid: Grid, without: str = "nothing") -> dict:
    """Write the files of finished jobs; return the F1 of each reader, in percent by question."""
    rng = np.random.default_rng(0)
    hard = rng.normal(0.5, 0.1, 30).repeat(4)
    tables = {}
    for cell in grid.cells:
        if without in cell.reader.name:
            continue
        f1 = np.clip(hard + GAIN[cell.generator] + 0.01 * cell.seed + rng.normal(0, 0.05, 120), 0, 1)
        tables[cell.reader.name] = 100 * f1
        scores = {
            e.id: {"exact_match": round(x), "f1": x} for e, x in zip(examples.validation, f1.tolist(), strict=True)
        }
        write_json(cell.reader.results / "question_scores.json", scores)
        write_json(cell.reader.folder / "job.json", {"seconds": 2.0})
        if cell.augment is not None:
            count = cell.requested - (cell.amount == 2)  # of the larger amount one is missing
            added = [replace(e, id=f"synthetic-{e.id}") for e in examples.validation[:count]]
            write_squad(cell.augment.results / "augmented.json", [*examples.validation[:10], *added])
            report = {"candidates": 40, "dropped": {"too short": 10}, "kept": 30, "sampled": len(added)}
            report["measures"] = {"round_trip": {"mean": 0.25 + 0.125 * cell.seed}}
            write_json(cell.augment.results / "augmented.report.json", report)
        if cell.run is not None and cell.run.parent.name.startswith("scst-"):
            write_json(cell.run / "trained.json", {"reward": f"{cell.generator}|version:1"})
            lines = [
                {"stage": stage, "step": n, "eval_reward_greedy": 0.1 * n, "eval_bleu4": 30.0 - n}
                for n, stage in enumerate(("ce", "scst", "scst"))  # the first is where the stage began
            ]
            (cell.run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tables


@pytest.mark.slow
def test_numbers_of_study_json(grid: tuple) -> None:
    study, examples, plan = grid
    tables = fill(study, examples, plan)
    record = write_study_output(StudyResults(study, examples, plan), plan, {}, [])
    assert record["sets"] == {"all": 120, "one": 80, "two": 40}
    assert len(record["cells"]) == 1 + 3 * 2

    def f1_table(generator: str, amount: float) -> np.ndarray:
        cells = [cell for cell in plan.cells if (cell.generator, cell.amount) == (generator, amount)]
        return np.stack([tables[cell.reader.name] for cell in cells])

    for row in record["cells"]:
        values = f1_table(row["generator"], row["amount"])
        assert row["seeds"] == [1, 2, 3]
        for name, questions in (("all", slice(None)), ("one", slice(0, 80)), ("two", slice(80, None))):
            interval = row["scores"][name]["f1"]
            assert interval["mean"] == pytest.approx(values[:, questions].mean())
            assert interval["by_seed"] == pytest.approx(values[:, questions].mean(axis=1), abs=1e-4)
            assert interval["low"] < interval["mean"] < interval["high"]
        assert (row["got"], row["short"]) == ([row["asked"] - (row["amount"] == 2)] * 3, row["amount"] == 2)
    counts = {"augmentation": 6, "reward": 4, "pair": 2}
    for question, count in counts.items():
        for name in record["sets"]:
            for score in ("f1", "exact_match"):
                key = (question, name, score)
                family = [row for row in record["tests"] if (row["question"], row["set"], row["score"]) == key]
                assert len(family) == count and {row["family"] for row in family} == {count}
                assert [row["p_holm"] for row in family] == holm([row["p"] for row in family])
    against = {"augmentation": "none", "reward": "ce", "pair": "poor"}
    for row in record["tests"]:
        if (row["score"], row["set"]) == ("f1", "all"):
            other = f1_table(against[row["question"]], 0 if row["question"] == "augmentation" else row["amount"])
            mean = (f1_table(row["generator"], row["amount"]) - other).mean()
            assert row["against"] == against[row["question"]] and row["mean"] == pytest.approx(mean)
            assert row["low"] <= mean <= row["high"]
            if row["generator"] == "good":
                assert row["low"] > 20 and row["p_holm"] < 0.05
    ce = [row for row in record["tests"] if (row["question"], row["generator"]) == ("augmentation", "ce")]
    assert all(row["low"] < 2 and row["high"] > -2 and row["p"] > 0.001 for row in ce if row["score"] == "f1")


def test_explanations(grid: tuple) -> None:
    study, examples, plan = grid
    tables = fill(study, examples, plan)
    record = write_study_output(StudyResults(study, examples, plan), plan, {}, [])
    why = record["why"]
    assert [row["dropped"] for row in why["filters"]] == [{"too short": 0.25}] * 3 and why["filters"][0][
        "kept"
    ] == 0.75
    assert why["filters"][0]["measures"] == {"round_trip": pytest.approx((0.375 + 0.5 + 0.625) / 3)}  # of three seeds
    evaluated = next(row for row in why["questions"] if row["questions"] == "evaluation")
    assert evaluated["question_types"] == {"who": 0.25, "when": 0.25, "where": 0.25, "what": 0.25}
    assert evaluated["count"] == 120 and evaluated["distinct"] == 4 / 120 and evaluated["words"] == 4
    added = next(row for row in why["questions"] if row["questions"] == "good, paper")
    assert added["count"] == 19  # of each seed; only what was generated
    rewards = {row["generator"]: row for row in why["rewards"]}
    assert rewards.keys() == {"good", "poor"} and rewards["good"]["seeds"] == 3
    assert rewards["good"]["reward_greedy"] == pytest.approx({"from": 0.0, "to": 0.2})
    assert rewards["good"]["bleu4"] == {"from": 30.0, "to": 28.0}
    largest_amount = ("reward", "good", 2, "all", "f1")
    keys = ("question", "generator", "amount", "set", "score")
    (largest,) = (row for row in record["tests"] if tuple(row[key] for key in keys) == largest_amount)
    gain = rewards["good"]["F1 over ce, paper 2 ×"]
    assert gain == pytest.approx({key: largest[key] for key in ("mean", "low", "high")})
    gains = [row for row in why["gain_by_question_type"] if row["generator"] == "good"]
    assert {row["question type"] for row in gains} == {"who", "when", "where", "what"}
    cells = {(cell.generator, cell.amount, cell.seed): tables[cell.reader.name] for cell in plan.cells}
    for row in gains:
        index = [word.lower() for word in WORDS].index(row["question type"])
        differences = [cells["good", 2, seed] - cells["none", 0, seed] for seed in (1, 2, 3)]
        assert row["mean"] == pytest.approx(np.mean(differences, axis=0)[index::4].mean()) and row["count"] == 30


def test_signatures_and_runs_are_those_of_the_resource(grid: tuple, tmp_path: Path) -> None:
    """Of two resources, whose miniatures differ; and of a generator that is the same for all seeds."""
    study, examples, plan = grid
    for name in ("good", "poor"):
        write_json(tmp_path / name / "trained.json", {"reward": f"{name}|version:1"})
        (tmp_path / name / "metrics.jsonl").write_text('{"stage": "scst", "step": 1, "eval_bleu4": 0.5}\n')
    cells = [replace(cell, run=tmp_path / cell.generator) for cell in plan.cells if cell.amount == 1]
    other = [replace(cell, resource="50", run=tmp_path / "poor") for cell in cells if cell.generator == "good"]
    twice = Grid((*cells, *other), plan.jobs)
    fill(study, examples, twice)
    results = StudyResults(study, examples, twice)
    record = write_study_output(results, twice, {}, [])
    assert [record["rewards"][f"good, resource {name}"] for name in (25, 50)] == ["good|version:1", "poor|version:1"]
    assert record["rewards"]["ce, resource 25"] is None
    assert [row["seeds"] for row in record["why"]["rewards"]] == [1, 1, 1]


def test_dots_are_hollow_where_a_seed_is_missing_everywhere() -> None:
    """The study has three seeds; of every cell two are done."""
    score = {"mean": 50.0, "low": 40.0, "high": 60.0}
    rows = [{"amount": n, "short": False, "seeds": [1, 2], "scores": {"all": {"f1": score}}} for n in (0, 1)]
    for seeds, hollow in ((3, 2), (2, 0)):
        axes = Figure().add_subplot()
        _draw(axes, seeds, {"good": (RUN_COLOURS[0], rows)}, "f1")
        *_, dots = axes.get_lines()
        assert len(dots.get_xdata()) == hollow


def test_numbers_that_round_to_a_digit_more_are_written_out() -> None:
    row = {"candidates": 999.7, "words": 9.96, "seeds": "1 2 3"}
    assert _with_units(row, 3) == {"candidates": "1,000", "words": "9.96", "seeds": "1 2 3"}


@pytest.mark.slow
def test_tables_and_page(grid: tuple, tmp_path: Path) -> None:
    study, examples, plan = grid
    fill(study, examples, plan)
    record = write_study_output(StudyResults(study, examples, plan), plan, {"reader-x": "no <room>"}, ["b", "c"])
    out = study.output_dir
    rows = list(csv.DictReader((out / "tables" / "cells.csv").open()))
    assert len(rows) == 7 * 3
    first = next(row for row in rows if row["generator"] == "good" and row["amount"] == "1.0" and row["set"] == "two")
    cell = next(row for row in record["cells"] if row["generator"] == "good" and row["amount"] == 1)
    assert float(first["f1_low"]) == cell["scores"]["two"]["f1"]["low"]
    assert len(list(csv.DictReader((out / "tables" / "tests.csv").open()))) == 12 * 3 * 2
    text = re.sub(" +", " ", (out / "tables.md").read_text())
    assert "| 25 | 10 | good | paper | 2 × | 19 of 20 * |" in text and "good|version:1" in text
    assert all((out / f"curves.{ending}").stat().st_size > 1000 for ending in ("png", "svg"))
    write_report([out], tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert not page.open and len(set(page.ids)) == len(page.ids)
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses)
    for text in (
        "good|version:1",
        "no <room>",
        "19 of 20 *",
        "2 that need them were left out",
        "Gain by reward, two",
    ):
        assert text in page.text, text
    assert page.tags.count("svg") == 1
    assert "<0.0001" in page.text and "0.0000" not in page.text  # a p-value is never 0
    assert not (out / "summary.json").exists()


def test_a_part_of_the_grid_is_reported(grid: tuple) -> None:
    study, examples, plan = grid
    with_one = replace_cells(plan, lambda cell: cell.generator in ("none", "good") and cell.amount < 2)
    fill(study, examples, with_one, without="good-paper-x1-s3")
    record = write_study_output(StudyResults(study, examples, plan), plan, {}, [])
    assert [(row["generator"], row["seeds"]) for row in record["cells"]] == [("none", [1, 2, 3]), ("good", [1, 2])]
    assert {(row["question"], tuple(row["seeds"])) for row in record["tests"]} == {("augmentation", (1, 2))}


def test_a_study_of_one_passage_has_no_intervals(grid: tuple, tmp_path: Path) -> None:
    study, examples, plan = grid
    fill(study, examples, plan)
    first, *_ = examples.validation
    alone = [replace(each, context=first.context, answers=first.answers) for each in examples.validation]
    record = write_study_output(StudyResults(study, replace(examples, validation=alone), plan), plan, {}, [])
    scores = [score for row in record["cells"] for name in row["scores"].values() for score in name.values()]
    for row in [*scores, *record["tests"], *record["why"]["gain_by_question_type"]]:
        assert row["low"] is None and row["high"] is None and row["passages"] == 1
    write_report([study.output_dir], tmp_path / "page.html")
    text = Page((tmp_path / "page.html").read_text()).text
    (gold,) = (row["scores"]["all"]["f1"]["mean"] for row in record["cells"] if row["generator"] == "none")
    assert f"{gold:.1f}" in text and f"{gold:.1f} [" not in text and "None" not in text
    assert "nan" not in (study.output_dir / "tables.md").read_text()


def test_differences_end_where_scores_cannot_differ_more(grid: tuple) -> None:
    """Of two passages, on one of which augmented readers have everything right and the one without has nothing."""
    study, examples, plan = grid
    fill(study, examples, plan)
    two = [replace(e, context=f"Ann and Bob, {e.id < '2'}") for e in examples.validation]
    for cell in plan.cells:
        f1 = {e.id: float(cell.augment is not None and e.id < "2") for e in examples.validation}
        scores = {name: {"exact_match": value, "f1": value} for name, value in f1.items()}
        write_json(cell.reader.results / "question_scores.json", scores)
    record = write_study_output(StudyResults(study, replace(examples, validation=two), plan), plan, {}, [])
    rows = [*record["tests"], *record["why"]["gain_by_question_type"]]
    ends = [row for row in rows if row["low"] is not None]
    assert ends and all(-100 <= row["low"] <= row["mean"] <= row["high"] <= 100 for row in ends)
    gains = [row for row in ends if row.get("question") == "augmentation" and row["set"] == "all"]
    assert gains and all((row["low"], row["high"]) == (-100, 100) for row in gains)


def replace_cells(plan: Grid, keep) -> Grid:
    return Grid(tuple(cell for cell in plan.cells if keep(cell)), plan.jobs)


@pytest.mark.slow
def test_runs_and_studies_on_one_page_and_a_broken_study(grid: tuple, tmp_path: Path) -> None:
    study, examples, plan = grid
    fill(study, examples, plan)
    write_study_output(StudyResults(study, examples, plan), plan, {}, [])
    run = tmp_path / "run"
    write_json(run / "run.json", {"seed": 5})
    write_report([run, study.output_dir], tmp_path / "page.html")
    page = Page((tmp_path / "page.html").read_text())
    assert not page.open and {"study-1", "run-1"} <= set(page.ids)
    (study.output_dir / "study.json").write_text('{"study": {}}')
    with pytest.raises(InputError, match=r"study\.json: not what rl-qg study writes"):
        write_report([study.output_dir], tmp_path / "page.html")
