"""The curves of a study, as in figure 5 of the QRelScore paper: EM and F1 against the amount of generated questions,
a line for each generator, with bootstrap bands; a row for each resource and filter.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_qg.reports.plots import COLOURS, RUN_COLOURS, STYLE, Plot, page_svg

NO_GENERATOR = "none"  # in place of a generator's name: the reader that learns from gold questions alone
SCORES = {"exact_match": "EM", "f1": "F1"}
Row = Mapping[str, Any]


def curves(cells: Sequence[Row], salt: str) -> list[Plot]:
    """One drawing for each resource and filter. `cells` are those of `study.json`; `salt` makes ids of their own."""
    colours = _colours(cells)
    plots = []
    for resource, rules in _panels(cells):
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(7.6, 2.6))
            figure.subplots_adjust(left=0.065, right=0.985, top=0.9, bottom=0.17, wspace=0.16)
            for place, score in enumerate(SCORES, 1):
                _draw(figure.add_subplot(1, 2, place), cells, resource, rules, score, colours)
        legend = tuple(
            (name, colour, False) for name, colour in colours.items() if _line(cells, resource, rules, name)
        )
        gold = next(row["gold"] for row in cells if row["resource"] == resource)
        title = f"Resource {resource}, filter {rules}"
        note = f"{gold:,} gold questions; bands: 95 % over passages and seeds"
        plots.append(Plot(title, note, legend, page_svg(figure, f"{salt} {resource} {rules}")))
    return plots


def write_curves(cells: Sequence[Row], folder: Path) -> None:
    """All drawings in one picture, `curves.png` and `curves.svg`; nothing without an amount above 0."""
    panels, colours = _panels(cells), _colours(cells)
    if not panels:
        return
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "curves"}):
        figure = Figure(figsize=(8.2, 2.6 * len(panels) + 0.4), layout="constrained")
        grid = figure.subplots(len(panels), 2, squeeze=False)
        for axes, (resource, rules) in zip(grid, panels, strict=True):
            for place, score in zip(axes, SCORES, strict=True):
                _draw(place, cells, resource, rules, score, colours)
                place.set_title(f"{SCORES[score]}, resource {resource}, filter {rules}", fontsize=9, loc="left")
        handles, labels = max((row[0].get_legend_handles_labels() for row in grid), key=lambda found: len(found[1]))
        figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)), frameon=False)
        for ending in ("png", "svg"):
            partial = folder / f".curves.{ending}.part"
            figure.savefig(partial, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
            partial.replace(folder / f"curves.{ending}")


def _draw(axes: Axes, cells: Sequence[Row], resource: str, rules: str, score: str, colours: Mapping[str, str]) -> None:
    for name, colour in colours.items():
        rows = _line(cells, resource, rules, name)
        if not rows:
            continue
        found = [row["scores"]["all"][score] for row in rows]
        places = [row["amount"] for row in rows]
        shade = COLOURS[colour]
        low, high = [one["low"] for one in found], [one["high"] for one in found]
        axes.fill_between(places, low, high, color=shade, alpha=0.13, linewidth=0)
        axes.plot(places, [one["mean"] for one in found], "o-", color=shade, markersize=3.4, label=name)
        # Hollow: fewer questions than the axis says, or not of all seeds.
        seeds = max(len(row["seeds"]) for row in cells)
        short = [place for place, row in enumerate(rows) if row["short"] or len(row["seeds"]) < seeds]
        means = [found[place]["mean"] for place in short]
        axes.plot([places[place] for place in short], means, "o", markersize=3.4, color=shade, markerfacecolor="white")
    axes.set_xlabel("generated questions, multiples of gold")
    axes.set_ylabel(SCORES[score])


def _line(cells: Sequence[Row], resource: str, rules: str, generator: str) -> list[Row]:
    """A generator's cells by amount, led by the reader on gold alone; nothing without cells of its own."""
    here = [row for row in cells if row["resource"] == resource]
    own = [row for row in here if (row["generator"], row["filter"]) == (generator, rules)]
    before = [row for row in here if row["generator"] == NO_GENERATOR]
    return sorted([*before, *own], key=lambda row: row["amount"]) if own else []


def _panels(cells: Sequence[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["resource"], row["filter"]) for row in cells if row["generator"] != NO_GENERATOR))


def _colours(cells: Sequence[Row]) -> dict[str, str]:
    names = dict.fromkeys(row["generator"] for row in cells if row["generator"] != NO_GENERATOR)
    return {name: RUN_COLOURS[place % len(RUN_COLOURS)] for place, name in enumerate(names)}
