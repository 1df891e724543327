"""The tables of `rl-qg correlate` that people read, and its drawings: scores of a metric by rating, ratings by system
(QRelScore, EMNLP 2022, figures 3 and 7, and figure 6).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from rl_qg.pages.plots import COLOURS, RUN_COLOURS, new_figure, page_svg, shortened
from rl_qg.pages.results import MINUS, NONE, Plot, Table, estimate_text, joined_rows, p_text

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
    rows = []
    for name in _best_first(tables["correlations"], criterion):
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


def _worse(differences: Rows, criterion: str) -> dict[str, int]:
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
        gap = max(row["min_gap"] for row in tables["win_loss"])
        more = f", by more than {gap:g}" if gap else ""
        note += (
            f" pairs alike: of up to {pairs:,} pairs about one item that people rate differently{more}, the fraction "
            "ordered alike, ties counted half."
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
    questions = _largest(rows, "criterion")

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        counts = {"raters": str(row["raters"]), "questions": f"{questions[row['criterion']]:,}"}
        return {row["statistic"]: estimate_text(row), **counts}

    return joined_rows(rows, ("criterion",), cells)


def _largest(rows: Rows, column: str) -> dict[str, int]:
    """The largest `n` of the rows with each value of a column."""
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row[column]] = max(row["n"], sizes.get(row[column], 0))
    return sizes


def _by_type(rows: Rows, criterion: str) -> list[dict[str, str]]:
    correlated = _of(rows, criterion=criterion, coefficient="spearman")
    sizes = _largest(correlated, "type")
    order = sorted(sizes, key=lambda kind: -sizes[kind])
    known = {row["type"] for row in correlated if row["value"] is not None}
    shown = sorted((row for row in correlated if row["type"] in known), key=lambda row: order.index(row["type"]))
    return joined_rows(
        shown, ("metric",), lambda row: {f"{row['type']} ({sizes[row['type']]})": estimate_text(row, 2)}
    )


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


# --- Systems, raters and parts of the data


Plots = Mapping[tuple[str, str], Sequence[Plot]]
MOST_COLUMNS = 12  # metrics of a table whose columns are metrics
MOST_PAIRS = 4  # systems or subsets of a table with two columns for each
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
        shown += [_ratings_table(tables[RATINGS], criterion, plots), _scores_table(tables[SCORES], criterion, plots)]
    return [table for table in shown if table is not None and table.rows]


def _of(rows: Rows, **wanted: str) -> list[Mapping[str, Any]]:
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def _rater_filter(rows: Rows) -> Table:
    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        values = [NONE if row[when] is None else f"{row[when]:.3f}" for when in ("before", "after")]
        return {
            "questions": f"{row['n']:,}",
            "ratings a question": f"{row['raters_before']:.2f} → {row['raters_after']:.2f}",
            "removed": f"{row['removed']:,}",
            row["statistic"]: " → ".join(values),
        }

    note = (
        "Ratings far from the others of the same question are left out, before → after. Agreement rises by "
        "construction: what is left is what agrees."
    )
    return Table("Filter of ratings", joined_rows(rows, ("criterion",), cells), note)


def _replication(rows: Rows) -> Table:
    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        symbol = SYMBOLS[row["coefficient"]]
        return {"systems": str(row["n"]), symbol: estimate_text(row), f"p of {symbol}": p_text(row.get("p"))}

    note = "Mean ratings of the systems in this file and in replication=, correlated."
    if alone := max((row["only_first"] + row["only_second"] for row in rows), default=0):
        note += f" Up to {alone} systems are in one of the files alone and do not count."
    return Table("Agreement with the second file of ratings", joined_rows(rows, ("criterion",), cells), note)


def _means(rows: Rows, agreement: Rows, criteria: Sequence[str]) -> Table:
    ratings = _of(rows, of="criterion")
    questions = _largest(ratings, "system")
    lines = joined_rows(
        ratings,
        ("system",),
        lambda row: {"questions": f"{questions[row['system']]:,}", row["name"]: estimate_text(row)},
    )
    kappas = {row["criterion"]: row for row in agreement if row["statistic"] == "Fleiss' κ"}
    known = [
        f"{name} {kappas[name]['value']:.3f}"
        for name in criteria
        if name in kappas and kappas[name]["value"] is not None
    ]
    note = "Mean human ratings; brackets: 95 % bootstrap intervals over passages."
    if known:
        note += f" Fleiss' κ of the raters: {', '.join(known)}."
    return Table("Systems, mean ratings", lines, note)


def _metric_means(rows: Rows) -> Table:
    scores = _of(rows, of="metric")
    metrics = list(dict.fromkeys(row["name"] for row in scores))

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        return {row["name"]: NONE if row["value"] is None else f"{row['value']:.4g}".replace("-", MINUS)}

    shown = [row for row in scores if row["name"] in metrics[:MOST_COLUMNS]]
    note = "Mean scores; the sign of metrics that are better when lower is reversed."
    if len(metrics) > MOST_COLUMNS:
        note += f" {MOST_COLUMNS} of {len(metrics)} metrics; tables/means.csv has all."
    return Table("Systems, mean scores", joined_rows(shown, ("system",), cells), note)


def _square(rows: Rows, kind: str, title: str) -> Table:
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
    sizes = _largest(rows, column)
    chosen = ("pearson", "spearman") if len(labels) <= MOST_PAIRS else ("spearman",)
    shown = [row for label in labels for row in rows if row[column] == label and row["coefficient"] in chosen]

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        heading = f"{row[column]} ({sizes[row[column]]:,}), {SYMBOLS[row['coefficient']]}"
        return {heading: estimate_text(row, 2)}

    note = f"Coefficients over the questions of each {column}; their number is after its name."
    return Table(f"{criterion}, by {column}", joined_rows(shown, ("metric",), cells), note)


def _ratings_table(rows: Rows, criterion: str, plots: Plots) -> Table:
    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        mean, share = f"{row['mean']:.3f}".replace("-", MINUS), f"{100 * row['fraction']:.1f} %"
        return {"mean": mean, "ratings": f"{row['n']:,}", row["rating"]: share}

    lines = joined_rows(_of(rows, criterion=criterion), ("system",), cells)
    note = "The share of each rating, of single ratings where the file has them, else of mean ratings."
    return Table(f"{criterion}, ratings by system", lines, note, plots.get((RATINGS, criterion), ()))


def _scores_table(rows: Rows, criterion: str, plots: Plots) -> Table:
    chosen = _of(rows, criterion=criterion)
    sizes = _largest(chosen, "rating")

    def cells(row: Mapping[str, Any]) -> dict[str, str]:
        heading = f"{row['rating']} ({sizes[row['rating']]:,})"
        if not row["n"]:
            return {heading: NONE}
        return {heading: f"{row['median']:.3g} [{row['q25']:.3g}, {row['q75']:.3g}]".replace("-", MINUS)}

    lines = joined_rows(chosen, ("metric",), cells)
    note = (
        "Median score and quartiles of the questions with each rating; the number of questions is after it. Mean "
        "ratings are rounded to whole ones where the scale has few steps."
    )
    shown = plots.get((SCORES, criterion), ())
    if shown:
        note += f" Drawn for {len(shown)} of {len(lines)} metrics, those with the highest τ-b; lines: 5 to 95 %."
    return Table(f"{criterion}, scores by rating", lines, note, shown)


MOST_METRICS = 6  # drawings of one criterion
MOST_SYSTEMS = 24  # bars of one drawing


def judgement_plots(tables: Mapping[str, Rows]) -> dict[tuple[str, str], list[Plot]]:
    """The drawings of each table and criterion, from the plain rows of `scores_by_rating` and `ratings_by_system`.

    Scores are drawn for the metrics with the highest τ-b at question level.
    """
    plots: dict[tuple[str, str], list[Plot]] = {}
    for criterion, rows in _by(tables["scores_by_rating"], "criterion").items():
        by_metric = _by(rows, "metric")
        best = [name for name in _best_first(tables["correlations"], criterion) if name in by_metric]
        chosen = [name for name in best[:MOST_METRICS] if any(row["n"] for row in by_metric[name])]
        if chosen:
            plots["scores_by_rating", criterion] = [_scores_plot(criterion, name, by_metric[name]) for name in chosen]
    for criterion, rows in _by(tables["ratings_by_system"], "criterion").items():
        if plot := _ratings_plot(criterion, rows):
            plots["ratings_by_system", criterion] = [plot]
    return plots


def _by(rows: Rows, column: str) -> dict[str, list[Mapping[str, Any]]]:
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def _best_first(correlations: Rows, criterion: str) -> list[str]:
    values = {
        row["metric"]: -2.0 if row["value"] is None else row["value"]
        for row in correlations
        if (row["criterion"], row["level"], row["coefficient"]) == (criterion, "question", RANKED_BY)
    }
    return sorted(values, key=lambda name: -values[name])


def _scores_plot(criterion: str, metric: str, rows: Rows) -> Plot:
    """For each rating a line from the 5 % to the 95 % quantile, a bar between the quartiles, a dot at the median."""
    figure, axes = new_figure(height=0.75 + 0.3 * len(rows), left=0.26)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    colour = COLOURS["ce"]
    for place, row in enumerate(rows):
        if row["n"]:
            axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.2)
            axes.plot([row["q25"], row["q75"]], [place, place], color=colour, linewidth=7, solid_capstyle="butt")
            axes.plot([row["median"]], [place], "o", markersize=5, color=COLOURS["gold"])
    axes.set_yticks(range(len(rows)), [shortened(row["rating"]) for row in rows], color=COLOURS["text"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlabel("score")
    count = sum(row["n"] for row in rows)
    svg = page_svg(figure, f"scores {criterion} {metric}")
    return Plot(
        metric, f"{criterion}; {count:,} questions", (("median", "gold", True), ("quartiles", "ce", False)), svg
    )


def _ratings_plot(criterion: str, rows: Rows) -> Plot | None:
    """For each system a bar as long as its mean rating, divided by the shares of the ratings."""
    systems = _by(rows, "system")
    labels = list(dict.fromkeys(row["rating"] for row in rows))
    # A bar begins at 0, so a mean below it has no length.
    if not systems or any(parts[0]["mean"] < 0 for parts in systems.values()) or len(labels) > len(RUN_COLOURS):
        return None
    shown = sorted(systems, key=lambda name: -systems[name][0]["mean"])[:MOST_SYSTEMS]
    colours = dict(zip(labels, RUN_COLOURS, strict=False))
    figure, axes = new_figure(height=0.65 + 0.3 * len(shown), left=0.34)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    for place, name in enumerate(shown):
        left = 0.0
        for row in systems[name]:
            width = row["mean"] * row["fraction"]
            axes.barh(place, width, left=left, height=0.62, color=COLOURS[colours[row["rating"]]], linewidth=0)
            left += width
    axes.set_yticks(range(len(shown)), [shortened(name) for name in shown], color=COLOURS["text"])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0)
    axes.set_xlabel("mean rating")
    note = "bars: mean rating, coloured by the share of each rating"
    if len(systems) > len(shown):
        note += f"; the best {len(shown)} of {len(systems)} systems"
    legend = tuple((label, colour, True) for label, colour in colours.items())
    return Plot(criterion, note, legend, page_svg(figure, f"ratings {criterion}"))
