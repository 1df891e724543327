"""The tables of `rl-qg correlate` about systems, raters and parts of the data, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_qg.evaluation.result_pages import MINUS, NONE, Table, estimate_text, p_text
from rl_qg.text.pages import Plot

Rows = Sequence[Mapping[str, Any]]
Plots = Mapping[tuple[str, str], Sequence[Plot]]
MOST_COLUMNS = 12  # metrics of a table whose columns are metrics
MOST_PAIRS = 4  # systems or subsets of a table with two columns for each
SYMBOLS = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}
SCORES, RATINGS = "scores_by_rating", "ratings_by_system"


def rating_tables(tables: Mapping[str, Rows], criteria: Sequence[str], plots: Plots) -> list[Table]:
    """Raters, systems, criteria and metrics with each other, parts of the data, distributions; empty ones left out."""
    shown = [_rater_filter(tables["rater_filter"]), _replication(tables["replication"])]
    shown += [_means(tables["means"], tables["agreement"], criteria), _metric_means(tables["means"])]
    shown += [
        _square(tables["criterion_pairs"], "criterion", "Criteria with each other"),
        _square(tables["metric_pairs"], "metric", "Metrics with each other"),
    ]
    shown += [_williams(tables["differences"], criterion) for criterion in criteria]
    for criterion in criteria:
        shown += [_parts(tables, criterion, column) for column in ("system", "subset")]
    for criterion in criteria:
        shown += [_ratings(tables[RATINGS], criterion, plots), _scores(tables[SCORES], criterion, plots)]
    return [table for table in shown if table is not None and table.rows]


def _of(rows: Rows, **wanted: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _rater_filter(rows: Rows) -> Table:
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault(row["criterion"], {"criterion": row["criterion"], "questions": f"{row['n']:,}"})
        line["ratings a question"] = f"{row['raters_before']:.2f} → {row['raters_after']:.2f}"
        line["removed"] = f"{row['removed']:,}"
        values = [NONE if row[when] is None else f"{row[when]:.3f}" for when in ("before", "after")]
        line[row["statistic"]] = " → ".join(values)
    note = (
        "Ratings far from the others of the same question are left out, before → after. Agreement rises by "
        "construction: what is left is what agrees."
    )
    return Table("Filter of ratings", [*lines.values()], note)


def _replication(rows: Rows) -> Table:
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault(row["criterion"], {"criterion": row["criterion"], "systems": str(row["n"])})
        symbol = SYMBOLS[row["coefficient"]]
        line[symbol] = estimate_text(row)
        line[f"p of {symbol}"] = p_text(row.get("p"))
    note = "Mean ratings of the systems in this file and in replication=, correlated."
    if alone := max((row["only_first"] + row["only_second"] for row in rows), default=0):
        note += f" Up to {alone} systems are in one of the files alone and do not count."
    return Table("Agreement with the second file of ratings", [*lines.values()], note)


def _means(rows: Rows, agreement: Rows, criteria: Sequence[str]) -> Table:
    lines: dict[str, dict[str, str]] = {}
    for row in _of(rows, of="criterion"):
        line = lines.setdefault(row["system"], {"system": row["system"], "questions": "0"})
        line["questions"] = f"{max(row['n'], int(line['questions'].replace(',', ''))):,}"
        line[row["name"]] = estimate_text(row)
    kappas = {row["criterion"]: row for row in agreement if row["statistic"] == "Fleiss' κ"}
    known = [
        f"{name} {kappas[name]['value']:.3f}"
        for name in criteria
        if name in kappas and kappas[name]["value"] is not None
    ]
    note = "Mean human ratings; brackets: 95 % bootstrap intervals over passages."
    if known:
        note += f" Fleiss' κ of the raters: {', '.join(known)}."
    return Table("Systems, mean ratings", [*lines.values()], note)


def _metric_means(rows: Rows) -> Table:
    metrics = list(dict.fromkeys(row["name"] for row in _of(rows, of="metric")))
    lines: dict[str, dict[str, str]] = {}
    for row in _of(rows, of="metric"):
        if row["name"] in metrics[:MOST_COLUMNS]:
            line = lines.setdefault(row["system"], {"system": row["system"]})
            line[row["name"]] = NONE if row["value"] is None else f"{row['value']:.4g}".replace("-", MINUS)
    note = "Mean scores; the sign of metrics that are better when lower is reversed."
    if len(metrics) > MOST_COLUMNS:
        note += f" {MOST_COLUMNS} of {len(metrics)} metrics; tables/means.csv has all."
    return Table("Systems, mean scores", [*lines.values()], note)


def _square(rows: Rows, kind: str, title: str) -> Table:
    """Spearman's ρ of every two, as a square."""
    values = {(row[kind], row["against"]): row for row in _of(rows, coefficient="spearman")}
    names = list(dict.fromkeys(name for pair in values for name in pair))
    shown = names[:MOST_COLUMNS]
    lines = [{kind: name} | {other: _cell(values, name, other) for other in shown} for name in names]
    doubtful = sum(row.get("p") is not None and row["p"] >= 0.05 for row in values.values())
    note = (
        f"Spearman's ρ at question level; p < 0.05 by t test for all but {doubtful} of {len(values)} pairs "
        f"(tables/{kind}_pairs.csv, with r and τ-b)."
    )
    if len(names) > MOST_COLUMNS:
        note += f" The first {MOST_COLUMNS} columns of {len(names)}."
    return Table(title, lines, note)


