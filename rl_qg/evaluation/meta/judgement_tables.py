"""The tables of `rl-qg correlate` that people read."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_qg.evaluation.result_pages import NONE, Table, estimate_text

SYMBOLS = {"pearson": "r", "spearman": "ρ", "kendall": "τ-b"}
RANKED_BY = "kendall"
Rows = Sequence[Mapping[str, Any]]


def judgement_tables(tables: Mapping[str, Rows], criteria: Sequence[str]) -> list[Table]:
    """For each criterion a table of metrics, best first; then agreement, types and redundancy."""
    shown = [Table(criterion, _metrics(tables, criterion), _note(tables, criterion)) for criterion in criteria]
    if rows := _agreement(tables["agreement"]):
        shown.append(Table("Agreement between raters", rows, "1: perfect, 0: what chance gives."))
    for criterion in criteria:
        if rows := _by_type(tables["by_type"], criterion):
            note = "Spearman's ρ at question level; the number of questions is after the type."
            shown.append(Table(f"{criterion}, by type of question", rows, note))
    for criterion in criteria:
        if rows := _redundancy(tables["redundancy"], tables["redundancy_chosen"], criterion):
            note = _redundancy_note(tables, criterion)
            shown.append(Table(f"{criterion}, which metrics add to each other", rows, note))
    return shown


def _metrics(tables: Mapping[str, Rows], criterion: str) -> list[dict[str, str]]:
    values = {
        (row["metric"], row["level"], row["coefficient"]): row
        for row in tables["correlations"]
        if row["criterion"] == criterion
    }
    best = {
        (row["level"], row["coefficient"]): row["metrics"] for row in tables["best"] if row["criterion"] == criterion
    }
    worse = _worse(tables["differences"], criterion)
    pairs_of = {row["metric"]: row for row in tables["win_loss"] if row["criterion"] == criterion}
    areas = {row["metric"]: row for row in tables["auc"] if row["criterion"] == criterion}
    names = list(dict.fromkeys(metric for metric, _, _ in values))
    names.sort(key=lambda name: -_or_lowest(values[name, "question", RANKED_BY]["value"]))
    rows = []
    for name in names:
        row = {"metric": name}
        for level, mark in (("question", ""), ("system", " of systems")):
            for coefficient, symbol in SYMBOLS.items():
                value = values.get((name, level, coefficient))
                if value is not None:
                    star = " *" if name in best.get((level, coefficient), ()) else ""
                    row[symbol + mark] = estimate_text(value) + star
        row["better than"] = str(worse[name]) if name in worse else NONE
        if areas:
            row["AUC (0–1)"] = estimate_text(areas[name])
        pairs = pairs_of[name]
        if pairs["pairs"]:
            row["pairs alike (0–1)"] = estimate_text(pairs)
            row["tied (0–1)"] = f"{pairs['ties']:.3f}"
        row["n"] = f"{values[name, 'question', RANKED_BY]['n']:,}"
        rows.append(row)
    return rows


def _or_lowest(value: float | None) -> float:
    return -2.0 if value is None else value


def _worse(differences: Rows, criterion: str) -> dict[str, int]:
    """How many metrics each tested one is better than, by τ-b at question level, after correction."""
    counts: dict[str, int] = {}
    for row in differences:
        if (row["criterion"], row["level"], row["coefficient"]) == (criterion, "question", RANKED_BY):
            pair = (row["metric"], row["against"]) if row["value"] > 0 else (row["against"], row["metric"])
            for name, better in zip(pair, (row["p_holm"] < 0.05, False), strict=True):
                counts[name] = counts.get(name, 0) + better
    return counts


def _note(tables: Mapping[str, Rows], criterion: str) -> str:
    pairs = max((row["pairs"] for row in tables["win_loss"] if row["criterion"] == criterion), default=0)
    undefined = sorted(
        {
            f"{row['metric']} at {row['level']} level: {row['why']}"
            for row in tables["correlations"]
            if row["criterion"] == criterion and row["value"] is None
        }
    )
    note = (
        "Sorted by τ-b at question level. Brackets: 95 % bootstrap intervals over passages. *: the best of its "
        "column, and those that a test on the questions which both have a score for does not find worse (p ≥ 0.05 "
        "after Holm's correction over the tests against the best). better than: the number of metrics whose τ-b is "
        "significantly lower (Holm's correction over all pairs)."
    )
    if any(row["level"] == "system" for row in tables["correlations"] if row["criterion"] == criterion):
        note += (
            " of systems: intervals draw passages; the systems are held fixed: intervals do not extend to other "
            "systems."
        )
    if pairs:
        note += (
            f" pairs alike: of up to {pairs:,} pairs about one item that people rate differently{_gap(tables)}, the "
            "fraction ordered alike, ties counted half."
        )
    doubtful = sorted(
        {
            row["metric"]
            for row in tables["correlations"]
            if (row["criterion"], row["level"], row["coefficient"]) == (criterion, "question", "pearson")
            and row.get("p", 0) >= 0.05
        }
    )
    if doubtful:
        note += f" r is not significant (t test, p ≥ 0.05): {_first_few(doubtful)}."
    if undefined:
        note += f" {NONE}: not defined ({_first_few(undefined)})."
    if untested := _not_tested(tables["best"], criterion):
        note += f" Not tested against the best, and so without *: {_first_few(untested)}."
    return note


def _gap(tables: Mapping[str, Rows]) -> str:
    gap = max(row["min_gap"] for row in tables["win_loss"])
    return f", by more than {gap:g}" if gap else ""


def _not_tested(best: Rows, criterion: str) -> list[str]:
    columns: dict[str, list[str]] = {}
    for row in best:
        for name in row["not_tested"] if row["criterion"] == criterion else ():
            mark = " of systems" if row["level"] == "system" else ""
            columns.setdefault(name, []).append(SYMBOLS[row["coefficient"]] + mark)
    return [f"{name} ({', '.join(columns[name])})" for name in columns]


def _first_few(texts: Sequence[str]) -> str:
    return "; ".join(texts[:6]) + ("; …" if len(texts) > 6 else "")


def _agreement(rows: Rows) -> list[dict[str, str]]:
    by_criterion: dict[str, dict[str, str]] = {}
    questions: dict[str, int] = {}
    for row in rows:
        line = by_criterion.setdefault(row["criterion"], {"criterion": row["criterion"]})
        line[row["statistic"]] = estimate_text(row)
        questions[row["criterion"]] = max(row["n"], questions.get(row["criterion"], 0))
        line |= {"raters": str(row["raters"]), "questions": f"{questions[row['criterion']]:,}"}
    return list(by_criterion.values())


def _by_type(rows: Rows, criterion: str) -> list[dict[str, str]]:
    correlated = [row for row in rows if row["criterion"] == criterion and row["coefficient"] == "spearman"]
    sizes: dict[str, int] = {}
    for row in correlated:
        sizes[row["type"]] = max(sizes.get(row["type"], 0), row["n"])
    shown = [
        kind
        for kind in sorted(sizes, key=lambda kind: -sizes[kind])
        if any(row["type"] == kind and row["value"] is not None for row in correlated)
    ]
    by_metric: dict[str, dict[str, str]] = {}
    for kind in shown:
        for row in correlated:
            if row["type"] == kind:
                line = by_metric.setdefault(row["metric"], {"metric": row["metric"]})
                line[f"{kind} ({sizes[kind]})"] = estimate_text(row, 2)
    return list(by_metric.values())


def _redundancy_note(tables: Mapping[str, Rows], criterion: str) -> str:
    used = next(row for row in tables["redundancy"] if row["criterion"] == criterion)
    left_out = [row for row in tables["redundancy_left_out"] if row["criterion"] == criterion]
    note = (
        "Linear regression of the rating; each step adds the metric that lowers the error on unseen passages "
        "most. metric: the one that was added most often; chosen: in how many of the selections; others: what was "
        "added in the rest. Errors are means over repetitions with new folds, ± their standard deviation. R² fitted: "
        f"on the questions of the fit. On {used['n']:,} of {used['of']:,} rated questions: those for which all "
        f"{used['candidates']:,} metrics compared have a score."
    )
    if left_out:
        named = ", ".join(f"{row['metric']} ({row['n']:,})" for row in left_out)
        note += f" Left out, with a score for too few questions: {named}."
    return note


def _others(chosen: Rows, row: Mapping[str, Any]) -> str:
    """The other metrics that were added at a step, most often first."""
    key = (row["criterion"], row["step"])
    same = [other for other in chosen if (other["criterion"], other["step"]) == key]
    others = [f"{other['metric']} {other['n']}" for other in same if other["metric"] != row["metric"]]
    return _first_few(others) if others else NONE


def _with_deviation(row: Mapping[str, Any], key: str) -> str:
    return f"{row[key]:.4f} ± {row[f'{key}_sd']:.4f}"


def _redundancy(rows: Rows, chosen: Rows, criterion: str) -> list[dict[str, str]]:
    return [
        {
            "step": str(row["step"]),
            "metric": row["metric"],
            "chosen": f"{row['chosen']} of {row['selections']}",
            "others": _others(chosen, row),
            "MSE": _with_deviation(row, "mse"),
            "R²": _with_deviation(row, "r2"),
            "R² gained": f"{row['gain_r2']:+.4f}",
            "R² fitted": f"{row['r2_fitted']:.4f}",
            "n": f"{row['n']:,}",
        }
        for row in rows
        if row["criterion"] == criterion
    ]
