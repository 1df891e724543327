"""A study for people, from what `study.json` holds: its section of the report, tables as columns and as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_qg.pages.plots import COLOURS, RUN_COLOURS, STYLE, page_svg, shortened
from rl_qg.pages.results import MINUS, Plot, Row, estimate_text, joined_rows, p_text, text_table, text_template
from rl_qg.reports.run_files import SCORES, TABLES
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json

FILE = "study.json"
NO_GENERATOR = "none"  # in place of a generator's name: the reader that learns from gold questions alone
# Columns of the tables of why that hold fractions, shown in percent; after a colon comes a name, such as a filter's.
FRACTIONS = ("dropped", "kept", "distinct", "question_types", "answer_types", "measures: round_trip")
F1_GAIN = "F1 over "  # how a column begins that holds a gain, in percent points
BLEU = "bleu4"


def is_study(folder: Path) -> bool:
    return (folder / FILE).exists()


def study_view(folder: Path, anchor: str) -> dict[str, Any]:
    """Everything the template shows of one study. Raises `InputError` for a broken file."""
    path = folder / FILE
    record = read_json(path)
    try:
        study, jobs, columns = record["study"], record["jobs"], tables(record)
        return {
            "name": folder.resolve().name,
            "anchor": anchor,
            "facts": [
                f"{jobs['done']} of {jobs['total']} jobs done",
                f"seeds {', '.join(map(str, study['seeds']))}",
                *(f"commit {commit[:10]}" for commit in [record["code"].get("commit")] if commit),
            ],
            "failed": dict(jobs["failed"]),
            "left_out": len(jobs["left_out"]),
            "sets": record["sets"],
            "rewards": record["rewards"],
            "resamples": study["resamples"],
            "plots": curves(record["cells"], len(study["seeds"]), anchor),
            "scores": score_table(record),
            "tests": [
                {"title": title, "set": name, "rows": rows}
                for question, title in record["questions"].items()
                for name in record["sets"]
                if (rows := test_table(record, question, name))
            ],
            "why": [
                {"title": TABLES["why"].get(key, key), "rows": [_with_units(row, 3) for row in columns[key]]}
                for key in record["why"]
                if columns[key]
            ],
            "data": [(key, value) for key, value in record["data"]["counts"].items() if key != "reading"],
            "sources": list(record["data"]["sha256"].items()),
        }
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path}: not what rl-qg study writes ({type(error).__name__}: {error}); write it again"
        ) from None


# --- Curves, as in figure 5 of the QRelScore paper: EM and F1 against the amount of generated questions, with bands
# of the bootstrap; a line for each generator, a row for each resource and filter.


def curves(cells: Sequence[Row], seeds: int, salt: str) -> list[Plot]:
    """One drawing for each resource and filter. `cells` are those of `study.json` (of a study of so many `seeds`);
    about `salt` see `page_svg`.
    """
    plots = []
    for (resource, filter_name), lines in _panels(cells).items():
        with matplotlib.rc_context(STYLE):
            figure = Figure(figsize=(7.6, 2.6))
            figure.subplots_adjust(left=0.075, right=0.985, top=0.9, bottom=0.17, wspace=0.16)
            for number, score in enumerate(SCORES, 1):
                _draw(figure.add_subplot(1, 2, number), seeds, lines, score)
        gold = next(row["gold"] for row in cells if row["resource"] == resource)
        note = f"{gold:,} gold questions; bands: 95 % over passages and seeds"
        svg = page_svg(figure, f"{salt} {resource} {filter_name}")
        legend = tuple((name, colour, False) for name, (colour, _) in lines.items())
        plots.append(Plot(f"Resource {resource}, filter {filter_name}", note, legend, svg))
    return plots


def write_curves(cells: Sequence[Row], seeds: int, folder: Path) -> None:
    """All drawings in one picture, `curves.png` and `curves.svg`; nothing without an amount above 0."""
    panels = _panels(cells)
    if not panels:
        return
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "curves"}):
        figure = Figure(figsize=(8.2, 2.6 * len(panels) + 0.4), layout="constrained")
        grid = figure.subplots(len(panels), 2, squeeze=False)
        for row, ((resource, filter_name), lines) in zip(grid, panels.items(), strict=True):
            for axes, score in zip(row, SCORES, strict=True):
                _draw(axes, seeds, lines, score)
                title = f"{SCORES[score]}, resource {shortened(resource)}, filter {shortened(filter_name)}"
                axes.set_title(title, fontsize=9, loc="left")
        handles, labels = max((row[0].get_legend_handles_labels() for row in grid), key=lambda legend: len(legend[1]))
        figure.legend(handles, labels, loc="outside lower center", ncols=max(1, len(labels)), frameon=False)
        for ending in ("png", "svg"):
            partial = folder / f".curves.{ending}.part"
            partial.unlink(missing_ok=True)  # a link that somebody has put there
            figure.savefig(partial, format=ending, dpi=150, metadata={"Date": None} if ending == "svg" else None)
            partial.replace(folder / f"curves.{ending}")


def _panels(cells: Sequence[Row]) -> dict[tuple[str, str], dict[str, tuple[str, list[Row]]]]:
    """For each resource and filter the generators with their colour and their cells by amount, gold alone first."""
    augmented = [row for row in cells if row["generator"] != NO_GENERATOR]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(row["generator"] for row in augmented))}
    panels: dict[tuple[str, str], dict[str, tuple[str, list[Row]]]] = {}
    for resource, filter_name in dict.fromkeys((row["resource"], row["filter"]) for row in augmented):
        gold = [row for row in cells if (row["resource"], row["generator"]) == (resource, NO_GENERATOR)]
        panel = [row for row in augmented if (row["resource"], row["filter"]) == (resource, filter_name)]
        lines = panels.setdefault((resource, filter_name), {})
        for name, number in numbers.items():
            if own := [row for row in panel if row["generator"] == name]:
                rows = sorted([*gold, *own], key=lambda row: row["amount"])
                lines[name] = (RUN_COLOURS[number % len(RUN_COLOURS)], rows)
    return panels


def _draw(axes: Axes, seeds: int, lines: Mapping[str, tuple[str, Sequence[Row]]], score: str) -> None:
    for name, (colour, rows) in lines.items():
        amounts = np.array([row["amount"] for row in rows])
        low, mean, high = (
            np.array([row["scores"]["all"][score][end] for row in rows], float) for end in ("low", "mean", "high")
        )
        shade = COLOURS[colour]
        axes.fill_between(amounts, low, high, color=shade, alpha=0.13, linewidth=0)
        axes.plot(amounts, mean, "o-", color=shade, markersize=3.4, label=shortened(name))
        # Hollow: fewer questions than the axis says, or not all seeds.
        hollow = np.array([row["short"] or len(row["seeds"]) < seeds for row in rows])
        axes.plot(amounts[hollow], mean[hollow], "o", markersize=3.4, color=shade, markerfacecolor="white")
    axes.set_xlabel("generated questions, multiples of gold")
    axes.set_ylabel(f"{SCORES[score]} (%)")


def tables(record: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table as plain columns, numbers in full."""
    cells = [
        {
            **{key: row[key] for key in ("resource", "generator", "filter", "amount", "gold", "asked")},
            "got": min(row["got"]),
            "seeds": len(row["seeds"]),
            "set": name,
            **{
                f"{score}{end}": interval[field]
                for score, interval in scores.items()
                for end, field in (("", "mean"), ("_low", "low"), ("_high", "high"))
            },
        }
        for row in record["cells"]
        for name, scores in row["scores"].items()
    ]
    columns = ("question", "resource", "filter", "amount", "generator", "against", "set", "score")
    numbers = ("mean", "low", "high", "p", "p_holm", "family")
    tests = [
        {**{key: row[key] for key in (*columns, *numbers)}, "seeds": len(row["seeds"])} for row in record["tests"]
    ]
    why = {name: [_flat(row) for row in rows] for name, rows in record["why"].items()}
    return {"cells": cells, "tests": tests, **why}


