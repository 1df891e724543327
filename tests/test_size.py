"""`make size` counts every file once."""

import subprocess
from pathlib import Path

import pytest

from rl_qg.settings import Settings
from tests.size import ROOT, keys, main, measure, rooms


def test_every_file_of_the_package_is_in_one_room() -> None:
    listed = subprocess.run(["find", "rl_qg", "rewards", "-name", "*.py"], cwd=ROOT, capture_output=True, text=True)
    found = [path.relative_to(ROOT).as_posix() for paths in rooms().values() for path in paths]
    assert sorted(found) == sorted(listed.stdout.split())


def test_a_file_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "file.py"
    path.write_text("class A:\n    def f(self):\n        def g():\n            pass\n")
    assert measure([path, path]) == (2, 8, 4, 2)


def test_the_table_has_the_time_of_the_last_tests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.size.ROOT", tmp_path)  # of which there is nothing to read
    (tmp_path / "rl_qg").mkdir()
    record = tmp_path / "tests.xml"
    main(str(record))
    assert "not run yet" in capsys.readouterr().out
    record.write_text('<testsuites><testsuite tests="7" time="90.0"></testsuite></testsuites>')
    main(str(record))
    shown = capsys.readouterr().out
    assert "1.5 minutes, 7 tests" in shown and f"settings keys       {keys(Settings):>8}" in shown
