"""The leaderboard: models × data × metrics on one page, the best marked only among those that do not differ from it
significantly.

    rl-qg bench report RESULTS… output=leaderboard
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_qg.bench.leaderboard_results import ModelScore, read_results
from rl_qg.confidence_intervals import holm
from rl_qg.evaluation.prediction_analysis import CORPUS, MEAN
from rl_qg.evaluation.result_pages import Page, Table, as_text, estimate_text, p_text, write_results
from rl_qg.evaluation.score_draws import paired_difference
from rl_qg.runtime.json_files import atomic_writer
from rl_qg.text.tables import as_csv

log = logging.getLogger(__name__)
LEVEL = 0.05
BEST, ALIKE, WORSE, UNTESTED, ALONE = "best", "not different from the best", "worse", "not tested", "alone"
MARKS = {BEST: " *", ALIKE: " *", UNTESTED: " ?", WORSE: "", ALONE: ""}
Rows = list[dict[str, Any]]
NOTE = (
    "*: the best value of a column, and those that do not differ from it significantly: paired bootstrap over the "
    f"same passages, p ≥ {LEVEL:g} after Holm's correction over the tests against the best of the column. ?: not "
    "tested against the best, as it has other rows, another seed of the draws, rows without a score, or no draws. "
    "Without a single test a column has no star."
)


def write_leaderboard(sources: Sequence[tuple[str | None, Path]], folder: Path) -> dict[str, Any]:
    """Read results, test them, write `leaderboard.html`, `.csv`, `.json`, `.txt` and `tables/tests.csv` to `folder`;
    return the record.

    Raises:
        InputError: as of `read_results`; the folder cannot be written.
    """
    results = read_results(sources)
    rows, tests = compared(results)
    labels = column_labels(results)
    record: dict[str, Any] = {
        "sources": [str(source) for _, source in sources],
        "scores": rows,
        "tests": tests,
        "signatures": {label: column[1] for column, label in labels.items()},
    }
    page = _page(results, rows, tests, labels)
    write_results(folder, "leaderboard", record, page, {"tests": tests})
    with atomic_writer(folder / "leaderboard.csv") as stream:
        stream.write(as_csv(rows))
    log.info("%s\ndone: open %s", as_text(page), folder / "leaderboard.html")
    return record


def compared(results: Sequence[ModelScore]) -> tuple[Rows, Rows]:
    """A row for each result with its place against the best of its column (`mark`), and one for each test.

    A column has the results with the same data, metric, form and signature. The best is tested against every other one
    with paired draws; Holm's correction is over these tests, of which the number does not grow with other columns.
    """
    columns: defaultdict[tuple[str, ...], list[ModelScore]] = defaultdict(list)
    for result in results:
        columns[result.column].append(result)
    rows: Rows = []
    tests: Rows = []
    for column in columns.values():
        sign = -1 if column[0].lower_is_better else 1
        best = max(column, key=lambda result: sign * result.value)
        of_column = _tests(best, column)
        tests += of_column
        corrected = {row["against"]: row for row in of_column}
        rows += [_row(result, best, corrected, alone=len(column) < 2) for result in column]
    return rows, tests


def _tests(best: ModelScore, column: Sequence[ModelScore]) -> Rows:
    rows: Rows = []
    for other in column:
        if other is best or best.draws is None or other.draws is None or not best.draws.is_paired_with(other.draws):
            continue
        difference = paired_difference(best.draws, other.draws)
        if difference["p"] is not None:
            key = {"data": best.data, "metric": best.metric, "form": best.form}
            rows.append({**key, "best": best.model, "against": other.model, **difference})
    for row, p in zip(rows, holm([row["p"] for row in rows]), strict=True):
        row |= {"p_holm": p, "family": len(rows)}
    return rows


def _row(
    result: ModelScore, best: ModelScore, tests: Mapping[str, Mapping[str, Any]], *, alone: bool
) -> dict[str, Any]:
    test = tests.get(result.model)
    if alone:
        mark = ALONE
    elif result is best:
        mark = BEST if tests else UNTESTED
    else:
        mark = UNTESTED if test is None else ALIKE if test["p_holm"] >= LEVEL else WORSE
    return {
        **{"data": result.data, "model": result.model, "metric": result.metric, "form": result.form},
        **{"value": result.value, "low": result.low, "high": result.high, "n": result.n, "mark": mark},
        "p": test and test["p"],
        "p_holm": test and test["p_holm"],
        "lower_is_better": result.lower_is_better,
        "signature": result.signature,
        "source": str(result.source),
    }


# --- For people ---


def column_labels(results: Sequence[ModelScore]) -> dict[tuple[str, str, str], str]:
    """The name of each metric, signature and form on the page: with a number where one metric has several signatures.

    Of a metric with a corpus score the page has that one alone, as published tables do; the CSV has both.
    """
    corpus = {(result.metric, result.signature) for result in results if result.form == CORPUS}
    signatures: defaultdict[str, dict[str, None]] = defaultdict(dict)
    for result in results:
        signatures[result.metric][result.signature] = None
    labels: dict[tuple[str, str, str], str] = {}
    for result in results:
        if result.form == MEAN and (result.metric, result.signature) in corpus:
            continue
        number = list(signatures[result.metric]).index(result.signature) + 1
        label = result.metric + (f" ({number})" if len(signatures[result.metric]) > 1 else "")
        if result.form not in (MEAN, CORPUS) and not result.metric.startswith("qa_"):
            label += f", {result.form}"
        labels[result.metric, result.signature, result.form] = label
    return labels


def _page(results: Sequence[ModelScore], rows: Rows, tests: Rows, labels: Mapping[tuple[str, str, str], str]) -> Page:
    models = dict.fromkeys(result.model for result in results)
    tables: list[Table] = []
    for data in dict.fromkeys(result.data for result in results):
        lines: dict[str, dict[str, str]] = {}
        for row in rows:
            label = labels.get((row["metric"], row["signature"], row["form"]))
            if row["data"] == data and label is not None:
                line = lines.setdefault(row["model"], {"model": row["model"]})
                line[label + (" ↓" if row["lower_is_better"] else "")] = _cell(row)
        tables.append(Table(data, [lines[model] for model in models if model in lines], "" if tables else NOTE))
    shown = [row for row in tests if (row["metric"], row["form"]) in {(metric, form) for metric, _, form in labels}]
    if shown:
        note = "The best minus another, on the same rows and draws; Holm's correction over a column's tests."
        tables.append(Table("Tests against the best", [_test(row) for row in shown], note))
    data_sets = len({result.data for result in results})
    facts = [f"{len(models)} models, {data_sets} data sets, {len(labels)} metrics. Brackets: 95 % intervals."]
    facts.append("↓: better when lower. Where a metric has several signatures its columns are numbered.")
    signatures = {label: signature for (_, signature, _), label in labels.items()}
    return Page("bench report", "Leaderboard", facts, tables, signatures)


def _cell(row: Mapping[str, Any]) -> str:
    digits = 2 if row["metric"].startswith("qa_") else 4
    return estimate_text(row, digits) + MARKS[row["mark"]]


def _test(row: Mapping[str, Any]) -> dict[str, str]:
    return {
        "data": row["data"],
        "metric": row["metric"],
        "models": f"{row['best']} − {row['against']}",
        "difference": estimate_text(row, 4, signed=True),
        "p": p_text(row["p"]),
        "p (Holm)": p_text(row["p_holm"]),
    }