def _flat(row: Row) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}: {name}": inner for name, inner in _flat(value).items()}
        else:
            flat[str(key)] = " ".join(map(str, value)) if isinstance(value, list) else value
    return flat


def study_markdown(record: Mapping[str, Any]) -> str:
    """The tables of all validation sets together, EM and F1 side by side."""
    sections = {"Scores": score_table(record)}
    for question, title in record["questions"].items():
        sections[f"{title[0].upper()}{title[1:]}"] = test_table(record, question)
    for name, why in record["why"].items():
        sections[name.replace("_", " ").capitalize()] = [_with_units(_flat(row), 4) for row in why]
    shown = {heading: text_table(rows) for heading, rows in sections.items() if rows}
    name = Path(record["study"]["file"]).stem
    return text_template("rl_qg.reports", "study_tables.md").render(**record, name=name, tables=shown)


def score_table(record: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "resource": row["resource"],
            "gold": f"{row['gold']:,}",
            "generator": row["generator"],
            "filter": row["filter"],
            "amount": f"{row['amount']:g} ×",
            "added": f"{min(row['got']):,}" + (f" of {row['asked']:,} *" if row["short"] else ""),
            **{f"{SCORES[score]} (%)": _mean_text(interval) for score, interval in row["scores"]["all"].items()},
            "seeds": str(len(row["seeds"])),
        }
        for row in record["cells"]
    ]


def test_table(record: Mapping[str, Any], question: str, name: str = "all") -> list[dict[str, str]]:
    """One row for each difference of one question on one set, as text; EM and F1 side by side."""
    asked = [row for row in record["tests"] if (row["question"], row["set"]) == (question, name)]
    against = {"against": "gold alone"} if question == "augmentation" else {}
    rows = [{**row, "amount": f"{row['amount']:g} ×", **against} for row in asked]

    def texts(row: Row) -> dict[str, str]:
        label = SCORES[row["score"]]
        return {
            f"{label} difference (points)": _mean_text(row, signed=True),
            f"{label} p": p_text(row["p"]),
            f"{label} p (Holm, {row['family']})": p_text(row["p_holm"]),
            "seeds": str(len(row["seeds"])),
        }

    return joined_rows(rows, ("resource", "filter", "amount", "generator", "against"), texts)


def _mean_text(scores: Row, *, signed: bool = False) -> str:
    return estimate_text({**scores, "value": scores["mean"]}, 1, signed=signed)


def _with_units(row: Row, digits: int) -> dict[str, str]:
    texts = {}
    for key, value in row.items():
        head = key.partition(":")[0]
        if key in FRACTIONS or head in FRACTIONS:
            texts[f"{key} (%)"] = f"{100 * value:.1f}"
        elif head == BLEU:
            texts[key.replace(BLEU, f"{BLEU} (0–1)", 1)] = _number(value, digits)
        else:
            texts[f"{key} (points)" if key.startswith(F1_GAIN) else key] = _number(value, digits)
    return texts


def _number(value: object, digits: int) -> str:
    if not isinstance(value, float):
        return "" if value is None else str(value)
    text = f"{value:,.0f}" if abs(value) >= 10**digits - 0.5 else f"{value:.{digits}g}"
    return text.replace("-", MINUS)
