"""A run folder of which one file was edited: a complete page, or one line that names the file."""

import json
import random
from pathlib import Path

import pytest

from rl_qg.reports.report import write_report
from rl_qg.runtime.errors import InputError
from tests.properties.mutations import kinds, mutate
from tests.rl_qg.reports.run_folders import FILES, three_readers, write

DRAWS = 24  # of 178 changes of the same kind two were tracebacks before


@pytest.mark.parametrize("seed", range(DRAWS))
def test_an_edited_file_is_reported_or_named(tmp_path: Path, seed: int) -> None:
    folder, draw = write(tmp_path, **three_readers()), random.Random(seed)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "questions.jsonl"]
    edited = draw.choice(files)
    mutate(edited, draw.choice(kinds(edited.name)), draw.random())
    try:
        write_report([folder], folder / "report.html")
    except InputError as error:
        assert str(edited) in str(error) and str(error).isprintable()
    else:
        assert (folder / "report.html").read_text(encoding="utf-8").rstrip().endswith("</html>")


def test_half_of_a_surrogate_pair_is_a_question_mark(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    write_report([write(tmp_path, **{"run.json": FILES["run.json"] | {"command": ["rl-qg", "\ud800"]}})], page)
    assert "rl-qg &#39;?&#39;" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("text", ["NaN", "Infinity", '"1"'])
def test_a_count_is_a_number(tmp_path: Path, text: str) -> None:
    report = json.dumps(FILES["augmented.report.json"]).replace("2400", text)
    with pytest.raises(InputError, match=r"augmented\.report\.json.*no question mark"):
        write_report([write(tmp_path, **{"augmented.report.json": report})], tmp_path / "report.html")
