"""Drawings of `rl-qg correlate`: scores of a metric by rating, and ratings by system.

As in the QRelScore paper (EMNLP 2022): figures 3 and 7, and figure 6.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.ticker import MaxNLocator

from rl_qg.reports.plots import COLOURS, RUN_COLOURS, new_figure, page_svg, shortened
from rl_qg.text.pages import Plot

Rows = Sequence[Mapping[str, Any]]
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
            plots["scores_by_rating", criterion] = [_scores(criterion, name, by_metric[name]) for name in chosen]
    for criterion, rows in _by(tables["ratings_by_system"], "criterion").items():
        if plot := _ratings(criterion, rows):
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
        if (row["criterion"], row["level"], row["coefficient"]) == (criterion, "question", "kendall")
    }
    return sorted(values, key=lambda name: -values[name])


def _scores(criterion: str, metric: str, rows: Rows) -> Plot:
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


def _ratings(criterion: str, rows: Rows) -> Plot | None:
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
