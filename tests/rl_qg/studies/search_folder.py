"""Searches with the program of `tests.search_work` in place of training; as a script, one that can be killed."""

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from rl_qg.commands.compose import compose
from rl_qg.runtime.files import read_json
from rl_qg.studies.jobs import run_jobs
from rl_qg.studies.search import run_search
from rl_qg.studies.search_space import read_search
from tests.search_work import PROGRAM

SEARCH: dict[str, Any] = {
    "output_dir": "out",
    "preset": "smoke",
    "settings": {"training.rate_schedule": "constant", "ce.warmup_fraction": 0},
    "data": {"train": "train.json", "validation": "dev.json"},
    "space": {"ce.learning_rate": ["1e-3", "1e-4"], "ce.label_smoothing": [0.0, 0.15]},
    "rungs": [[1, 2], [2, 1]],
    "go_on_to": 9,
}


def search(folder: Path, *overrides: str, workers: int = 1, **changes: Any) -> dict[str, Any]:
    """Run a search with these changes of the file, and return its record."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "search.yaml").write_text(
        yaml.safe_dump({**SEARCH, "output_dir": str(folder / "out"), **changes}, sort_keys=False)
    )
    read = read_search(str(folder / "search.yaml"), overrides, {})
    jobs = partial(run_jobs, devices=["cpu"] * workers, program=PROGRAM)
    run_search(read, compose, run=jobs)
    record: dict[str, Any] = read_json(folder / "out" / "search.json")
    return record


def calls(folder: Path) -> list[str]:
    """Every training that was begun: configuration and epochs."""
    path = folder / "out" / "calls.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return [f"{line.partition('-')[0]} {line.rpartition(' ')[2]}" for line in lines]


def decided(record: dict[str, Any]) -> dict[str, Any]:
    """What a search found, without times and folders."""
    runs = ("seconds", "folder", "commands")
    rows: Sequence[dict[str, Any]] = record["configurations"]
    kept = [
        {**row, "runs": [{key: value for key, value in run.items() if key not in runs} for run in row["runs"]]}
        for row in rows
    ]
    winner = {**record["winner"], "model": None}
    return {"configurations": kept, "winner": winner, **{key: record[key] for key in ("rungs", "ties", "failed")}}


if __name__ == "__main__":
    search(Path(sys.argv[1]), workers=2)
