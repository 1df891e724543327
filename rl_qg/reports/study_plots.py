"""The curves of a study, as in figure 5 of the QRelScore paper: EM and F1 against the amount of generated questions,
a line for each generator, with bootstrap bands; a row for each resource and filter.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_qg.reports.plots import COLOURS, RUN_COLOURS, STYLE, page_svg, shortened
from rl_qg.text.pages import Plot

NO_GENERATOR = "none"  # in place of a generator's name: the reader that learns from gold questions alone
SCORES = {"exact_match": "EM", "f1": "F1"}
StudyRow = Mapping[str, Any]


def curves(cells: Sequence[StudyRow], salt: str) -> list[Plot]:
    """One drawing for each resource and filter. `cells` are those of `study.json`; about `salt` see `page_svg`."""
    colours = _colours(cells)
    plots = []
    for resource, filter_name in _panels(cells):
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(7.6, 2.6))
            figure.subplots_adjust(left=0.075, right=0.985, top=0.9, bottom=0.17, wspace=0.16)
            for number, score in enumerate(SCORES, 1):
                _draw(figure.add_subplot(1, 2, number), cells, resource, filter_name, score, colours)
        legend = tuple(
            (name, colour, False) for name, colour in colours.items() if _line(cells, resource, filter_name, name)
        )
        gold = next(row["gold"] for row in cells if row["resource"] == resource)
        title = f"Resource {resource}, filter {filter_name}"
        note = f"{gold:,} gold questions; bands: 95 % over passages and seeds"
        plots.append(Plot(title, note, legend, page_svg(figure, f"{salt} {resource} {filter_name}")))
    return plots


def write_curves(cells: Sequence[StudyRow], folder: Path) -> None:
    """All drawings in one picture, `curves.png` and `curves.svg`; nothing without an amount above 0."""
    panels, colours = _panels(cells), _colours(cells)
    if not panels:
        return
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "curves"}):
        figure = Figure(figsize=(8.2, 2.6 * len(panels) + 0.4), layout="constrained")
        grid = figure.subplots(len(panels), 2, squeeze=False)
        for row, (resource, filter_name) in zip(grid, panels, strict=True):
            for axes, score in zip(row, SCORES, strict=True):
                _draw(axes, cells, resource, filter_name, score, colours)
                title = f"{SCORES[score]}, resource {shortened(resource)}, filter {shortened(filter_name)}"
                axes.set_title(title, fontsize=9, loc="left")
        handles, labels = max((row[0].get_legend_handles_labels() for row in grid), key=lambda legend: len(legend[1]))
        figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)), frameon=False)
        for ending in ("png", "svg"):
            partial = folder / f".curves.{ending}.part"
            figure.savefig(partial, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
            partial.replace(folder / f"curves.{ending}")


def _draw(
    axes: Axes,
    cells: Sequence[StudyRow],
    resource: str,
    filter_name: str,
    score: str,
    colours: Mapping[str, str],
) -> None:
    all_seeds = max(len(row["seeds"]) for row in cells)
    for name, colour in colours.items():
        rows = _line(cells, resource, filter_name, name)
        if not rows:
            continue
        amounts = np.array([row["amount"] for row in rows])
        low, mean, high = (
            np.array([row["scores"]["all"][score][end] for row in rows]) for end in ("low", "mean", "high")
        )
        shade = COLOURS[colour]
        axes.fill_between(amounts, low, high, color=shade, alpha=0.13, linewidth=0)
        axes.plot(amounts, mean, "o-", color=shade, markersize=3.4, label=shortened(name))
        # Hollow: fewer questions than the axis says, or not all seeds.
        hollow = np.array([row["short"] or len(row["seeds"]) < all_seeds for row in rows])
        axes.plot(amounts[hollow], mean[hollow], "o", markersize=3.4, color=shade, markerfacecolor="white")
    axes.set_xlabel("generated questions, multiples of gold")
    axes.set_ylabel(f"{SCORES[score]} (%)")


def _line(cells: Sequence[StudyRow], resource: str, filter_name: str, generator: str) -> list[StudyRow]:
    """A generator's cells by amount, the reader on gold alone first; empty where the generator has no cells."""
    of_resource = [row for row in cells if row["resource"] == resource]
    baseline = [row for row in of_resource if row["generator"] == NO_GENERATOR]
    augmented = [row for row in of_resource if (row["generator"], row["filter"]) == (generator, filter_name)]
    return sorted([*baseline, *augmented], key=lambda row: row["amount"]) if augmented else []


def _panels(cells: Sequence[StudyRow]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["resource"], row["filter"]) for row in cells if row["generator"] != NO_GENERATOR))


def _colours(cells: Sequence[StudyRow]) -> dict[str, str]:
    names = dict.fromkeys(row["generator"] for row in cells if row["generator"] != NO_GENERATOR)
    return {name: RUN_COLOURS[number % len(RUN_COLOURS)] for number, name in enumerate(names)}
