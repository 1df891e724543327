"""The tables of `rl-qg correlate` that people read, and its drawings: scores of a metric by rating, ratings by system
(QRelScore, EMNLP 2022, figures 3 and 7, and figure 6). What is said below the tables stands in `notes.yaml`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from rl_qg.data.examples import by_key
from rl_qg.pages.plots import COLOURS, RUN_COLOURS, figure_of_rows, page_svg, shortened
from rl_qg.pages.results import MINUS, NONE, Plot, Row, Rows, Table, estimate_text, joined_rows, p_text
from rl_qg.runtime.files import packaged_yaml
from rl_qg.stats.correlation import SYMBOLS

RANKED_BY = "kendall"
SCORES, RATINGS = "scores_by_rating", "ratings_by_system"
MOST_COLUMNS = 12  # metrics of a table whose columns are metrics
MOST_PAIRS = 4  # systems or subsets of a table with two columns for each
MOST_METRICS = 6  # drawings of one criterion
MOST_SYSTEMS = 24  # bars of one drawing
NOTES: dict[str, str] = packaged_yaml(__file__, "notes.yaml")

Plots = Mapping[tuple[str, str], Sequence[Plot]]


def page_tables(tables: Mapping[str, Rows], criteria: Sequence[str], plots: Plots) -> list[Table]:
    """For each criterion a table of metrics, best first; then all other tables; empty ones are left out."""
    of = {one: {name: _of(rows, criterion=one) for name, rows in tables.items()} for one in criteria}
    shown = [_metrics(one, of[one]) for one in criteria]
    shown.append(_agreement(tables["agreement"]))
    shown += [_by_type(one, of[one]["by_type"]) for one in criteria]
    shown += [_redundancy(one, of[one]) for one in criteria]
    shown += [_rater_filter(tables["rater_filter"]), _replication(tables["replication"])]
    shown += [_mean_ratings(tables["means"], tables["agreement"], criteria), _mean_scores(tables["means"])]
    shown.append(_square(tables["criterion_pairs"], "criterion", "Criteria with each other"))
    shown.append(_square(tables["metric_pairs"], "metric", "Metrics with each other"))
    shown += [_williams(one, of[one]["differences"]) for one in criteria]
    shown += [_parts(one, of[one][f"by_{column}"], column) for one in criteria for column in ("system", "subset")]
    for one in criteria:
        shown.append(_ratings_by_system(one, of[one][RATINGS], plots.get((RATINGS, one), ())))
        shown.append(_scores_by_rating(one, of[one][SCORES], plots.get((SCORES, one), ())))
    return [table for table in shown if table.rows]


def _of(rows: Iterable[Row], **wanted: str | None) -> list[Row]:
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def _note(*parts: str, **values: Any) -> str:
    return " ".join(NOTES[part].format_map(values) if values else NOTES[part] for part in parts)


def _first_few(texts: Sequence[str]) -> str:
    return "; ".join(texts[:6]) + ("; …" if len(texts) > 6 else "")


def _distinct(rows: Iterable[Row], column: str) -> list[Any]:
    return list(dict.fromkeys(row[column] for row in rows))


def _largest(rows: Rows, column: str) -> dict[str, int]:
    return {name: max(sizes) for name, sizes in by_key((row[column], row["n"]) for row in rows).items()}


def _metrics(criterion: str, tables: Mapping[str, Rows]) -> Table:
    values = {(row["metric"], row["level"], row["coefficient"]): row for row in tables["correlations"]}
    best = {(row["level"], row["coefficient"]): row["metrics"] for row in tables["best"]}
    worse = _worse(tables["differences"])
    pairs_of, areas = ({row["metric"]: row for row in tables[name]} for name in ("win_loss", "auc"))
    rows = []
    for name in _best_first(tables["correlations"]):
        row = {"metric": name}
        for level in ("question", "system"):
            for coefficient in SYMBOLS:
                if value := values.get((name, level, coefficient)):
                    star = " *" if name in best.get((level, coefficient), ()) else ""
                    row[_symbol(level, coefficient)] = estimate_text(value) + star
        row["better than"] = str(worse.get(name, NONE))
        if areas:
            row["AUC (0–1)"] = estimate_text(areas[name])
        if pairs_of[name]["pairs"]:
            row["pairs alike (0–1)"] = estimate_text(pairs_of[name])
            row["tied (0–1)"] = f"{pairs_of[name]['ties']:.3f}"
        rows.append(row | {"n": f"{values[name, 'question', RANKED_BY]['n']:,}"})
    return Table(criterion, rows, _note_of_metrics(tables))


def _symbol(level: str, coefficient: str) -> str:
    return SYMBOLS[coefficient] + (" of systems" if level == "system" else "")


def _best_first(correlations: Rows) -> list[str]:
    chosen = _of(correlations, level="question", coefficient=RANKED_BY)
    return [row["metric"] for row in sorted(chosen, key=lambda row: 2.0 if row["value"] is None else -row["value"])]


def _worse(differences: Rows) -> dict[str, int]:
    """Of each metric, how many others have a significantly lower τ-b at question level."""
    counts: dict[str, int] = {}
    for row in _of(differences, level="question", coefficient=RANKED_BY):
        pair = (row["metric"], row["against"]) if row["value"] > 0 else (row["against"], row["metric"])
        for name, better in zip(pair, (row["p_holm"] < 0.05, False), strict=True):
            counts[name] = counts.get(name, 0) + better
    return counts


def _note_of_metrics(tables: Mapping[str, Rows]) -> str:
    correlations = tables["correlations"]
    notes = [_note("metrics")]
    if _of(correlations, level="system"):
        notes.append(_note("of_systems"))
    if pairs := max((row["pairs"] for row in tables["win_loss"]), default=0):
        gap = tables["win_loss"][0]["min_gap"]
        notes.append(_note("pairs_alike", pairs=pairs, gap=f", by more than {gap:g}" if gap else ""))
    of_r = _of(correlations, level="question", coefficient="pearson")
    columns = by_key(
        (name, _symbol(row["level"], row["coefficient"])) for row in tables["best"] for name in row["not_tested"]
    )
    undefined = {f"{row['metric']} at {row['level']} level: {row['why']}" for row in _of(correlations, value=None)}
    named = {
        "doubtful": sorted(row["metric"] for row in of_r if row.get("p", 0) >= 0.05),
        "undefined": sorted(undefined),
        "untested": [f"{name} ({', '.join(marks)})" for name, marks in columns.items()],
    }
    return " ".join([*notes, *(_note(key, names=_first_few(names)) for key, names in named.items() if names)])


def _agreement(rows: Rows) -> Table:
    questions = _largest(rows, "criterion")

    def cells(row: Row) -> dict[str, str]:
        counts = {"raters": str(row["raters"]), "questions": f"{questions[row['criterion']]:,}"}
        return {row["statistic"]: estimate_text(row), **counts}

    return Table("Agreement between raters", joined_rows(rows, ("criterion",), cells), _note("agreement"))


def _by_type(criterion: str, rows: Rows) -> Table:
    correlated = _of(rows, coefficient="spearman")
    sizes = _largest(correlated, "type")
    known = {row["type"] for row in correlated if row["value"] is not None}
    order = sorted((kind for kind in sizes if kind in known), key=lambda kind: -sizes[kind])
    lines = joined_rows(
        [row for kind in order for row in _of(correlated, type=kind)],
        ("metric",),
        lambda row: {f"{row['type']} ({sizes[row['type']]})": estimate_text(row, 2)},
    )
    return Table(f"{criterion}, by type of question", lines, _note("by_type"))


def _redundancy(criterion: str, tables: Mapping[str, Rows]) -> Table:
    def line(row: Row) -> dict[str, str]:
        same = [other for other in tables["redundancy_chosen"] if other["step"] == row["step"]]
        others = [f"{other['metric']} {other['n']}" for other in same if other["metric"] != row["metric"]]
        return {
            "step": str(row["step"]),
            "metric": row["metric"],
            "chosen": f"{row['chosen']} of {row['selections']}",
            "others": _first_few(others) or NONE,
            "MSE": f"{row['mse']:.4f} ± {row['mse_sd']:.4f}",
            "R²": f"{row['r2']:.4f} ± {row['r2_sd']:.4f}",
            "R² gained": f"{row['gain_r2']:+.4f}",
            "R² fitted": f"{row['r2_fitted']:.4f}",
            "n": f"{row['n']:,}",
        }

    rows = tables["redundancy"]
    notes = [_note("redundancy", **rows[0])] if rows else []
    if left_out := [f"{row['metric']} ({row['n']:,})" for row in tables["redundancy_left_out"]]:
        notes.append(_note("left_out", names=", ".join(left_out)))
    return Table(f"{criterion}, which metrics add to each other", [*map(line, rows)], " ".join(notes))


def _rater_filter(rows: Rows) -> Table:
    def cells(row: Row) -> dict[str, str]:
        values = [NONE if row[when] is None else f"{row[when]:.3f}" for when in ("before", "after")]
        return {
            "questions": f"{row['n']:,}",
            "ratings a question": f"{row['raters_before']:.2f} → {row['raters_after']:.2f}",
            "removed": f"{row['removed']:,}",
            row["statistic"]: " → ".join(values),
        }

    return Table("Filter of ratings", joined_rows(rows, ("criterion",), cells), _note("rater_filter"))


def _replication(rows: Rows) -> Table:
    def cells(row: Row) -> dict[str, str]:
        symbol = SYMBOLS[row["coefficient"]]
        return {"systems": str(row["n"]), symbol: estimate_text(row), f"p of {symbol}": p_text(row.get("p"))}

    alone = max((row["only_first"] + row["only_second"] for row in rows), default=0)
    note = _note("replication", *["alone"] * bool(alone), n=alone)
    return Table("Agreement with the second file of ratings", joined_rows(rows, ("criterion",), cells), note)


def _mean_ratings(rows: Rows, agreement: Rows, criteria: Sequence[str]) -> Table:
    ratings = _of(rows, of="criterion")
    questions = _largest(ratings, "system")
    lines = joined_rows(
        ratings,
        ("system",),
        lambda row: {"questions": f"{questions[row['system']]:,}", row["name"]: estimate_text(row)},
    )
    kappas = {row["criterion"]: row["value"] for row in _of(agreement, statistic="Fleiss' κ")}
    known = [f"{name} {kappas[name]:.3f}" for name in criteria if kappas.get(name) is not None]
    note = _note("mean_ratings", *["kappas"] * bool(known), names=", ".join(known))
    return Table("Systems, mean ratings", lines, note)


def _mean_scores(rows: Rows) -> Table:
    scores = _of(rows, of="metric")
    metrics = _distinct(scores, "name")
    lines = joined_rows(
        [row for row in scores if row["name"] in metrics[:MOST_COLUMNS]],
        ("system",),
        lambda row: {row["name"]: NONE if row["value"] is None else f"{row['value']:.4g}".replace("-", MINUS)},
    )
    more = ["more_means"] * (len(metrics) > MOST_COLUMNS)
    return Table("Systems, mean scores", lines, _note("mean_scores", *more, shown=MOST_COLUMNS, all=len(metrics)))


def _square(rows: Rows, kind: str, title: str) -> Table:
    values = {(row[kind], row["against"]): row for row in _of(rows, coefficient="spearman")}
    cells = {pair: estimate_text(row) for pair, row in values.items()}
    names = list(dict.fromkeys(name for pair in values for name in pair))
    doubtful = sum(row.get("p") is not None and row["p"] >= 0.05 for row in values.values())
    note = _note("square", doubtful=doubtful, all=len(values), kind=kind)
    if len(names) > MOST_COLUMNS:
        note += " " + _note("more_columns", shown=MOST_COLUMNS, all=len(names))
    return Table(title, _both_ways(kind, names, names[:MOST_COLUMNS], cells, "1"), note)


def _both_ways(
    heading: str, names: Sequence[str], columns: Sequence[str], cells: Mapping[tuple[str, str], str], own: str
) -> list[dict[str, str]]:
    """A line for each name with the cell of each pair, in whichever order the pair is given; else `own`."""
    return [
        {heading: name} | {other: cells.get((name, other), cells.get((other, name), own)) for other in columns}
        for name in names
    ]


def _williams(criterion: str, rows: Rows) -> Table:
    """The p of Williams' test of every two metrics' ρ at question level, as a square (QG-Bench, figure 7)."""
    chosen = _of(rows, level="question", coefficient="spearman")
    cells = {(row["metric"], row["against"]): p_text(row.get("williams_p")) for row in chosen}
    names = list(dict.fromkeys(name for pair in cells for name in pair))
    lines = _both_ways("metric", names, names, cells, NONE) if len(names) <= MOST_COLUMNS else []
    return Table(f"{criterion}, Williams' test of metrics", lines, _note("williams"))


def _parts(criterion: str, rows: Rows, column: str) -> Table:
    """Metrics by system or subset: r and ρ, as in tables 6 and 9 of KPQA; ρ alone where there are many."""
    labels = _distinct([row for row in rows if row["value"] is not None], column)
    sizes = _largest(rows, column)
    chosen = ("pearson", "spearman") if len(labels) <= MOST_PAIRS else ("spearman",)

    def cells(row: Row) -> dict[str, str]:
        heading = f"{row[column]} ({sizes[row[column]]:,}), {SYMBOLS[row['coefficient']]}"
        return {heading: estimate_text(row, 2)}

    shown = [row for label in labels for row in rows if row[column] == label and row["coefficient"] in chosen]
    return Table(f"{criterion}, by {column}", joined_rows(shown, ("metric",), cells), _note("parts", column=column))


def _ratings_by_system(criterion: str, rows: Rows, plots: Sequence[Plot]) -> Table:
    def cells(row: Row) -> dict[str, str]:
        mean, share = f"{row['mean']:.3f}".replace("-", MINUS), f"{100 * row['fraction']:.1f} %"
        return {"mean": mean, "ratings": f"{row['n']:,}", row["rating"]: share}

    lines = joined_rows(rows, ("system",), cells)
    return Table(f"{criterion}, ratings by system", lines, _note("ratings_by_system"), plots)


def _scores_by_rating(criterion: str, rows: Rows, plots: Sequence[Plot]) -> Table:
    sizes = _largest(rows, "rating")

    def cells(row: Row) -> dict[str, str]:
        text = f"{row['median']:.3g} [{row['q25']:.3g}, {row['q75']:.3g}]".replace("-", MINUS) if row["n"] else NONE
        return {f"{row['rating']} ({sizes[row['rating']]:,})": text}

    lines = joined_rows(rows, ("metric",), cells)
    note = _note("scores_by_rating", *["drawn"] * bool(plots), shown=len(plots), all=len(lines))
    return Table(f"{criterion}, scores by rating", lines, note, plots)


def judgement_plots(tables: Mapping[str, Rows]) -> dict[tuple[str, str], list[Plot]]:
    """The drawings of each table and criterion: of scores those of the metrics with the highest τ-b of questions."""
    plots: dict[tuple[str, str], list[Plot]] = {}
    for criterion in _distinct(tables[SCORES], "criterion"):
        rows = _of(tables[SCORES], criterion=criterion)
        by_metric = {
            name: _of(rows, metric=name) for name in _best_first(_of(tables["correlations"], criterion=criterion))
        }
        drawn = [name for name, own in list(by_metric.items())[:MOST_METRICS] if any(row["n"] for row in own)]
        if drawn:
            plots[SCORES, criterion] = [_scores_plot(criterion, name, by_metric[name]) for name in drawn]
    for criterion in _distinct(tables[RATINGS], "criterion"):
        if plot := _ratings_plot(criterion, _of(tables[RATINGS], criterion=criterion)):
            plots[RATINGS, criterion] = [plot]
    return plots


def _axes(height: float, left: float, labels: Sequence[str], xlabel: str) -> tuple[Any, Any]:
    figure, axes = figure_of_rows(height=height + 0.3 * len(labels), left=left)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.set_yticks(range(len(labels)), [shortened(label) for label in labels], color=COLOURS["text"])
    axes.set_xlabel(xlabel)
    return figure, axes


def _scores_plot(criterion: str, metric: str, rows: Rows) -> Plot:
    """For each rating a line from the 5 % to the 95 % quantile, a bar between the quartiles, a dot at the median."""
    figure, axes = _axes(0.75, 0.26, [row["rating"] for row in rows], "score")
    colour = COLOURS["ce"]
    for place, row in enumerate(rows):
        if row["n"]:
            axes.plot([row["low"], row["high"]], [place, place], color=colour, linewidth=1.2)
            axes.plot([row["q25"], row["q75"]], [place, place], color=colour, linewidth=7, solid_capstyle="butt")
            axes.plot([row["median"]], [place], "o", markersize=5, color=COLOURS["gold"])
    axes.set_ylim(-0.6, len(rows) - 0.4)
    note = f"{criterion}; {sum(row['n'] for row in rows):,} questions"
    svg = page_svg(figure, f"scores {criterion} {metric}")
    return Plot(metric, note, (("median", "gold", True), ("quartiles", "ce", False)), svg)


def _ratings_plot(criterion: str, rows: Rows) -> Plot | None:
    """For each system a bar as long as its mean rating, divided by the shares of the ratings."""
    systems = {name: _of(rows, system=name) for name in _distinct(rows, "system")}
    labels = _distinct(rows, "rating")
    # A bar begins at 0, so a mean below it has no length.
    if not systems or any(row["mean"] < 0 for row in rows) or len(labels) > len(RUN_COLOURS):
        return None
    shown = sorted(systems, key=lambda name: -systems[name][0]["mean"])[:MOST_SYSTEMS]
    colours = dict(zip(labels, RUN_COLOURS, strict=False))
    figure, axes = _axes(0.65, 0.34, shown, "mean rating")
    for place, name in enumerate(shown):
        left = 0.0
        for row in systems[name]:
            width = row["mean"] * row["fraction"]
            axes.barh(place, width, left=left, height=0.62, color=COLOURS[colours[row["rating"]]], linewidth=0)
            left += width
    axes.set_ylim(len(shown) - 0.5, -0.5)
    axes.set_xlim(0)
    note = "bars: mean rating, coloured by the share of each rating"
    if len(systems) > len(shown):
        note += f"; the best {len(shown)} of {len(systems)} systems"
    legend = tuple((label, colour, True) for label, colour in colours.items())
    return Plot(criterion, note, legend, page_svg(figure, f"ratings {criterion}"))
