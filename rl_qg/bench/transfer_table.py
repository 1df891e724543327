"""The table of a transfer file: every cell with its measures and their intervals, as Markdown, CSV and JSON."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rl_qg.bench.transfer_file import Transfer
from rl_qg.bench.transfer_jobs import TransferCell, TransferPlan
from rl_qg.runtime.json_files import atomic_writer, read_json, write_json
from rl_qg.runtime.run_record import git_state, hardware, package_versions
from rl_qg.studies.grid import is_done, job_record
from rl_qg.studies.job_pool import JobOutcomes
from rl_qg.text.tables import as_csv, as_markdown

FILE = "transfer.json"
DONE, FAILED, LEFT_OUT, TO_DO = "done", "failed", "left out", "to do"


def write_transfer(transfer: Transfer, plan: TransferPlan, outcomes: JobOutcomes) -> str:
    """Write `transfer.json`, `transfer.csv` and `transfer.md` of what is done so far; return the Markdown table.

    A row is a cell with one seed. In Markdown a cell has one row for all seeds: the mean of each measure with its
    interval; of several seeds, the mean with their standard deviation.
    """
    rows = [_row(cell, outcomes) for cell in plan.cells]
    record = {
        "transfer": {"file": transfer.file, "preset": transfer.preset, "settings": transfer.settings},
        "domains": {name: {"data": part.data, "language": part.language} for name, part in transfer.domains.items()},
        "code": git_state(Path(__file__)),
        "versions": package_versions(),
        "hardware": hardware(),
        "jobs": {
            "total": len(plan.jobs),
            "seconds": round(sum(job_record(job)["seconds"] for job in plan.jobs if is_done(job)), 1),
        },
        "signatures": _signatures(plan),
        "cells": rows,
    }
    table = _markdown(rows)
    write_json(transfer.output_dir / FILE, record)
    with atomic_writer(transfer.output_dir / "transfer.csv") as stream:
        stream.write(as_csv([_flat(row) for row in rows]))
    with atomic_writer(transfer.output_dir / "transfer.md") as stream:
        stream.write(f"{table}\n")
    return table


def _row(cell: TransferCell, outcomes: JobOutcomes) -> dict[str, Any]:
    """One cell: its name, its state and why, and its measures by metric."""
    row: dict[str, Any] = {
        "cell": cell.cell,
        "source": cell.source,
        "target": cell.target,
        "cross_lingual": cell.cross_lingual,
        "seed": cell.seed,
        "state": TO_DO,
        "why": cell.why,
        "test_passages_seen": cell.seen,
        "measures": {},
    }
    if cell.why:
        return row | {"state": LEFT_OUT}
    for job in cell.jobs:
        if job.name in outcomes.failed:
            return row | {"state": FAILED, "why": f"{job.name}: {outcomes.failed[job.name]}"}
    if is_done(cell.jobs[-1]):
        row |= {"state": DONE, "measures": _measures(cell.jobs[-1].results / "evaluate.json")}
    return row


def _measures(path: Path) -> dict[str, dict[str, Any]]:
    """Each metric over all questions: of the corpus where it has such a form, else the mean of questions."""
    measures: dict[str, dict[str, Any]] = {}
    for row in read_json(path)["scores"]:
        if row["by"] == "all" and (row["metric"] not in measures or row["form"] == "corpus"):
            measures[row["metric"]] = {key: row[key] for key in ("value", "low", "high", "n", "form")}
    return measures


def _signatures(plan: TransferPlan) -> dict[str, str]:
    """The signature of each metric, from the first evaluation that is done."""
    for cell in plan.cells:
        if cell.jobs and is_done(cell.jobs[-1]):
            signatures: dict[str, str] = read_json(cell.jobs[-1].results / "evaluate.json")["signatures"]
            return signatures
    return {}


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in row.items() if key != "measures"}
    for metric, measure in row["measures"].items():
        flat |= {metric: measure["value"], f"{metric}_low": measure["low"], f"{metric}_high": measure["high"]}
    return flat


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    metrics = list(dict.fromkeys(metric for row in rows for metric in row["measures"]))
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["target"], row["cell"], row["source"]), []).append(row)
    lines = []
    for (target, cell, source), group in groups.items():
        done = [row for row in group if row["state"] == DONE]
        kind = f"{cell.replace('_', '-')}{', cross-lingual' if group[0]['cross_lingual'] else ''}"
        states = dict.fromkeys(row["state"] for row in group)
        state = "" if len(done) == len(group) else ", ".join(states)
        cells = [_cell([row["measures"][metric] for row in done if metric in row["measures"]]) for metric in metrics]
        lines.append([target, kind, source, str(len(done)), *cells, state])
    return as_markdown(["target", "cell", "source", "seeds", *metrics, "state"], lines)


def _cell(measures: Sequence[Mapping[str, Any]]) -> str:
    """A measure with its interval over passages; of several seeds the mean and its standard deviation over seeds."""
    values = [measure["value"] for measure in measures if measure["value"] is not None]
    if not values:
        return "–"
    if len(values) > 1:
        return f"{fmean(values):.4f} ± {stdev(values):.4f}"
    low, high = measures[0]["low"], measures[0]["high"]
    return f"{values[0]:.4f}" if low is None else f"{values[0]:.4f} [{low:.4f}, {high:.4f}]"
