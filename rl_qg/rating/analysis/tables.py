"""The tables of `rl-qg rate analyse`, for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_qg.judging.raters import OVERALL
from rl_qg.judging.tables import SYMBOLS
from rl_qg.pages.results import MINUS, NONE, Plot, Table, estimate_text, p_text
from rl_qg.rating.analysis.study import DEGRADED_ROW
from rl_qg.rating.protocol import RATINGS, SIGNED_RANK, Control

Rows = Sequence[Mapping[str, Any]]
MOST_RATERS = 400  # rows of the table of raters; all are in tables/raters.csv
KAPPA_NOTE = "Krippendorff's α of one criterion: 1 is perfect, 0 is chance."


def analysis_tables(tables: Mapping[str, Rows], control: Control, plots: Sequence[Plot]) -> list[Table]:
    shown = [
        systems_table(tables["systems"], plots),
        _pairs(tables["pairs"]),
        _summary(tables["summary"]),
        _mixed(tables["mixed_model"]),
        _replication(tables.get("replication", ())),
        _agreement(tables["agreement"]),
        _raters(tables["raters"], control),
        _habits(tables["raters"]),
        _left_out(tables["left_out"]),
    ]
    return [table for table in shown if table.rows]


def _number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:,.{digits}f}".replace("-", MINUS)


def _percent(value: float | None) -> str:
    return NONE if value is None else f"{100 * value:.1f} %"


def systems_table(rows: Rows, plots: Sequence[Plot] = ()) -> Table:
    """Scores of systems, the best first; degraded questions last."""
    lines: dict[str, dict[str, str]] = {}
    overall = {row["system"]: row["value"] for row in rows if row["criterion"] == OVERALL and row["value"] is not None}
    order = sorted(
        {row["system"]: None for row in rows}, key=lambda name: (name == DEGRADED_ROW, -overall.get(name, -9e9))
    )
    for name in order:
        own = [row for row in rows if row["system"] == name]
        lines[name] = {"system": name, "questions": f"{own[0]['n']:,}", "shown": f"{own[0]['shown']:,}"}
        for row in [own[-1], *own[:-1]]:  # overall first
            lines[name][row["criterion"]] = estimate_text(row, 3, signed=True)
    note = (
        "Mean z of each system's questions, and over criteria; brackets: 95 % intervals over raters and passages. "
        "“Shown” counts repeats, “questions” does not."
    )
    return Table("Systems", [*lines.values()], note, plots)


def _pairs(rows: Rows) -> Table:
    lines = []
    for row in rows:
        line = {
            "preferred": row["preferred"],
            "to": row["to"],
            "difference, z": estimate_text({**row, "value": row["difference"]}, 3, signed=True),
            "p (Holm)": p_text(row.get("p_holm")),
            "passages rated": f"{row['pairs']:,}",
            "higher / equal / lower": f"{row['higher']} / {row['equal']} / {row['lower']}",
            "p paired (Holm)": p_text(row.get("p_paired_holm")),
            "p rank sum": p_text(row.get("p_rank_sum")),
            "p rank sum (Holm)": p_text(row.get("p_rank_sum_holm")),
        }
        if "mixed_difference" in row:
            value = _number(row["mixed_difference"])
            line |= {"mixed model, points": value, "± error": _number(row["mixed_error"])}
            line["p mixed (Holm)"] = p_text(row["p_mixed_holm"])
        lines.append(line)
    note = (
        "Overall scores of two systems. The first p is of the difference in draws of raters and passages, two-sided. "
        "Paired: what one rater gave to both about one passage and answer, signed ranks, two-sided. Rank sum: all "
        "questions against all, one-sided, as published by Ji et al. (2022); it takes every question as independent. "
        "Mixed model: raw values, two-sided. Holm's correction is over all pairs of this table. "
        "Those of each criterion are in tables/pairs_by_criterion.csv."
    )
    return Table("Who is preferred", lines, note)


def _summary(rows: Rows) -> Table:
    lines = []
    for row in rows:
        line = {
            "raters": row["raters"],
            "number": f"{row['number']:,}",
            "share": _percent(row["share"]),
            "tasks": f"{row['tasks']:,}",
            "share of tasks": _percent(row["share_of_tasks"]),
            "tasks a rater": _number(row["tasks_a_rater"]),
            "ratings": f"{row['ratings']:,}",
        }
        if any(one["minutes"] is not None for one in rows):
            line |= {"minutes a task": _number(row["minutes"]), "median": _number(row["median_minutes"])}
        lines.append(line)
    return Table("Raters and tasks", lines, "As table 4 of QAScore. Minutes are from the start of a task to its end.")


def _mixed(rows: Rows) -> Table:
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault(row["system"], {"system": row["system"]})
        line[row["criterion"]] = f"{_number(row['mean'])} ± {_number(row['standard_error'])}"
    spread = [row for row in rows if row["criterion"] == OVERALL][:1]
    note = (
        "Estimated means in the raters' own units ± standard error: score ~ system + (1 | rater) + (1 | item), REML."
    )
    for row in spread:
        parts = [f"{what} {_number(row[f'{what}_sd'])}" for what in ("rater", "item", "residual") if row[f"{what}_sd"]]
        note += f" Standard deviations, overall: {', '.join(parts)}."
    return Table("Systems, mixed model", [*lines.values()], note)


def _replication(rows: Rows) -> Table:
    lines: dict[str, dict[str, str]] = {}
    for row in rows:
        line = lines.setdefault(row["criterion"], {"criterion": row["criterion"], "systems": str(row["n"])})
        line[SYMBOLS[row["coefficient"]]] = estimate_text(row)
    note = (
        "Scores of systems in both studies, correlated; 95 % intervals over the raters and passages of each. Draws "
        "add noise to both studies, so most of an interval may lie below its value."
    )
    if alone := max((row["only_first"] + row["only_second"] for row in rows), default=0):
        note += f" Up to {alone} systems are in one study alone and do not count."
    return Table("Replication", [*lines.values()], note)


def _agreement(rows: Rows) -> Table:
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        key = row["criterion"], row.get("ratings", "")
        first = {"criterion": row["criterion"], **({"ratings": row["ratings"]} if "ratings" in row else {})}
        line = lines.setdefault(key, {**first, "questions": f"{row['n']:,}"})
        line[row["statistic"]] = estimate_text(row)
    note = f"{KAPPA_NOTE} Over questions that two raters or more have rated; of a repeat the mean of both counts."
    if any("ratings" in row for row in rows):
        note += " Agreement of filtered ratings rises by construction."
    return Table("Agreement of raters", [*lines.values()], note)


def _raters(rows: Rows, control: Control) -> Table:
    lines = [
        {
            "rater": row["rater"],
            "verdict": row["verdict"],
            "why": row["why"],
            "tasks": str(row["tasks"]),
            "pairs": str(row["pairs"]),
            "difference": _number(row["difference"], 1),
            "p, item means": p_text(row["p_item_means"]),
            "p, ratings": p_text(row["p_ratings"]),
            "minutes": _number(row["minutes"], 1),
            "flags": row["flags"],
        }
        for row in rows[:MOST_RATERS]
    ]
    method = "signed ranks" if control.method == SIGNED_RANK else "rank sums"
    unit = "single ratings, as published" if control.unit == RATINGS else "means over criteria of each question"
    note = (
        f"A rater counts whose ordinary questions are rated higher than degraded ones, by {method}, one-sided, "
        f"p < {control.level:g}, over all tasks; decided on {unit}. Criteria of a question are not independent: "
        "somebody who clicks at random, all criteria alike, passes on single ratings more often than the level says. "
        "Undecided: so few pairs cannot pass. Of six pairs p can only be 1/64, 2/64, 3/64 …: do not judge a rater on "
        "one task."
    )
    if len(rows) > MOST_RATERS:
        note += f" The first {MOST_RATERS} of {len(rows):,}; all are in tables/raters.csv."
    return Table("Raters", lines, note)


def _habits(rows: Rows) -> Table:
    lines = [
        {
            "rater": row["rater"],
            "repeats": str(row["repeats"]),
            "mean |difference|": _number(row["repeat_difference"], 1),
            "by chance": _number(row["chance_difference"], 1),
            "p": p_text(row["p_repeats"]),
            "r": _number(row["repeat_r"]),
            "longest run": str(row["longest_run"]),
            "most frequent": _percent(row["most_frequent"]),
            "criteria alike": _percent(row["alike"]),
            "deviation": _number(row["spread"], 1),
            "seconds an item": _number(row["seconds"], 1),
            "speed": _number(row["speed"], 1),
            "changes a rating": _number(row["changes"]),
            "missing": str(row["missing"]),
        }
        for row in rows[:MOST_RATERS]
    ]
    note = (
        "For information; none of it decides. Repeats: both ratings of one question, against two of the rater's own "
        "questions drawn at random (p: the share of draws as consistent). Longest run: of equal values. Criteria "
        "alike: share of items with one value for all criteria. Speed: the study's median time of an item over the "
        "rater's."
    )
    return Table("Habits of raters", lines, note)


def _left_out(rows: Rows) -> Table:
    lines = [{"ratings left out of the scores": row["reason"], "number": f"{row['ratings']:,}"} for row in rows]
    return Table("What was left out", lines)
