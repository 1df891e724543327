"""A study for people, from what `study.json` holds: its section of the report, tables as columns and as Markdown."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rl_qg.pages.plots import COLOURS, RUN_COLOURS, STYLE, page_svg, shortened
from rl_qg.pages.results import MINUS, Plot, as_markdown, columns_of, estimate_text
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import read_json

# The curves of a study, as in figure 5 of the QRelScore paper: EM and F1 against the amount of generated questions, a
# line for each generator, with bootstrap bands; a row for each resource and filter.


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


FILE = "study.json"
TITLES = {
    "filters": "Filters: shares of all candidates (%)",
    "questions": "What the questions are like",
    "rewards": "What learning by reward changed, on development passages",
    "gain_by_question_type": "Gain in F1 over gold alone (points), by type of the evaluation question",
    "gain_by_answer_type": "Gain in F1 over gold alone (points), by type of its answer",
    "gain_by_answer_length": "Gain in F1 over gold alone (points), by words of its answer",
}
# Columns of these tables that hold fractions, shown in percent; after a colon comes a name, such as a filter's.
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
        return _view(record, folder.resolve().name, anchor)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path}: not what rl-qg study writes ({type(error).__name__}: {error}); write it again"
        ) from None


def _view(record: Mapping[str, Any], name: str, anchor: str) -> dict[str, Any]:
    study, jobs, columns = record["study"], record["jobs"], tables(record)
    return {
        "name": name,
        "anchor": anchor,
        "facts": [
            f"{jobs['done']} of {jobs['total']} jobs done",
            f"seeds {', '.join(map(str, study['seeds']))}",
            f"commit {str(record['code'].get('commit'))[:10]}",
        ],
        "failed": dict(jobs["failed"]),
        "left_out": len(jobs["left_out"]),
        "sets": record["sets"],
        "rewards": record["rewards"],
        "resamples": study["resamples"],
        "plots": curves(record["cells"], anchor),
        "scores": score_table(record),
        "tests": [
            {"title": title, "set": name, "rows": rows}
            for question, title in record["questions"].items()
            for name in record["sets"]
            if (rows := test_table(record, question, name))
        ],
        "why": [
            {"title": TITLES.get(key, key), "rows": [_with_units(row, 3) for row in columns[key]]}
            for key in record["why"]
            if columns[key]
        ],
        "data": [(key, value) for key, value in record["data"]["counts"].items() if key != "reading"],
        "sources": list(record["data"]["sha256"].items()),
    }


# --- Tables ---


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
    return {
        "cells": cells,
        "tests": tests,
        **{name: [_flat(row) for row in rows] for name, rows in record["why"].items()},
    }


def _flat(row: StudyRow) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}: {name}": inner for name, inner in _flat(value).items()}
        else:
            flat[str(key)] = " ".join(map(str, value)) if isinstance(value, list) else value
    return flat


def study_markdown(record: Mapping[str, Any]) -> str:
    """The tables of all validation sets together, EM and F1 side by side."""
    parts = [f"# {Path(record['study']['file']).stem}", "", *_preface(record)]
    parts += ["", "## Scores", "", _markdown(score_table(record))]
    for question, title in record["questions"].items():
        if rows := test_table(record, question):
            parts += ["", f"## {title[0].upper()}{title[1:]}", "", _markdown(rows)]
    for name, rows in record["why"].items():
        if rows:
            parts += [
                "",
                f"## {name.replace('_', ' ').capitalize()}",
                "",
                _markdown([_with_units(_flat(row), 4) for row in rows]),
            ]
    return "\n".join(parts) + "\n"


def _preface(record: Mapping[str, Any]) -> list[str]:
    jobs, study = record["jobs"], record["study"]
    lines = [
        f"Readers of {len(study['seeds'])} seeds ({', '.join(map(str, study['seeds']))}), evaluated on "
        + ", ".join(f"{name}: {count} questions" for name, count in record["sets"].items())
        + ". Percent; brackets: 95 % bootstrap intervals over passages and seeds. Amounts are multiples of the gold "
        "questions; * marks cells for which fewer questions were kept than requested.",
        "",
        f"{jobs['done']} of {jobs['total']} jobs are done, {len(jobs['failed'])} failed, {len(jobs['left_out'])} were "
        "left out because of them.",
        "",
    ]
    return lines + [f"- {name}: `{text or 'no reward'}`" for name, text in record["rewards"].items()]


def score_table(record: Mapping[str, Any]) -> list[dict[str, str]]:
    rows = []
    for row in record["cells"]:
        scores = row["scores"]["all"]
        rows.append(
            {
                "resource": row["resource"],
                "gold": f"{row['gold']:,}",
                "generator": row["generator"],
                "filter": row["filter"],
                "amount": f"{row['amount']:g} ×",
                "added": f"{min(row['got']):,}" + (f" of {row['asked']:,} *" if row["short"] else ""),
                **{f"{SCORES[score]} (%)": _mean_text(interval) for score, interval in scores.items()},
                "seeds": str(len(row["seeds"])),
            }
        )
    return rows


def test_table(record: Mapping[str, Any], question: str, name: str = "all") -> list[dict[str, str]]:
    """One row for each difference of one question on one set, as text; EM and F1 side by side."""
    rows: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in record["tests"]:
        if row["question"] != question or row["set"] != name:
            continue
        key = tuple(row[field] for field in ("resource", "filter", "amount", "generator", "against"))
        texts = rows.setdefault(
            key,
            {
                "resource": row["resource"],
                "filter": row["filter"],
                "amount": f"{row['amount']:g} ×",
                "generator": row["generator"],
                "against": "gold alone" if question == "augmentation" else row["against"],
            },
        )
        label = SCORES[row["score"]]
        texts[f"{label} difference (points)"] = _mean_text(row, signed=True)
        texts[f"{label} p"] = f"{row['p']:.4f}"
        texts[f"{label} p (Holm, {row['family']})"] = f"{row['p_holm']:.4f}"
        texts["seeds"] = str(len(row["seeds"]))
    return list(rows.values())


def _mean_text(scores: StudyRow, *, signed: bool = False) -> str:
    interval = {"value": scores["mean"], "low": scores["low"], "high": scores["high"]}
    return estimate_text(interval, 1, signed=signed)


def _with_units(row: StudyRow, digits: int) -> dict[str, str]:
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
        return str(value)
    text = f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"
    return text.replace("-", MINUS)


def _markdown(rows: Sequence[StudyRow]) -> str:
    columns = columns_of(rows)
    return as_markdown(columns, [[row.get(column, "") for column in columns] for row in rows])
