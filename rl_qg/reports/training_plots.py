"""Plots of what training logged: one run, several on one axis, a small plot for each held-out measure."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from rl_qg.pages.plots import COLOURS, new_figure, page_svg, shortened
from rl_qg.pages.results import Plot
from rl_qg.reports.run_files import JsonObject, Metrics, ReportedMeasure, ReportedRun
from rl_qg.runtime.files import packaged_yaml

RAW_POINTS = 300  # drawn of a series
TABLES = packaged_yaml(__file__, "training_plots.yaml")


def training_plots(run: ReportedRun, salt: str) -> list[Plot]:
    """A plot for each panel with data, and of the time that parts of a step take; about `salt` see `page_svg`."""
    plots = [_draw_panel(panel, run, salt) for panel in TABLES["panels"]]
    return [plot for plot in (*plots, _draw_seconds(run, salt)) if plot]


def overlay_plot(title: str, keys: tuple[str, str], runs: Mapping[str, tuple[str, Metrics]]) -> Plot | None:
    """Several runs on one axis (CSS variable, metrics), None without data; `keys`: drawn as a line, and as dots."""
    figure, axes = new_figure()
    legend = []
    for name, (colour, metrics) in runs.items():
        if sum(_draw_series(axes, key, colour, metrics) for key in keys):
            legend.append((name, colour, False))
    if not legend:
        return None
    axes.set_xlim(0, max(metrics.last_step for _, metrics in runs.values()) or 1)
    axes.set_xlabel("step")
    return Plot(title, "lines: training; dots: held-out", tuple(legend), page_svg(figure, f"overlay {title}"))


def small_plot(
    measure: ReportedMeasure, run: ReportedRun, salt: str, *, colour: str, span: float, level: float | None
) -> Markup:
    """One measure of the evaluations over all steps, as a small SVG.

    The axis spans at least `span`, in the unit of the file, so that small changes look small. `level` is the value of
    human questions, a dotted line. About `salt` see `page_svg`.
    """
    figure, axes = new_figure(width=2.75, height=1.3, left=0.16, right=0.95, bottom=0.22)
    steps, values = run.metrics.series(measure.field)
    factor = measure.factor
    shown = [factor * value for value in values]
    axes.plot(steps, shown, "o-", color=COLOURS[colour], markersize=2.6, linewidth=1.3, clip_on=False)
    levels = [] if level is None else [factor * level]
    for height in levels:
        axes.axhline(height, color=COLOURS["gold"], linewidth=1.1, dashes=(1, 1.5))
    low, high = min(shown + levels), max(shown + levels)
    margin = max(factor * span - (high - low), 0.2 * (high - low)) / 2 or 0.1 * abs(high) or 1.0
    axes.set_ylim(max(low - margin, 0.0) if low >= 0 else low - margin, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    _mark_stages(axes, run)
    axes.set_xticks(sorted({0.0, run.metrics.boundary or 0.0, run.metrics.last_step}))
    return page_svg(figure, f"{salt} small {measure.field}")


def moving_mean(values: ArrayLike, window: int) -> np.ndarray:
    """Centred mean over `window` values, over fewer at the ends; same length as `values`."""
    array = np.asarray(values, dtype=float)
    sums = np.concatenate([[0.0], np.cumsum(array)])
    half = window // 2
    indices = np.arange(len(array))
    low, high = np.maximum(indices - half, 0), np.minimum(indices + half + 1, len(array))
    return (sums[high] - sums[low]) / (high - low)


def _draw_panel(panel: Mapping[str, Any], run: ReportedRun, salt: str) -> Plot | None:
    figure, axes = new_figure()
    legend = []
    for key, (label, colour) in panel["series"].items():
        if _draw_series(axes, key, colour, run.metrics, smooth=panel.get("smooth", True)):
            legend.append((label, colour, key.startswith("eval_")))
    if not legend:
        return None
    if panel.get("zero"):
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0), max(high, 0))
        axes.axhline(0, color=COLOURS["muted"], linewidth=0.8)
    _mark_stages(axes, run)
    axes.set_xlabel("step")
    title = panel["title"]
    return Plot(title, panel.get("note") or _note(title, run), tuple(legend), page_svg(figure, f"{salt} {title}"))


def _note(title: str, run: ReportedRun) -> str:
    """Of the advantage, the baseline of the run; of the loss, its objective."""
    scst = JsonObject(run.folder / "config.yaml", run.settings).part("scst")
    if title == "Advantage":
        notes: Mapping[str, str] = TABLES["baselines"]
        return notes.get(str(scst.get("baseline")), "reward of the sample minus its baseline")
    algorithm = run.settings.get("algorithm", "scst")
    if algorithm == "best_of_n":
        return "per target token: cross-entropy"
    if algorithm != "scst":
        return f"cross-entropy, then the loss of {run.words['scst']} as TRL logs it"
    weight = "(1 − λ) · " if scst.get("ce_weight") == "rest" else ""
    divergence = " + β · divergence" if any(run.metrics.series("kl_coefficient")[1]) else ""
    return f"per target token: L = λ · self-critical + {weight}cross-entropy{divergence}"


def _draw_series(axes: Axes, key: str, colour_name: str, metrics: Metrics, *, smooth: bool = True) -> int:
    """Draw a field of the metrics, as dots where it was measured at evaluations; return the number of values."""
    steps, values = metrics.series(key)
    colour = COLOURS[colour_name]
    if key.startswith("eval_"):
        axes.plot(steps, values, "o-", color=colour, markersize=3.2, linewidth=0.7, clip_on=False)
        return len(values)
    for part_steps, part in _stages(steps, values, metrics.boundary):
        window = _window(len(part)) if smooth else 1
        thin = slice(None, None, max(1, len(part) // RAW_POINTS))  # more points would only make the file larger
        if window > 1:
            axes.plot(part_steps[thin], part[thin], color=colour, linewidth=0.6, alpha=0.3)
        axes.plot(
            part_steps[thin], moving_mean(part, window)[thin], color=colour, marker="o" if len(part) == 1 else ""
        )
    return len(values)


def _window(count: int) -> int:
    return 1 if count < 20 else 2 * (count // 40) + 1


def _stages(steps: ArrayLike, values: ArrayLike, boundary: float | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Cut a series at the boundary of the stages: a mean over both would hide what changed there."""
    at, numbers = np.asarray(steps), np.asarray(values)
    first = at <= (np.inf if boundary is None else boundary)
    return [(at[part], numbers[part]) for part in (first, ~first) if part.any()]


