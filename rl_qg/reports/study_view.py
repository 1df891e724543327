"""A study as the report's page shows it, made from its `study.json` alone."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rl_qg.reports.plots import Plot
from rl_qg.reports.study_plots import curves
from rl_qg.reports.study_tables import score_table, tables, test_table
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.json_files import read_json

FILE = "study.json"
TITLES = {
    "filters": "Filters: shares of all candidates",
    "questions": "What the questions are like",
    "rewards": "What learning by reward changed, on development passages",
    "gain_by_question_type": "Gain in F1 over gold alone, by type of the evaluation question",
    "gain_by_answer_type": "Gain in F1 over gold alone, by type of its answer",
    "gain_by_answer_length": "Gain in F1 over gold alone, by words of its answer",
}


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a study, and not of a run."""
    return (folder / FILE).exists()


def study_view(folder: Path, anchor: str) -> dict[str, Any]:
    """Everything the template shows of one study. Raises `InputError` for a file that is broken."""
    path = folder / FILE
    record = read_json(path)
    try:
        return _view(record, folder.resolve().name, anchor)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InputError(
            f"{path}: not what rl-qg study writes ({type(error).__name__}: {error}); write it again"
        ) from None


def _view(record: Mapping[str, Any], name: str, anchor: str) -> dict[str, Any]:
    study, jobs = record["study"], record["jobs"]
    plain = tables(record)
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
        "plots": [_shown(plot) for plot in curves(record["cells"], anchor)],
        "scores": score_table(record),
        "tests": [
            {"title": title, "set": one, "rows": rows}
            for question, title in record["questions"].items()
            for one in record["sets"]
            if (rows := test_table(record, question, one))
        ],
        "why": [
            {"title": TITLES.get(key, key), "rows": [_short(row) for row in plain[key]]}
            for key in record["why"]
            if plain[key]
        ],
        "data": [(key, value) for key, value in record["data"]["counts"].items() if key != "reading"],
        "sources": list(record["data"]["sha256"].items()),
    }


def _shown(plot: Plot) -> dict[str, Any]:
    return {**vars(plot), "svg": Markup(plot.svg)}


def _short(row: Mapping[str, Any]) -> dict[str, str]:
    return {key: f"{value:.3g}" if isinstance(value, float) else str(value) for key, value in row.items()}
