"""What docs/explanation/faults.md promises of servers: its figures are those of the code, and its tests exist."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from rl_qg.settings.web import RateServeSettings, ServeSettings
from tests.docs.markdown import ROOT

FAULTS = ROOT / "experiments" / "faults"
GROUPS = yaml.safe_load((FAULTS / "servers.yaml").read_text(encoding="utf-8"))
ROWS = [row for rows in GROUPS.values() for row in rows]
SETTINGS = {"serve": ServeSettings(), "rate_serve": RateServeSettings()}
UNITS = {"": 1, "s": 1, "minutes": 60, "hours": 3600, "days": 86_400, "KiB": 1024, "MB": 1_000_000}


def in_the_code(name: str) -> Any:
    """The default of a setting, or what a module has by a name."""
    place, _, last = name.rpartition(".")
    return getattr(SETTINGS[place] if place in SETTINGS else importlib.import_module(place), last)


@pytest.mark.parametrize("row", ROWS, ids=[row["promise"][:40] for row in ROWS])
def test_figures_are_those_of_the_code_and_tests_exist(row: dict[str, Any]) -> None:
    figures, names = row.get("figures", []), row.get("kept in", [])
    assert row["promise"].count("{}") == len(figures) and row["of"] in ("serve", "rate serve", "both")
    for figure, name in zip(figures, names, strict=True) if figures else ():
        number, _, unit = str(figure).partition(" ")
        assert in_the_code(name) == float(number.replace(",", "")) * UNITS[unit], name
    for name in names:
        in_the_code(name)
    for test in row["tests"]:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert f"def {name}(" in text if name else "def test_" in text, test


def test_the_page_is_what_its_script_makes(tmp_path: Path) -> None:
    page = tmp_path / "faults.md"
    subprocess.run([sys.executable, str(FAULTS / "table.py"), str(FAULTS / "results.jsonl"), str(page)], check=True)
    assert page.read_text(encoding="utf-8") == (ROOT / "docs/explanation/faults.md").read_text(encoding="utf-8")
