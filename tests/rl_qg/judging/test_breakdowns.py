"""Parts of the data, pairs of criteria and metrics, means of systems, distributions, disagreements; against scipy and
values by hand.
"""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rl_qg.judging.analysis import rating_levels, subsets_of
from rl_qg.judging.correlate import correlate
from rl_qg.judging.judgements import read_judgements
from rl_qg.judging.tables import judgement_plots
from rl_qg.runtime.errors import InputError
from rl_qg.settings import CorrelateSettings
from tests.toy_metrics import WordCount, rated, write_lines

SCIPY = {"pearson": stats.pearsonr, "spearman": stats.spearmanr, "kendall": stats.kendalltau}


def run(tmp_path: Path, rows: Any = None, **options: Any) -> dict[str, Any]:
    tmp_path.mkdir(exist_ok=True)
    path = write_lines(tmp_path / "human.jsonl", rows or rated())
    settings = CorrelateSettings(human=str(path), **{"resamples": 50, "max_selected": 0, **options})
    metrics = {"words": WordCount(), "fewer": WordCount(-1)}
    return correlate(metrics, settings, tmp_path / "out", judgement_plots)


def pick(rows: list[dict[str, Any]], **wanted: Any) -> dict[str, Any]:
    (row,) = [row for row in rows if all(row[key] == value for key, value in wanted.items())]
    return row


def words(row: dict[str, Any]) -> float:
    return float(len(row["question"].split()))


def good(row: dict[str, Any]) -> float:
    return row["human"]["good"]


def test_p_values_are_those_of_scipy(tmp_path: Path) -> None:
    rows = rated()
    record = run(tmp_path, rows)
    means = [
        [np.mean([value(row) for row in rows if row["system"] == one]) for one in "abcd"] for value in (words, good)
    ]
    given = [[row["metrics"]["given"] for row in rows], [*map(good, rows)]]
    columns = {("words", "question"): ([*map(words, rows)], given[1]), ("words", "system"): means}
    for (metric, level), (x, y) in ({**columns, ("authors/given", "question"): given}).items():
        for name, slow in SCIPY.items():
            chosen = {"criterion": "good", "level": level, "metric": metric, "coefficient": name}
            assert pick(record["correlations"], **chosen)["p"] == pytest.approx(slow(x, y).pvalue, abs=1e-12)
    same = pick(record["correlations"], criterion="same", level="question", metric="words", coefficient="pearson")
    assert "p" not in same
    text = (tmp_path / "out" / "correlate.txt").read_text(encoding="utf-8")
    assert "r is not significant (t test, p ≥ 0.05): authors/given." in text


def test_williams_test_of_ranks(tmp_path: Path) -> None:
    """That of r on the ranks, whose Pearson correlation is ρ."""
    rows = rated()
    run(tmp_path / "values", rows)
    for row, *ranks in zip(
        rows,
        stats.rankdata([*map(good, rows)]),
        stats.rankdata([*map(words, rows)]),
        stats.rankdata([row["metrics"]["given"] for row in rows]),
        strict=True,
    ):
        row |= {"human": {"good": ranks[0]}, "ratings": None, "metrics": {"words": ranks[1], "given": ranks[2]}}
    run(tmp_path / "ranks", rows)
    found = []
    for folder, coefficient, metric, against in (
        ("values", "spearman", "words", "authors/given"),
        ("ranks", "pearson", "authors/words", "authors/given"),
    ):
        with (tmp_path / folder / "out" / "tables" / "differences.csv").open() as stream:
            rows_read = list(csv.DictReader(stream))
        key = {"criterion": "good", "level": "question", "coefficient": coefficient}
        row = pick(rows_read, **key, metric=metric, against=against)
        found.append([float(row["williams_t"]), float(row["williams_p"])])
    assert found[0] == pytest.approx(found[1]) and found[0][1] < 0.05
    text = (tmp_path / "values" / "out" / "correlate.txt").read_text(encoding="utf-8")
    line = next(part for part in text.split("## good, Williams")[1].splitlines() if part.startswith("| words "))
    shown = "<0.0001" if found[0][1] < 0.0001 else f"{found[0][1]:.4f}"
    assert line.split(" | ")[3].strip(" |") == shown
    kendall = [row for row in rows_read if row["coefficient"] == "kendall"]
    assert kendall and not any(row["williams_t"] for row in kendall)


