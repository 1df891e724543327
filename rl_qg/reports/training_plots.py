"""Plots of what training logged: curves of one run, several runs on one axis, one small plot for each held-out
measure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from rl_qg.pages.plots import COLOURS, new_figure, page_svg, shortened
from rl_qg.pages.results import Plot
from rl_qg.reports.run_files import JsonObject, Metrics, ReportedRun

RAW_POINTS = 300  # drawn of a series


@dataclass(frozen=True)
class Series:
    """One field of `metrics.jsonl` with its label and CSS variable; `dots` for values measured at evaluations."""

    key: str
    label: str
    colour: str
    dots: bool = False


@dataclass(frozen=True)
class Panel:
    """A plot of several series on one axis; `zero`: the axis includes 0."""

    title: str
    note: str
    series: tuple[Series, ...]
    smooth: bool = True
    zero: bool = False


PANELS = (
    Panel(
        "Loss",
        "",  # see `_note`
        (
            Series("loss", "total", "muted"),
            Series("loss_ce", "cross-entropy", "ce"),
            Series("loss_scst", "self-critical", "scst"),
            Series("eval_loss", "held-out cross-entropy", "text", dots=True),
        ),
    ),
    Panel(
        "Reward",
        "mean per question",
        (
            Series("reward_sample", "sampled", "sample"),
            Series("reward_greedy", "greedy", "greedy"),
            Series("eval_reward_greedy", "held-out greedy", "text", dots=True),
        ),
    ),
    Panel(
        "Advantage",
        "",  # see `_note`
        (Series("advantage", "advantage", "sample"),),
        zero=True,
    ),
    Panel(
        "Divergence",
        "nats per token from the policy that the stage began with",
        (
            Series("kl", "sampled", "sample"),
            Series("eval_kl", "held-out", "text", dots=True),
        ),
        zero=True,
    ),
    Panel("Entropy", "nats per sampled token", (Series("entropy", "sampled", "sample"),), zero=True),
    Panel("λ", "weight of the self-critical loss", (Series("lambda", "λ", "scst"),), smooth=False, zero=True),
    Panel(
        "Question length",
        "tokens, end token included",
        (
            Series("length_gold", "gold", "gold"),
            Series("length_sample", "sampled", "sample"),
            Series("length_greedy", "greedy", "greedy"),
        ),
    ),
    Panel("Gradient norm", "before clipping", (Series("grad_norm", "gradient norm", "ce"),), zero=True),
    Panel(
        "Learning rate",
        "starts again with the second stage",
        (Series("learning_rate", "learning rate", "ce"),),
        smooth=False,
        zero=True,
    ),
)
BASELINES = {  # `scst.baseline`
    "greedy": "reward of the sample minus that of greedy",
    "leave_one_out": "reward of each sample minus the mean of the others",
    "mean": "reward of each sample minus the mean of all",
    "none": "reward of the sample, compared with nothing",
}
SECONDS = (
    Series("seconds_update", "update", "ce"),
    Series("seconds_rollout", "rollout", "extra"),
    Series("seconds_reward", "reward", "gold"),
)


def training_plots(run: ReportedRun, salt: str) -> list[Plot]:
    """One plot for each panel that has data, and one of the time that each part of a step takes.

    `salt` differs between the runs of a page, see `page_svg`.
    """
    plots = [_draw_panel(panel, run, salt) for panel in PANELS]
    return [plot for plot in (*plots, _draw_seconds(run, salt)) if plot]


def overlay_plot(title: str, keys: tuple[str, str], runs: Mapping[str, tuple[str, Metrics]]) -> Plot | None:
    """Several runs on one axis; None when none has data.

    `keys` are the field drawn as a line and the one measured at evaluations, drawn as dots; `runs` maps a run's name
    to its CSS variable and metrics.
    """
    figure, axes = new_figure()
    legend = []
    for name, (colour, metrics) in runs.items():
        count = _draw_series(axes, Series(keys[0], name, colour), metrics, smooth=True)
        count += _draw_series(axes, Series(keys[1], name, colour, dots=True), metrics, smooth=False)
        if count:
            legend.append((name, colour, False))
    if not legend:
        return None
    axes.set_xlim(0, max(metrics.last_step for _, metrics in runs.values()))
    axes.set_xlabel("step")
    return Plot(title, "lines: training; dots: held-out", tuple(legend), page_svg(figure, f"overlay {title}"))


def small_plot(
    key: str, run: ReportedRun, salt: str, *, colour: str, factor: float, span: float, level: float | None
) -> Markup:
    """One measure of the evaluations over all steps, as a small SVG.

    Values are multiplied by `factor`. The axis spans at least `span`, so that small changes look small. `level` is the
    value of human questions, a dotted line. About `salt` see `page_svg`.
    """
    figure, axes = new_figure(width=2.75, height=1.3, left=0.16, right=0.95, bottom=0.22)
    steps, values = run.metrics.series(key)
    shown = [factor * value for value in values]
    axes.plot(steps, shown, "o-", color=COLOURS[colour], markersize=2.6, linewidth=1.3, clip_on=False)
    levels = [] if level is None else [factor * level]
    for height in levels:
        axes.axhline(height, color=COLOURS["gold"], linewidth=1.1, dashes=(1, 1.5))
    low, high = min(shown + levels), max(shown + levels)
    margin = max(span - (high - low), 0.2 * (high - low)) / 2 or 0.1 * abs(high) or 1.0
    axes.set_ylim(max(low - margin, 0.0) if low >= 0 else low - margin, high + margin)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    _mark_stages(axes, run)
    axes.set_xticks(sorted({0.0, run.metrics.boundary or 0.0, run.metrics.last_step}))
    return page_svg(figure, f"{salt} small {key}")


def moving_mean(values: ArrayLike, window: int) -> np.ndarray:
    """Centred mean over `window` values, over fewer at the ends; same length as `values`."""
    array = np.asarray(values, dtype=float)
    sums = np.concatenate([[0.0], np.cumsum(array)])
    half = window // 2
    indices = np.arange(len(array))
    low, high = np.maximum(indices - half, 0), np.minimum(indices + half + 1, len(array))
    return (sums[high] - sums[low]) / (high - low)


def _draw_panel(panel: Panel, run: ReportedRun, salt: str) -> Plot | None:
    figure, axes = new_figure()
    counts = {series: _draw_series(axes, series, run.metrics, smooth=panel.smooth) for series in panel.series}
    legend = tuple((series.label, series.colour, series.dots) for series, count in counts.items() if count)
    if not legend:
        return None
    if panel.zero:
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0), max(high, 0))
        axes.axhline(0, color=COLOURS["muted"], linewidth=0.8)
    _mark_stages(axes, run)
    axes.set_xlabel("step")
    return Plot(panel.title, _note(panel, run), legend, page_svg(figure, f"{salt} {panel.title}"))


def _note(panel: Panel, run: ReportedRun) -> str:
    scst = JsonObject(run.folder / "config.yaml", run.settings).part("scst")
    if panel.title == "Advantage":
        return BASELINES.get(str(scst.get("baseline")), "reward of the sample minus its baseline")
    if panel.title != "Loss":
        return panel.note
    algorithm = run.settings.get("algorithm", "scst")
    if algorithm == "best_of_n":
        return "per target token: cross-entropy"
    if algorithm != "scst":
        return f"cross-entropy, then the loss of {run.words['scst']} as TRL logs it"
    weight = "(1 − λ) · " if scst.get("ce_weight") == "rest" else ""
    divergence = " + β · divergence" if any(run.metrics.series("kl_coefficient")[1]) else ""
    return f"per target token: L = λ · self-critical + {weight}cross-entropy{divergence}"


def _draw_series(axes: Axes, series: Series, metrics: Metrics, *, smooth: bool) -> int:
    steps, values = metrics.series(series.key)
    colour = COLOURS[series.colour]
    if series.dots:
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
    if boundary is None:
        return [(at, numbers)] if len(at) else []
    first = at <= boundary
    return [(at[part], numbers[part]) for part in (first, ~first) if part.any()]


def _draw_seconds(run: ReportedRun, salt: str) -> Plot | None:
    """Seconds per step, stacked. A field holds the seconds since the last logged line."""
    metrics = run.metrics
    logged, _ = metrics.series("seconds_update")
    if len(logged) < 2:
        return None
    widths = np.diff(logged, prepend=0.0)
    stack, legend = [], []
    for series in SECONDS:
        by_step = dict(zip(*metrics.series(series.key), strict=True))
        if by_step:
            seconds = np.array([by_step.get(step, 0.0) for step in logged]) / np.maximum(widths, 1)
            stack.append((series, seconds))
            legend.append((series.label, series.colour, False))
    figure, axes = new_figure()
    base = np.zeros(sum(len(part) for part, _ in _stages(logged, logged, metrics.boundary)))
    thin = max(1, len(logged) // RAW_POINTS)
    for series, seconds in stack:
        parts = [moving_mean(part, _window(len(part))) for _, part in _stages(logged, seconds, metrics.boundary)]
        top = base + np.concatenate(parts)
        axes.fill_between(logged[::thin], base[::thin], top[::thin], color=COLOURS[series.colour], linewidth=0)
        base = top
    axes.set_ylim(0)
    _mark_stages(axes, run)
    axes.set_xlabel("step")
    return Plot("Time", "seconds per step, stacked", tuple(legend), page_svg(figure, f"{salt} seconds"))


def _mark_stages(axes: Axes, run: ReportedRun) -> None:
    boundary, last = run.metrics.boundary, run.metrics.last_step
    axes.set_xlim(0, last)
    if boundary is None:
        return
    axes.axvspan(boundary, last, color=COLOURS["shade"], linewidth=0, zorder=-1)
    axes.axvline(boundary, color=COLOURS["muted"], linewidth=0.7, dashes=(3, 2))
    text: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "ha": "center", "va": "bottom", "fontsize": 7.5}
    axes.annotate("CE", (boundary / 2, 1.01), color=COLOURS["muted"], **text)
    axes.annotate(shortened(run.words["scst"], 12), ((boundary + last) / 2, 1.01), color=COLOURS["muted"], **text)