def _draw_seconds(run: ReportedRun, salt: str) -> Plot | None:
    """Seconds per step, stacked. A field holds the seconds since the last logged line."""
    metrics = run.metrics
    logged, _ = metrics.series("seconds_update")
    if len(logged) < 2:
        return None
    widths = np.diff(logged, prepend=0.0)
    stack, legend = [], []
    for key, (label, colour) in TABLES["seconds"].items():
        if by_step := dict(zip(*metrics.series(key), strict=True)):
            stack.append((colour, np.array([by_step.get(step, 0.0) for step in logged]) / np.maximum(widths, 1)))
            legend.append((label, colour, False))
    figure, axes = new_figure()
    base = np.zeros(sum(len(part) for part, _ in _stages(logged, logged, metrics.boundary)))
    thin = max(1, len(logged) // RAW_POINTS)
    for colour, seconds in stack:
        parts = [moving_mean(part, _window(len(part))) for _, part in _stages(logged, seconds, metrics.boundary)]
        top = base + np.concatenate(parts)
        axes.fill_between(logged[::thin], base[::thin], top[::thin], color=COLOURS[colour], linewidth=0)
        base = top
    axes.set_ylim(0)
    _mark_stages(axes, run)
    axes.set_xlabel("step")
    return Plot("Time", "seconds per step, stacked", tuple(legend), page_svg(figure, f"{salt} seconds"))


def _mark_stages(axes: Axes, run: ReportedRun) -> None:
    boundary, last = run.metrics.boundary, run.metrics.last_step
    axes.set_xlim(0, last or 1)  # at step 0 alone there is no axis yet
    if boundary is None:
        return
    axes.axvspan(boundary, last, color=COLOURS["shade"], linewidth=0, zorder=-1)
    axes.axvline(boundary, color=COLOURS["muted"], linewidth=0.7, dashes=(3, 2))
    text: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 7.5}
    axes.annotate("CE", (boundary / 2, 1.01), color=COLOURS["muted"], **text)
    axes.annotate(shortened(run.words["scst"], 12), ((boundary + last) / 2, 1.01), color=COLOURS["muted"], **text)