def test_coefficients_of_each_system(tmp_path: Path) -> None:
    rows = rated(25)
    record = run(tmp_path, rows)
    for system in "abcd":
        own = [row for row in rows if row["system"] == system]
        for name, slow in SCIPY.items():
            chosen = {"criterion": "good", "metric": "words", "system": system, "coefficient": name}
            row = pick(record["by_system"], **chosen)
            result = slow([*map(words, own)], [*map(good, own)])
            assert (row["n"], row["value"]) == (25, pytest.approx(result.statistic))
            assert row["p"] == pytest.approx(result.pvalue, abs=1e-12)
    few = run(tmp_path / "few", rated(10))["by_system"]
    assert {(row["value"], row["why"]) for row in few} == {(None, "fewer than 20 questions")}
    assert run(tmp_path / "one", [{**row, "system": "a"} for row in rows])["by_system"] == []


def test_subsets_of_the_file_and_by_sentences(tmp_path: Path) -> None:
    rows = [
        {"question": "It is. It was.", "references": ["One.", "One. Two."], "subset": ["a", "b"]},
        {"question": "Dr. No is here.", "references": ["One. Two.", "One! Two."], "subset": "b"},
        {"question": "It is."},
    ]
    judgements = read_judgements(write_lines(tmp_path / "h.jsonl", rows))

    def found(of: str) -> dict[str, list[int]]:
        return {name: np.flatnonzero(mask).tolist() for name, mask in subsets_of(judgements, of).items()}

    assert found("none") == {"a": [0], "b": [0, 1]}
    assert found("question") == {"a": [0], "b": [0, 1], "one sentence": [1, 2], "several sentences": [0]}
    assert found("references") == {"a": [0], "b": [0, 1], "one sentence": [0], "several sentences": [1]}
    rows = [{**row, "subset": "odd" if number % 2 else None} for number, row in enumerate(rated(12))]
    record = run(tmp_path / "run", rows)
    row = pick(record["by_subset"], criterion="good", metric="words", coefficient="spearman")
    odd = rows[1::2]
    assert (row["subset"], row["n"]) == ("odd", 24)
    assert row["value"] == pytest.approx(stats.spearmanr([*map(words, odd)], [*map(good, odd)]).statistic)


def test_criteria_and_metrics_with_each_other(tmp_path: Path) -> None:
    rows = rated()
    for number, row in enumerate(rows):
        row["human"]["also"] = good(row) + number % 3
        row["metrics"] = {"given": row["metrics"]["given"]} if number else {}
    record = run(tmp_path, rows)
    also = [row["human"]["also"] for row in rows]
    for name, slow in SCIPY.items():
        row = pick(record["criterion_pairs"], criterion="good", against="also", coefficient=name)
        result = slow([*map(good, rows)], also)
        assert (row["value"], row["n"]) == (pytest.approx(result.statistic), 48)
        assert row["p"] == pytest.approx(result.pvalue, abs=1e-12)
        given = slow([*map(words, rows[1:])], [row["metrics"]["given"] for row in rows[1:]])
        row = pick(record["metric_pairs"], metric="words", against="authors/given", coefficient=name)
        assert (row["value"], row["n"]) == (pytest.approx(given.statistic), 47)
        assert pick(record["metric_pairs"], metric="words", against="fewer", coefficient=name)[
            "value"
        ] == pytest.approx(-1)
    same = pick(record["criterion_pairs"], criterion="good", against="same", coefficient="kendall")
    assert (same["value"], same["why"]) == (None, "all values of same are equal")


def test_means_of_systems(tmp_path: Path) -> None:
    rows = rated()
    rows[0]["human"] = {"same": 3}
    rows[0]["ratings"] = None
    record = run(tmp_path, rows)
    own = [good(row) for row in rows[1:] if row["system"] == "a"]
    row = pick(record["means"], system="a", name="good")
    assert (row["of"], row["n"], row["value"]) == ("criterion", 11, pytest.approx(np.mean(own)))
    assert row["low"] < row["value"] < row["high"]
    row = pick(record["means"], system="b", name="fewer")
    assert row["value"] == pytest.approx(-np.mean([words(one) for one in rows if one["system"] == "b"]))
    assert row["of"] == "metric"
    kappa = [{**row, "ratings": {"good": [1, 1 + number % 2]}} for number, row in enumerate(rows)]
    run(tmp_path / "kappa", kappa)
    assert "Fleiss' κ of the raters: good " in (tmp_path / "kappa" / "out" / "correlate.txt").read_text(
        encoding="utf-8"
    )


