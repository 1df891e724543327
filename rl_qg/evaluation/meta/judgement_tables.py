"""The tables of `rl-qg correlate` that people read."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_qg.evaluation.result_pages import NONE, Table, estimate_text

SYMBOLS = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}
RANKED_BY = "kendall"
Rows = Sequence[Mapping[str, Any]]


def judgement_tables(found: Mapping[str, Rows], criteria: Sequence[str]) -> list[Table]:
    """For each criterion a table of metrics, best first; then agreement, types and redundancy."""
    tables = [Table(criterion, _metrics(found, criterion), _note(found, criterion)) for criterion in criteria]
    if rows := _agreement(found["agreement"]):
        tables.append(Table("Agreement between raters", rows, "1: perfect, 0: what chance gives."))
    for criterion in criteria:
        if rows := _by_type(found["by_type"], criterion):
            note = "Spearman's ρ at question level; the number of questions stands beside the type."
            tables.append(Table(f"{criterion}, by type of question", rows, note))
    for criterion in criteria:
        if rows := _redundancy(found["redundancy"], criterion):
            note = _redundancy_note(found, criterion)
            tables.append(Table(f"{criterion}, which metrics add to each other", rows, note))
    return tables


def _metrics(found: Mapping[str, Rows], criterion: str) -> list[dict[str, str]]:
    values = {
        (row["metric"], row["level"], row["coefficient"]): row
        for row in found["correlations"]
        if row["criterion"] == criterion
    }
    best = {
        (row["level"], row["coefficient"]): row["metrics"] for row in found["best"] if row["criterion"] == criterion
    }
    beaten = _beaten(found["differences"], criterion)
    matched = {row["metric"]: row for row in found["win_loss"] if row["criterion"] == criterion}
    classed = {row["metric"]: row for row in found["auc"] if row["criterion"] == criterion}
    names = list(dict.fromkeys(metric for metric, _, _ in values))
    names.sort(key=lambda name: -_or_worst(values[name, "question", RANKED_BY]["value"]))
    rows = []
    for name in names:
        row = {"metric": name}
        for level, mark in (("question", ""), ("system", " of systems")):
            for coefficient, symbol in SYMBOLS.items():
                one = values.get((name, level, coefficient))
                if one is not None:
                    star = " *" if name in best.get((level, coefficient), ()) else ""
                    row[symbol + mark] = estimate_text(one) + star
        row["better than"] = str(beaten[name]) if name in beaten else NONE
        if classed:
            row["AUC"] = estimate_text(classed[name])
        pairs = matched[name]
        if pairs["pairs"]:
            row["pairs alike"] = estimate_text(pairs)
            row["tied"] = f"{pairs['ties']:.3f}"
        row["n"] = f"{values[name, 'question', RANKED_BY]['n']:,}"
        rows.append(row)
    return rows


def _or_worst(value: float | None) -> float:
    return -2.0 if value is None else value


def _beaten(differences: Rows, criterion: str) -> dict[str, int]:
    """How many metrics each tested one is better than, by τ-b at question level, after correction."""
    counts: dict[str, int] = {}
    for row in differences:
        if (row["criterion"], row["level"], row["coefficient"]) == (criterion, "question", RANKED_BY):
            pair = (row["metric"], row["against"]) if row["value"] > 0 else (row["against"], row["metric"])
            for name, better in zip(pair, (row["p_holm"] < 0.05, False), strict=True):
                counts[name] = counts.get(name, 0) + better
    return counts


def _note(found: Mapping[str, Rows], criterion: str) -> str:
    pairs = max((row["pairs"] for row in found["win_loss"] if row["criterion"] == criterion), default=0)
    undefined = sorted(
        {
            f"{row['metric']} at {row['level']} level: {row['why']}"
            for row in found["correlations"]
            if row["criterion"] == criterion and row["value"] is None
        }
    )
    note = (
        "Sorted by τ-b at question level. Brackets: 95 % bootstrap intervals over passages. *: the best of its "
        "column, and those that a test on the questions which both have a score for does not find worse (p ≥ 0.05 "
        "after Holm's correction over the tests against the best). better than: the number of metrics whose τ-b is "
        "significantly lower (Holm's correction over all pairs)."
    )
    if any(row["level"] == "system" for row in found["correlations"] if row["criterion"] == criterion):
        note += (
            " of systems: intervals draw passages; the systems are held fixed: they say nothing about other systems."
        )
    if pairs:
        note += (
            f" pairs alike: of up to {pairs:,} pairs about one item that people rate differently, the share "
            "ordered alike, ties counted half."
        )
    if undefined:
        note += f" {NONE}: not defined ({_some(undefined)})."
    if untested := _not_tested(found["best"], criterion):
        note += f" Not tested against the best, and so without *: {_some(untested)}."
    return note


def _not_tested(best: Rows, criterion: str) -> list[str]:
    columns: dict[str, list[str]] = {}
    for row in best:
        for name in row["not_tested"] if row["criterion"] == criterion else ():
            mark = " of systems" if row["level"] == "system" else ""
            columns.setdefault(name, []).append(SYMBOLS[row["coefficient"]] + mark)
    return [f"{name} ({', '.join(columns[name])})" for name in columns]


def _some(texts: Sequence[str]) -> str:
    return "; ".join(texts[:6]) + ("; …" if len(texts) > 6 else "")


def _agreement(rows: Rows) -> list[dict[str, str]]:
    by_criterion: dict[str, dict[str, str]] = {}
    for row in rows:
        own = by_criterion.setdefault(row["criterion"], {"criterion": row["criterion"]})
        own[row["statistic"]] = estimate_text(row)
        own["raters"], own["questions"] = (
            str(row["raters"]),
            f"{max(row['n'], int(own.get('questions', '0').replace(',', ''))):,}",
        )
    return list(by_criterion.values())


def _by_type(rows: Rows, criterion: str) -> list[dict[str, str]]:
    own = [row for row in rows if row["criterion"] == criterion and row["coefficient"] == "spearman"]
    sizes: dict[str, int] = {}
    for row in own:
        sizes[row["type"]] = max(sizes.get(row["type"], 0), row["n"])
    shown = [
        kind
        for kind in sorted(sizes, key=lambda kind: -sizes[kind])
        if any(row["type"] == kind and row["value"] is not None for row in own)
    ]
    by_metric: dict[str, dict[str, str]] = {}
    for kind in shown:
        for row in own:
            if row["type"] == kind:
                line = by_metric.setdefault(row["metric"], {"metric": row["metric"]})
                line[f"{kind} ({sizes[kind]})"] = estimate_text(row, 2)
    return list(by_metric.values())


def _redundancy_note(found: Mapping[str, Rows], criterion: str) -> str:
    used = next(row for row in found["redundancy"] if row["criterion"] == criterion)
    left_out = [row for row in found["redundancy_left_out"] if row["criterion"] == criterion]
    note = (
        "Linear regression of the rating; at each step the metric joins that lowers the error on unseen passages "
        f"most. R² fitted: on the questions of the fit. On {used['n']:,} of {used['of']:,} rated questions: those "
        f"for which all {used['candidates']:,} metrics compared have a score."
    )
    if left_out:
        named = ", ".join(f"{row['metric']} ({row['n']:,})" for row in left_out)
        note += f" Left out, with a score for too few questions: {named}."
    return note


def _redundancy(rows: Rows, criterion: str) -> list[dict[str, str]]:
    return [
        {
            "step": str(row["step"]),
            "metric": row["metric"],
            "MSE": f"{row['mse']:.4f}",
            "R²": f"{row['r2']:.4f}",
            "R² gained": f"{row['gain_r2']:+.4f}",
            "R² fitted": f"{row['r2_fitted']:.4f}",
            "n": f"{row['n']:,}",
        }
        for row in rows
        if row["criterion"] == criterion
    ]
