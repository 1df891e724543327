"""The page of sets: its pairs are those that scipy finds by hand, and hostile text is text."""

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from rl_qg.commands.cli import run_command
from rl_qg.reports.set_view import file_view, write_set_page
from rl_qg.runtime.errors import InputError
from tests.pages.hostile_texts import MARKUP, NAME
from tests.toy_metrics import write_lines

CONTEXT = "Anna built a mill. It burned."
HUMAN = ["Who built a mill?", "What burned down?", "Why?"]
ASKED = ["What burned?", "What burned ?", "Who built the mill?", MARKUP]


def shared(first: str, second: str) -> float:
    """ROUGE-L of two texts whose common words have one order: 2 · common / (lengths)."""
    one, two = (re.findall(r"[a-z0-9]+", text.lower()) for text in (first, second))
    row = np.zeros((len(one) + 1, len(two) + 1))
    for a, b in np.ndindex(len(one), len(two)):
        row[a + 1, b + 1] = row[a, b] + 1 if one[a] == two[b] else max(row[a, b + 1], row[a + 1, b])
    return 2 * row[-1, -1] / (len(one) + len(two))


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "one.jsonl", [{"context": CONTEXT, "questions": ASKED, "references": HUMAN}])
    write_lines(tmp_path / "two.jsonl", [{"context": CONTEXT, "question": MARKUP, "references": HUMAN}])
    files = "predictions={one: one.jsonl, two: two.jsonl}"
    run_command("evaluate", ["sets=true", files, "metrics=[rouge_l]", "output=out", "page=sets.html", "resamples=40"])
    return (tmp_path / "sets.html").read_text(encoding="utf-8")


def test_lines_are_the_assignment_of_scipy(page: str) -> None:
    kept = [0, 2, 3]  # the second repeats the first
    matrix = np.array([[shared(ASKED[row], gold) for gold in HUMAN] for row in kept])
    rows, columns = linear_sum_assignment(matrix, maximize=True)
    expected = {(kept[row] + 0.5, column + 0.5) for row, column in zip(rows, columns, strict=True)}
    first = page[page.index("<h3>one</h3>") : page.index("<h3>two</h3>")]
    lines = {(float(one), float(two)) for one, two in re.findall(r'y1="([\d.]+)" x2="9.4" y2="([\d.]+)"', first)}
    assert lines == expected and {(0.5, 1.5), (2.5, 0.5)} <= lines
    assert f"{shared(ASKED[0], HUMAN[1]):.2f} → 2" in first and first.count("no partner") == 1
    assert page[page.index("<h3>two</h3>") :].count("not asked") == 2
    assert "nothing" not in first


def test_hostile_text_is_text(page: str) -> None:
    assert MARKUP not in page and "<script" not in page and "<img" not in page
    assert MARKUP in unescape(page)
    assert "default-src 'none'" in page


def test_scores_beyond_one_and_empty_sets() -> None:
    view = file_view(NAME, ["a", ""], ["x"], [[1, 0, 3.5]])
    assert view["lines"] == [{"from": 1.5, "to": 0.5, "darkness": 1.0}] and view["rows"] == 2
    assert [question["partner"] for question in view["questions"]] == [None, 1]
    assert view["questions"][1]["text"] == "(empty)"
    assert file_view(NAME, [], [], [])["rows"] == 1


@pytest.mark.parametrize(
    "change",
    [lambda pairs: pairs.pop("metric"), lambda pairs: pairs["passages"][0]["files"]["one"]["pairs"].append([9, 0, 1])],
)
def test_damaged_files_are_named(page: str, change: Any, tmp_path: Path) -> None:
    path = tmp_path / "out" / "set_pairs.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="not what rl-qg evaluate writes"):
        write_set_page(tmp_path / "out", tmp_path / "again.html")


def test_another_file_is_not_overwritten(page: str, tmp_path: Path) -> None:
    (tmp_path / "mine.html").write_text("mine")
    with pytest.raises(InputError, match="not a page of this command"):
        run_command(
            "evaluate", ["sets=true", "predictions=one.jsonl", "metrics=[rouge_l]", "output=b", "page=mine.html"]
        )
    assert (tmp_path / "mine.html").read_text() == "mine"