def test_two_files_of_ratings(tmp_path: Path) -> None:
    rows = rated()
    second = [
        {**row, "human": {"good": 6 - good(row) + number % 5 / 4}}
        for number, row in enumerate(rated(seed=3))
        if row["system"] != "d"
    ]
    path = write_lines(tmp_path / "second.jsonl", [*second, {**second[0], "system": "z"}])
    record = run(tmp_path, rows, replication=str(path))
    means = [
        [np.mean([good(row) for row in part if row["system"] == one]) for one in "abc"] for part in (rows, second)
    ]
    for name, slow in SCIPY.items():
        row = pick(record["replication"], criterion="good", coefficient=name)
        result = slow(*means)
        assert (row["value"], row["n"]) == (pytest.approx(result.statistic), 3)
        assert row["p"] == pytest.approx(result.pvalue, abs=1e-12)
        assert (row["only_first"], row["only_second"]) == (1, 1)
    assert {row["criterion"] for row in record["replication"]} == {"good"}
    assert (
        "Not in second.jsonl, and so not compared with it: same." in (tmp_path / "out" / "correlate.txt").read_text()
    )
    with pytest.raises(InputError, match=r"replication=.*no criterion of the first file; it has other"):
        other = write_lines(tmp_path / "other.jsonl", [{"question": "q", "human": {"other": 1}}])
        run(tmp_path, rows, replication=str(other))
    with pytest.raises(InputError, match=r"replication=none\.jsonl: no such file"):
        run(tmp_path, rows, replication="none.jsonl")


@pytest.mark.parametrize("nameless", ["first", "second", "neither"])
def test_two_files_without_a_system_in_common(tmp_path: Path, nameless: str) -> None:
    first = rated()
    second = [{**row, "system": f"other {row['system']}"} for row in first]
    for row in {"first": first, "second": second, "neither": []}[nameless]:
        del row["system"]
    path = write_lines(tmp_path / "second.jsonl", second)
    with pytest.raises(
        InputError, match=r"replication=.*second\.jsonl: .* no system in common; give the field system"
    ):
        run(tmp_path, first, replication=str(path))
    assert not (tmp_path / "out").exists()  # nothing was scored before


def test_overall_is_compared_where_both_files_have_the_same_criteria(tmp_path: Path) -> None:
    first = [
        {**row, "human": {"a": good(row), "b": number % 3}, "ratings": None} for number, row in enumerate(rated())
    ]
    same = write_lines(tmp_path / "same.jsonl", first)
    record = run(tmp_path, first, replication=str(same), overall=True)
    assert {row["criterion"] for row in record["replication"]} == {"a", "b", "overall"}
    fewer = write_lines(
        tmp_path / "fewer.jsonl", [{**row, "human": {"a": good(row)}, "ratings": None} for row in rated()]
    )
    record = run(tmp_path, first, replication=str(fewer), overall=True)
    assert {row["criterion"] for row in record["replication"]} == {"a"}
    assert "not compared with it: b, overall." in (tmp_path / "out" / "correlate.txt").read_text(encoding="utf-8")


def test_ratings_of_the_second_file_without_spread(tmp_path: Path) -> None:
    def named(values: list[float], row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "ratings": {"good": values}, "human": {}, "raters": ["r1", "r2"]}

    first = [named([number % 3, number % 2], row) for number, row in enumerate(rated())]
    path = write_lines(tmp_path / "second.jsonl", [named([2, 2], row) for row in rated()])
    with pytest.raises(InputError, match=r"replication=.*second\.jsonl: standardise: no rater"):
        run(tmp_path, first, replication=str(path), standardise="rater")


def test_ratings_that_are_told_apart() -> None:
    def levels(*values: float) -> list[str]:
        labels, index = rating_levels(np.array(values))
        return [labels[number] if number >= 0 else "" for number in index]

    assert levels(0, 1, 1, np.nan) == ["0", "1", "1", ""]
    assert levels(1, 1.5, 2, 2.5) == ["1", "1.5", "2", "2.5"]
    fifths = np.arange(5, 16) / 5  # means of five ratings from 1 to 3
    assert levels(*fifths) == ["1"] * 3 + ["2"] * 5 + ["3"] * 3
    assert levels(*np.arange(1, 4.01, 0.5)) == ["1", "2", "2", "3", "3", "4", "4"]  # halves upwards
    tenths = levels(*range(0, 101, 10))
    assert tenths[:2] == ["0 to 20"] * 2 and tenths[2] == "20 to 40" and tenths[-3:] == ["80 to 100"] * 3


