"""`rl-qg rate analyse` from files to files, on simulated studies whose truth is known."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.rating.simulated_raters import HALO, HONEST, STRAIGHT_LINE, SimulatedRater, simulated_ratings
from rl_qg.judging.judgements import read_judgements
from rl_qg.rating.analysis.analyse import write_analysis
from rl_qg.rating.plan_files import Hit, Item, TaskPassage
from rl_qg.rating.protocol import DEGRADED, ORDINARY, REPEAT, Control, Criterion, Protocol, TaskRecipe
from rl_qg.runtime.errors import InputError
from rl_qg.settings.web import RateAnalyseSettings
from tests.rl_qg.rating.rating_rows import rating

TEXT = {"en": "A statement."}
ENDS = {"low": {"en": "no"}, "high": {"en": "yes"}}
CRITERIA = (
    Criterion("clear", TEXT, **ENDS),
    Criterion("odd", TEXT, reversed=True, **ENDS),
    Criterion("fits", TEXT, **ENDS),
)
PROTOCOL = Protocol(
    "small", "made up", CRITERIA, TaskRecipe(items=8, repeats=1, degraded=3), Control(), TEXT, (TEXT,), TEXT
)
CROWD = [SimulatedRater(f"r{at:02}", HONEST, bias=at - 5) for at in range(12)]
CROWD += [SimulatedRater("x0", HALO), SimulatedRater("x1", STRAIGHT_LINE)]
KINDS = (ORDINARY, ORDINARY, ORDINARY, REPEAT, DEGRADED, DEGRADED, DEGRADED)


def task(number: int) -> Hit:
    """Questions of ce, scst and both, a repeat, and three degraded ones."""
    systems = (("ce",), ("scst",), ("ce", "human"), ("ce",), ("ce",), ("scst",), ("ce", "human"))
    originals = (None, None, None, 1, 1, 2, 3)
    items = []
    for at, (kind, who, original) in enumerate(zip(KINDS, systems, originals, strict=True), 1):
        text = f"Question {original or at} of {number}{'?' * (2 if kind == DEGRADED else 1)}"
        items.append(Item(at, kind, 0, text, "Ada", 0, who, f"p{number}-Ada", original))
    return Hit(f"h{number:03}", "en", (TaskPassage(f"p{number}", "", f"Ada wrote program {number}."),), tuple(items))


def export(folder: Path, *, better: float = 15.0, seed: int = 1, crowd: list[SimulatedRater] = CROWD) -> Path:
    """The files of an export of 42 tasks."""
    hits = [task(number) for number in range(42)]
    ratings = [*simulated_ratings(hits, CRITERIA, crowd, better={"scst": better}, effect=30, seed=seed)]
    assignments = {one["assignment"]: one["rater"] for one in ratings}
    folder.mkdir(parents=True)
    lines(folder / "ratings.jsonl", ratings)
    lines(folder / "items.jsonl", [
        {"hit": hit.hit, "position": item.position, "question": item.question, "context": hit.passages[0].context,
         "answer": item.answer} for hit in hits for item in hit.items
    ])  # fmt: skip
    lines(folder / "assignments.jsonl", [
        {"assignment": name, "rater": rater, "state": "submitted", "seconds": 120 if rater < "x" else 60}
        for name, rater in assignments.items()
    ])  # fmt: skip
    lines(folder / "feedback.jsonl", [{"rater": "r01", "assignment": "h001-r01", "text": "<b>fun</b>"}])
    (folder / "plan.json").write_text(json.dumps({"study": "toy", "protocol": PROTOCOL.to_dict()}), encoding="utf-8")
    return folder


def lines(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")


def analysed(folder: Path, output: Path, **options: Any) -> dict[str, Any]:
    settings = RateAnalyseSettings(ratings=str(folder), output=str(output), **{"resamples": 200, **options})
    settings.check()
    return write_analysis(settings)


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, dict[str, Any]]:
    """The folder of an export, that of its analysis with a second run, and its record."""
    folder = tmp_path_factory.mktemp("toy")
    ratings, second = export(folder / "ratings"), export(folder / "second", seed=2)
    return ratings, folder / "out", analysed(ratings, folder / "out", replication=str(second))


def test_the_planted_system_is_preferred(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    _, output, record = toy
    assert record["conclusion"][0].startswith("People prefer scst to ")
    first = next(row for row in record["pairs"] if (row["preferred"], row["to"]) == ("scst", "ce"))
    assert first["low"] > 0 and first["p_holm"] < 0.05
    assert abs(first["mixed_difference"] - 15) < 3 * first["mixed_error"] < 12  # points, as planted
    page = (output / "analysis.html").read_text(encoding="utf-8")
    assert "People prefer scst to " in page and "http" not in page.replace("http-equiv", "").replace("www.w3.org", "")
    assert {file.stem for file in (output / "tables").iterdir()} == {
        "summary", "raters", "systems", "pairs", "pairs_by_criterion", "mixed_model", "replication", "left_out"
    }  # fmt: skip
    assert (output / "analysis.txt").read_text(encoding="utf-8").startswith("# toy\n")


def test_raters_who_do_not_see_what_they_rate_fail(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    record = toy[2]
    verdicts = {row["rater"]: row["verdict"] for row in record["raters"]}
    assert verdicts["x0"] == verdicts["x1"] == "failed"
    assert sum(verdicts[one.name] == "passed" for one in CROWD[:12]) >= 11
    rows = {row["raters"]: row for row in record["summary"]}
    assert rows["all"]["number"] == 14 and rows["all"]["tasks"] == 42 and rows["all"]["timed"] == 42
    assert (rows["passed"]["minutes"], rows["all"]["ratings"]) == (2, 42 * 7 * 3)
    assert all(row["p_item_means"] is not None and row["p_ratings"] is not None for row in record["raters"])


def test_nothing_is_lost_without_a_count(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    check_counts(toy[2])
    assert any(row["reason"] == "of 2 raters who failed the control" for row in toy[2]["left_out"])


def check_counts(record: dict[str, Any]) -> None:
    """Ratings in the scores, of degraded questions and left out are all ratings, each of them once."""
    degraded = sum(row["ratings"] for row in record["left_out"] if "degraded" in row["reason"])
    others = sum(row["ratings"] for row in record["left_out"] if "degraded" not in row["reason"])
    by_system = {row["system"]: row["ratings"] for row in record["systems"]}
    in_scores = by_system["ce"] + by_system["scst"]  # human's are also ce's
    assert in_scores + degraded + others == record["counts"]["ratings"] == 42 * 7 * 3
    assert record["counts"]["shared_questions"] == by_system["human"] // 3


def test_the_study_replicates(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    record = toy[2]
    r = next(row for row in record["replication"] if (row["criterion"], row["coefficient"]) == ("overall", "pearson"))
    assert r["value"] > 0.9 and r["n"] == 3
    assert any(text.startswith("Agreement with toy on the systems: r ") for text in record["conclusion"])


def test_judgements_are_those_of_correlate(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    """`rl-qg correlate` reads the file."""
    ratings, output, record = toy
    judgements = read_judgements(output / "judgements.jsonl")
    assert len(judgements) == 42 * 6 - 6 * 6  # six tasks each of two raters who failed
    controls = [one for one in judgements if one.control]
    plain = [one for one in judgements if not one.control]
    assert len(controls) == len(plain) and {len(one.raters) for one in judgements} == {1}
    shared = next(one for one in plain if len(one.systems) == 2)
    assert shared.systems == ("ce", "human") and shared.row.context is not None
    raw = analysed(ratings, output.parent / "raw", human="raw")
    (first, *_) = read_judgements(output.parent / "raw" / "judgements.jsonl")
    assert first.human == {name: given[0] for name, given in first.ratings.items()}
    assert raw["counts"] == record["counts"] | {"assignments": {"submitted": 42}}
    for name in {one.raters[0] for one in plain}:  # z is a linear function of a rater's ratings
        own = [(one.human[c], one.ratings[c][0]) for one in judgements if one.raters[0] == name for c in one.human]
        assert np.corrcoef(np.array(own, dtype=float).T)[0, 1] == pytest.approx(1, abs=1e-9)


def test_reversed_criteria_are_turned(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    """The simulated raters give `odd` low values to good questions."""
    scores = {(row["system"], row["criterion"]): row["value"] for row in toy[2]["systems"]}
    assert scores["scst", "odd"] > scores["ce", "odd"] and scores["degraded questions", "odd"] < scores["ce", "odd"]


def test_the_same_ratings_give_the_same_bytes(toy: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    """Also from the CSV twin of the ratings, packed, in another order."""
    ratings, output, _ = toy
    second = ratings.parent / "second"
    analysed(ratings, tmp_path / "again", replication=str(second))
    for name in ("analysis.html", "judgements.jsonl", "tables/pairs.csv", "tables/raters.csv"):
        assert (tmp_path / "again" / name).read_bytes() == (output / name).read_bytes(), name
    shuffled = tmp_path / "shuffled"
    shuffled.mkdir()
    for file in ratings.iterdir():
        if file.name != "ratings.jsonl":
            (shuffled / file.name).write_bytes(file.read_bytes())
    rows = (ratings / "ratings.jsonl").read_text(encoding="utf-8").splitlines()
    with gzip.open(shuffled / "ratings.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.write("\n".join(reversed(rows)))
    analysed(shuffled, tmp_path / "third", replication=str(second))
    for name in ("analysis.html", "tables/pairs.csv"):
        assert (tmp_path / "third" / name).read_bytes() == (output / name).read_bytes(), name


def test_human_questions_are_the_references_of_the_others(toy: tuple[Path, Path, dict[str, Any]]) -> None:
    """In each task people ask what ce asks too (question 3)."""
    rated = read_judgements(toy[1] / "judgements.jsonl")
    others = read_judgements(toy[1] / "judgements_references.jsonl")
    people = {one.row.context: one.row.question for one in rated if "human" in one.systems and not one.control}
    assert others and all(one.row.references == (people[one.row.context],) for one in others)
    assert {name for one in others for name in one.systems} == {"ce", "scst"}
    assert len(others) == len(rated)  # nobody but people asked no question here


def test_equal_systems_are_not_told_apart(tmp_path: Path) -> None:
    record = analysed(export(tmp_path / "ratings", better=0, seed=4), tmp_path / "out")
    assert all(text.startswith("It is not certain") for text in record["conclusion"][:3])


def test_options_of_the_control(toy: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    ratings, _, record = toy
    everybody = analysed(ratings, tmp_path / "all", raters="all")
    assert everybody["counts"]["ratings_that_count"] == 42 * 7 * 3 > record["counts"]["ratings_that_count"]
    assert any("of 1 rater without two different ratings" in row["reason"] for row in everybody["left_out"])
    check_counts(everybody)
    of_line = [one for one in read_judgements(tmp_path / "all" / "judgements.jsonl") if "x1" in one.raters]
    assert not of_line  # without a z, ratings would count on another scale
    strict = analysed(ratings, tmp_path / "strict", level=0.003, control_unit="ratings", control_criteria=["clear"])
    assert strict["control"]["criteria"] == ["clear"] and strict["control"]["unit"] == "ratings"
    assert {row["rater"] for row in strict["raters"] if row["verdict"] == "passed"} == {
        row["rater"] for row in strict["raters"] if row["p_ratings"] < 0.003
    }


def test_nobody_passed(tmp_path: Path) -> None:
    crowd = [SimulatedRater("x0", STRAIGHT_LINE), SimulatedRater("x1", STRAIGHT_LINE)]
    record = analysed(export(tmp_path / "ratings", crowd=crowd), tmp_path / "out")
    assert record["conclusion"] == [
        "No scores: none of 2 raters passed the control (2 failed, 0 with too few pairs); raters=all counts everybody."
    ]
    assert record["systems"] == [] and len(record["raters"]) == 2
    assert not (tmp_path / "out" / "judgements.jsonl").exists()


def test_the_filter_of_kpqa_needs_several_raters(tmp_path: Path) -> None:
    """Three raters a task: agreement before and after."""
    hits = [task(number) for number in range(10)]
    rows = [*simulated_ratings(hits, CRITERIA, CROWD[:9], raters_per_hit=3, effect=40, seed=3)]
    lines(tmp_path / "ratings.jsonl", rows)
    options = {"raters": "all", "rater_filter": "both_sides", "reversed": ["odd"]}
    record = analysed(tmp_path / "ratings.jsonl", tmp_path / "out", **options)
    alpha = {
        row["ratings"]: row["value"]
        for row in record["agreement"]
        if row["criterion"] == "clear" and "interval" in row["statistic"]
    }
    assert alpha["filtered"] > alpha["all"]
    assert any("rater_filter" in row["reason"] for row in record["left_out"])


def test_one_system_alone(tmp_path: Path) -> None:
    rows = [one for one in simulated_ratings([task(0), task(1)], CRITERIA, CROWD[:2]) if one["systems"] == ["ce"]]
    lines(tmp_path / "ratings.jsonl", rows)
    record = analysed(tmp_path / "ratings.jsonl", tmp_path / "out", raters="all")
    assert record["conclusion"] == ["Nothing to compare: all ratings are of one system (ce)."]
    assert record["pairs"] == [] and {row["system"] for row in record["systems"]} == {"ce", "degraded questions"}


def test_systems_on_different_criteria(tmp_path: Path) -> None:
    shared, alone = ([rating(who, at, at, system=name, criterion=c, hit=f"h{at}") for who in "rs" for at in (1, 2)]
                     for name, c in (("ce", "c"), ("scst", "d")))  # fmt: skip
    lines(tmp_path / "ratings.jsonl", [*shared, *({**one, "position": 9} for one in alone)])
    record = analysed(tmp_path / "ratings.jsonl", tmp_path / "out")
    assert record["conclusion"] == ["Nothing to compare: no two systems were rated on all criteria."]


def test_one_rater_of_one_task(tmp_path: Path) -> None:
    """As somebody who tries a study: no interval, and nothing certain."""
    lines(tmp_path / "ratings.jsonl", [*simulated_ratings([task(0)], CRITERIA, CROWD[:1])])
    record = analysed(tmp_path / "ratings.jsonl", tmp_path / "out", reversed=["odd"])
    assert (
        "decide on nobody (3 pairs: p cannot be below 0.125 without ties), so all raters count."
        in (tmp_path / "out" / "analysis.txt").read_text()
    )
    assert all(text.startswith("It is not certain") for text in record["conclusion"][:3])
    assert {row["p"] for row in record["pairs"]} == {None}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ratings": ""}, "ratings has no value"),
        ({"ratings": "nowhere.jsonl"}, "ratings=nowhere.jsonl: no such file"),
        ({"output": ""}, "output has no value"),
        ({"control_criteria": ["wit"]}, "control_criteria: nobody rated 'wit'; the criteria are clear, odd, fits"),
        ({"reversed": ["odd"]}, "reversed and scale are of a file alone"),
        ({"replication": "nowhere"}, "replication=nowhere: no such file"),
    ],
)
def test_what_cannot_be_analysed(
    toy: tuple[Path, Path, dict[str, Any]], tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    settings = RateAnalyseSettings(ratings=str(toy[0]), output=str(tmp_path / "out"), resamples=5)
    with pytest.raises(InputError) as error:
        write_analysis(replace(settings, **options))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_no_criterion_is_called_as_the_mean_of_all(tmp_path: Path) -> None:
    for taken, what in (
        ("overall", "the mean over criteria"),
        ("system", "another column"),
        ("shown", "another column"),
    ):
        rows = [rating("r", at, at, criterion=name) for at in (1, 2) for name in ("c", taken)]
        lines(tmp_path / "ratings.jsonl", rows)
        with pytest.raises(InputError, match=rf"ratings\.jsonl: criterion '{taken}' is the name of {what}"):
            analysed(tmp_path / "ratings.jsonl", tmp_path / "out")


def test_an_export_whose_files_do_not_fit(toy: tuple[Path, Path, dict[str, Any]], tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in toy[0].iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "items.jsonl").write_text('{"hit": "h000", "position": 1, "question": "?", "context": "."}\n')
    with pytest.raises(InputError, match=r"h\d+ has no item \d+ in items.jsonl"):
        analysed(broken, tmp_path / "out")
    (broken / "plan.json").write_text("{}")
    with pytest.raises(InputError, match="field 'protocol' is missing"):
        analysed(broken, tmp_path / "out")


def test_a_second_analysis_leaves_no_table_of_the_first(tmp_path: Path) -> None:
    """The first has tables of a second run, of agreement and of pairs, which ratings of one system do not have."""
    rows = [*simulated_ratings([task(number) for number in range(4)], CRITERIA, CROWD[:9], raters_per_hit=3, seed=3)]
    lines(tmp_path / "many.jsonl", rows)
    lines(tmp_path / "one.jsonl", [one for one in rows if one["rater"] == "r00" and one["systems"] == ["ce"]])
    options: dict[str, Any] = {"raters": "all", "resamples": 40}
    second = str(tmp_path / "many.jsonl")
    analysed(tmp_path / "many.jsonl", tmp_path / "out", replication=second, **options)
    tables = tmp_path / "out" / "tables"
    assert all((tables / f"{name}.csv").is_file() for name in ("replication", "agreement", "pairs"))
    for folder in ("out", "new"):
        analysed(tmp_path / "one.jsonl", tmp_path / folder, **options)
    names = {file.name for file in tables.iterdir()}
    assert names == {file.name for file in (tmp_path / "new" / "tables").iterdir()}
    assert not {"replication.csv", "agreement.csv", "pairs.csv"} & names


def test_results_may_be_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    lines(tmp_path / "ratings.jsonl", [*simulated_ratings([task(0)], CRITERIA, CROWD[:1])])
    analysed(tmp_path / "ratings.jsonl", Path("~/out"), resamples=40)
    assert (tmp_path / "home" / "out" / "analysis.html").is_file() and not Path("~").exists()