def _cell(values: Mapping[tuple[str, str], Mapping[str, Any]], name: str, other: str) -> str:
    if name == other:
        return "1"
    row = values.get((name, other)) or values[other, name]
    return estimate_text(row)


def _williams(rows: Rows, criterion: str) -> Table:
    """The p of Williams' test of every two metrics' ρ at question level, as a square (QG-Bench, figure 7)."""
    chosen = _of(rows, criterion=criterion, level="question", coefficient="spearman")
    p_of = {(row["metric"], row["against"]): row.get("williams_p") for row in chosen}
    names = list(dict.fromkeys(name for pair in p_of for name in pair))
    lines = [
        {"metric": name} | {other: p_text(p_of.get((name, other), p_of.get((other, name)))) for other in names}
        for name in names
    ]
    note = (
        "Two-sided p, not corrected for the number of pairs, of equal ρ with the rating; questions are taken as "
        "independent. tables/differences.csv has Holm's correction, and the p of the bootstrap."
    )
    few = len(names) <= MOST_COLUMNS
    return Table(f"{criterion}, Williams' test of metrics", lines if few else [], note)


def _parts(tables: Mapping[str, Rows], criterion: str, column: str) -> Table:
    """Metrics by system or subset: r and ρ, as in tables 6 and 9 of KPQA; ρ alone where there are many."""
    rows = _of(tables[f"by_{column}"], criterion=criterion)
    labels = list(dict.fromkeys(row[column] for row in rows if row["value"] is not None))
    sizes = {label: max(row["n"] for row in rows if row[column] == label) for label in labels}
    chosen = ("pearson", "spearman") if len(labels) <= MOST_PAIRS else ("spearman",)
    lines: dict[str, dict[str, str]] = {}
    for label in labels:
        for row in rows:
            if row[column] == label and row["coefficient"] in chosen:
                line = lines.setdefault(row["metric"], {"metric": row["metric"]})
                line[f"{label} ({sizes[label]:,}), {SYMBOLS[row['coefficient']]}"] = estimate_text(row, 2)
    note = f"Coefficients over the questions of each {column}; their number is after its name."
    return Table(f"{criterion}, by {column}", [*lines.values()], note)


def _ratings(rows: Rows, criterion: str, plots: Plots) -> Table:
    lines: dict[str, dict[str, str]] = {}
    for row in _of(rows, criterion=criterion):
        line = lines.setdefault(row["system"], {"system": row["system"]})
        line |= {"mean": f"{row['mean']:.3f}".replace("-", MINUS), "ratings": f"{row['n']:,}"}
        line[row["rating"]] = f"{100 * row['fraction']:.1f} %"
    note = "The share of each rating, of single ratings where the file has them, else of mean ratings."
    return Table(f"{criterion}, ratings by system", [*lines.values()], note, plots.get((RATINGS, criterion), ()))


def _scores(rows: Rows, criterion: str, plots: Plots) -> Table:
    chosen = _of(rows, criterion=criterion)
    ratings = list(dict.fromkeys(row["rating"] for row in chosen))
    sizes = {rating: max(row["n"] for row in chosen if row["rating"] == rating) for rating in ratings}
    lines: dict[str, dict[str, str]] = {}
    for row in chosen:
        line = lines.setdefault(row["metric"], {"metric": row["metric"]})
        line[f"{row['rating']} ({sizes[row['rating']]:,})"] = (
            f"{row['median']:.3g} [{row['q25']:.3g}, {row['q75']:.3g}]".replace("-", MINUS) if row["n"] else NONE
        )
    note = (
        "Median score and quartiles of the questions with each rating; the number of questions is after it. Mean "
        "ratings are rounded to whole ones where the scale has few steps."
    )
    shown = plots.get((SCORES, criterion), ())
    if shown:
        note += f" Drawn for {len(shown)} of {len(lines)} metrics, those with the highest τ-b; lines: 5 to 95 %."
    return Table(f"{criterion}, scores by rating", [*lines.values()], note, shown)
