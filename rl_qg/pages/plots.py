"""Drawing for pages: small inline SVGs whose text stays text and whose colours follow the page.

Each colour is drawn as a placeholder and becomes a CSS variable of the page, so that plots, legends and tables agree
and dark mode needs no second drawing. The palette is Okabe and Ito's, safe for colour-blind readers.
"""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

# CSS variable -> the colour that it replaces in a drawing. `page_style.css` defines the shown ones.
COLOURS = {
    "ce": "#0072b2",
    "scst": "#d55e00",
    "gold": "#e69f00",
    "greedy": "#009e73",
    "sample": "#cc79a7",
    "extra": "#56b4e9",
    "text": "#101112",
    "muted": "#707172",
    "line": "#d0d1d2",
    "shade": "#f0f1f2",
    "bad": "#a33b02",
}
LONGEST_LABEL = 20  # characters
RUN_COLOURS = ("ce", "scst", "greedy", "sample", "extra", "gold")
STYLE = matplotlib.rc_params_from_file(Path(__file__).with_name("plots.mplstyle"), use_default_template=False)


@dataclass(frozen=True)
class ReportedMean:
    """A mean with the ends of its interval and the number of values, as far as they are known."""

    mean: float
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def excludes_zero(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        return self.low > 0 or self.high < 0


def interval_plot(
    rows: Sequence[tuple[str, str, ReportedMean, Sequence[float]]],
    salt: str,
    *,
    zero: bool = False,
    unit: str | None = None,
) -> Markup:
    """Dots with intervals as SVG, one row each: label, CSS variable, mean, values of single seeds (small rings).

    With `zero`, a line marks 0, no difference. `unit` names the axis; None: percent. About `salt` see `page_svg`.
    """
    figure, axes = figure_of_rows(height=max(2.0, 0.6 + 0.33 * len(rows)), left=0.33)
    if zero:
        axes.axvline(0, color=COLOURS["muted"], linewidth=0.8, dashes=(3, 2))
    for row, (_, colour, estimate, seeds) in enumerate(rows):
        shade = COLOURS[colour]
        if estimate.low is not None and estimate.high is not None:
            axes.plot([estimate.low, estimate.high], [row, row], color=shade, linewidth=2.2)
        below = [row + 0.26] * len(seeds)
        axes.plot(
            seeds, below, "o", markersize=3.6, markerfacecolor="none", markeredgecolor=shade, markeredgewidth=0.9
        )
        axes.plot([estimate.mean], [row], "o", markersize=6, color=shade)
    axes.set_yticks(range(len(rows)), [shortened(label) for label, *_ in rows], color=COLOURS["text"])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.margins(x=0.12)
    if unit:
        axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(unit or ("percentage points" if zero else "percent"))
    return page_svg(figure, f"{salt} intervals {zero}")


def reader_plot(groups: Mapping[str, Sequence[tuple[str, str, ReportedMean]]], salt: str) -> Markup:
    """Bars with intervals and their values as SVG: a group for each score, a bar for each reader, in percent.

    A bar is label, CSS variable, mean. About `salt` see `page_svg`.
    """
    near: dict[str, Any] = {"textcoords": "offset points", "va": "center", "color": COLOURS["text"]}
    rows = [(group, *bar) for group, bars in groups.items() for bar in bars]
    figure, axes = figure_of_rows(width=5.6, height=0.55 + 0.34 * len(rows), left=0.3, right=0.9)
    position, positions = -1.0, []
    for number, (group, _, colour, estimate) in enumerate(rows):
        position += 1.0 if number == 0 or group == rows[number - 1][0] else 1.45
        positions.append(position)
        axes.barh(position, estimate.mean, height=0.62, color=COLOURS[colour], linewidth=0)
        end = estimate.mean
        if estimate.low is not None and estimate.high is not None:
            axes.plot([estimate.low, estimate.high], [position, position], color=COLOURS["text"], linewidth=1.3)
            end = max(end, estimate.high)
        axes.annotate(f"{estimate.mean:.1f}", (end, position), xytext=(5, 0), **near)
    axes.set_yticks(positions, [shortened(f"{group}, {label}") for group, label, *_ in rows], color=COLOURS["text"])
    axes.set_ylim(positions[-1] + 0.6, -0.6)
    axes.set_xlim(0)
    axes.set_xlabel("percent")
    return page_svg(figure, f"{salt} readers")


def figure_of_rows(**options: float) -> tuple[Figure, Axes]:
    """`new_figure` for one row each thing that is compared: grid lines for values alone, no axis for rows."""
    figure, axes = new_figure(**options)
    axes.grid(True, axis="x")
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure, axes


def shortened(text: str, most: int = LONGEST_LABEL) -> str:
    """A name for a drawing, which has no room for more than `most` characters; dollar signs begin no formula."""
    short = text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
    return short.replace("$", r"\$")


def new_figure(
    *, width: float = 5.2, height: float = 2.3, left: float = 0.13, right: float = 0.975, bottom: float = 0.42
) -> tuple[Figure, Axes]:
    """A figure with fixed margins, so that the axes of plots below each other line up. `bottom` is in inches."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height))
        figure.subplots_adjust(left=left, right=right, top=1 - 0.184 / height, bottom=bottom / height)
        axes = figure.add_subplot()
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(
                FuncFormatter(lambda value, _: f"{value:.6g}".replace("e-0", "e-").replace("-", "\N{MINUS SIGN}"))
            )
    return figure, axes


def page_svg(figure: Figure, salt: str) -> Markup:
    """The figure as SVG for a page: no prolog, no outside name, unique ids, colours as CSS variables.

    It is safe to include, since matplotlib escapes the text in it. `salt` differs between the figures of a page: ids
    inside the drawing are made from it.
    """
    stream = io.StringIO()
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": salt}):
        figure.savefig(stream, format="svg", transparent=True)
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"| (width|height)="[\d.]+pt"', "", text)
    text = re.sub(r'<g id="[^"]*"', "<g", text)
    text = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", text)
    text = re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d)\d+", r"\1", path[0]), text)
    for name, colour in COLOURS.items():
        text = text.replace(colour, f"var(--{name})")
    return Markup(text)
