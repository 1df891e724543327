"""Tables as Markdown and HTML, with any text in their cells."""

import re
from importlib import resources
from pathlib import Path

import pytest
from markupsafe import Markup

from rl_qg.pages.results import Page, Plot, Table, as_html, as_text, check_folder, write_results
from rl_qg.runtime.errors import InputError


def test_cells_and_headings_stay_on_their_line() -> None:
    rows = [{"me|tric": "a\nb|c", "x\ny": "1"}, {"me|tric": "d", "x\ny": "2\r\n3"}]
    text = as_text(Page("evaluate", "one\ntwo", ["fact"], [Table("ta\nble", rows, "note")], {}))
    assert text.splitlines() == [
        *("# one two", "", "fact", "", "## ta ble", "", "note", ""),
        "| me\\|tric | x y |",
        "| -------- | --: |",
        "| a b\\|c   |   1 |",
        "| d        | 2 3 |",
    ]


def test_a_page_escapes_what_it_is_given() -> None:
    rows = [{"<b>": "<script>"}]
    html = as_html(Page("evaluate", "<t>", ["<f>"], [Table("<h>", rows, "<n>")], {"<m>": "<s>"}))
    assert "<script>" not in html and "&lt;script&gt;" in html and "<b>" not in html


def test_a_page_is_one_file_that_holds_its_style() -> None:
    html = as_html(Page("evaluate", "title", [], [], {}))
    style = resources.files("rl_qg.pages").joinpath("page_style.css").read_text(encoding="utf-8")
    assert ".numbers" in style and style.strip() in html
    assert not any(mark in html for mark in ("<link", "<script", "src=", "url(", "@import"))


def test_tables_are_offered_as_csv_and_drawings_are_not() -> None:
    plot = Plot("drawing", "", (), Markup("<svg></svg>"))
    html = as_html(Page("evaluate", "title", [], [Table("table", [{"a": "1"}], plots=[plot])], {}))
    assert re.findall('download="(.*)" href', html) == ["Table 1: table.csv"]


@pytest.mark.parametrize("name", ["evaluate.html", "evaluate.json", "evaluate.txt"])
def test_files_of_somebody_else_are_not_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text('{"mine": 1}')
    with pytest.raises(InputError, match=rf"output=.*: {name} in it is not of this command; name another folder"):
        check_folder(str(tmp_path), "evaluation", name="evaluate")
    check_folder(str(tmp_path), "evaluation", name="correlate")


def test_results_of_the_same_command_are(tmp_path: Path) -> None:
    write_results(tmp_path, "evaluate", {"signatures": {}}, Page("evaluate", "t", [], [], {}), {})
    assert check_folder(str(tmp_path), "evaluation", name="evaluate") == tmp_path
    (tmp_path / "evaluate.txt").unlink()  # a kill between the writes
    (tmp_path / "evaluate.html").unlink()
    check_folder(str(tmp_path), "evaluation", name="evaluate")


def test_no_table_of_an_earlier_run_stays(tmp_path: Path) -> None:
    page = Page("evaluate", "t", [], [], {})
    for pairs in ([{"p": 0.5}], []):
        write_results(tmp_path, "evaluate", {"signatures": {}}, page, {"systems": [{"n": 1}], "pairs": pairs})
    assert [file.name for file in (tmp_path / "tables").iterdir()] == ["systems.csv"]
