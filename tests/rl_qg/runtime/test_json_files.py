"""JSON files are written as a whole, and JSON lines are cut back to whole records."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rl_qg.data.formats import text_lines
from rl_qg.runtime.errors import InputError
from rl_qg.runtime.files import (
    append_json_line,
    atomic_writer,
    cut_json_lines,
    read_json,
    read_json_lines,
    read_yaml,
    write_json,
)
from rl_qg.settings.yaml_files import read_content


def test_a_failed_write_leaves_the_old_file_and_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(RuntimeError), atomic_writer(path) as stream:
        stream.write("half")
        raise RuntimeError
    assert read_json(path) == {"x": 1}
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_half_a_surrogate_pair_is_a_question_mark(tmp_path: Path) -> None:
    value = {"key": "a\ud800é\U0001f600"}
    write_json(tmp_path / "one.json", value)
    append_json_line(tmp_path / "lines.jsonl", value)
    for path in tmp_path.iterdir():
        assert json.loads(path.read_text("utf-8")) == {"key": "a?é\U0001f600"}


@pytest.mark.parametrize("private", [False, True])
def test_links_in_the_place_of_a_file_and_of_its_unfinished_form_lead_nowhere(tmp_path: Path, private: bool) -> None:
    """In a folder where others write, a link by the name of a file to come would choose what is overwritten."""
    (other := tmp_path / "other").write_text("of somebody else")
    (path := tmp_path / "a.json").symlink_to(other)
    (tmp_path / ".a.json.part").symlink_to(other)
    with atomic_writer(path, private=private) as stream:
        stream.write("{}")
    assert other.read_text() == "of somebody else" and path.read_text() == "{}" and not path.is_symlink()
    assert {entry.name for entry in tmp_path.iterdir()} == {"a.json", "other"}


def test_files_are_as_readable_as_the_umask_allows(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {})
    (tmp_path / "b.json").write_text("{}")
    assert (tmp_path / "a.json").stat().st_mode == (tmp_path / "b.json").stat().st_mode


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a":\n [}', "line 2, column 3"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "cannot be read"),
        (b"[" * 100_000, "unusable JSON"),
        (b"1" * 5000, "unusable JSON.*4300"),
    ],
)
def test_an_error_about_malformed_json_names_file_line_and_column(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "broken.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"broken.json.*{message}"):
        read_json(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"a": 1}\n{"a"\n', "line 2: malformed"),
        (b"[1]\n", "line 1: expected a JSON object"),
        (b"\xff\n", "UTF-8"),
        (b"{}\n" + b"[" * 100_000, "line 2: unusable JSON"),
        (b"1" * 5000, "line 1: unusable JSON.*4300"),
    ],
)
def test_an_error_about_a_malformed_line_names_the_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"rows.jsonl.*{message}"):
        list(read_json_lines(path))


def test_cutting_drops_later_steps_and_an_incomplete_last_line(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for step in (1, 2, 3):
        append_json_line(path, {"step": step})
    with path.open("a") as stream:
        stream.write('{"step": 4, "lo')
    cut_json_lines(path, 2)
    with path.open("ab") as stream:
        stream.write('{"step": 3, "sample": "Wer schrieb „Faust“?'.encode()[:-4])  # cut within a character
    cut_json_lines(path, 2)
    assert [row["step"] for _, row in read_json_lines(path)] == [1, 2]
    cut_json_lines(tmp_path / "absent.jsonl", 2)


def test_other_unicode_line_separators_do_not_split_a_record(tmp_path: Path) -> None:
    path = tmp_path / "samples.jsonl"
    records = [{"step": step, "sample": f"a\u2028b\u0085{step}"} for step in range(1, 6)]
    for record in records:
        append_json_line(path, record)
    cut_json_lines(path, 4)
    assert [record for _, record in read_json_lines(path)] == records[:4]


UNUSABLE = {
    "a: 2020-02-30\n": "day is out of range",
    f"a: {'1' * 5000}\n": "4300",
    "[" * 5000: "recursion",
    "a: &x [*x]\n": "Circular reference",
    'a: {b: "x\\ud800"}\n': "half of a surrogate pair",
    'a: "x\\0"\n': "NUL",
    "a: !!int x\n": "invalid literal",
    "a: !!bool x\n": "'x'",
    "a: !!timestamp x\n": "NoneType",
}


@pytest.mark.parametrize("text", UNUSABLE, ids=lambda text: text[:12])
def test_yaml_whose_values_do_not_fit_is_one_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(text)
    for read in (read_yaml, lambda path: read_content(path, "study", keys="a", page="x", allow_imports=False)):
        with pytest.raises(InputError, match=f"study.yaml: not readable as YAML: .*(?:{UNUSABLE[text]})") as caught:
            read(path)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("line", ["[1]", "1", "{}", '{"step": "1"}'])
def test_a_line_without_a_step_is_named(tmp_path: Path, line: str) -> None:
    (path := tmp_path / "metrics.jsonl").write_text(f'{{"step": 1}}\n{line}\n')
    with pytest.raises(InputError, match=r"metrics\.jsonl: line 2: is no object with a step; delete the line"):
        cut_json_lines(path, 2)


@pytest.mark.parametrize(
    "read",
    [
        read_json,
        read_yaml,
        lambda path: [*read_json_lines(path)],
        lambda path: [*text_lines(path)],
        lambda path: read_content(path, "study", keys="x", page="y", allow_imports=False),
    ],
)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_is_refused_before_it_is_read(tmp_path: Path, read: Any, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "pipe":
        os.mkfifo(path := tmp_path / "pipe")
        writer = os.open(path, os.O_RDWR)  # so that opening it would not wait, and reading would
        os.write(writer, b"{}\n")
    with pytest.raises(InputError, match="pipe or device"):
        read(path)


def test_lines_that_end_in_cr_alone_are_refused(tmp_path: Path) -> None:
    for name, text in {"a.tsv": "a\tb\r1\t2\r", "a.jsonl": '{"a": 1}\r{"a": 2}', "a.txt": "one\rtwo\r"}.items():
        (path := tmp_path / name).write_bytes(text.encode())
        with pytest.raises(InputError, match=rf"{name}: its lines end in CR alone; save it with LF"):
            [*text_lines(path)]
        path.write_bytes(text.replace("\r", "\r\n").encode())
        assert len([*text_lines(path)]) == 2