def test_scores_by_rating_and_ratings_by_system(tmp_path: Path) -> None:
    rows = rated()
    record = run(tmp_path, rows)
    for level in "12345":
        chosen = [words(row) for row in rows if int(good(row) + 0.5) == int(level)]
        row = pick(record["scores_by_rating"], criterion="good", metric="words", rating=level)
        assert row["n"] == len(chosen) > 0
        keys = [row[key] for key in ("low", "q25", "median", "q75", "high")]
        assert keys == pytest.approx(np.quantile(chosen, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist())
    single = [value for row in rows if row["system"] == "c" for value in row["ratings"]["good"]]
    for level in "12345":
        row = pick(record["ratings_by_system"], criterion="good", system="c", rating=level)
        assert (row["count"], row["n"], row["questions"]) == (single.count(float(level)), len(single), 12)
        assert row["fraction"] == pytest.approx(row["count"] / row["n"])
        assert row["mean"] == pytest.approx(np.mean([good(row) for row in rows if row["system"] == "c"]))
    html = (tmp_path / "out" / "correlate.html").read_text(encoding="utf-8")
    assert html.count("<svg") == 2 * 3 + 2  # each criterion: three metrics, and the systems


def test_drawings_have_the_length_of_the_mean(tmp_path: Path) -> None:
    tables = run(tmp_path)
    plots = judgement_plots(tables)
    assert plots["scores_by_rating", "good"][0].title == "words"  # the highest τ-b first
    (plot,) = plots["ratings_by_system", "good"]
    assert [label for label, _, _ in plot.legend] == list("12345")
    below = [{**row, "mean": -1.0} for row in tables["ratings_by_system"]]
    assert ("ratings_by_system", "good") not in judgement_plots({**tables, "ratings_by_system": below})


def test_the_largest_disagreements_by_hand(tmp_path: Path) -> None:
    """Ranks from the best. People: 1, 2.5, 2.5, 4. Words: 4, 2.5, 1, 2.5. Differences: -3, 0, 1.5, 1.5."""
    rows = [
        {"question": "Who a?", "human": {"ok": 9}},
        {"question": "Who a b?", "human": {"ok": 5}},
        {"question": "When a b c?", "human": {"ok": 5}, "context": "a passage", "system": ["s", "t"]},
        {"question": "Why a b?", "human": {"ok": 1}, "type": "NUMERIC"},
    ]
    record = run(tmp_path, rows)
    with (tmp_path / "out" / "tables" / "disagreements.csv").open() as stream:
        cases = [row for row in csv.DictReader(stream) if row["metric"] == "words"]
    assert [(row["question"], float(row["difference"])) for row in cases] == [
        ("Who a?", -3),
        ("When a b c?", 1.5),
        ("Why a b?", 1.5),
    ]
    assert (cases[1]["system"], cases[1]["rank_people"], cases[1]["score"]) == ("s, t", "2.5", "4.0")
    types = {row["type"]: (row["cases"], row["of"], row["questions"]) for row in record["disagreement_types"][:3]}
    assert types == {"who": (1, 3, 2), "when": (1, 3, 1), "NUMERIC": (1, 3, 1)}
    assert record["disagreements"] == {"file": "tables/disagreements.csv", "rows": 3 + 2}  # fewer: 0, 0, -1.5, 1.5


def test_disagreements_of_an_earlier_run_are_removed(tmp_path: Path) -> None:
    page = tmp_path / "out" / "disagreements.html"
    run(tmp_path)
    assert page.exists() and page.name in (tmp_path / "out" / "correlate.html").read_text()
    run(tmp_path, disagreements=0)
    assert not page.exists() and page.name not in (tmp_path / "out" / "correlate.html").read_text()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("options", [{}, {"standardise": "rater"}, {"rater_filter": "both_sides"}])
def test_the_largest_numbers_give_finite_results(tmp_path: Path, options: dict[str, str]) -> None:
    """Ratings and scores times 2^160 (1.5e48), which rounds nothing, have the coefficients that they have without."""

    def scaled(factor: float) -> list[dict[str, Any]]:
        return [
            {
                **row,
                "human": {},
                "ratings": {"good": [factor * (good(row) - 3) / 3, factor * (number % 3 - 1)]},
                "raters": ["r1", "r2"],
                "metrics": {"given": factor * (number % 5 - 2) / 2},
            }
            for number, row in enumerate(rated())
        ]

    small, large = (run(tmp_path / f"{at}", scaled(at), **options, max_selected=2) for at in (1.0, 2.0**160))
    for mine, other in zip(large["correlations"], small["correlations"], strict=True):
        assert mine["value"] == (other["value"] and pytest.approx(other["value"]))
    json.dumps(large, allow_nan=False)
