"""Scoring a file: every row once, in order, also after a kill."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rl_qg.errors import InputError
from rl_qg.score import score_file


class Length:
    signature = "length"

    def __init__(self) -> None:
        self.seen = 0

    def score(self, questions, contexts, *, answers=None, references=None) -> Any:
        self.seen += len(questions)
        return SimpleNamespace(
            scores=[float(len(q)) for q in questions], parts={"answer": answers or ["-"] * len(questions)}
        )


def rows(path: Path, count: int = 7) -> Path:
    path.write_text(
        "".join(
            json.dumps({"question": "q" * k, "context": f"c{k}", "answer": f"a{k}", "id": k}) + "\n"
            for k in range(count)
        )
    )
    return path


def test_rows_keep_their_fields_and_gain_score_and_parts(tmp_path: Path) -> None:
    output = tmp_path / "scored.jsonl"
    summary = score_file(Length(), rows(tmp_path / "in.jsonl"), output, batch_size=3)
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["score"] for row in found] == list(range(7))
    assert [row["parts"]["answer"] for row in found] == [f"a{k}" for k in range(7)]
    assert [row["id"] for row in found] == list(range(7))
    assert summary["rows"] == 7 and summary["score"]["mean"] == 3.0 and summary["signature"] == "length"
    assert json.loads((tmp_path / "scored.summary.json").read_text()) == summary


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.99, 1.0])
def test_a_killed_run_goes_on_behind_its_last_whole_line(tmp_path: Path, share: float) -> None:
    source, whole, killed = rows(tmp_path / "in.jsonl"), tmp_path / "whole.jsonl", tmp_path / "killed.jsonl"
    score_file(Length(), source, whole, batch_size=3)
    text = whole.read_bytes()
    killed.write_bytes(text[: int(len(text) * share)])
    again = Length()
    score_file(again, source, killed, batch_size=3)
    assert killed.read_bytes() == text
    assert again.seen == 7 - text[: int(len(text) * share)].count(b"\n")


def test_bad_rows_are_named_before_anything_is_written(tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"question": "q", "context": "c"}\n{"question": 3, "context": "c"}\n')
    with pytest.raises(InputError, match=r"in\.jsonl: line 2: field 'question'"):
        score_file(Length(), source, tmp_path / "out.jsonl", batch_size=3)
    assert not (tmp_path / "out.jsonl").exists()


def test_a_file_that_is_not_the_beginning_of_the_result_is_left_alone(tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    output.write_text('{"my": "notes"}\n')
    with pytest.raises(InputError, match="line 1 is not row 1"):
        score_file(Length(), rows(tmp_path / "in.jsonl"), output, batch_size=3)
    assert output.read_text() == '{"my": "notes"}\n'
