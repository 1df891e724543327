"""The tables of a study, from what `study.json` holds: as plain columns, as CSV, and as Markdown."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

MINUS = "\N{MINUS SIGN}"
SHORT = {"exact_match": "EM", "f1": "F1"}
Row = Mapping[str, Any]


def tables(record: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of every table as plain columns, numbers in full."""
    cells = [
        {
            **{key: row[key] for key in ("resource", "generator", "filter", "amount", "gold", "asked")},
            "got": min(row["got"]),
            "seeds": len(row["seeds"]),
            "set": name,
            **{
                f"{score}{end}": found[field]
                for score, found in scores.items()
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


def _flat(row: Row) -> dict[str, Any]:
    """Nested values as columns of their own; lists in one cell."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}: {name}": inner for name, inner in _flat(value).items()}
        else:
            flat[str(key)] = " ".join(map(str, value)) if isinstance(value, list) else value
    return flat


def as_markdown(record: Mapping[str, Any]) -> str:
    """The tables that people read: all sets together, EM and F1 side by side."""
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
                _markdown([_rounded(_flat(row)) for row in rows]),
            ]
    return "\n".join(parts) + "\n"


def _preface(record: Mapping[str, Any]) -> list[str]:
    jobs, study = record["jobs"], record["study"]
    lines = [
        f"Readers of {len(study['seeds'])} seeds ({', '.join(map(str, study['seeds']))}), judged on "
        + ", ".join(f"{name}: {count} questions" for name, count in record["sets"].items())
        + ". Percent; brackets: 95 % bootstrap intervals over passages and seeds. Amounts are multiples of the gold "
        "questions; * marks cells for which fewer questions were kept than asked for.",
        "",
        f"{jobs['done']} of {jobs['total']} jobs are done, {len(jobs['failed'])} failed, {len(jobs['left_out'])} were "
        "left out because of them.",
        "",
    ]
    return lines + [f"- {name}: `{text or 'no reward'}`" for name, text in record["rewards"].items()]


def score_table(record: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row for each cell, as text."""
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
                **{SHORT[score]: estimate_text(found) for score, found in scores.items()},
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
        own = rows.setdefault(
            key,
            {
                "resource": row["resource"],
                "filter": row["filter"],
                "amount": f"{row['amount']:g} ×",
                "generator": row["generator"],
                "against": "gold alone" if question == "augmentation" else row["against"],
            },
        )
        label = SHORT[row["score"]]
        own[f"{label} difference"] = estimate_text(row, signed=True)
        own[f"{label} p"] = f"{row['p']:.4f}"
        own[f"{label} p (Holm, {row['family']})"] = f"{row['p_holm']:.4f}"
        own["seeds"] = str(len(row["seeds"]))
    return list(rows.values())


def estimate_text(found: Row, *, signed: bool = False) -> str:
    """A mean with its interval, one decimal."""
    form = "+.1f" if signed else ".1f"
    text = f"{found['mean']:{form}} [{found['low']:{form}}, {found['high']:{form}}]"
    return text.replace("-", MINUS)


def _rounded(row: Row) -> dict[str, str]:
    return {key: f"{value:.4g}" if isinstance(value, float) else str(value) for key, value in row.items()}


def _markdown(rows: Iterable[Row]) -> str:
    rows = list(rows)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "| " + " | ".join("---" for _ in columns) + " |"]
    lines += [
        "| " + " | ".join(str(row.get(column, "")).replace("|", "\\|") for column in columns) + " |" for row in rows
    ]
    return "\n".join(lines)
