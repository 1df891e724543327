"""The files that a study writes: `study.json` with everything, tables as Markdown and CSV, curves as pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_qg.reports.study_plots import write_curves
from rl_qg.reports.study_view import FILE, study_markdown, tables
from rl_qg.runtime.json_files import atomic_writer, write_json
from rl_qg.runtime.run_record import git_state, hardware, package_versions
from rl_qg.studies.analysis import QUESTIONS, StudyResults, cell_rows, signatures, test_rows
from rl_qg.studies.explanations import explain
from rl_qg.studies.grid import Grid, is_done, job_record
from rl_qg.text.tables import as_csv


def write_study_output(
    results: StudyResults, grid: Grid, failed: Mapping[str, str], skipped: Sequence[str]
) -> dict[str, Any]:
    """Write everything about the jobs done so far to the study's folder, and return what `study.json` holds."""
    study, folder = results.study, results.study.output_dir
    done = [job for job in grid.jobs if is_done(job)]
    record: dict[str, Any] = {
        "study": {
            "file": study.file,
            "preset": study.preset,
            "settings": study.settings,
            "seeds": study.seeds,
            "amounts": study.amounts,
            "filters": study.filters,
            "resamples": study.resamples,
        },
        "code": git_state(Path(__file__)),
        "versions": package_versions(),
        "hardware": hardware(),
        "data": {"counts": dict(results.examples.counts), "sha256": dict(results.examples.sources)},
        "jobs": {
            "total": len(grid.jobs),
            "done": len(done),
            "failed": dict(failed),
            "left_out": list(skipped),
            "seconds": _seconds(grid),
        },
        "rewards": signatures(results),
        "questions": QUESTIONS,
        "sets": {name: len(indices) for name, indices in results.sets.items()},
        "cells": cell_rows(results),
        "tests": test_rows(results),
        "why": explain(results),
    }
    write_json(folder / FILE, record)
    for name, rows in tables(record).items():
        with atomic_writer(folder / "tables" / f"{name}.csv") as stream:
            stream.write(as_csv(rows))
    with atomic_writer(folder / "tables.md") as stream:
        stream.write(study_markdown(record))
    write_curves(record["cells"], folder)
    return record


def _seconds(grid: Grid) -> dict[str, float]:
    """Seconds of all finished jobs, by kind."""
    totals: dict[str, float] = {}
    for job in grid.jobs:
        if is_done(job):
            totals[job.kind] = round(totals.get(job.kind, 0.0) + job_record(job)["seconds"], 1)
    return totals
